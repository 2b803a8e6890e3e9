//! Python environments instead of images: which image name stands for which ([`Table`]), and the
//! cache in which each is made once, by the content of its lock file, and shared by all instances
//! of this machine ([`Cache`]).
//!
//! It promises: two that need the same environment wait for one build; a build that fails or is
//! killed leaves nothing that anybody would take for an environment; what is in use is not removed;
//! a cached environment costs its next user no process.
//!
//! Only wheels are installed, so no package's build runs. What a job requires is the user's, and
//! what that brings runs in the job's sandbox alone; it is laid over an environment by that
//! environment's own interpreter, which heeds the `.pth` files of packages in the lock.
//!
//! Any other image is the container engine's ([`Engine`]): its files are read out once and kept
//! ([`Images`]), and instances have them as their root.
//!
//! An environment lies at one path for good, as Python's virtual environments hold absolute paths;
//! instances see it at the same path.

mod ask;
mod blame;
mod build;
mod cache;
mod engine;
mod error;
mod image;
mod images;
mod imports;
mod installer;
mod live_table;
mod overlay;
mod python;
mod record;
mod requirements;
mod room;
mod run;
mod shelf;
mod stream;
mod table;
mod unpack;
mod user_table;
mod verify;

pub use cache::{Cache, Prepared};
pub use engine::{Engine, Inspected};
pub use error::EnvironmentError;
pub use images::{ImageRecord, Images, PreparedImage};
pub use imports::{Choice, imports};
pub use installer::{Source, VARIABLE_PREFIXES, is_for_installers};
pub use live_table::LiveTable;
pub use record::Record;
pub use requirements::{RequirementsError, check, without_debugger, without_ours};
pub use run::Watcher;
pub use shelf::{Cached, Kept};
pub use table::{Environment, Found, Table, TableError};
pub use user_table::{ChangeError, UserTable};
pub use verify::Verdict;
