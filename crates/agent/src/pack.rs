//! Packs a directory that a training program left: gzip members of tar entries, without the blocks
//! that end an archive, so that the hosts' archives can be joined by concatenation. Holes of files
//! stay holes.

mod sparse;

use std::fs::{self, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use crate::inside::open_same;
use crate::outbox::Closed;
use sparse::Extents;

/// Bytes of a part that is handed on.
const PART_BYTES: usize = 1 << 20;

/// What was packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Packed {
    /// Bytes handed on.
    pub(crate) bytes: u64,
    /// Files and symbolic links among the entries.
    pub(crate) files: u64,
}

/// Why a directory could not be packed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackError {
    /// Something in it cannot be read.
    #[error("could not pack {path}")]
    Unreadable {
        /// Relative to the directory.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// What it holds would be stored without its holes, and has more bytes than its volume.
    #[error(
        "{directory} has {bytes} bytes with the holes of its files, more than VolumeSizeInGB allows, and \
         CompressionType NONE stores holes as zeros"
    )]
    TooLarge {
        /// As the program knows it.
        directory: String,
        /// Of all files.
        bytes: u64,
    },
    /// The job was stopped before or while it was packed.
    #[error("the job was stopped, and packing its model took longer than the grace of the stop")]
    Stopped,
    /// The process that packs has failed.
    #[error("{0}")]
    Failed(String),
    /// Nobody takes the parts.
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl PackError {
    /// The same with the path as the program knows it, for a directory below `/opt/ml`.
    pub(crate) fn within(self, directory: &str) -> Self {
        match self {
            Self::Unreadable { path, source } => {
                Self::Unreadable { path: format!("/opt/ml/{directory}/{path}"), source }
            }
            other => other,
        }
    }
}

/// Hands everything below `root` to `part`, in name order, directories before their contents.
/// Permissions and times are kept; owners, setuid and setgid bits are not (they mean nothing, or
/// harm, elsewhere). Symbolic links stay links, holes stay holes. Sockets, pipes and devices are
/// left out and reported to `skipped`. An empty directory gives no part at all.
///
/// # Errors
/// [`PackError::Stopped`] soon after `is_stopped` was set.
pub(crate) fn pack(
    root: &Path,
    is_stopped: &AtomicBool,
    part: impl FnMut(Vec<u8>) -> Result<(), Closed>,
    mut skipped: impl FnMut(&Path),
) -> Result<Packed, PackError> {
    let mut files = 0;
    let mut archive =
        Builder::new(Ending { inner: GzEncoder::new(Parts::new(part), Compression::fast()), over: false });
    let mut waiting = children(root, Path::new(""))?;
    let anything = !waiting.is_empty();
    while let Some(path) = waiting.pop() {
        if is_stopped.load(Ordering::Relaxed) {
            return Err(PackError::Stopped);
        }
        let unreadable = |source: io::Error| failed(&path, source);
        let full = root.join(&path);
        let metadata = fs::symlink_metadata(&full).map_err(unreadable)?;
        let kind = metadata.file_type();
        let mut header = header(&metadata);
        if kind.is_dir() {
            header.set_entry_type(EntryType::Directory);
            header.set_size(0);
            archive.append_data(&mut header, &path, io::empty()).map_err(unreadable)?;
            waiting.extend(children(root, &path)?);
        } else if kind.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            header.set_size(0);
            let target = fs::read_link(&full).map_err(unreadable)?;
            archive.append_link(&mut header, &path, target).map_err(unreadable)?;
            files += 1;
        } else if kind.is_file() {
            let file = open_same(&full, &metadata).map_err(unreadable)?;
            let size = metadata.len();
            match Extents::of(&file).map_err(unreadable)? {
                Some(extents) => {
                    let (blocks, bytes) = (extents.describe(&mut header, size).map_err(unreadable)?, extents.bytes());
                    let content = Exactly { file: extents.reader(file), left: bytes, is_stopped };
                    archive.append_data(&mut header, &path, (&blocks[..]).chain(content)).map_err(unreadable)?;
                }
                None => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_size(size);
                    archive
                        .append_data(&mut header, &path, Exactly { file, left: size, is_stopped })
                        .map_err(unreadable)?;
                }
            }
            files += 1;
        } else {
            skipped(&path);
        }
    }
    // The builder writes the end of the archive when it is dropped, and this is where that goes.
    archive.get_mut().over = true;
    let whole = |source| failed(Path::new("."), source);
    let gzip = archive.into_inner().map_err(whole)?.inner;
    if !anything {
        return Ok(Packed::default());
    }
    let mut parts = gzip.finish().map_err(whole)?;
    parts.flush().map_err(whole)?;
    Ok(Packed { bytes: parts.bytes, files })
}

