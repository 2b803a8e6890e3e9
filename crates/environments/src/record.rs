//! What the cache knows of an environment that is whole: a file beside it, written last.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Of an environment that is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Of the environment; for a job's requirements that of the environment below.
    pub name: String,
    /// `3.11.7`.
    pub python: String,
    /// Where its interpreter is installed (`sys.base_prefix`): programs need to see it, too.
    pub prefix: PathBuf,
    /// The interpreter that it was made with; without it, it is none any more.
    pub interpreter: PathBuf,
    /// Where its packages are.
    pub site_packages: PathBuf,
    /// Of a job's requirements: the directory of the environment that they lie over.
    pub below: Option<PathBuf>,
    /// Size on disk.
    pub bytes: u64,
    /// Seconds since 1970.
    pub made: u64,
}
