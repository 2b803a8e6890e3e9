//! Unpacks the files of an image, which nobody has vouched for.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tar::{Archive, Entry, EntryType};

use crate::{EnvironmentError, room};

/// Entries and bytes. Whoever owns a file in the image, here it belongs to this process's user, who
/// can read it; so no program of the image runs as its owner or group (setuid, setgid).
///
/// # Errors
/// It is no archive, or the disk has no room for it.
pub(crate) fn unpack(archive: impl Read, what: &str, directory: &Path) -> Result<(u64, u64), EnvironmentError> {
    let failed = || EnvironmentError::io(&format!("unpack {what} to"), directory);
    let mut archive = Archive::new(archive);
    archive.set_preserve_permissions(false);
    let (mut entries, mut bytes) = (0, 0);
    for entry in archive.entries().map_err(failed())? {
        let mut entry = entry.map_err(failed())?;
        room::ensure(directory, entry.size(), what)?;
        if unpack_one(&mut entry, directory).map_err(failed())? {
            entries += 1;
            bytes += entry.size();
        }
    }
    Ok((entries, bytes))
}

/// Devices are the instance's own.
fn unpack_one(entry: &mut Entry<'_, impl Read>, directory: &Path) -> io::Result<bool> {
    let kind = entry.header().entry_type();
    if matches!(kind, EntryType::Char | EntryType::Block | EntryType::Fifo) || !entry.unpack_in(directory)? {
        return Ok(false);
    }
    if matches!(kind, EntryType::Directory | EntryType::Regular) {
        let path = directory.join(entry.path()?.strip_prefix("/").unwrap_or(&entry.path()?));
        let mode = fs::symlink_metadata(&path)?.permissions().mode();
        let readable = mode | if kind == EntryType::Directory { 0o700 } else { 0o400 };
        if readable != mode {
            fs::set_permissions(&path, fs::Permissions::from_mode(readable))?;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        fill(&mut builder);
        builder.into_inner().unwrap()
    }

    fn add(
        builder: &mut tar::Builder<Vec<u8>>,
        name: &str,
        kind: EntryType,
        mode: u32,
        content: &str,
        link: Option<&str>,
    ) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        if let Some(link) = link {
            header.set_link_name(link).unwrap();
        }
        header.set_cksum();
        builder.append(&header, content.as_bytes()).unwrap();
    }

    #[test]
    fn files_are_unpacked_and_nothing_else_is() {
        let temp = tempfile::tempdir().unwrap();
        let tree = temp.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let bytes = archive(|builder| {
            add(builder, "etc", EntryType::Directory, 0o555, "", None);
            add(builder, "etc/shadow", EntryType::Regular, 0, "x", None);
            add(builder, "lib", EntryType::Symlink, 0o777, "", Some("/usr/lib"));
            add(builder, "bin", EntryType::Directory, 0o3777, "", None);
            add(builder, "bin/su", EntryType::Regular, 0o6755, "", None);
            add(builder, "dev/null", EntryType::Char, 0o666, "", None);
            add(builder, "../outside", EntryType::Regular, 0o644, "x", None);
        });
        assert_eq!(unpack(&*bytes, "x", &tree).unwrap(), (5, 1));
        assert_eq!(fs::read_to_string(tree.join("etc/shadow")).unwrap(), "x");
        assert_eq!(fs::read_link(tree.join("lib")).unwrap(), Path::new("/usr/lib"));
        for (name, expected) in [("bin/su", 0o755), ("bin", 0o777), ("etc", 0o755), ("etc/shadow", 0o400)] {
            let mode = fs::metadata(tree.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, expected, "{name}");
        }
        assert!(!tree.join("dev/null").exists() && !temp.path().join("outside").exists());
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let temp = tempfile::tempdir().unwrap();
        let (tree, outside) = (temp.path().join("tree"), temp.path().join("outside"));
        fs::create_dir(&tree).unwrap();
        fs::create_dir(&outside).unwrap();
        let bytes = archive(|builder| {
            add(builder, "way", EntryType::Symlink, 0o777, "", Some(outside.to_str().unwrap()));
            add(builder, "way/out", EntryType::Regular, 0o644, "x", None);
        });
        assert!(unpack(&*bytes, "x", &tree).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}
