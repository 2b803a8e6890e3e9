//! The files of a step. Each gets its name once it is complete, the index last.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use shoal_contract::tensors::{Event, Index, IndexEntry, Location, Mode, Tensor, write_record};

/// What a process is about to write of a step.
#[derive(Debug)]
pub(super) struct StepFiles {
    step: u64,
    worker: String,
    wall_time: f64,
    events: Vec<u8>,
    tensors: Vec<IndexEntry>,
}

impl StepFiles {
    pub(super) fn new(step: u64, worker: &str) -> Self {
        let wall_time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        Self { step, worker: worker.to_owned(), wall_time, events: Vec::new(), tensors: Vec::new() }
    }

    pub(super) fn add(&mut self, tensor: &Tensor<'_>) {
        let start = self.events.len() as u64;
        let (step, mode) = (self.step, Mode::Global);
        let event = Event { wall_time: self.wall_time, step, mode, mode_step: step, tensor: tensor.clone() };
        write_record(&mut self.events, &event.to_bytes(), false);
        let length = self.events.len() as u64 - start;
        self.tensors.push(IndexEntry { name: tensor.name.to_string(), start, length });
    }

    /// Nothing is written of a step without tensors.
    pub(super) fn write(self, directory: &Path) -> Result<(), String> {
        if self.tensors.is_empty() {
            return Ok(());
        }
        let (step, worker) = (self.step, self.worker);
        let events = Location::Events { step, worker: worker.clone() }.path();
        place(directory, &events, &self.events)?;
        let index = Index {
            mode: Mode::Global,
            mode_step: step,
            event_file: Some(events),
            tensors: self.tensors,
            shapes: Vec::new(),
        };
        place(directory, &Location::Index { step, worker }.path(), &index.to_bytes())
    }
}

/// Writes the groups of a worker's tensors.
pub(super) fn write_collections(directory: &Path, worker: &str, bytes: &[u8]) -> Result<(), String> {
    place(directory, &Location::Collections { worker: worker.to_owned() }.path(), bytes)
}

fn place(directory: &Path, path: &str, bytes: &[u8]) -> Result<(), String> {
    let target = directory.join(path);
    let draft = directory.join(format!("{path}.tmp"));
    let parent = target.parent().map_or(Ok(()), fs::create_dir_all);
    let written = parent.and_then(|()| fs::write(&draft, bytes)).and_then(|()| fs::rename(&draft, &target));
    written.map_err(|error| format!("{} cannot be written: {error}", target.display()))
}

/// The directory of the tensors, while this process writes to it.
#[derive(Debug)]
pub(super) struct Claim {
    directory: PathBuf,
    mark: Option<PathBuf>,
}

impl Claim {
    /// Makes the directory, and claims it for this process where it alone writes to it.
    pub(super) fn take(directory: &Path, is_alone: bool) -> Result<Self, String> {
        let failed = |error: io::Error| format!("{} cannot be made: {error}", directory.display());
        fs::create_dir_all(directory).map_err(failed)?;
        let mark = directory.join(Location::Claim.path());
        let claimed = is_alone.then(|| OpenOptions::new().write(true).create_new(true).open(&mark));
        match claimed.transpose() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(format!("another process writes to {}", directory.display()))
            }
            Err(error) => Err(failed(error)),
            Ok(file) => Ok(Self { directory: directory.to_owned(), mark: file.map(|_: File| mark) }),
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(mark) = &self.mark {
            // Without it another process can write here, which is all that it is for.
            let _ = fs::remove_file(mark);
        }
    }
}
