//! One backup.

use std::path::Path;

use shoal_store::{Capture, CaptureSource};

use crate::chunks::{CHUNK_BYTES, Image, Packer};
use crate::error::io_at;
use crate::files::{SmallFile, read_from, read_open, small_files};
use crate::manifest::{Details, FORMAT, Head, Heads, Origin, Skipped, claim, ensure_outside, id_at, now_ms};
use crate::target::{Held, Target};
use crate::thin::{Thinned, thin};
use crate::transfer::{Present, one};
use crate::{BackupError, Progress, Step};

/// Database pages are copied with this mode.
const DATABASE_MODE: u32 = 0o600;

/// What was made.
#[derive(Debug)]
pub struct Taken {
    /// The backup.
    pub head: Head,
    /// Backups that were removed, by their names.
    pub removed: Vec<String>,
    /// What is wrong with others in the target.
    pub warnings: Vec<String>,
}

/// Makes a backup of a data directory, and keeps the newest; `None` keeps all.
///
/// # Errors
/// The data directory's or the target's; then the backups that were there before are as they were.
pub fn back_up(
    source: &CaptureSource,
    target: &dyn Target,
    keep: Option<usize>,
    progress: &mut Progress<'_>,
) -> Result<Taken, BackupError> {
    ensure_outside(target, source.root())?;
    let guard = target.lock()?;
    let target = &Held { target, guard: &*guard };
    let origin = Origin::of(source.root())?;
    claim(target, &origin)?;
    let mut present = Present::of(target)?;
    present.copy_ahead(source, target, progress)?;
    let captured = present.capture(source, 1, target, progress, (&|_| true, &|_| false))?;
    let capture = one(captured.captures);
    let taken_ms = now_ms();
    let draft = Draft { origin, taken_ms, tick: None, copied_bytes: present.copied_bytes };
    Ok(draft.make(source.root(), capture, target, keep, present.names(), progress)?.0)
}

/// What a backup is of, beside its capture.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) origin: Origin,
    pub(crate) taken_ms: u64,
    pub(crate) tick: Option<(String, u64)>,
    pub(crate) copied_bytes: u64,
}

impl Draft {
    /// Makes the backup of a capture whose contents are in the target, and thins those before it.
    pub(crate) fn make(
        self,
        root: &Path,
        capture: Capture,
        target: &Held<'_>,
        keep: Option<usize>,
        contents: Vec<String>,
        progress: &mut Progress<'_>,
    ) -> Result<(Taken, Thinned), BackupError> {
        let Heads { whole, skipped } = Head::all(target)?;
        let head = self.write(root, capture, whole.last(), target, progress)?;
        let thinned = thin(target, keep, contents)?;
        let mut warnings: Vec<String> = skipped.iter().map(Skipped::to_string).collect();
        warnings.extend(thinned.prevented.clone());
        Ok((Taken { head, removed: thinned.backups.clone(), warnings }, thinned))
    }

    /// Writes the backup of a capture whose contents are in the target.
    fn write(
        self,
        root: &Path,
        mut capture: Capture,
        previous: Option<&Head>,
        target: &dyn Target,
        progress: &mut Progress<'_>,
    ) -> Result<Head, BackupError> {
        let id = id_at(self.taken_ms)?;
        // A damaged one costs space, no more.
        let previous = previous.and_then(|head| head.read_details(target).ok());
        let mut packer = Packer::after(&id, previous.as_ref(), target);
        let mut images = small_images(root, &mut capture, &mut packer)?;
        let contents: Vec<String> = capture.contents(&|_| false)?.iter().map(shoal_store::Content::name).collect();
        let database_bytes = capture.databases.iter().map(shoal_store::DatabaseView::bytes).sum();
        let jobs_running = capture.jobs_running()?;
        for view in &capture.databases {
            progress(Step::Database(view.name()));
            images.push(database(view, &mut packer)?);
        }
        // The server begins its logs again from here on.
        drop(capture);
        let (packs, pack_bytes) = packer.finish()?;
        let head = Head {
            format: FORMAT,
            id,
            taken_ms: self.taken_ms,
            origin: self.origin,
            shoal: env!("CARGO_PKG_VERSION").to_owned(),
            jobs_running,
            database_bytes,
            contents: contents.len() as u64,
            written_bytes: self.copied_bytes + pack_bytes,
            details: String::new(),
            tick: self.tick,
        };
        head.write(&Details { packs, images, contents }, target)
    }
}

fn small_images(root: &Path, capture: &mut Capture, packer: &mut Packer<'_>) -> Result<Vec<Image>, BackupError> {
    let mut images = Vec::new();
    for path in small_files(root)?.keys() {
        if let Some((SmallFile { mode, .. }, bytes)) = read_from(&root.join(path), 0)? {
            images.push(packer.image(path, mode, &bytes)?);
        }
    }
    if let Some(snapshot) = &mut capture.snapshot {
        let (about, bytes) = read_open(snapshot, 0).map_err(io_at("read", "shoal.snapshot"))?;
        images.push(packer.image("shoal.snapshot", about.mode, &bytes)?);
    }
    Ok(images)
}

fn database(view: &shoal_store::DatabaseView, packer: &mut Packer<'_>) -> Result<Image, BackupError> {
    let mut pages = view.pages()?;
    let page_bytes = view.page_bytes() as usize;
    let at_once = (CHUNK_BYTES / page_bytes).max(1);
    let (mut chunks, mut buffer) = (Vec::new(), vec![0; at_once * page_bytes]);
    for first in (1..=view.page_count()).step_by(at_once) {
        let count = at_once.min((view.page_count() - first + 1) as usize);
        let bytes = &mut buffer[..count * page_bytes];
        pages.read(first, bytes)?;
        chunks.push(packer.add(bytes)?);
    }
    Ok(Image { path: view.name().to_owned(), mode: DATABASE_MODE, bytes: view.bytes(), chunks })
}
