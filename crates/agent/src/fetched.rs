//! Channels whose data comes from a server on another machine while the program runs.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use shoal_link::{Channel, Delivery, Input, ManifestEntry, ObjectTree};

use crate::Options;
use crate::fast_file::Mounted;
use crate::inputs::{Failure, InputError, Line, PAUSE, place_of};
use crate::objects::Keeps;
use crate::own_log::say;
use crate::parts::{FromServer, Parts};

/// What keeps such channels at work, until this is dropped.
#[derive(Default)]
pub(crate) struct Fetched {
    /// Channels in FastFile mode, by name.
    mounted: BTreeMap<String, Mounted>,
    /// Channels in Pipe mode, by name.
    pipes: BTreeMap<String, (Vec<ManifestEntry>, Arc<Options>, ObjectTree)>,
    /// Bytes that all of them have put into the cache, whose limit holds for a job as a whole.
    stored: Arc<AtomicU64>,
}

impl Fetched {
    /// Makes a channel ready that is read while the program runs; others are left as they are.
    /// Gives what the job's log is to say of it.
    ///
    /// # Errors
    /// The server does not give the channel's manifest, or the job is being stopped.
    pub(crate) fn add(
        &mut self,
        options: &Arc<Options>,
        dir: &Path,
        channel: &mut Channel,
        is_to_stop: &mut dyn FnMut() -> bool,
    ) -> Result<Option<String>, InputError> {
        let Input::Objects(tree) = &channel.tree else { return Ok(None) };
        if !matches!(channel.delivery, Delivery::FilesAsRead | Delivery::Pipe(_)) {
            return Ok(None);
        }
        let entries = list(options, tree, is_to_stop)?;
        let own = |error: io::Error| InputError::Place(error.into());
        // The limit is for what is left behind.
        options.objects.trim().map_err(own)?;
        if matches!(channel.delivery, Delivery::Pipe(_)) {
            self.pipes.insert(channel.name.clone(), (entries, options.clone(), tree.clone()));
            return Ok(None);
        }
        let parts = self.parts(options, tree).map_err(own)?;
        let place = place_of(dir, tree).map(|place| place.with_extension("mounted"));
        let place = place.ok_or_else(|| InputError::Refused(format!("\"{}\" names no tree", tree.tree)))?;
        if let Some(at) = self.mounted.values().find_map(|mounted| mounted.is_at(&place)) {
            channel.tree = Input::Local(at.display().to_string());
            return Ok(None);
        }
        match Mounted::new(&entries, &parts, &place) {
            Ok(mounted) => {
                channel.tree = Input::Local(place.display().to_string());
                self.mounted.insert(channel.name.clone(), mounted);
                Ok(None)
            }
            Err(error) => {
                parts.give_up();
                channel.delivery = Delivery::Files;
                Ok(Some(format!(
                    "channel {}: FastFile mode needs FUSE, which the instance's machine does not allow ({error}): its \
                     files are fetched before the program starts, as in File mode",
                    channel.name
                )))
            }
        }
    }

    /// Of a channel in Pipe mode: what it has, and a reader of that for one program.
    ///
    /// # Errors
    /// There are no threads.
    pub(crate) fn pipe(&self, channel: &str) -> io::Result<Option<(Vec<ManifestEntry>, Arc<Parts>)>> {
        let of = |(entries, options, tree): &(Vec<ManifestEntry>, Arc<Options>, ObjectTree)| {
            Ok((entries.clone(), self.parts(options, tree)?))
        };
        self.pipes.get(channel).map(of).transpose()
    }

    fn parts(&self, options: &Arc<Options>, tree: &ObjectTree) -> io::Result<Arc<Parts>> {
        Parts::new(Box::new(FromServer::new(options, tree)), options.objects.clone(), self.stored.clone())
    }

    /// Files that wait for the server are answered with an error: a program that is to be killed
    /// cannot end before.
    pub(crate) fn give_up(&self) {
        self.mounted.values().for_each(Mounted::give_up);
    }

    /// How much was fetched, in sentences.
    pub(crate) fn notes(&self) -> Vec<String> {
        let of = |(name, mounted): (&String, &Mounted)| {
            format!("channel {name} (FastFile): {} bytes were fetched", mounted.fetched())
        };
        self.mounted.iter().map(of).collect()
    }
}

/// What is in a tree, from a server that may come back.
fn list(
    options: &Options,
    tree: &ObjectTree,
    is_to_stop: &mut dyn FnMut() -> bool,
) -> Result<Vec<ManifestEntry>, InputError> {
    /// Between two lines about it.
    const AGAIN: Duration = Duration::from_secs(60);
    let mut reported: Option<Instant> = None;
    loop {
        if is_to_stop() {
            return Err(InputError::Stopped);
        }
        match Line::connect(options).and_then(|mut line| line.list(tree)) {
            Ok(entries) => return Ok(entries),
            Err(Failure::Ended(error)) => return Err(error),
            Err(Failure::Lost(error)) => {
                if reported.is_none_or(|at| at.elapsed() > AGAIN) {
                    say(format_args!("a manifest is asked for again until the server answers: {error}"));
                    reported = Some(Instant::now());
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}