fn failed(path: &Path, source: io::Error) -> PackError {
    if source.get_ref().is_some_and(|inner| inner.is::<Closed>()) {
        return PackError::Closed(Closed);
    }
    if source.get_ref().is_some_and(|inner| inner.is::<Stopped>()) {
        return PackError::Stopped;
    }
    PackError::Unreadable { path: path.display().to_string(), source }
}

/// Paths of what a directory holds, last name first: the list is used as a stack.
fn children(root: &Path, directory: &Path) -> Result<Vec<PathBuf>, PackError> {
    let read = || -> io::Result<Vec<_>> {
        let entries = fs::read_dir(root.join(directory))?;
        let mut paths = entries.map(|entry| Ok(directory.join(entry?.file_name()))).collect::<io::Result<Vec<_>>>()?;
        paths.sort_by(|a, b| b.cmp(a));
        Ok(paths)
    };
    read().map_err(|source| failed(directory, source))
}

fn header(metadata: &Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(metadata.mode() & 0o777);
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// A file that must have the length that its header says, or the archive would be garbage from
/// there on.
struct Exactly<'a, R> {
    file: R,
    left: u64,
    is_stopped: &'a AtomicBool,
}

/// Why a file is not read to its end.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
struct Stopped;

impl<R: Read> Read for Exactly<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(io::Error::other(Stopped));
        }
        let count = (&mut self.file).take(self.left).read(buffer)?;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Passes on until the entries are over.
struct Ending<W> {
    inner: W,
    over: bool,
}

impl<W: Write> Write for Ending<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.over { Ok(bytes.len()) } else { self.inner.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Collects bytes into parts.
struct Parts<F> {
    part: F,
    begun: Vec<u8>,
    bytes: u64,
}

impl<F: FnMut(Vec<u8>) -> Result<(), Closed>> Parts<F> {
    fn new(part: F) -> Self {
        Self { part, begun: Vec::new(), bytes: 0 }
    }
}

impl<F: FnMut(Vec<u8>) -> Result<(), Closed>> Write for Parts<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let now = bytes.len().min(PART_BYTES - self.begun.len());
        self.begun.extend_from_slice(&bytes[..now]);
        if self.begun.len() == PART_BYTES {
            self.flush()?;
        }
        Ok(now)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.begun.is_empty() {
            return Ok(());
        }
        self.bytes += self.begun.len() as u64;
        (self.part)(std::mem::take(&mut self.begun)).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::process::Command;
    use std::time::{Duration, SystemTime};

