//! What an instance leaves behind, on its way to the server.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use shoal_link::{Artifact, ReportBody};

use crate::inside::resolve;
use crate::outbox::{Closed, Outbox};
use crate::pack::{PackError, Packed, pack};

/// The directories below `/opt/ml` that are kept.
const DIRECTORIES: [(Artifact, &str); 2] = [(Artifact::Model, "model"), (Artifact::Output, "output/data")];

/// What is small is packed in a few milliseconds.
const SMALL_BYTES: u64 = 1 << 20;
const SMALL_ENTRIES: usize = 32;

/// Whether there is little to send: a few small files, in no directories of their own.
pub(crate) fn are_small(ml: &Path) -> bool {
    let size = |directory: &str| -> std::io::Result<Option<u64>> {
        let Some(root) = resolve(ml, Path::new(directory))? else { return Ok(Some(0)) };
        let mut bytes = 0;
        for (place, entry) in root.read_dir()?.enumerate() {
            let metadata = entry?.metadata()?;
            if place >= SMALL_ENTRIES || metadata.is_dir() {
                return Ok(None);
            }
            bytes += metadata.len();
        }
        Ok(Some(bytes))
    };
    let sizes = DIRECTORIES.map(|(_, directory)| size(directory).ok().flatten());
    sizes.into_iter().sum::<Option<u64>>().is_some_and(|bytes| bytes <= SMALL_BYTES)
}

/// What is sent, in order.
#[derive(Debug)]
pub(crate) enum Item {
    /// The next bytes.
    Part(Artifact, Vec<u8>),
    /// What is to be said of them.
    Report(ReportBody),
}

impl Item {
    /// On its way to the server.
    pub(crate) fn post(self, outbox: &Outbox) -> Result<(), Closed> {
        match self {
            Self::Part(artifact, bytes) => outbox.part(artifact, bytes),
            Self::Report(body) => outbox.report(body),
        }
    }
}

/// Hands on everything below the directories, and how much it was. `most`: bytes that files may
/// have with their holes, where they are stored so.
pub(crate) fn send(
    ml: &Path,
    most: Option<u64>,
    is_stopped: &AtomicBool,
    out: &dyn Fn(Item) -> Result<(), Closed>,
) -> Result<(), PackError> {
    for (artifact, directory) in DIRECTORIES {
        let at = |source| PackError::Unreadable { path: format!("/opt/ml/{directory}"), source };
        let packed = match resolve(ml, Path::new(directory)).map_err(at)? {
            Some(root) => {
                if let Some(most) = most {
                    let bytes = lengths(&root, is_stopped).map_err(at)?;
                    if bytes > most {
                        return Err(PackError::TooLarge { directory: format!("/opt/ml/{directory}"), bytes });
                    }
                }
                let skipped = |path: &Path| {
                    let text = format!(
                        "/opt/ml/{directory}/{} is neither file, directory nor link and is left out",
                        path.display()
                    );
                    // If nobody takes notes any more, the next part says so.
                    let _ = out(Item::Report(ReportBody::Note { text }));
                };
                pack(&root, is_stopped, |part| out(Item::Part(artifact, part)), skipped)
                    .map_err(|error| error.within(directory))?
            }
            None => Packed::default(),
        };
        out(Item::Report(ReportBody::ArtifactSent { artifact, bytes: packed.bytes, files: packed.files }))?;
    }
    Ok(())
}

/// Bytes of all files below a directory, as they read.
fn lengths(root: &Path, is_stopped: &AtomicBool) -> std::io::Result<u64> {
    let (mut bytes, mut waiting): (u64, Vec<PathBuf>) = (0, vec![root.to_owned()]);
    while let Some(directory) = waiting.pop() {
        if is_stopped.load(Ordering::Relaxed) {
            break;
        }
        for entry in directory.read_dir()? {
            let entry = entry?;
            // Links are not followed.
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else if metadata.is_file() {
                bytes = bytes.saturating_add(metadata.len());
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_count_where_they_are_stored() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("model");
        std::fs::create_dir_all(model.join("sub")).unwrap();
        std::fs::File::create(model.join("sub/sparse")).unwrap().set_len(5 << 30).unwrap();
        let running = AtomicBool::new(false);
        let refused = send(dir.path(), Some(1 << 30), &running, &|_| Ok(()));
        assert!(matches!(&refused, Err(PackError::TooLarge { bytes, .. }) if *bytes == 5 << 30), "{refused:?}");
        send(dir.path(), None, &running, &|_| Ok(())).unwrap();
    }
}
