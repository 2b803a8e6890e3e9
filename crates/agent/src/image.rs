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
    Container,
}

/// Has the files ready.
pub(crate) fn prepare(images: &Images, root: &Root, watcher: &mut dyn Watcher) -> Result<Tree, EnvironmentError> {
    match root {
        Root::Directory { path } => Ok(Tree::Directory(path.into())),
        Root::Container { .. } => Ok(Tree::Container),
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
        Tree::Container => return show_container(assignment, spec),
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
fn show_container(assignment: &Assignment, spec: &mut SandboxSpec) {
    let all = Vec::from_iter(env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        // Ours are none of the image's, and one of them is a secret.
        (!name.starts_with("SHOAL_")).then_some((name, value))
    }));
    add_variables(all.iter().map(|(name, value)| (&**name, &**value)), assignment, &mut spec.env);
    if let (Program::Host { .. }, Ok(directory)) = (&assignment.program, env::current_dir()) {
        spec.cwd = directory;
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
