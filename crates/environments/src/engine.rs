//! A container engine of this machine, by its command line: that is what has the user's logins to
//! registries, and it speaks to whatever serves the Docker API (`DOCKER_HOST`). It gives images;
//! instances are made of them without it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use crate::ask::ask;
use crate::blame;
use crate::python::on_path;
use crate::{EnvironmentError, Source};

/// Looked for in this order.
const PROGRAMS: [&str; 2] = ["docker", "podman"];

/// What it takes at most to look something up.
const LOOK_UP: Duration = Duration::from_secs(10);
/// What it takes at most to take a container away, with a copy of the image's files on some kinds
/// of storage.
const REMOVAL: Duration = Duration::from_secs(60);

/// A command line of an engine that answers.
#[derive(Debug, Clone)]
pub struct Engine {
    program: PathBuf,
    source: Source,
}

/// An image that the engine has, as far as starting its program goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// The digest of its configuration, 64 hexadecimal digits: two images with the same are the
    /// same.
    pub id: String,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// What comes before the arguments.
    pub entrypoint: Vec<String>,
    /// Where the program begins.
    pub working_dir: PathBuf,
    /// As the engine counts it.
    pub bytes: u64,
}

/// What `image inspect` tells of each image; docker and podman agree on this much.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Told {
    id: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    config: Option<Config>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Config {
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    working_dir: String,
}

impl Engine {
    /// The engine of this machine: `command`, or else docker or podman, where it is on the path and
    /// the engine answers. `None` if none is installed.
    ///
    /// # Errors
    /// Those that are installed do not answer; the text has their last words.
    pub fn find(command: Option<&str>, source: &Source) -> Result<Option<Self>, EnvironmentError> {
        let names = command.map_or(PROGRAMS.to_vec(), |command| vec![command]);
        let mut silent = None;
        for program in names.into_iter().filter_map(|name| located(name, source)) {
            let engine = Self { program, source: source.clone() };
            let why = match engine.ask(&["version"], LOOK_UP) {
                Ok(Ok(_)) => return Ok(Some(engine)),
                Ok(Err(said)) => EnvironmentError::NoEngine { program: engine.name(), said },
                Err(error @ EnvironmentError::NoAnswer { .. }) => error,
                Err(error) => return Err(error),
            };
            silent = silent.or(Some(why));
        }
        silent.map_or(Ok(None), Err)
    }

    /// Whether there is such a command on the path; nothing is asked of it.
    pub fn is_installed(command: &str, source: &Source) -> bool {
        located(command, source).is_some()
    }

    /// The engine that was found before, by [`Engine::program`].
    pub fn at(program: PathBuf, source: &Source) -> Self {
        Self { program, source: source.clone() }
    }

    /// Its command.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// For people.
    pub fn name(&self) -> String {
        self.program.file_name().unwrap_or(self.program.as_os_str()).to_string_lossy().into_owned()
    }

    /// What it knows of an image; `None` if it has none of that name. Asked before anything else is
    /// done with a name.
    ///
    /// # Errors
    /// The command cannot be run, does not answer, fails for another reason, or says what is not
    /// understood; or that is no name of an image.
    pub fn inspect(&self, image: &str) -> Result<Option<Inspected>, EnvironmentError> {
        if !is_name(image) {
            let said = "a name begins with a letter or a digit and has no blanks".to_owned();
            return Err(EnvironmentError::Engine { what: format!("the look for an image \"{image}\""), said });
        }
        let what = || format!("{} image inspect {image}", self.name());
        match self.ask(&["image", "inspect", image], LOOK_UP)? {
            Err(said) if blame::is_not_there(&said) => Ok(None),
            Err(said) => Err(EnvironmentError::Engine { what: what(), said }),
            Ok(text) => understood(&text).map(Some).ok_or_else(|| EnvironmentError::Engine {
                what: what(),
                said: "its answer is not understood; is it docker or podman of the last years?".to_owned(),
            }),
        }
    }

    /// The command that makes a container of this name of the image with this id, which is never
    /// started: its files can be read out.
    pub(crate) fn create(&self, container: &str, id: &str) -> Command {
        // Some images have no command of their own, and an engine makes no container without one.
        self.command(&["create", "--name", container, "--network", "none", id, "none"])
    }

