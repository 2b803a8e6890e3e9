//! The directory of a script on its way to S3: what of it is uploaded, and the archive.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, write::GzEncoder};
use ignore::WalkBuilder;
use tar::{Builder, Header, HeaderMode};

/// A file of the user's that says what is not uploaded, line by line as in `.gitignore`; it goes
/// before those.
const IGNORE_FILE: &str = ".shoalignore";

/// Most bytes of a script's directory, and most files.
const MOST_BYTES: u64 = 256 << 20;
const MOST_FILES: usize = 20_000;
/// How many of the biggest entries are named.
const NAMED: usize = 5;

/// Directories that no script needs.
const NEVER: [&str; 5] = [".git", "__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache"];
/// In a directory that is a virtual environment.
const OF_VENV: &str = "pyvenv.cfg";

/// What is uploaded.
#[derive(Debug)]
pub(super) struct Source {
    directory: PathBuf,
    /// Relative to it, in order of name, with the bytes of each.
    files: Vec<(PathBuf, u64)>,
}

impl Source {
    /// All files below a directory that `.gitignore` and [`IGNORE_FILE`] leave; links are followed.
    ///
    /// # Errors
    /// It cannot be read, is too big (the text names the biggest entries), or `script`, relative to
    /// it, is left out.
    pub(super) fn of(directory: &Path, script: &Path) -> Result<Self, String> {
        let shown = directory.display();
        let mut files: Vec<(PathBuf, u64)> = Vec::new();
        let wanted = |entry: &ignore::DirEntry| {
            let is_never = NEVER.iter().any(|name| entry.file_name() == *name);
            entry.depth() == 0 || !(is_never || entry.path().join(OF_VENV).exists())
        };
        let mut walk = WalkBuilder::new(directory);
        walk.hidden(false).ignore(false).require_git(false).follow_links(true).add_custom_ignore_filename(IGNORE_FILE);
        for entry in walk.filter_entry(wanted).build() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if leads_nowhere(&error) => continue,
                Err(error) => {
                    return Err(format!(
                        "{shown} cannot be uploaded: {error}; name it in {IGNORE_FILE} if the script does not need it"
                    ));
                }
            };
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_file() {
                let relative = entry.path().strip_prefix(directory).unwrap_or(entry.path()).to_owned();
                files.push((relative, metadata.len()));
            }
            // A home directory is not walked to its end.
            if files.len() > 5 * MOST_FILES {
                break;
            }
        }
        files.sort();
        let bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        if bytes > MOST_BYTES || files.len() > MOST_FILES {
            return Err(too_much(directory, &files, bytes));
        }
        if !files.iter().any(|(file, _)| file == script) {
            let script = script.display();
            return Err(format!(
                "{script} is left out by .gitignore or {IGNORE_FILE}, and would not be there; add the line !{script} \
                 to {shown}/{IGNORE_FILE}"
            ));
        }
        Ok(Self { directory: directory.to_owned(), files })
    }

    /// `3 files, 12 KiB`.
    pub(super) fn summary(&self) -> String {
        let plural = if self.files.len() == 1 { "" } else { "s" };
        format!("{} file{plural}, {}", self.files.len(), size(self.files.iter().map(|(_, bytes)| bytes).sum()))
    }

    /// Whether there is this file.
    pub(super) fn has(&self, name: &str) -> bool {
        self.files.iter().any(|(file, _)| file == Path::new(name))
    }

    /// Python's text of a module: of `name.py`, or of all files of the directory `name`; `None` if
    /// there is neither.
    pub(super) fn module(&self, name: &str) -> Option<String> {
        let file = format!("{name}.py");
        let is_of = |path: &Path| {
            path == Path::new(&file) || path.starts_with(name) && path.extension().is_some_and(|it| it == "py")
        };
        let files = Vec::from_iter(self.files.iter().map(|(path, _)| path).filter(|path| is_of(path)));
        let texts = files.iter().map(|path| self.text(path));
        (!files.is_empty()).then(|| Vec::from_iter(texts).join("\n"))
    }

    /// What cannot be read says nothing.
    pub(super) fn text(&self, file: &Path) -> String {
        std::fs::read(self.directory.join(file))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// A `sourcedir.tar.gz` of all of it; the same files give the same bytes. Of a file that is
    /// written meanwhile it has as much as there was when its turn came, filled up with zeros where
    /// that is gone.
    ///
    /// # Errors
    /// A file cannot be read, or they have grown too big.
    pub(super) fn archive(&self) -> Result<File> {
        let file = tempfile::tempfile().context("could not make a temporary file for the script's archive")?;
        let mut archive = Builder::new(GzEncoder::new(file, Compression::fast()));
        let mut bytes = 0;
        for (relative, _) in &self.files {
            let path = self.directory.join(relative);
            let unreadable = || format!("could not read {}", path.display());
            let file = File::open(&path).with_context(unreadable)?;
            let metadata = file.metadata().with_context(unreadable)?;
            bytes += metadata.len();
            ensure!(
                bytes <= MOST_BYTES,
                "{} has grown to {}; give data that is being written as a channel",
                path.display(),
                size(metadata.len())
            );
            let mut header = Header::new_gnu();
            header.set_metadata_in_mode(&metadata, HeaderMode::Deterministic);
            archive.append_data(&mut header, relative, exactly(file, metadata.len())).with_context(unreadable)?;
        }
        let mut file =
            archive.into_inner().and_then(GzEncoder::finish).context("could not write the script's archive")?;
        file.seek(SeekFrom::Start(0)).context("could not read the script's archive")?;
        Ok(file)
    }
}

