//! What describes a backup: its head, which makes it one, and the details that the head has the sum
//! of.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::BackupError;
use crate::chunks::{Image, Packs};
use crate::target::Target;

/// Of everything in a target.
pub(crate) const FORMAT: u32 = 1;

/// Names the data directory whose backups a target has.
pub(crate) const MARKER: &str = "shoal-backup.json";

/// Where a data directory was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Names the data directory.
    pub data_id: String,
    /// Its path.
    pub path: String,
    /// The machine's name.
    pub host: String,
    /// The machine, by its own id.
    pub machine: String,
}

/// One backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Of this and of all that it names.
    pub format: u32,
    /// Names it; sorts by time.
    pub id: String,
    /// Of which moment it is, in milliseconds since the epoch.
    pub taken_ms: u64,
    /// Of which data directory.
    pub origin: Origin,
    /// The version that made it.
    pub shoal: String,
    /// Training jobs that had not ended.
    pub jobs_running: u64,
    /// Bytes of the databases.
    pub database_bytes: u64,
    /// Objects, parts of uploads and log segments.
    pub contents: u64,
    /// Bytes that were written for it.
    pub written_bytes: u64,
    /// SHA-256 of the details.
    pub details: String,
    /// It is of the same moment as a tick, by the run's name and the tick's number: those after it
    /// follow it.
    pub tick: Option<(String, u64)>,
}

/// The backups of a target, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    pub(crate) whole: Vec<Head>,
    pub(crate) skipped: Vec<Skipped>,
}

/// A backup whose head is damaged, so that it cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The backup's name.
    pub id: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backup {} cannot be used and is left out: {}", self.id, self.why)
    }
}

/// What is in a backup.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Details {
    /// Where chunks are.
    pub(crate) packs: Packs,
    /// Databases and small files.
    pub(crate) images: Vec<Image>,
    /// Names of the contents that the rows name.
    pub(crate) contents: Vec<String>,
}

/// Begins every target.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    format: u32,
    data_id: String,
}

impl Origin {
    /// Of the data directory at this path.
    pub(crate) fn of(root: &Path) -> Result<Self, BackupError> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Ok(Self {
            data_id: shoal_store::id_of(root)?,
            path: root.display().to_string(),
            host: read("/proc/sys/kernel/hostname"),
            machine: read("/etc/machine-id"),
        })
    }

    /// Whether the data directory is still where it was.
    pub(crate) fn is_still_here(&self) -> bool {
        let here = Self::of(Path::new(&self.path));
        here.is_ok_and(|here| here == *self)
    }
}

impl Head {
    pub(crate) fn name(id: &str) -> String {
        format!("backups/{id}/head.json")
    }

    pub(crate) fn details_name(id: &str) -> String {
        format!("backups/{id}/details")
    }

    /// Writes the details, then the head: with it, the backup is there.
    pub(crate) fn write(mut self, details: &Details, target: &dyn Target) -> Result<Self, BackupError> {
        let bytes = deflate(&to_json(details));
        self.details = sha256(&bytes);
        self.written_bytes += bytes.len() as u64;
        target.put(&Self::details_name(&self.id), &bytes)?;
        target.put(&Self::name(&self.id), &to_json(&self))?;
        Ok(self)
    }

    /// What it has, compared with its sum.
    pub(crate) fn read_details(&self, target: &dyn Target) -> Result<Details, BackupError> {
        let name = Self::details_name(&self.id);
        let bytes = target.read(&name)?.ok_or_else(|| damaged(target, &name, "it is missing"))?;
        if sha256(&bytes) != self.details {
            return Err(damaged(target, &name, "its sum is not that of what was written"));
        }
        from_json(target, &name, &inflate(&bytes).map_err(|error| damaged(target, &name, error))?)
    }

    /// All backups of a target, the oldest first.
    pub(crate) fn all(target: &dyn Target) -> Result<Heads, BackupError> {
        let mut heads = Heads::default();
        for name in target.list("backups")?.keys() {
            let Some(id) = name.strip_prefix("backups/").and_then(|name| name.strip_suffix("/head.json")) else {
                continue;
            };
            match Self::read(target, name, id) {
                // A thinning may have removed it meanwhile.
                Ok(None) => {}
                Ok(Some(head)) => heads.whole.push(head),
                // One that cannot be used keeps no other from being used.
                Err(error @ (BackupError::Damaged { .. } | BackupError::Unusable { .. } | BackupError::Io { .. })) => {
                    heads.skipped.push(Skipped { id: id.to_owned(), why: with_sources(&error) });
                }
                Err(error) => return Err(error),
            }
        }
        heads.whole.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(heads)
    }

    /// Whether no thinning has removed it.
    pub(crate) fn is_there(&self, target: &dyn Target) -> Result<bool, BackupError> {
        Ok(target.read(&Self::name(&self.id))?.is_some())
    }

