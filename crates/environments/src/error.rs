//! Why there is no environment, or no tree of an image.

use std::io;
use std::path::{Path, PathBuf};

use crate::{RequirementsError, blame};

/// Why there is no environment, or no tree of an image. The texts are for the user and say what to
/// do.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// No Python of a version that it can have.
    #[error(
        "the environment {name} needs Python {}, which this machine does not have on the server's PATH with its module \
         venv: install it (on Debian \
         and Ubuntu: apt-get install python{1} python{1}-venv; with uv: uv python install {1}) and submit the job \
         again",
        pythons.join(" or "),
        pythons.first().map_or("3", String::as_str)
    )]
    NoPython {
        /// Of the environment.
        name: String,
        /// Versions that would do.
        pythons: Vec<String>,
    },
    /// What was run to make it failed.
    #[error("the environment {name} could not be made: {step} failed ({how}); it said:\n{said}")]
    Failed {
        /// Of the environment.
        name: String,
        /// `pip install`.
        step: &'static str,
        /// Its exit status.
        how: String,
        /// Its last lines.
        said: String,
        /// It told of a network, an index or a registry that does not work.
        unreachable: bool,
    },
    /// What a job requires could not be laid over it.
    #[error(
        "what the job requires could not be installed over the environment {name}: {step} failed ({how}){}; it \
         said:\n{said}",
        if *unreachable { ", as a package index did not answer as it should" } else { "" }
    )]
    NotInstalled {
        /// Of the environment below.
        name: String,
        /// `pip install`.
        step: &'static str,
        /// Its exit status.
        how: String,
        /// Its last lines.
        said: String,
        /// It told of a network or an index that does not work.
        unreachable: bool,
    },
    /// What a job requires would have to be fetched, and it must not.
    #[error(
        "the job has EnableNetworkIsolation, so nothing is fetched for it, and what it requires over the environment \
         {0} is not in the cache: name a \
         directory of wheels as wheel_house in shoal.toml (without --find-links in requirements.txt), or run a job \
         with the same requirements \
         without isolation once, and what is made for that one serves"
    )]
    Isolated(String),
    /// What a job requires cannot be installed here.
    #[error(transparent)]
    Requirements(#[from] RequirementsError),
    /// A container engine is installed and does not answer.
    #[error(
        "{program} is installed, but no container engine answers it: {said}; start the engine, or tell its address in \
         DOCKER_HOST where the server runs"
    )]
    NoEngine {
        /// Its command.
        program: String,
        /// Its last words.
        said: String,
    },
    /// A container engine takes too long.
    #[error(
        "the container engine does not answer: {what} took more than {seconds} s; look whether the engine's service \
         works, and restart it"
    )]
    NoAnswer {
        /// The command.
        what: String,
        /// What it was given.
        seconds: u64,
    },
    /// The container engine refused.
    #[error("{what} failed: {said}")]
    Engine {
        /// The command.
        what: String,
        /// Its last words.
        said: String,
    },
    /// The image could not be pulled.
    #[error(
        "{program} could not pull the image {image}: check its name, that the server's user is logged in to its \
         registry, and that the registry \
         answers; it said:\n{said}"
    )]
    NotPulled {
        /// As the job names it.
        image: String,
        /// Engine's command.
        program: String,
        /// Its last lines.
        said: String,
        /// It told of a network or a registry that does not work.
        unreachable: bool,
    },
    /// The disk is too full for it.
    #[error(
        "there is no room for {what} in {}: it needs {needed} MB, and of {free} MB and {files} files that are free \
         there {kept} MB and 10000 files \
         stay for what runs; free some, by `shoal env-cache prune` for one, or name another place in SHOAL_CACHE where \
         the server runs",
        directory.display()
    )]
    NoRoom {
        /// What was to be made.
        what: String,
        /// Where.
        directory: PathBuf,
        /// What is known of its size, in MiB.
        needed: u64,
        /// Free space, in MiB.
        free: u64,
        /// Files that the file system can still have.
        files: u64,
        /// What stays free, in MiB.
        kept: u64,
    },
    /// Whoever wanted it does not want it any more.
    #[error("{0} was not made, as it is wanted no more")]
    Stopped(String),
    /// Something uses it.
    #[error("{0} is in use, and stays")]
    InUse(String),
    /// Running jobs hold what is whole no more.
    #[error(
        "{0} is in use by running jobs and no longer whole, as its files or its interpreter have been taken away: wait \
         until those jobs have ended, or \
         stop them, and submit the job again"
    )]
    Broken(String),
    /// The operating system refused.
    #[error("could not {what}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// Why not.
        source: io::Error,
    },
}

impl EnvironmentError {
    /// Whether the job is to blame, and another attempt would end in the same way.
    pub fn is_the_jobs(&self) -> bool {
        match self {
            Self::Requirements(_) | Self::Isolated(_) => true,
            Self::NotInstalled { said, unreachable, .. } => !unreachable && blame::is_of_requirements(said),
            Self::NotPulled { said, unreachable, .. } => !unreachable && blame::is_of_image(said),
            _ => false,
        }
    }

    /// For `map_err`: what was tried with which path.
    pub(crate) fn io(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let (what, path): (_, PathBuf) = (what.to_owned(), path.to_owned());
        move |source| Self::Io { what: format!("{what} {}", path.display()), source }
    }
}
