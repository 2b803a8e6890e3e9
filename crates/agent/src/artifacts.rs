//! What an instance leaves behind, on its way to the server.

use std::path::Path;

use shoal_link::{Artifact, ReportBody};

use crate::inside::resolve;
use crate::outbox::Outbox;
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

/// Sends everything below the directories and says how much it was.
pub(crate) fn send(ml: &Path, outbox: &Outbox) -> Result<(), PackError> {
    for (artifact, directory) in DIRECTORIES {
        let at = |source| PackError::Unreadable { path: format!("/opt/ml/{directory}"), source };
        let packed = match resolve(ml, Path::new(directory)).map_err(at)? {
            Some(root) => {
                let skipped = |path: &Path| {
                    let text = format!("/opt/ml/{directory}/{} is neither file, directory nor link and is left out", path.display());
                    // If nobody takes notes any more, the next part says so.
                    let _ = outbox.report(ReportBody::Note { text });
                };
                pack(&root, |part| outbox.part(artifact, part), skipped).map_err(|error| error.within(directory))?
            }
            None => Packed::default(),
        };
        outbox.report(ReportBody::ArtifactSent { artifact, bytes: packed.bytes, files: packed.files })?;
    }
    Ok(())
}
