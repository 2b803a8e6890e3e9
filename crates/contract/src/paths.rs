//! Where things are under `/opt/ml`.

use std::path::{Path, PathBuf};

/// The tree's place in every instance that has its own root. Where it has none the agent says so in
/// `SAGEMAKER_BASE_DIR`.
pub const BASE: &str = "/opt/ml";

/// Where an instance finds the executable of ours that its program is, or is launched by. What it
/// is told there is between it and the agent.
pub const LAUNCHER: &str = "/opt/shoal/bin/shoal";

/// The name of a channel's pipe for an epoch, the first of which is 0.
#[must_use]
pub fn pipe_name(channel: &str, epoch: u64) -> String {
    format!("{channel}_{epoch}")
}

/// The tree below a base directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    base: PathBuf,
}

impl Default for Paths {
    fn default() -> Self {
        Self::new(BASE)
    }
}

impl Paths {
    /// The tree at `base`.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        Self { base: base.into() }
    }

    /// `/opt/ml`
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// `/opt/ml/code`: the program's own files.
    pub fn code(&self) -> PathBuf {
        self.base.join("code")
    }

    /// `/opt/ml/package`: where the program's own package is installed, if its files are one.
    pub fn package(&self) -> PathBuf {
        self.base.join("package")
    }

    /// `/opt/ml/checkpoints`
    pub fn checkpoints(&self) -> PathBuf {
        self.base.join("checkpoints")
    }

    /// `/opt/ml/input`
    pub fn input(&self) -> PathBuf {
        self.base.join("input")
    }

    /// `/opt/ml/input/config`: the JSON files of [`crate::config_files`].
    pub fn config(&self) -> PathBuf {
        self.base.join("input/config")
    }

    /// `/opt/ml/input/data`: one directory per channel.
    pub fn data(&self) -> PathBuf {
        self.base.join("input/data")
    }

    /// `/opt/ml/input/data/<name>`; its pipes are [`pipe_name`]s beside it.
    pub fn channel(&self, name: &str) -> PathBuf {
        self.data().join(name)
    }

    /// `/opt/ml/model`, what becomes `model.tar.gz`.
    pub fn model(&self) -> PathBuf {
        self.base.join("model")
    }

    /// `/opt/ml/output`
    pub fn output(&self) -> PathBuf {
        self.base.join("output")
    }

    /// `/opt/ml/output/data`, what becomes `output.tar.gz`.
    pub fn output_data(&self) -> PathBuf {
        self.base.join("output/data")
    }

    /// `/opt/ml/output/intermediate`
    pub fn output_intermediate(&self) -> PathBuf {
        self.base.join("output/intermediate")
    }

    /// `/opt/ml/output/failure`: why the program failed, in its own words; see
    /// [`crate::failure_text`].
    pub fn failure(&self) -> PathBuf {
        self.base.join("output/failure")
    }

    /// Every directory that exists before the program starts, parents first; those of the channels
    /// come on top.
    pub fn directories(&self) -> Vec<PathBuf> {
        let of_input = [self.config(), self.data()];
        let of_output = [self.model(), self.output_data(), self.output_intermediate()];
        of_input.into_iter().chain([self.code(), self.checkpoints()]).chain(of_output).collect()
    }
}
