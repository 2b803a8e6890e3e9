//! Directories that jobs may mount by `FileSystemDataSource`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Result;
use shoal_server::{FileSystems, SharedDirectory};

use super::{
    Typed, lists,
    targets::{OnNodes, Target},
    wrong,
};
use crate::exit::UsageError;

const NAME: &str = "file_systems";

/// Those of this machine, and which of them the nodes of targets have.
pub(super) fn file_systems(typed: &Typed, targets: &[Target]) -> Result<FileSystems> {
    let mut roots = BTreeMap::new();
    for (id, root) in lists::pairs(typed.value(NAME)) {
        let root = SharedDirectory::parse(root);
        if !is_id(id) || !root.path.is_absolute() || roots.contains_key(id) {
            return Err(wrong(
                typed,
                NAME,
                "a list of different ids (fs- and 8 to 18 of 0-9a-f) with absolute paths, fs-01234567=/srv/data",
            ));
        }
        let (place, data) = (real(&root.path), real(typed.data_dir()));
        if place.starts_with(&data) || data.starts_with(&place) {
            return Err(UsageError(format!(
                "file_systems has {id} = {}, and the server's data directory {} is there, with the keys of all users: jobs \
                 may read what is below a file system; name another directory",
                root.path.display(),
                data.display()
            ))
            .into());
        }
        roots.insert(id.to_owned(), root);
    }
    let mut systems = FileSystems::new(roots);
    for Target { name, file_systems, .. } in targets {
        let ids = match file_systems {
            OnNodes::SamePaths(ids) => ids,
            OnNodes::Volumes(volumes) => {
                systems.in_pods(name, volumes.clone());
                continue;
            }
        };
        systems.on_target(name, ids).map_err(|unknown| {
            UsageError(format!(
                "[target.{name}]: file_systems has {unknown}, which is not in [file_systems]: name its path there"
            ))
        })?;
    }
    Ok(systems)
}

/// Absolute and without symbolic links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    // It fails where there is no current directory.
    let path = &std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut ancestors = path.ancestors();
    let found = ancestors.find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    found.map_or_else(|| path.to_owned(), |(from, real)| real.join(path.strip_prefix(from).unwrap_or(path)))
}

/// As the API has them.
pub(super) fn is_id(id: &str) -> bool {
    let digits = id.strip_prefix("fs-").unwrap_or_default();
    (8..=18).contains(&digits.len()) && digits.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::super::targets::targets;
    use super::*;

    fn read(file: &str) -> Result<FileSystems> {
        read_with("/data", file)
    }

    fn read_with(data_dir: &str, file: &str) -> Result<FileSystems> {
        let flags = [("data_dir".to_owned(), data_dir.to_owned())].into();
        let of_server = Path::new(data_dir).join("shoal.toml");
        let read = |path: &Path| Ok((path == of_server).then(|| file.to_owned()));
        let typed = Typed::gather(&flags, &|_| None, &read)?;
        file_systems(&typed, &targets(&typed)?)
    }

    #[test]
    fn a_table_of_the_file_names_directories() {
        let both = [("fs-01234567", "/srv/data", true), ("fs-0000000a", "/scratch", false)];
        let root = |path: &str, is_read_only| SharedDirectory { path: path.into(), is_read_only };
        let expected = FileSystems::new(both.map(|(id, path, is)| (id.to_owned(), root(path, is))).into());
        for file in [
            "[file_systems]\nfs-01234567 = \"/srv/data:ro\"\nfs-0000000a = \"/scratch\"",
            "file_systems = \"fs-01234567=/srv/data:ro, fs-0000000a=/scratch\"",
            "file_systems = [\"fs-01234567=/srv/data:ro\", \"fs-0000000a=/scratch\"]",
        ] {
            assert_eq!(read(file).unwrap(), expected, "{file}");
        }
        assert_eq!(read("").unwrap(), FileSystems::default());
        let lab = "agents_listen = \"0.0.0.0:0\"\n[target.lab]\nkind = \"slurm\"\nfile_systems = [\"fs-01234567\"]\n";
        let error = read(lab).unwrap_err().to_string();
        assert_eq!(
            error,
            "[target.lab]: file_systems has fs-01234567, which is not in [file_systems]: name its path there"
        );
        let mut expected = FileSystems::new([("fs-01234567".to_owned(), root("/srv", false))].into());
        expected.on_target("lab", &["fs-01234567".to_owned()]).unwrap();
        assert_eq!(read(&format!("{lab}[file_systems]\nfs-01234567 = \"/srv\"")).unwrap(), expected);
        for file in [
            "[file_systems]\nfs-1 = \"/srv\"",
            "[file_systems]\nfs-01234567 = \"srv\"",
            "[file_systems]\nfs-01234567 = 7",
            "[file_systems]\nefs-01234567 = \"/srv\"",
            "file_systems = \"fs-01234567=/a,fs-01234567=/b\"",
        ] {
            let error = read(file).unwrap_err().to_string();
            assert!(error.contains("file_systems") && error.contains("fs-01234567=/srv/data"), "{error}");
        }
    }

    #[test]
    fn no_directory_has_the_servers_own_in_it() {
        for path in ["/", "/data", "/data/runs", "/data:ro"] {
            let error = read(&format!("[file_systems]\nfs-01234567 = \"{path}\"")).unwrap_err().to_string();
            assert!(error.contains("the server's data directory /data is there"), "{path}: {error}");
        }
        let temp = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/", temp.path().join("link")).unwrap();
        let hidden = format!("[file_systems]\nfs-01234567 = \"{}/link/data\"", temp.path().display());
        assert!(read(&hidden).is_err());
        // One that does not exist yet.
        assert!(read_with("none/data", "[file_systems]\nfs-01234567 = \"/\"").is_err());
    }

    #[test]
    fn pods_mount_claims() {
        let pods = |volumes: &str| {
            read(&format!(
                "agents_listen = \"0.0.0.0:0\"\n[target.k8s]\nkind = \"kubernetes\"\nimage = \"i\"\nfile_systems = {volumes}"
            ))
        };
        let mut expected = FileSystems::default();
        expected.in_pods("k8s", [("fs-0123456a".to_owned(), false), ("fs-0123456b".to_owned(), true)].into());
        assert_eq!(pods("{ fs-0123456a = \"data\", fs-0123456b = \"old:ro\" }").unwrap(), expected);
        for wrong in [
            "{ fs-1 = \"data\" }",
            "{ fs-0123456a = \":ro\" }",
            "{ fs-0123456a = \"/srv\" }",
            "{ fs-0123456a = \"Data\" }",
            "{ fs-0123456a = \"-a\" }",
            "[\"fs-0123456a\"]",
        ] {
            let error = pods(wrong).unwrap_err().to_string();
            assert!(error.contains("[target.k8s]") && error.contains("file_systems is a table"), "{error}");
        }
    }
}
