//! An instance whose root is the tree of an image: an image of the container engine with what it
//! says of its program, or a directory.

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
}

/// Has the files ready.
pub(crate) fn prepare(images: &Images, root: &Root, watcher: &mut dyn Watcher) -> Result<Tree, EnvironmentError> {
    match root {
        Root::Directory { path } => Ok(Tree::Directory(path.into())),
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
    };
    spec.mounts.insert(0, Mount::Overlay { lower, scratch: layer, target: "/".into() });
    if let Tree::Image(prepared) = tree {
        add_variables(&prepared.inspected, assignment, &mut spec.env);
        if let Program::Image { .. } = assignment.program {
            start(&prepared.inspected, &mut spec.command, &mut spec.cwd);
        }
    }
}

/// The image's, where neither the job nor the platform says otherwise.
fn add_variables(image: &Inspected, assignment: &Assignment, variables: &mut Vec<(String, String)>) {
    for (name, value) in image.env.iter().filter_map(|variable| variable.split_once('=')) {
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
