//! The files of a job's script, on their way into `/opt/ml/code`: a `sourcedir.tar.gz` or a
//! directory.
//!
//! What users submit is looked through before anything of it is written, and written by the agent,
//! so nothing in it may lead out of the directory: no `..`, no absolute names, no devices. A bound
//! on its size keeps it from filling the machine's disk.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, EntryType, PaxExtensions};

use crate::inside;

/// Most bytes that the files may have together.
const MOST_BYTES: u64 = 4 << 30;
/// And most files, directories and links.
const MOST_ENTRIES: u64 = 100_000;
/// Most bytes of what only describes an entry (a long name, PAX records): the reader holds it in
/// memory.
const MOST_DESCRIPTION: u64 = 1 << 20;

/// Why the files cannot be used. All of it is for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// It cannot be read, or is no archive.
    #[error("{name} cannot be unpacked; it must be a tar archive compressed with gzip, as the SDK makes them")]
    Unreadable {
        /// As the user named it.
        name: String,
        /// What is wrong with it.
        source: io::Error,
    },
    /// An entry that no source directory has.
    #[error("{name} is not unpacked: its entry \"{entry}\" {problem}")]
    Entry {
        /// As the user named it.
        name: String,
        /// Its path in the archive.
        entry: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Too much.
    #[error("{name} is not unpacked: more than {MOST_ENTRIES} entries or {} GiB are no source; put data into a \
             channel", MOST_BYTES >> 30)]
    TooMuch {
        /// As the user named it.
        name: String,
    },
}

/// Unpacks the archive `file` into the empty directory `into`. `name` is for messages.
pub(crate) fn unpack(file: &Path, name: &str, into: &Path) -> Result<(), SourceError> {
    let unreadable = |source| SourceError::Unreadable { name: name.to_owned(), source };
    let open = || File::open(file).map(|file| MultiGzDecoder::new(BufReader::new(file))).map_err(unreadable);
    let seen = look_through(open()?, name)?;
    // What was not looked through is not there.
    let mut archive = Archive::new(open()?.take(seen));
    archive.set_preserve_permissions(false);
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let path = entry.path().map_err(unreadable)?.into_owned();
        let wrong = |problem| SourceError::Entry { name: name.to_owned(), entry: path.display().to_string(), problem };
        let relative = relative(&path).ok_or_else(|| wrong("leads out of the directory"))?;
        if relative.as_os_str().is_empty() {
            continue;
        }
        if entry.header().entry_type() == EntryType::Link {
            let target = entry.link_name().map_err(unreadable)?.and_then(|target| self::relative(&target));
            let target =
                target.and_then(|target| inside::resolve(into, &target).ok().flatten()).filter(|it| it.is_file());
            let target = target.ok_or_else(|| wrong("is another name of a file that is not there"))?;
            let parent = relative.parent().unwrap_or(Path::new(""));
            fs::create_dir_all(into.join(parent)).map_err(unreadable)?;
            let parent = inside::resolve(into, parent).ok().flatten().ok_or_else(|| wrong("leads through a link"))?;
            fs::hard_link(target, parent.join(relative.file_name().unwrap_or_default())).map_err(unreadable)?;
        } else if !entry.unpack_in(into).map_err(unreadable)? {
            return Err(wrong("leads out of the directory"));
        }
    }
    Ok(())
}

/// The first `limit` bytes of a file in the archive `archive`; `None` if it has no such file.
/// `name` is for messages.
pub(crate) fn read_start(
    archive: &Path,
    name: &str,
    wanted: &Path,
    limit: u64,
) -> Result<Option<Vec<u8>>, SourceError> {
    let unreadable = |source| SourceError::Unreadable { name: name.to_owned(), source };
    let open = || File::open(archive).map(|file| MultiGzDecoder::new(BufReader::new(file))).map_err(unreadable);
    let seen = look_through(open()?, name)?;
    let (mut archive, mut found) = (Archive::new(open()?.take(seen)), None);
    for entry in archive.entries().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let is_wanted = entry.header().entry_type().is_file()
            && entry.path().map_err(unreadable).is_ok_and(|it| relative(&it).as_deref() == Some(wanted));
        if is_wanted {
            // The last one of a name stays when an archive is unpacked.
            let mut bytes = Vec::new();
            entry.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
            found = Some(bytes);
        }
    }
    Ok(found)
}

/// Counts the bytes that were read.
struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

