//! A data directory from a backup and the ticks that follow it.
//!
//! It is made beside its place and gets its name last, when everything in it was compared with what
//! was written.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use shoal_store::{Content, Damage, contents_of, verify};

use crate::error::io_at;
use crate::list::GAP;
use crate::manifest::{Head, Heads, Skipped, damaged, ensure_target};
use crate::run::{Following, Run};
use crate::target::Target;
use crate::tick::{Change, Tick};
use crate::{BackupError, Progress, Step};

/// Files that others link into channels have this mode; the directory keeps other users out.
const OBJECT_MODE: u32 = 0o666;

/// What to restore.
#[derive(Debug, Clone, Default)]
pub struct Restore {
    /// The backup's name; `None` is the newest.
    pub backup: Option<String>,
    /// Without the ticks after this number.
    pub until_tick: Option<u64>,
    /// Keep what is sound where something is damaged.
    pub accept_damage: bool,
    /// It takes the place of the data directory that was backed up, whose server has ended: it has
    /// its id, and what its launchers had started on compute targets is taken up. Otherwise it is a
    /// copy, which touches nothing of the original's.
    pub take_over: bool,
}

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    /// The backup.
    pub head: Head,
    /// Newer ones that are damaged.
    pub skipped: Vec<Skipped>,
    /// Ticks that were applied.
    pub ticks: u64,
    /// Of which moment it is.
    pub until_ms: u64,
    /// Training jobs that had not ended.
    pub jobs_running: u64,
    /// Objects and parts.
    pub objects: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// What is damaged, and accepted.
    pub damages: Vec<Damage>,
    /// It is a copy, with an id of its own.
    pub is_another: bool,
}

/// Makes a data directory at this path, which must be empty or missing.
///
/// # Errors
/// The target's or the disk's; damage that is not accepted. Then there is nothing at the path.
pub fn restore(
    target: &dyn Target,
    root: &Path,
    options: &Restore,
    progress: &mut Progress<'_>,
) -> Result<Restored, BackupError> {
    ensure_target(target)?;
    ensure_empty(root)?;
    let (head, skipped) = find(target, options.backup.as_deref())?;
    if options.take_over {
        ensure_gone(&head)?;
    }
    let draft = Draft::beside(root)?;
    let details = head.read_details(target)?;
    for image in &details.images {
        progress(Step::Database(&image.path));
        let file = draft.create(&image.path, image.mode)?;
        image.write_to(&file, &details.packs, target)?;
    }
    let (ticks, until_ms) = draft.apply_ticks(target, &head, options.until_tick)?;
    let (missing, contents) = draft.fetch_contents(target, progress)?;
    draft.sync()?;
    if !options.take_over {
        shoal_store::make_another(&draft.path)?;
    }
    let report = verify(&draft.path, &mut |step| progress(Step::Checking(step)))?;
    let damages: Vec<Damage> = report.damages.into_iter().map(|damage| with_cause(damage, &missing)).collect();
    if !damages.is_empty() && !options.accept_damage {
        return Err(BackupError::DamagedContents(damages));
    }
    let jobs_running = shoal_store::jobs_running(&draft.path)?;
    draft.name(root)?;
    let (objects, bytes, is_another) = (contents, report.bytes, !options.take_over);
    Ok(Restored { head, skipped, ticks, until_ms, jobs_running, objects, bytes, damages, is_another })
}

/// Two servers with one id would end each other's jobs. What is on other machines is not known.
fn ensure_gone(head: &Head) -> Result<(), BackupError> {
    if !head.origin.is_still_here() {
        return Ok(());
    }
    let why = "is still here, so its place cannot be taken over; move it away when its server has ended, or restore \
               without --take-over, which makes a copy";
    Err(BackupError::Unusable { location: head.origin.path.clone(), why: why.to_owned() })
}

fn with_cause(mut damage: Damage, missing: &[String]) -> Damage {
    if damage.detail == "its file is missing" && !missing.is_empty() {
        damage.detail = "it is missing in the backup".to_owned();
    }
    damage
}

fn ensure_empty(root: &Path) -> Result<(), BackupError> {
    let unusable = |why: &str| BackupError::Unusable { location: root.display().to_string(), why: why.to_owned() };
    match fs::read_dir(root) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(unusable("is not empty; restore into a new directory")),
            None => Ok(()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_at("list", root.display())(error)),
    }
}

/// The backup of this name, or else the newest that is whole, with those after it that are not.
fn find(target: &dyn Target, id: Option<&str>) -> Result<(Head, Vec<Skipped>), BackupError> {
    let Heads { mut whole, mut skipped } = Head::all(target)?;
    let found = match id {
        None => whole.pop(),
        Some(id) => whole.into_iter().find(|head| head.id == id),
    };
    if let Some(head) = found {
        skipped.retain(|it| id.is_none() && it.id > head.id);
        return Ok((head, skipped));
    }
    let damage = skipped.into_iter().rfind(|it| id.is_none_or(|id| it.id == id));
    Err(match (damage, id) {
        (Some(Skipped { id, why }), _) => damaged(target, &Head::name(&id), why),
        (None, id) => BackupError::Unusable {
            location: target.location(),
            why: match id {
                Some(id) => format!("has no backup {id}; `shoal backup list` names those that it has"),
                None => "has no whole backup".to_owned(),
            },
        },
    })
}