/// So many bytes, whatever there is: an entry of an archive that is longer or shorter than its
/// header says takes all behind it along.
fn exactly(content: impl Read, bytes: u64) -> impl Read {
    content.take(bytes).chain(io::repeat(0)).take(bytes)
}

/// A link to what is not there, or to a directory that it lies in: many directories have such.
fn leads_nowhere(error: &ignore::Error) -> bool {
    use ignore::Error::{Loop, WithDepth, WithLineNumber, WithPath};
    match error {
        Loop { .. } => true,
        WithDepth { err, .. } | WithPath { err, .. } | WithLineNumber { err, .. } => leads_nowhere(err),
        error => error.io_error().is_some_and(|error| {
            // Of a link that leads to itself, the walk tells the kind alone.
            [io::ErrorKind::NotFound, io::Error::from(rustix::io::Errno::LOOP).kind()].contains(&error.kind())
        }),
    }
}

fn too_much(directory: &Path, files: &[(PathBuf, u64)], bytes: u64) -> String {
    let mut entries: BTreeMap<String, (u64, usize)> = BTreeMap::new();
    for (file, bytes) in files {
        let mut parts = file.components();
        let first = parts.next().map(|part| part.as_os_str().to_string_lossy().into_owned()).unwrap_or_default();
        let name = if parts.next().is_some() { format!("{first}/") } else { first };
        let entry = entries.entry(name).or_default();
        *entry = (entry.0 + bytes, entry.1 + 1);
    }
    let mut entries = Vec::from_iter(entries);
    let is_size = bytes > MOST_BYTES;
    entries.sort_by_key(|(_, (bytes, count))| std::cmp::Reverse(if is_size { *bytes } else { *count as u64 }));
    let biggest = entries.iter().take(NAMED).map(|(name, (bytes, count))| {
        if is_size { format!("{name} {}", size(*bytes)) } else { format!("{name} {count} files") }
    });
    let biggest = Vec::from_iter(biggest).join(", ");
    let shown = directory.display();
    let (what, most) = match is_size {
        true => (size(bytes), size(MOST_BYTES)),
        false => (format!("{} files", files.len()), MOST_FILES.to_string()),
    };
    format!(
        "{shown} is uploaded with the script, and is too much for that: {what}, of at most {most}. The biggest \
         entries: {biggest}. Name what the script does not need in \
         {shown}/{IGNORE_FILE} (lines as in .gitignore), give data as a channel (--channel train=data), or put the \
         script into a directory of its own"
    )
}