/// Refuses an archive before anything of it is written: kinds of entries and sizes. How many of its
/// bytes it took to know.
fn look_through(reader: impl Read, name: &str) -> Result<u64, SourceError> {
    let unreadable = |source| SourceError::Unreadable { name: name.to_owned(), source };
    let too_much = || SourceError::TooMuch { name: name.to_owned() };
    let mut archive = Archive::new(Counted { inner: reader, bytes: 0 });
    let (mut entries, mut bytes) = (0_u64, 0_u64);
    for entry in archive.entries().map_err(unreadable)?.raw(true) {
        let mut entry = entry.map_err(unreadable)?;
        entries += 1;
        bytes = bytes.saturating_add(entry.size().max(entry.header().size().map_err(unreadable)?));
        if entries > MOST_ENTRIES || bytes > MOST_BYTES {
            return Err(too_much());
        }
        let wrong = |path: &[u8], problem| {
            Err(SourceError::Entry {
                name: name.to_owned(),
                entry: String::from_utf8_lossy(path).into_owned(),
                problem,
            })
        };
        let kind = entry.header().entry_type();
        let is_pax = kind.is_pax_local_extensions() || kind.is_pax_global_extensions();
        let describes = kind.is_gnu_longname() || kind.is_gnu_longlink() || is_pax;
        let is_known = kind.is_file()
            || kind.is_dir()
            || kind.is_symlink()
            || kind.is_hard_link()
            || kind == EntryType::Continuous;
        if describes && entry.size() > MOST_DESCRIPTION {
            return Err(too_much());
        }
        if !describes && !is_known {
            return wrong(&entry.path_bytes(), "is neither file, directory nor link");
        }
        if is_pax {
            let mut records = Vec::new();
            entry.read_to_end(&mut records).map_err(unreadable)?;
            // Whoever heeds it sees another archive than whoever does not.
            let gives_size =
                PaxExtensions::new(&records).any(|record| record.is_ok_and(|record| record.key_bytes() == b"size"));
            if gives_size {
                return wrong(
                    &entry.path_bytes(),
                    "gives a size in its description, which only files of more than 8 GiB need",
                );
            }
        }
    }
    Ok(archive.into_inner().bytes)
}

/// A path below the directory; empty for the directory itself, `None` if it leads out of it.
pub(crate) fn relative(path: &Path) -> Option<PathBuf> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.map(|part| if let Component::Normal(name) = part { Some(name) } else { None }).collect()
}

