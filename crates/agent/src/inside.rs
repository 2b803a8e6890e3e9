//! Paths that a training program may have tampered with, as seen from outside: symbolic links are
//! not followed, or the program could have the agent read what only the agent may.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// `base/relative`, none of whose components below `base` is a symbolic link; `None` if it does not
/// exist.
pub(crate) fn resolve(base: &Path, relative: &Path) -> io::Result<Option<PathBuf>> {
    let mut path = base.to_owned();
    for component in relative.components() {
        let Component::Normal(name) = component else {
            return Err(io::Error::other(format!("{} leaves {}", relative.display(), base.display())));
        };
        path.push(name);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(metadata) if metadata.is_symlink() => return Err(io::Error::other("a symbolic link is in its place")),
            Ok(_) => {}
        }
    }
    Ok(Some(path))
}

/// Opens a regular file that was just looked at, and makes sure that it is still the same one.
pub(crate) fn open_same(path: &Path, seen: &Metadata) -> io::Result<File> {
    let file = File::open(path)?;
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) == (seen.dev(), seen.ino()) {
        Ok(file)
    } else {
        Err(io::Error::other("it was replaced while it was read"))
    }
}

/// The first `limit` bytes of a regular file; `None` if there is no such file.
pub(crate) fn read_start(base: &Path, relative: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(path) = resolve(base, relative)? else { return Ok(None) };
    let metadata = fs::symlink_metadata(&path)?;
    if !metadata.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    open_same(&path, &metadata)?.take(limit).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("ml");
        fs::create_dir_all(base.join("output")).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        let read = |relative: &str| read_start(&base, Path::new(relative), 4);

        assert_eq!(read("output/failure").unwrap(), None);
        fs::write(base.join("output/failure"), "it broke").unwrap();
        assert_eq!(read("output/failure").unwrap().unwrap(), b"it b");
        symlink("../../secret", base.join("output/link")).unwrap();
        read("output/link").unwrap_err();
        symlink("..", base.join("up")).unwrap();
        read("up/secret").unwrap_err();
        read("../secret").unwrap_err();
        assert_eq!(read("output").unwrap(), None);
    }
}