    /// Takes such a container away, if it is there.
    pub(crate) fn remove(&self, container: &str) {
        // It has never run. If it stays, the next one of this name is not made, and the engine says
        // why.
        let _ = self.ask(&["rm", "--force", "--volumes", container], REMOVAL);
    }

    /// A command of the engine with the variables that it needs.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.source.command(&self.program);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Standard output, or the last words of a command that failed.
    fn ask(&self, arguments: &[&str], limit: Duration) -> Result<Result<String, String>, EnvironmentError> {
        let answer = ask(&mut self.command(arguments), limit).map_err(EnvironmentError::io("run", &self.program))?;
        let answer = answer.ok_or_else(|| EnvironmentError::NoAnswer {
            what: format!("{} {}", self.name(), arguments.join(" ")),
            seconds: limit.as_secs(),
        })?;
        Ok(if answer.success { Ok(answer.stdout) } else { Err(last_line(&answer.stderr)) })
    }
}

/// And no option of the engine's command.
fn is_name(image: &str) -> bool {
    image.starts_with(|first: char| first.is_ascii_alphanumeric()) && image.bytes().all(|byte| byte.is_ascii_graphic())
}

fn located(name: &str, source: &Source) -> Option<PathBuf> {
    if name.contains('/') {
        Some(name.into()).filter(|path: &PathBuf| path.is_file())
    } else {
        on_path(name, &source.path()).next()
    }
}

pub(crate) fn last_line(text: &str) -> String {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing").trim().to_owned()
}

fn understood(text: &str) -> Option<Inspected> {
    let [told] = <[Told; 1]>::try_from(serde_json::from_str::<Vec<Told>>(text).ok()?).ok()?;
    let config = told.config.unwrap_or_default();
    let id =
        told.id.rsplit(':').next().filter(|id| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    let working_dir = if config.working_dir.starts_with('/') { config.working_dir } else { "/".to_owned() };
    Some(Inspected {
        id: id.to_owned(),
        env: config.env.unwrap_or_default(),
        entrypoint: config.entrypoint.unwrap_or_default(),
        working_dir: working_dir.into(),
        bytes: told.size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_no_names() {
        for (image, expected) in [
            ("localhost:5000/me/x:1@sha256:0f", true),
            ("7.dkr.ecr/x", true),
            ("--help", false),
            ("-v", false),
            ("", false),
            ("a b", false),
        ] {
            assert_eq!(is_name(image), expected, "{image}");
        }
    }

    const ID: &str = "0f5c1fe5b4c66fd6e3d1f26d3e6c1b4e0f5c1fe5b4c66fd6e3d1f26d3e6c1b4e";

    #[test]
    fn answers_of_both_engines_are_understood() {
        let expected = Inspected {
            id: ID.to_owned(),
            env: vec!["PATH=/opt/bin:/bin".to_owned()],
            entrypoint: vec!["python3".to_owned(), "/train.py".to_owned()],
            working_dir: "/work".into(),
            bytes: 12,
        };
        for text in [
            r#"[{"Id":"sha256:ID","Size":12,"Config":{"Env":["PATH=/opt/bin:/bin"],"Cmd":null,"Entrypoint":["python3","/train.py"],
                "WorkingDir":"/work"}}]"#,
            r#"[{"Id":"ID","Digest":"sha256:1","Size":12,"VirtualSize":12,"Config":{"Env":["PATH=/opt/bin:/bin"],
                "Entrypoint":["python3","/train.py"],"WorkingDir":"/work","Labels":null}}]"#,
        ] {
            assert_eq!(understood(&text.replace("ID", ID)).as_ref(), Some(&expected), "{text}");
        }
        let bare =
            understood(&r#"[{"Id":"ID","Config":{"Entrypoint":null,"WorkingDir":""}}]"#.replace("ID", ID)).unwrap();
        assert_eq!((bare.entrypoint.len(), bare.working_dir), (0, PathBuf::from("/")));
        for text in ["", "[]", "{}", r#"[{"Id":"../../x","Config":{}}]"#, r#"[{"Id":"0f5c1fe5b4c6","Config":{}}]"#] {
            assert_eq!(understood(text), None, "{text}");
        }
    }
}