/// Copies files and directories from `tree` into the directory `into`. `name` is for messages.
pub(crate) fn copy(tree: &Path, name: &str, into: &Path) -> Result<(), SourceError> {
    let unreadable = |source| SourceError::Unreadable { name: name.to_owned(), source };
    let (mut entries, mut bytes) = (0, 0);
    let mut waiting = vec![PathBuf::new()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(tree.join(&directory)).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let (path, metadata) = (directory.join(entry.file_name()), entry.metadata().map_err(unreadable)?);
            entries += 1;
            bytes += metadata.len();
            if entries > MOST_ENTRIES || bytes > MOST_BYTES {
                return Err(SourceError::TooMuch { name: name.to_owned() });
            }
            let target = into.join(&path);
            if metadata.is_dir() {
                fs::create_dir_all(&target).map_err(unreadable)?;
                waiting.push(path);
            } else if metadata.is_file() {
                let mut to = File::create(&target).map_err(unreadable)?;
                io::copy(&mut File::open(entry.path()).map_err(unreadable)?, &mut to).map_err(unreadable)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use tar::{Builder, Header};

    type Tar = Builder<GzEncoder<File>>;

    /// An archive and an empty directory.
    fn stage(fill: impl FnOnce(&mut Tar)) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let [archive, into] = ["sourcedir.tar.gz", "code"].map(|name| dir.path().join(name));
        fs::create_dir(&into).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        let mut tar = Builder::new(GzEncoder::new(File::create(&archive).unwrap(), Compression::fast()));
        fill(&mut tar);
        tar.into_inner().unwrap().finish().unwrap();
        (dir, archive, into)
    }

    #[test]
    fn a_file_is_read_out_of_an_archive() {
        let (_dir, archive, _into) = stage(|tar| {
            add(tar, EntryType::Regular, b"./more.txt", b"", b"first");
            add(tar, EntryType::Regular, b"a/more.txt", b"", b"another");
            add(tar, EntryType::Regular, b"more.txt", b"", b"tabulate==0.9.0");
        });
        let read = |name: &str, limit| read_start(&archive, "a.tar.gz", Path::new(name), limit).unwrap();
        assert_eq!(read("more.txt", 99).as_deref(), Some(&b"tabulate==0.9.0"[..]));
        assert_eq!(read("a/more.txt", 4).as_deref(), Some(&b"anot"[..]));
        assert_eq!(read("none.txt", 4), None);
        fs::write(&archive, "no archive").unwrap();
        assert!(read_start(&archive, "a.tar.gz", Path::new("more.txt"), 4).is_err());
    }

    /// Without the checks of the builder.
    fn add(tar: &mut Tar, kind: EntryType, name: &[u8], link: &[u8], content: &[u8]) {
        let mut header = Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
        header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link);
        header.set_entry_type(kind);
        header.set_mode(0o4755);
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, content).unwrap();
    }

    fn file(tar: &mut Tar, name: &str, content: &str) {
        add(tar, EntryType::Regular, name.as_bytes(), b"", content.as_bytes());
    }

    #[test]
    fn what_the_sdk_packs_comes_out() {
        let long = format!("{}/{}.py", "d".repeat(90), "f".repeat(90));
        let (_dir, archive, into) = stage(|tar| {
            file(tar, "train.py", "print(1)");
            file(tar, "./lib/model.py", "x = 1");
            add(tar, EntryType::Symlink, b"link.py", b"train.py", b"");
            add(tar, EntryType::Link, b"other/second.py", b"lib/model.py", b"");
            let mut header = Header::new_gnu();
            header.set_size(2);
            header.set_mode(0o644);
            tar.append_data(&mut header, &long, &b"hi"[..]).unwrap();
        });
        unpack(&archive, "s3://b/sourcedir.tar.gz", &into).unwrap();
        for (name, content) in [
            ("train.py", "print(1)"),
            ("lib/model.py", "x = 1"),
            ("link.py", "print(1)"),
            ("other/second.py", "x = 1"),
            (&long, "hi"),
        ] {
            assert_eq!(fs::read_to_string(into.join(name)).unwrap(), content, "{name}");
        }
        assert_eq!(into.join("train.py").metadata().unwrap().permissions().mode() & 0o7777, 0o755);
        // A second name takes no second room.
        let [one, two] = ["lib/model.py", "other/second.py"].map(|name| into.join(name).metadata().unwrap().ino());
        assert_eq!(one, two);
        let copy_of = into.with_file_name("copy");
        fs::create_dir(&copy_of).unwrap();
        symlink("/etc/passwd", into.join("passwd")).unwrap();
        copy(&into, "/opt/ml/input/data/code", &copy_of).unwrap();
        assert_eq!(fs::read_to_string(copy_of.join("lib/model.py")).unwrap(), "x = 1");
        assert!(!copy_of.join("passwd").exists());
    }

    #[test]
    fn nothing_leads_out() {
        type Case = (&'static str, fn(&mut Tar), &'static str);
        let cases: [Case; 8] = [
            ("up", |tar| file(tar, "../up", "x"), "leads out of the directory"),
            ("absolute", |tar| file(tar, "/tmp/shoal-must-not-be", "x"), "leads out of the directory"),
            ("device", |tar| add(tar, EntryType::Char, b"null", b"", b""), "is neither file, directory nor link"),
            ("pipe", |tar| add(tar, EntryType::Fifo, b"pipe", b"", b""), "is neither file, directory nor link"),
            ("hard link up", |tar| add(tar, EntryType::Link, b"stolen", b"../secret", b""), "that is not there"),
            (
                "hard link through a link",
                |tar| {
                    add(tar, EntryType::Symlink, b"up", b"..", b"");
                    add(tar, EntryType::Link, b"stolen", b"up/secret", b"");
                },
                "that is not there",
            ),
            (
                "hard link into a link",
                |tar| {
                    file(tar, "mine", "x");
                    add(tar, EntryType::Symlink, b"up", b"..", b"");
                    add(tar, EntryType::Link, b"up/mine", b"mine", b"");
                },
                "leads through a link",
            ),
            (
                "through a link",
                |tar| {
                    add(tar, EntryType::Symlink, b"up", b"..", b"");
                    file(tar, "up/mine", "x");
                },
                "cannot be unpacked",
            ),
        ];
        for (name, fill, expected) in cases {
            let (dir, archive, into) = stage(fill);
            let error = unpack(&archive, "s3://b/k", &into).unwrap_err().to_string();
            assert!(error.contains(expected), "{name}: {error}");
            let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            left.sort();
            assert_eq!(left, ["code", "secret", "sourcedir.tar.gz"], "{name}");
        }
    }

    #[test]
    fn what_is_too_much_or_no_archive_is_refused_before_anything_is_written() {
        let (dir, archive, into) = stage(|tar| {
            file(tar, "train.py", "print(1)");
            let mut header = Header::new_gnu();
            header.set_path("big").unwrap();
            header.set_size(MOST_BYTES);
            header.set_cksum();
            // Its content is not there, and is not asked for.
            tar.get_mut().write_all(header.as_bytes()).unwrap();
        });
        use std::io::Write;
        let refused = unpack(&archive, "s3://b/k", &into).unwrap_err();
        assert!(matches!(refused, SourceError::TooMuch { .. }), "{refused}");
        let (_dir, long, _) =
            stage(|tar| add(tar, EntryType::GNULongName, b"name", b"", &vec![b'x'; MOST_DESCRIPTION as usize + 1]));
        assert!(matches!(unpack(&long, "s3://b/k", &into), Err(SourceError::TooMuch { .. })));
        // Taken as its header says it is empty, and the archive ends behind it; taken as its
        // description says there is more.
        let (_dir, double, _) = stage(|tar| {
            tar.append_pax_extensions([("size", &b"1024"[..])]).unwrap();
            file(tar, "empty", "");
            tar.get_mut().write_all(&[0; 1024]).unwrap();
            file(tar, "hidden", "x");
        });
        let refused = unpack(&double, "s3://b/k", &into).unwrap_err().to_string();
        assert!(refused.contains("gives a size in its description"), "{refused}");
        let plain = dir.path().join("secret");
        let refused = unpack(&plain, "s3://b/secret", &into).unwrap_err();
        assert!(
            refused.to_string().starts_with("s3://b/secret cannot be unpacked; it must be a tar archive"),
            "{refused}"
        );
        assert_eq!(fs::read_dir(&into).unwrap().count(), 0);
    }
}