/// A data directory that is not yet at its place; removed unless it gets there.
#[derive(Debug)]
struct Draft {
    path: PathBuf,
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After the rename there is nothing here.
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Draft {
    fn beside(root: &Path) -> Result<Self, BackupError> {
        let mut name = root.file_name().unwrap_or_default().to_owned();
        name.push(format!(".restoring-{}", std::process::id()));
        let path = root.with_file_name(name);
        make(&path)?;
        Ok(Self { path })
    }

    fn create(&self, path: &str, mode: u32) -> Result<File, BackupError> {
        self.open(path, mode, true)
    }

    fn open(&self, path: &str, mode: u32, truncate: bool) -> Result<File, BackupError> {
        let path = self.inside(path)?;
        if let Some(folder) = path.parent() {
            make(folder)?;
        }
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(truncate).mode(mode).open(&path);
        opened.map_err(io_at("create", path.display()))
    }

    /// A target's names lead nowhere else.
    fn inside(&self, path: &str) -> Result<PathBuf, BackupError> {
        let is_plain = Path::new(path).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if !is_plain || path.is_empty() {
            return Err(BackupError::Unusable {
                location: path.to_owned(),
                why: "is no path inside of a data directory; the backup was not made by shoal".to_owned(),
            });
        }
        Ok(self.path.join(path))
    }

    /// Returns how many there were, and of when the last one is.
    fn apply_ticks(&self, target: &dyn Target, head: &Head, until: Option<u64>) -> Result<(u64, u64), BackupError> {
        let (mut count, mut until_ms) = (0, head.taken_ms);
        let Some((run, first)) = &head.tick else { return Ok((count, until_ms)) };
        let Following { last, missing } = Run::after(target, run, *first)?;
        let is_wanted = |number: &u64| until.is_none_or(|until| *number <= until);
        for number in (first + 1..=last).take_while(is_wanted) {
            let name = Run::name(run, number);
            let tick = Run::read(target, &name).map_err(|error| before(number, error))?;
            if (&tick.about.run, tick.about.number) != (run, number) {
                return Err(damaged(target, &name, "it is another tick"));
            }
            until_ms = tick.about.taken_ms;
            self.apply(tick)?;
            count += 1;
        }
        match missing.filter(is_wanted) {
            None => Ok((count, until_ms)),
            Some(number) if head.is_there(target)? => {
                Err(before(number, damaged(target, &Run::name(run, number), GAP)))
            }
            // Its ticks go after it.
            Some(_) => Err(damaged(target, &Head::name(&head.id), "it was removed meanwhile, as newer ones are kept")),
        }
    }

    fn apply(&self, tick: Tick) -> Result<(), BackupError> {
        for database in tick.databases {
            if database.pages.is_empty() {
                continue;
            }
            let file = self.open(&database.name, 0o600, false)?;
            let write = || {
                for (number, page) in &database.pages {
                    file.write_all_at(page, u64::from(number - 1) * u64::from(database.page_bytes))?;
                }
                file.set_len(u64::from(database.page_count) * u64::from(database.page_bytes))
            };
            write().map_err(io_at("write", &database.name))?;
        }
        for change in tick.files {
            match change {
                Change::Write { path, mode, at, bytes } => {
                    let file = self.open(&path, mode, false)?;
                    let written = file.write_all_at(&bytes, at).and_then(|()| file.set_len(at + bytes.len() as u64));
                    written.map_err(io_at("write", &path))?;
                }
                Change::Remove { path } => {
                    let _ = fs::remove_file(self.inside(&path)?);
                }
            }
        }
        Ok(())
    }

    /// Copies what the rows name; returns what the target lacks, and how many there are.
    fn fetch_contents(
        &self,
        target: &dyn Target,
        progress: &mut Progress<'_>,
    ) -> Result<(Vec<String>, u64), BackupError> {
        let contents = contents_of(&self.path)?;
        let of = contents.len() as u64;
        let (mut missing, mut done, mut bytes) = (Vec::new(), 0, 0);
        let mut shared: BTreeMap<PathBuf, File> = BTreeMap::new();
        make(&self.path.join("objects"))?;
        for content in &contents {
            let (path, start) = content.source(&self.path);
            let is_shared = matches!(content, Content::Object { place: Some(_), .. });
            let file = match shared.remove(&path) {
                Some(file) => file,
                None => open_content(&path)?,
            };
            match target.fetch(&content.name(), &file, start)? {
                Some(length) => bytes += length,
                None => {
                    missing.push(content.name());
                    if !is_shared {
                        let _ = fs::remove_file(&path);
                    }
                }
            }
            if is_shared {
                shared.insert(path, file);
            }
            done += 1;
            progress(Step::Contents { done, of, bytes });
        }
        Ok((missing, of))
    }

    fn sync(&self) -> Result<(), BackupError> {
        let root = File::open(&self.path).map_err(io_at("open", self.path.display()))?;
        rustix::fs::syncfs(&root).map_err(|error| io_at("sync", self.path.display())(error.into()))
    }

    fn name(&self, root: &Path) -> Result<(), BackupError> {
        // What a check of the databases has left beside them.
        self.sync()?;
        fs::rename(&self.path, root).map_err(io_at("rename", self.path.display()))?;
        let parent = root.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(io_at("sync", parent.display()))
    }
}

/// The damage of a tick, with what can be had.
fn before(number: u64, error: BackupError) -> BackupError {
    match error {
        BackupError::Damaged { location, name, detail } => {
            let before = number - 1;
            let detail = format!("{detail}; what comes before it is restored with --until-tick {before}");
            BackupError::Damaged { location, name, detail }
        }
        other => other,
    }
}

fn open_content(path: &Path) -> Result<File, BackupError> {
    if let Some(folder) = path.parent() {
        make(folder)?;
    }
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(OBJECT_MODE).open(path);
    let file = opened.map_err(io_at("create", path.display()))?;
    // The umask has had its say at creation.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(OBJECT_MODE);
    file.set_permissions(mode).map_err(io_at("set the mode of", path.display()))?;
    Ok(file)
}

fn make(folder: &Path) -> Result<(), BackupError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io_at("create", folder.display()))
}