    fn read(target: &dyn Target, name: &str, id: &str) -> Result<Option<Self>, BackupError> {
        let Some(bytes) = target.read(name)? else { return Ok(None) };
        let head: Self = from_json(target, name, &bytes)?;
        if head.format != FORMAT {
            return Err(of_another_version(target, head.format));
        }
        if head.id != id {
            return Err(damaged(target, name, format!("it is that of another backup, {}", head.id)));
        }
        Ok(Some(head))
    }
}

impl Details {
    /// Those of a backup whose head cannot be read, and with it their sum: as far as they can be
    /// read, what they name may be wanted.
    pub(crate) fn unchecked(target: &dyn Target, id: &str) -> Option<Self> {
        let bytes = target.read(&Head::details_name(id)).ok()??;
        serde_json::from_slice(&inflate(&bytes).ok()?).ok()
    }
}

fn with_sources(error: &BackupError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

/// Refuses a target that would be copied into itself.
pub(crate) fn ensure_outside(target: &dyn Target, root: &Path) -> Result<(), BackupError> {
    let location = target.location();
    if location.contains("://") {
        return Ok(());
    }
    let path = std::path::absolute(&location).unwrap_or_default();
    // It may not be there yet.
    let is_inside =
        path.ancestors().find_map(|path| path.canonicalize().ok()).is_some_and(|path| path.starts_with(root));
    if is_inside {
        let why = "is inside of the data directory; choose another disk, or another machine".to_owned();
        return Err(BackupError::Unusable { location, why });
    }
    Ok(())
}

/// Makes the target one of this data directory, or compares.
pub(crate) fn claim(target: &dyn Target, origin: &Origin) -> Result<(), BackupError> {
    let location = target.location();
    let marker = Marker { format: FORMAT, data_id: origin.data_id.clone() };
    match target.read(MARKER)? {
        Some(bytes) => {
            let found: Marker = from_json(target, MARKER, &bytes)?;
            if found.format != FORMAT {
                return Err(of_another_version(target, found.format));
            }
            if found != marker {
                let why = format!(
                    "has backups of another data directory (id {}, this one is {}); choose another target",
                    found.data_id, marker.data_id
                );
                return Err(BackupError::Unusable { location, why });
            }
            Ok(())
        }
        None => {
            let strangers: Vec<String> = target.list("")?.into_keys().filter(|name| name != "lock").take(1).collect();
            if let Some(stranger) = strangers.first() {
                let why = format!("has other files ({stranger}); choose an empty place");
                return Err(BackupError::Unusable { location, why });
            }
            target.put(MARKER, &to_json(&marker))
        }
    }
}

/// Whether a target has been written to at all.
pub(crate) fn ensure_target(target: &dyn Target) -> Result<(), BackupError> {
    match target.read(MARKER)? {
        Some(_) => Ok(()),
        None => Err(BackupError::Unusable { location: target.location(), why: "has no backups of shoal's".to_owned() }),
    }
}

fn of_another_version(target: &dyn Target, format: u32) -> BackupError {
    let why =
        format!("has format {format}, this version of shoal reads format {FORMAT}; use the version that wrote it");
    BackupError::Unusable { location: target.location(), why }
}

pub(crate) fn damaged(target: &dyn Target, name: &str, detail: impl fmt::Display) -> BackupError {
    BackupError::Damaged { location: target.location(), name: name.to_owned(), detail: detail.to_string() }
}

pub(crate) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data is JSON")
}

pub(crate) fn from_json<T: serde::de::DeserializeOwned>(
    target: &dyn Target,
    name: &str,
    bytes: &[u8],
) -> Result<T, BackupError> {
    serde_json::from_slice(bytes).map_err(|error| damaged(target, name, error))
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex_simd::encode_to_string(Sha256::digest(bytes), hex_simd::AsciiCase::Lower)
}

pub(crate) fn deflate(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("memory takes all bytes")
}

pub(crate) fn inflate(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut out = Vec::new();
    flate2::read::ZlibDecoder::new(bytes).read_to_end(&mut out)?;
    Ok(out)
}

/// For the others that want the same target.
pub(crate) fn this_process() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    format!("process {} on {} (`{command}`)", std::process::id(), host.trim())
}

/// Milliseconds since the epoch.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A name that sorts by time.
pub(crate) fn id_at(ms: u64) -> Result<String, BackupError> {
    let mut random = [0; 3];
    getrandom::fill(&mut random).map_err(|error| crate::error::io_at("read", "/dev/urandom")(error.into()))?;
    let random = hex_simd::encode_to_string(random, hex_simd::AsciiCase::Lower);
    let time = time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second, milli) = time.to_hms_milli();
    Ok(format!("{year:04}{:02}{day:02}T{hour:02}{minute:02}{second:02}.{milli:03}Z-{random}", u8::from(month)))
}
