//! Keys of the owner, which `shoal.toml` lists as `[kms.NAME]`: a file with keys, or a command that
//! has them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Result;
use shoal_encryption::KeySource;

use super::Typed;
use crate::exit::UsageError;

pub(super) fn kms(typed: &Typed) -> Result<BTreeMap<String, KeySource>> {
    let Some((origin, tables)) = typed.named("kms") else { return Ok(BTreeMap::new()) };
    let of_key = |(name, table): (&String, &toml::Table)| {
        Ok((name.clone(), key(name, table, &format!("[kms.{name:?}] ({origin})"), typed.data_dir())?))
    };
    tables.iter().map(of_key).collect()
}

fn key(name: &str, table: &toml::Table, place: &str, data_dir: &Path) -> Result<KeySource, UsageError> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-".contains(&byte);
    if !(1..=250).contains(&name.len()) || !name.bytes().all(is_letter) || name.starts_with("alias/") {
        return Err(UsageError(format!(
            "{place}: a key's name is 1 to 250 of A-Z, a-z, 0-9, '/', '_' and '-', without alias/ before it"
        )));
    }
    if let Some(unknown) = table.keys().find(|member| !["file", "command"].contains(&member.as_str())) {
        return Err(UsageError(format!("{place}: there is no {unknown:?} in a key; there are: command, file")));
    }
    match (table.get("file"), table.get("command")) {
        (Some(file), None) => {
            let file = PathBuf::from(file.as_str().unwrap_or_default());
            if !file.is_absolute() {
                return Err(UsageError(format!("{place}: file is the path of a file with keys: it starts with /")));
            }
            if file.starts_with(data_dir) {
                return Err(UsageError(format!(
                    "{place}: file is in the data directory, next to what it protects, and backups would copy it: choose \
                     another directory"
                )));
            }
            Ok(KeySource::File(file))
        }
        (None, Some(command)) => {
            let words = command.as_array().filter(|words| !words.is_empty());
            let words = words.and_then(|words| words.iter().map(|word| word.as_str().map(str::to_owned)).collect());
            let words = words.ok_or_else(|| {
                UsageError(format!("{place}: command is a list, a program and its arguments: [\"/usr/local/bin/kms\"]"))
            })?;
            Ok(KeySource::Command(words))
        }
        _ => {
            Err(UsageError(format!("{place}: give either file, a file with keys, or command, a program that has them")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str) -> Result<BTreeMap<String, KeySource>> {
        let flags = [("data_dir".to_owned(), "/data".to_owned())].into();
        let read = |path: &Path| Ok((path == Path::new("/data/shoal.toml")).then(|| file.to_owned()));
        kms(&Typed::gather(&flags, &|_| None, &read)?)
    }

    #[test]
    fn keys_are_files_or_commands() {
        let found = read(
            "[kms.team]\nfile = \"/etc/shoal/team.key\"\n[kms.\"aws/s3\"]\nfile = \"/etc/shoal/s3.key\"\n\
             [kms.vault]\ncommand = [\"/usr/bin/vault-kms\", \"--ca=x\"]\n",
        )
        .unwrap();
        assert_eq!(
            found,
            BTreeMap::from([
                ("team".to_owned(), KeySource::File("/etc/shoal/team.key".into())),
                ("aws/s3".to_owned(), KeySource::File("/etc/shoal/s3.key".into())),
                ("vault".to_owned(), KeySource::Command(vec!["/usr/bin/vault-kms".to_owned(), "--ca=x".to_owned()])),
            ])
        );
        assert!(read("").unwrap().is_empty());
        for (file, why) in [
            ("[kms.\"a b\"]\nfile = \"/x\"\n", "a key's name"),
            ("[kms.\"alias/a\"]\nfile = \"/x\"\n", "without alias/"),
            ("[kms.a]\n", "give either file"),
            ("[kms.a]\nfile = \"/x\"\ncommand = [\"y\"]\n", "give either file"),
            ("[kms.a]\nfile = 3\n", "the path of a file"),
            ("[kms.a]\nfile = \"team.key\"\n", "starts with /"),
            ("[kms.a]\nfile = \"/data/team.key\"\n", "is in the data directory"),
            ("[kms.a]\ncommand = \"y\"\n", "command is a list"),
            ("[kms.a]\ncommand = []\n", "command is a list"),
            ("[kms.a]\nkey = \"x\"\n", "there is no \"key\""),
            ("kms = 5\n", "keys for encryption are tables"),
        ] {
            let error = format!("{:#}", read(file).unwrap_err());
            assert!(error.contains(why), "{file}: {error}");
        }
    }
}