    /// The end of a tar archive as a gzip member of its own.
    fn end() -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&[0; 1024]).unwrap();
        gzip.finish().unwrap()
    }

    fn packed(root: &Path) -> (Vec<u8>, Packed, Vec<PathBuf>) {
        let (mut all, mut skipped) = (Vec::new(), Vec::new());
        let take = |part: Vec<u8>| {
            assert!((1..=PART_BYTES).contains(&part.len()));
            all.extend(part);
            Ok(())
        };
        let packed = pack(root, &AtomicBool::new(false), take, |path| skipped.push(path.to_owned())).unwrap();
        assert_eq!(packed.bytes, all.len() as u64);
        (all, packed, skipped)
    }

    #[test]
    fn two_hosts_joined_are_one_archive_that_tar_reads() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two, out] = ["one", "two", "out"].map(|name| dir.path().join(name));
        let long = "n".repeat(150);
        fs::create_dir_all(one.join("sub").join(&long)).unwrap();
        fs::create_dir_all(one.join("empty")).unwrap();
        // Does not compress, so it makes several parts.
        let noise: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(one.join("sub").join(&long).join("noise"), &noise).unwrap();
        fs::write(one.join("run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(one.join("run.sh"), fs::Permissions::from_mode(0o751)).unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567_890);
        fs::File::options().write(true).open(one.join("run.sh")).unwrap().set_modified(then).unwrap();
        symlink("/etc/shadow", one.join("link")).unwrap();
        symlink("t".repeat(200), one.join("long-link")).unwrap();
        let _socket = UnixListener::bind(one.join("socket")).unwrap();
        fs::create_dir_all(&two).unwrap();
        fs::write(two.join("\u{fc}.txt"), "two").unwrap();

        let (first, told, skipped) = packed(&one);
        assert_eq!((told.files, skipped), (4, vec![PathBuf::from("socket")]));
        let (second, told, _) = packed(&two);
        assert_eq!(told.files, 1);

        let archive = dir.path().join("model.tar.gz");
        fs::write(&archive, [first, second, end()].concat()).unwrap();
        fs::create_dir(&out).unwrap();
        let status = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&out).status().unwrap();
        assert!(status.success());
        assert!(fs::read(out.join("sub").join(&long).join("noise")).unwrap() == noise);
        assert!(out.join("empty").is_dir());
        let script = out.join("run.sh").metadata().unwrap();
        assert_eq!((script.mode() & 0o777, script.modified().unwrap()), (0o751, then));
        assert_eq!(fs::read_link(out.join("link")).unwrap(), Path::new("/etc/shadow"));
        assert_eq!(fs::read_link(out.join("long-link")).unwrap(), Path::new(&"t".repeat(200)));
        assert_eq!(fs::read_to_string(out.join("\u{fc}.txt")).unwrap(), "two");

        let count = "import sys,tarfile; print(len(tarfile.open(sys.argv[1]).getnames()))";
        let names = Command::new("python3").args(["-c", count]).arg(&archive).output().unwrap();
        assert_eq!(String::from_utf8(names.stdout).unwrap().trim(), "8");
    }

    #[test]
    fn nothing_gives_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(packed(dir.path()), (vec![], Packed::default(), vec![]));
    }

    #[test]
    fn what_shrinks_or_nobody_takes_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("model"), vec![7; 100]).unwrap();
        let file = fs::File::open(dir.path().join("model")).unwrap();
        let running = AtomicBool::new(false);
        io::copy(&mut Exactly { file, left: 200, is_stopped: &running }, &mut io::sink()).unwrap_err();
        let refused = pack(dir.path(), &running, |_| Err(Closed), |_| {});
        assert!(matches!(refused, Err(PackError::Closed(_))), "{refused:?}");
        let missing = pack(&dir.path().join("missing"), &running, |_| Ok(()), |_| {});
        assert!(matches!(missing, Err(PackError::Unreadable { .. })), "{missing:?}");
    }

    /// Fifteen tebibytes, of which a few are written: packing them as zeros would take days.
    #[test]
    fn holes_stay_holes() {
        let dir = tempfile::tempdir().unwrap();
        let [root, out] = ["root", "out"].map(|name| dir.path().join(name));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&out).unwrap();
        let write = |name: &str, size: u64, at: &[u64]| {
            let file = fs::File::create(root.join(name)).unwrap();
            // A file system may have a lower bound.
            let size = if file.set_len(size).is_ok() { size } else { 1 << 40 };
            file.set_len(size).unwrap();
            for place in at {
                std::os::unix::fs::FileExt::write_all_at(&file, b"data", *place % size).unwrap();
            }
            size
        };
        let empty = write("empty", 15 << 40, &[]);
        // More parts than a header has room for, and than one block behind it.
        let places: Vec<u64> = (0..40).map(|number| number << 30).collect();
        write("many", 40 << 30, &places);
        write("small", 4096, &[]);
        write("full", 1, &[0]);

        let (bytes, told, _) = packed(&root);
        assert_eq!(told.files, 4);
        assert!(bytes.len() < 100_000, "{}", bytes.len());
        let archive = dir.path().join("model.tar.gz");
        fs::write(&archive, [bytes, end()].concat()).unwrap();
        let sizes = "import sys, tarfile\n\
                     for member in tarfile.open(sys.argv[1]): print(member.name, member.size, member.issparse())";
        let read = Command::new("python3").args(["-c", sizes]).arg(&archive).output().unwrap();
        let expected = format!("empty {empty} True\nfull 4 False\nmany {} True\nsmall 4096 False\n", 40_u64 << 30);
        assert_eq!(String::from_utf8(read.stdout).unwrap(), expected, "{}", String::from_utf8_lossy(&read.stderr));
        fs::remove_file(root.join("empty")).unwrap();
        let status = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&out).arg("many").status().unwrap();
        assert!(status.success());
        let many = fs::File::open(out.join("many")).unwrap();
        assert_eq!(many.metadata().unwrap().len(), 40 << 30);
        for place in places {
            let mut found = [0; 5];
            std::os::unix::fs::FileExt::read_exact_at(&many, &mut found, place).unwrap();
            assert_eq!(&found, b"data\0");
        }
    }

    #[test]
    fn packing_is_stopped_in_the_middle_of_a_file_and_drops_setuid_bits() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), vec![0; 8 << 20]).unwrap();
        fs::set_permissions(dir.path().join("a"), fs::Permissions::from_mode(0o6755)).unwrap();
        assert_eq!(header(&fs::metadata(dir.path().join("a")).unwrap()).mode().unwrap(), 0o755);
        let stopped = AtomicBool::new(false);
        let mut file =
            Exactly { file: fs::File::open(dir.path().join("a")).unwrap(), left: 8 << 20, is_stopped: &stopped };
        file.read_exact(&mut [0; 4096]).unwrap();
        stopped.store(true, Ordering::Relaxed);
        file.read_exact(&mut [0; 4096]).unwrap_err();
        let refused = pack(dir.path(), &stopped, |_| Ok(()), |_| {});
        assert!(matches!(refused, Err(PackError::Stopped)), "{refused:?}");
    }
}
