//! Roles, which `shoal.toml` lists as `[role.NAME]`, each with its policies: files of IAM's JSON
//! beside `shoal.toml`, or the documents themselves.

use anyhow::{Context, Result};
use shoal_server::Roles;

use super::{Origin, Typed};
use crate::exit::UsageError;

pub(super) fn roles(typed: &Typed) -> Result<Roles> {
    let mut roles = Roles::default();
    let Some((origin, tables)) = typed.named("role") else { return Ok(roles) };
    for (name, table) in tables {
        let place = format!("[role.{name}] ({origin})");
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte);
        if !(1..=64).contains(&name.len()) || !name.bytes().all(is_letter) {
            return Err(UsageError(format!(
                "{place}: a role's name is 1 to 64 of A-Z, a-z, 0-9 and +=,.@_-, without a path"
            ))
            .into());
        }
        if let Some(unknown) = table.keys().find(|member| *member != "policies") {
            return Err(UsageError(format!("{place}: there is no {unknown:?} in a role; there is policies")).into());
        }
        let wrong = || UsageError(format!("{place}: policies is a list of files, or of documents that begin with {{"));
        let entries = match table.get("policies") {
            None => &Vec::new(),
            Some(value) => value.as_array().ok_or_else(wrong)?,
        };
        let mut documents = Vec::new();
        for entry in entries {
            documents.push(document(entry.as_str().ok_or_else(wrong)?, origin)?);
        }
        roles
            .declare(name, &documents)
            .map_err(|error| UsageError(format!("{place}: a policy is not understood: {error}")))?;
    }
    Ok(roles)
}

fn document(entry: &str, origin: &Origin) -> Result<String> {
    if entry.trim_start().starts_with('{') {
        return Ok(entry.to_owned());
    }
    let path = match origin {
        Origin::File(file) => file.with_file_name(entry),
        _ => entry.into(),
    };
    std::fs::read_to_string(&path).with_context(|| format!("could not read the policy {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(dir: &Path, file: &str) -> Result<Roles> {
        let flags = [("data_dir".to_owned(), dir.display().to_string())].into();
        let read = |path: &Path| Ok((path == dir.join("shoal.toml")).then(|| file.to_owned()));
        roles(&Typed::gather(&flags, &|_| None, &read)?)
    }

    #[test]
    fn policies_are_files_or_documents() {
        let dir = tempfile::tempdir().unwrap();
        let policy = r#"{"Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}"#;
        std::fs::write(dir.path().join("p.json"), policy).unwrap();
        let found =
            read(dir.path(), &format!("[role.Trainer]\npolicies = [\"p.json\", '{policy}']\n[role.None]\n")).unwrap();
        let mut expected = Roles::default();
        expected.declare("Trainer", &[policy.to_owned(), policy.to_owned()]).unwrap();
        expected.declare("None", &[]).unwrap();
        assert_eq!(found, expected);
        assert_eq!(read(dir.path(), "").unwrap(), Roles::default());
        for (file, why) in [
            ("[role.\"a/b\"]\n", "without a path"),
            ("[role.a]\npolicy = \"p.json\"\n", "there is no \"policy\""),
            ("[role.a]\npolicies = \"p.json\"\n", "is a list of files"),
            ("[role.a]\npolicies = [\"none.json\"]\n", "could not read the policy"),
            ("[role.a]\npolicies = [\"{}\"]\n", "Statement is missing"),
            ("role = 5\n", "roles are tables"),
        ] {
            let error = format!("{:#}", read(dir.path(), file).unwrap_err());
            assert!(error.contains(why), "{file}: {error}");
        }
    }
}
