//! One backup.

use std::fs::File;
use std::path::Path;

use shoal_store::{Capture, CaptureSource, IsKnown, StoreError};

use crate::chunks::{CHUNK_BYTES, Image, Packer};
use crate::error::io_at;
use crate::files::{SmallFile, read_from, read_open, small_files};
use crate::manifest::{Details, FORMAT, Head, Heads, Origin, Skipped, claim, ensure_outside, id_at, now_ms};
use crate::pin::{LOG_BYTES, LogWatch, Pin};
use crate::target::{Held, Target};
use crate::thin::{Thinned, thin};
use crate::transfer::Present;
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
    let watch = LogWatch::begin(source, LOG_BYTES)?;
    let asks: (&dyn Fn(&Capture) -> bool, &IsKnown<'_>) = (&|_| true, &|_| false);
    let mut captures = present.capture((source, &watch), 1, target, progress, asks)?.captures;
    let capture = captures.pop().ok_or(BackupError::Outrun)?;
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
        capture: Pin,
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
        capture: Pin,
        previous: Option<&Head>,
        target: &dyn Target,
        progress: &mut Progress<'_>,
    ) -> Result<Head, BackupError> {
        let id = id_at(self.taken_ms)?;
        // A damaged one costs space, no more.
        let previous = previous.and_then(|head| head.read_details(target).ok());
        let mut packer = Packer::after(&id, previous.as_ref(), target);
        let mut images = small_images(root, &capture, &mut packer)?;
        let contents: Vec<String> =
            capture.with(|it| it.contents(&|_| false))?.iter().map(shoal_store::Content::name).collect();
        let jobs_running = capture.with(Capture::jobs_running)?;
        let databases: Vec<(&str, u64)> = capture
            .with(|it| Ok::<_, StoreError>(it.databases.iter().map(|view| (view.name(), view.bytes())).collect()))?;
        let database_bytes = databases.iter().map(|(_, bytes)| bytes).sum();
        for (number, (name, _)) in databases.iter().enumerate() {
            progress(Step::Database(name));
            images.push(database(&capture, number, &mut packer)?);
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

fn small_images(root: &Path, capture: &Pin, packer: &mut Packer<'_>) -> Result<Vec<Image>, BackupError> {
    let mut images = Vec::new();
    for path in small_files(root)?.keys() {
        if let Some((SmallFile { mode, .. }, bytes)) = read_from(&root.join(path), 0)? {
            images.push(packer.image(path, mode, &bytes)?);
        }
    }
    let of_snapshot = || io_at("read", "shoal.snapshot");
    let snapshot = capture.with(|it| it.snapshot.as_ref().map(File::try_clone).transpose().map_err(of_snapshot()))?;
    if let Some(mut snapshot) = snapshot {
        let (about, bytes) = read_open(&mut snapshot, 0).map_err(of_snapshot())?;
        images.push(packer.image("shoal.snapshot", about.mode, &bytes)?);
    }
    Ok(images)
}

/// Chunk by chunk: between two of them the target may take any time.
fn database(capture: &Pin, number: usize, packer: &mut Packer<'_>) -> Result<Image, BackupError> {
    let (path, page_bytes, page_count, mut pages) = capture.with(|it| {
        let view = &it.databases[number];
        Ok::<_, StoreError>((view.name().to_owned(), view.page_bytes() as usize, view.page_count(), view.pages()?))
    })?;
    let at_once = (CHUNK_BYTES / page_bytes).max(1);
    let (mut chunks, mut buffer) = (Vec::new(), vec![0; at_once * page_bytes]);
    for first in (1..=page_count).step_by(at_once) {
        let count = at_once.min((page_count - first + 1) as usize);
        let bytes = &mut buffer[..count * page_bytes];
        capture.with(|it| pages.read(&it.databases[number], first, bytes))?;
        chunks.push(packer.add(bytes)?);
    }
    Ok(Image { path, mode: DATABASE_MODE, bytes: u64::from(page_count) * page_bytes as u64, chunks })
}