/// `1.5 GiB`.
fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1024 => return format!("{bytes} B"),
        1024..0x10_0000 => (1_u64 << 10, "KiB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    format!("{:.1} {name}", bytes as f64 / unit as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn names(source: &Source) -> Vec<String> {
        source.files.iter().map(|(file, _)| file.display().to_string()).collect()
    }

    #[test]
    fn what_is_ignored_stays() {
        let dir = directory(&[
            ("train.py", "import lib"),
            ("lib/a.py", "import torch"),
            ("lib/__pycache__/a.pyc", ""),
            ("data/rows.csv", "1"),
            ("data/keep.csv", "1"),
            ("secret.txt", "1"),
            (".git/HEAD", "1"),
            (".venv/pyvenv.cfg", ""),
            (".venv/lib/x.py", ""),
            (".gitignore", "*.csv\nsecret.txt\n"),
            (".shoalignore", "!keep.csv\nlib/*.md\n"),
            ("lib/README.md", ""),
        ]);
        for (name, target) in
            [("link", "nowhere"), ("latest", "."), ("lib/up", ".."), ("one", "other"), ("other", "one")]
        {
            symlink(target, dir.path().join(name)).unwrap();
        }
        let source = Source::of(dir.path(), Path::new("train.py")).unwrap();
        assert_eq!(names(&source), [".gitignore", ".shoalignore", "data/keep.csv", "lib/a.py", "train.py"]);
        assert_eq!(source.module("lib").as_deref(), Some("import torch"));
        assert_eq!(source.module("os"), None);

        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(source.archive().unwrap()));
        let packed = Vec::from_iter(
            archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()),
        );
        assert_eq!(packed, names(&source));
    }

    #[test]
    fn a_file_that_grows_or_shrinks_leaves_the_others_whole() {
        let dir = directory(&[("shrinking", "12345"), ("train.py", "import os")]);
        // Its metadata says that it is empty, and it has something to read: as a log that is
        // written.
        symlink("/proc/self/status", dir.path().join("growing")).unwrap();
        let source = Source::of(dir.path(), Path::new("train.py")).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(source.archive().unwrap()));
        let texts = Vec::from_iter(archive.entries().unwrap().map(|entry| io::read_to_string(entry.unwrap()).unwrap()));
        assert_eq!(texts, ["", "12345", "import os"]);
        let read = |content: &str| io::read_to_string(exactly(content.as_bytes(), 3)).unwrap();
        assert_eq!([read("12345"), read("1")], ["123", "1\0\0"]);

        File::options().write(true).open(dir.path().join("shrinking")).unwrap().set_len(MOST_BYTES + 1).unwrap();
        let error = source.archive().unwrap_err().to_string();
        assert!(error.contains("shrinking has grown to 256.0 MiB"), "{error}");
    }

    #[test]
    fn a_script_that_is_ignored_is_told() {
        let dir = directory(&[("train.py", ""), (".gitignore", "*.py\n")]);
        let error = Source::of(dir.path(), Path::new("train.py")).unwrap_err();
        assert!(error.contains("add the line !train.py to"), "{error}");
    }

    #[test]
    fn too_much_names_the_biggest() {
        let dir = directory(&[("train.py", ""), ("small.txt", "1")]);
        fs::create_dir(dir.path().join("data")).unwrap();
        // A hole takes no room here.
        File::create(dir.path().join("data/rows.bin")).unwrap().set_len(3 << 30).unwrap();
        let error = Source::of(dir.path(), Path::new("train.py")).unwrap_err();
        for text in [
            "3.0 GiB, of at most 256.0 MiB",
            "The biggest entries: data/ 3.0 GiB, small.txt 1 B",
            ".shoalignore",
            "--channel",
        ] {
            assert!(error.contains(text), "{error}");
        }
    }
}
