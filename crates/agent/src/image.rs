//! An instance whose root is the tree of an image: an image of the container engine with its
//! description of its program, or a directory; or a container of the image, in which this agent is.

use std::env;
use std::path::{Path, PathBuf};

use shoal_contract::Threads;
use shoal_environments::{Engine, EnvironmentError, Images, Inspected, PreparedImage, Source, Watcher};
use shoal_link::{Assignment, Program, Root};
use shoal_sandbox::{Mount, SandboxSpec};

/// What the platform sets for programs on the machine's own `/usr`; what an image sets is rather
/// meant.
const DEFAULTS: [&str; 4] = ["PATH", "LANG", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"];

/// The files of an instance's root, which stay while this lives.
pub(crate) enum Tree {
    Image(Box<PreparedImage>),
    Directory(PathBuf),
    /// The agent's own.
    Container(OfContainer),
}

/// What the launcher has found out of the image whose container this is, in a variable each
/// (crates/launch/src/kubernetes/entrypoints.rs).
pub(crate) enum OfContainer {
    /// ENTRYPOINT, perhaps empty.
    Starts(Vec<String>),
    /// Nothing; why not.
    Unknown(Option<String>),
}

/// The names of these variables.
const ENTRYPOINT: &str = "SHOAL_IMAGE_ENTRYPOINT";
const UNKNOWN: &str = "SHOAL_IMAGE_UNKNOWN";
/// What SageMaker has an image start.
const TRAIN: &str = "train";

impl OfContainer {
    fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let words = variable(ENTRYPOINT).and_then(|words| serde_json::from_str(&words).ok());
        words.map_or_else(|| Self::Unknown(variable(UNKNOWN)), Self::Starts)
    }

    /// Before the arguments, as `docker run IMAGE ARGUMENTS` does; of an image that is not known
    /// its `train`.
    fn start(&self, command: &mut Vec<String>) {
        match self {
            Self::Starts(entrypoint) => drop(command.splice(0..0, entrypoint.iter().cloned())),
            Self::Unknown(_) if command.first().is_none_or(|word| word != TRAIN) => command.insert(0, TRAIN.to_owned()),
            Self::Unknown(_) => {}
        }
    }
}

/// Has the files ready.
pub(crate) fn prepare(
    images: &Images,
    root: &Root,
    program: &Program,
    watcher: &mut dyn Watcher,
) -> Result<Tree, EnvironmentError> {
    match root {
        Root::Directory { path } => Ok(Tree::Directory(path.into())),
        Root::Container { .. } => {
            let found = OfContainer::of(|name| env::var(name).ok());
            if let (OfContainer::Unknown(Some(why)), Program::Image { .. }) = (&found, program) {
                watcher.line(why);
            }
            Ok(Tree::Container(found))
        }
        Root::Engine { program, image } => {
            let engine = Engine::at(program.into(), &Source::of_this_process(None));
            images.prepare(&engine, image, watcher).map(|prepared| Tree::Image(Box::new(prepared)))
        }
    }
}

/// Makes it the instance's root, with `layer` for what the program changes in it.
pub(crate) fn show(tree: &Tree, layer: PathBuf, assignment: &Assignment, spec: &mut SandboxSpec) {
    let lower = match tree {
        Tree::Image(prepared) => prepared.tree().to_owned(),
        Tree::Directory(path) => path.clone(),
        Tree::Container(found) => return show_container(found, assignment, spec),
    };
    spec.mounts.insert(0, Mount::Overlay { lower, scratch: layer, target: "/".into() });
    if let Tree::Image(prepared) = tree {
        let variables = prepared.inspected.env.iter().filter_map(|variable| variable.split_once('='));
        add_variables(variables, assignment, &mut spec.env);
        if let Program::Image { .. } = assignment.program {
            start(&prepared.inspected, &mut spec.command, &mut spec.cwd);
        }
    }
}

/// The agent has the variables and the working directory of the image itself.
fn show_container(found: &OfContainer, assignment: &Assignment, spec: &mut SandboxSpec) {
    let all = Vec::from_iter(env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        // Ours are none of the image's, and one of them is a secret.
        (!name.starts_with("SHOAL_")).then_some((name, value))
    }));
    add_variables(all.iter().map(|(name, value)| (&**name, &**value)), assignment, &mut spec.env);
    if let (Program::Host { .. } | Program::Image { .. }, Ok(directory)) = (&assignment.program, env::current_dir()) {
        spec.cwd = directory;
    }
    if let Program::Image { .. } = assignment.program {
        found.start(&mut spec.command);
    }
}

/// The image's, where neither the job nor the platform says otherwise.
fn add_variables<'a>(
    image: impl Iterator<Item = (&'a str, &'a str)>,
    assignment: &Assignment,
    variables: &mut Vec<(String, String)>,
) {
    for (name, value) in image {
        let at = variables.iter().position(|(known, _)| known == name);
        match at {
            None => variables.push((name.to_owned(), value.to_owned())),
            Some(at)
                if (DEFAULTS.contains(&name) || Threads::is_default(name))
                    && !assignment.environment.contains_key(name) =>
            {
                variables[at].1 = value.to_owned();
            }
            Some(_) => {}
        }
    }
}

/// As `docker run IMAGE ARGUMENTS` does.
fn start(image: &Inspected, command: &mut Vec<String>, directory: &mut PathBuf) {
    command.splice(0..0, image.entrypoint.iter().cloned());
    Path::clone_into(&image.working_dir, directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_starts_as_docker_would() {
        for (variables, arguments, expected) in [
            (&[(ENTRYPOINT, r#"["python","/a b.py"]"#)][..], "train", "python|/a b.py|train"),
            (&[(ENTRYPOINT, r#"["/bin/sh","-c","x $0"]"#)], "fit -v", "/bin/sh|-c|x $0|fit|-v"),
            (&[(ENTRYPOINT, "[]")], "train", "train"),
            (&[(UNKNOWN, "why")], "train", "train"),
            (&[(UNKNOWN, "why")], "-v", "train|-v"),
            (&[(ENTRYPOINT, "?")], "train", "train"),
            (&[], "", "train"),
        ] {
            let of = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, it)| (*it).to_owned());
            let mut command = Vec::from_iter(arguments.split_whitespace().map(str::to_owned));
            OfContainer::of(of).start(&mut command);
            assert_eq!(command.join("|"), expected, "{variables:?}");
        }
    }
}
