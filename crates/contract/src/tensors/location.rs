//! Names of the files of saved tensors, relative to their directory.

/// Written by the hook when the program ends; by the platform where there is one, after the last
/// upload. Readers wait for it.
pub const END_FILE: &str = "training_job_end.ts";

/// Older hooks refuse a directory that has it.
pub const CLAIM_FILE: &str = "claim.smd";

/// Index files of a directory.
const STEPS_OF_A_DIRECTORY: u64 = 1000;

/// A file of saved tensors by what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// Tensors of a step and worker.
    Events {
        /// Step over all modes.
        step: u64,
        /// Worker, as in the name of the file.
        worker: String,
    },
    /// Where they lie in it.
    Index {
        /// Step over all modes.
        step: u64,
        /// Worker, as in the name of the file.
        worker: String,
    },
    /// The groups of a worker's tensors.
    Collections {
        /// Worker, as in the name of the file.
        worker: String,
    },
    /// No more tensors will be saved.
    End,
    /// The directory is in use.
    Claim,
}

impl Location {
    /// The file's path.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Events { step, worker } => format!("events/{step:012}/{step:012}_{worker}.tfevents"),
            Self::Index { step, worker } => {
                format!("index/{:09}/{step:012}_{worker}.json", step / STEPS_OF_A_DIRECTORY)
            }
            Self::Collections { worker } => format!("collections/000000000/{worker}_collections.json"),
            Self::End => END_FILE.to_owned(),
            Self::Claim => CLAIM_FILE.to_owned(),
        }
    }

    /// What a path names; `None` for everything else, unfinished files (`.tmp`) among them.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let (directory, name) = match path.split_once('/') {
            None if path == END_FILE => return Some(Self::End),
            None if path == CLAIM_FILE => return Some(Self::Claim),
            None => return None,
            Some((directory, rest)) => (directory, rest.rsplit_once('/')?.1),
        };
        match directory {
            "events" => {
                let (step, worker) = step_and_worker(name.strip_suffix(".tfevents")?)?;
                Some(Self::Events { step, worker })
            }
            "index" => {
                let (step, worker) = step_and_worker(name.strip_suffix(".json")?)?;
                Some(Self::Index { step, worker })
            }
            "collections" => {
                let worker = name.strip_suffix("_collections.json")?;
                (!worker.is_empty()).then(|| Self::Collections { worker: worker.to_owned() })
            }
            _ => None,
        }
    }
}

fn step_and_worker(name: &str) -> Option<(u64, String)> {
    let (step, worker) = name.split_once('_')?;
    let is_number = !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !worker.is_empty()).then_some(())?;
    Some((step.parse().ok()?, worker.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_aws_ones_and_read_back() {
        let worker = || "worker_0".to_owned();
        for (location, path) in [
            (Location::Events { step: 1234, worker: worker() }, "events/000000001234/000000001234_worker_0.tfevents"),
            (Location::Index { step: 1234, worker: worker() }, "index/000000001/000000001234_worker_0.json"),
            (
                Location::Index { step: 0, worker: "_job-worker_replica-0_task-1_device-GPU-0".into() },
                "index/000000000/000000000000__job-worker_replica-0_task-1_device-GPU-0.json",
            ),
            (Location::Collections { worker: worker() }, "collections/000000000/worker_0_collections.json"),
            (Location::End, "training_job_end.ts"),
            (Location::Claim, "claim.smd"),
        ] {
            assert_eq!(location.path(), path);
            assert_eq!(Location::parse(path), Some(location), "{path}");
        }
    }

    #[test]
    fn other_files_are_none_of_these() {
        for path in [
            "",
            "index",
            "index/000000000/000000000001_worker_0.json.tmp",
            "index/000000000/x_worker_0.json",
            "index/000000000/_worker_0.json",
            "index/000000000/12.json",
            "index/000000000/99999999999999999999999_worker_0.json",
            "collections/000000000/_collections.json",
            "tensorboard/TRAIN/000000000001_worker_0.tfevents",
            "training_job_end.ts/x",
        ] {
            assert_eq!(Location::parse(path), None, "{path}");
        }
    }
}
