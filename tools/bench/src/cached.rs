//! Python environments of the cache for the side that is started by hand.

use anyhow::{Context, Result};
use shoal_environments::{EnvironmentError, Prepared, Table, Watcher};

use super::server::temporary_dir;
use shoal_cli::{
    environments::{cache, table_file},
    settings::ServerFlags,
};

/// An image's environment: its name, and the environment itself if this machine has it.
pub(super) struct Cached {
    pub(super) name: String,
    pub(super) environment: Option<Prepared>,
}

/// Looks an image's environment up.
///
/// # Errors
/// No environment is for this image, or the cache cannot be read.
pub(super) fn environment(image: &str) -> Result<Cached> {
    // A new server's table, which is the one that comes along.
    let dir = temporary_dir(None)?;
    let found = Table::read(&table_file(dir.path()))?.find(image)?;
    let wanted = found
        .with_context(|| format!("no row of the table of images is for {image}: see `shoal image list`"))?
        .environment;
    let settings = ServerFlags::default().settings()?;
    let environment = match cache(&settings).prepare(&wanted, &mut OnlyIfThere) {
        Err(EnvironmentError::Stopped(_)) => None,
        prepared => Some(prepared?),
    };
    Ok(Cached { name: wanted.name, environment })
}

/// What is not there is not fetched while others are timed.
struct OnlyIfThere;

impl Watcher for OnlyIfThere {
    fn line(&mut self, _: &str) {}

    fn is_to_stop(&mut self) -> bool {
        true
    }
}
