//! Directories that jobs may mount by `FileSystemDataSource`.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::Result;
use shoal_server::FileSystems;

use super::{Typed, wrong};

const NAME: &str = "file_systems";

/// The table of `shoal.toml` as a flag would have it.
pub(super) fn as_text(table: &mut toml::Table) {
    if let Some(toml::Value::Table(systems)) = table.get(NAME) {
        let entry = |(id, root): (&String, &toml::Value)| match root {
            toml::Value::String(root) => format!("{id}={root}"),
            other => format!("{id}={other}"),
        };
        let text = Vec::from_iter(systems.iter().map(entry)).join(",");
        table.insert(NAME.to_owned(), toml::Value::String(text));
    }
}

pub(super) fn file_systems(typed: &Typed) -> Result<FileSystems> {
    let mut roots = BTreeMap::new();
    for entry in typed.value(NAME).split(',').map(str::trim).filter(|entry| !matches!(*entry, "" | "none")) {
        let (id, root) = entry.split_once('=').unwrap_or((entry, ""));
        let (id, root) = (id.trim(), PathBuf::from(root.trim()));
        let digits = id.strip_prefix("fs-").unwrap_or_default();
        // As the API has them.
        let is_id =
            (8..=18).contains(&digits.len()) && digits.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        if !is_id || !root.is_absolute() || roots.insert(id.to_owned(), root).is_some() {
            return Err(wrong(
                typed,
                NAME,
                "a list of different ids (fs- and 8 to 18 of 0-9a-f) with absolute paths, fs-01234567=/srv/data",
            ));
        }
    }
    Ok(FileSystems::new(roots))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(file: &str) -> Result<FileSystems> {
        let flags = [("data_dir".to_owned(), "/data".to_owned())].into();
        let read = |path: &Path| Ok((path == Path::new("/data/shoal.toml")).then(|| file.to_owned()));
        file_systems(&Typed::gather(&flags, &|_| None, &read)?)
    }

    #[test]
    fn a_table_of_the_file_names_directories() {
        let both = [("fs-01234567", "/srv/data"), ("fs-0000000a", "/scratch")];
        let expected = FileSystems::new(both.map(|(id, root)| (id.to_owned(), root.into())).into());
        for file in [
            "[file_systems]\nfs-01234567 = \"/srv/data\"\nfs-0000000a = \"/scratch\"",
            "file_systems = \"fs-01234567=/srv/data, fs-0000000a=/scratch\"",
            "file_systems = [\"fs-01234567=/srv/data\", \"fs-0000000a=/scratch\"]",
        ] {
            assert_eq!(read(file).unwrap(), expected, "{file}");
        }
        assert_eq!(read("").unwrap(), FileSystems::default());
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
}
