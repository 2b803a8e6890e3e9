//! The holder of a key, as its row has it.

use serde::{Deserialize, Serialize};
use shoal_s3::{PolicyCaller, Scope};
use shoal_store::{ResourceKind, ResourceRow};
use shoal_wire::{KeyRole, KeySummary, S3Uri, arn};

/// Rows of keys. The kind is in no ARN of SageMaker's.
pub(crate) const KEY: ResourceKind = ResourceKind::new("shoal-key");

/// S3 buckets and prefixes that keys of objects begin with.
pub(crate) type Places = Vec<(String, String)>;

/// The holder of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) role: KeyRole,
    pub(crate) access_key_id: String,
    /// Of a user: what of S3 may be read in addition to what may be written; `None` for all.
    pub(crate) read: Option<Places>,
    /// Of a user: what of S3 may be written.
    pub(crate) write: Places,
    pub(crate) created_ms: u64,
    pub(crate) rotated_ms: u64,
}

/// What a row's spec has, version 1.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    role: KeyRole,
    access_key_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read: Option<Places>,
    write: Places,
}

const VERSION: u32 = 1;

impl Member {
    /// Of a row; `None` if a newer version wrote it.
    pub(super) fn of(row: &ResourceRow) -> Option<Self> {
        let Stored { version, role, access_key_id, read, write } = serde_json::from_slice(&row.spec).ok()?;
        let (name, created_ms, rotated_ms) = (row.name.clone(), row.created_ms, row.modified_ms);
        (version == VERSION).then_some(Self { name, role, access_key_id, read, write, created_ms, rotated_ms })
    }

    /// The row; without the secret, which follows from the id.
    pub(crate) fn to_row(&self, account: &str) -> ResourceRow {
        let Self { name, role, access_key_id, read, write, created_ms, rotated_ms } = self.clone();
        let stored = Stored { version: VERSION, role, access_key_id, read, write };
        ResourceRow {
            arn: arn::user(account, &name),
            created_ms,
            modified_ms: rotated_ms,
            spec: serde_json::to_vec(&stored).expect("it has string keys only"),
            ..ResourceRow::new(KEY, &name)
        }
    }

    /// The holder of a key that was removed.
    pub(super) fn removed(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            role: KeyRole::User,
            access_key_id: String::new(),
            read: Some(Vec::new()),
            write: Vec::new(),
            created_ms: 0,
            rotated_ms: 0,
        }
    }

    /// Whether the key opens nothing any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.access_key_id.is_empty()
    }

    /// How policies name the holder.
    pub(crate) fn policy_caller(&self, account: &str) -> PolicyCaller {
        PolicyCaller {
            principals: vec![arn::user(account, &self.name)],
            username: Some(self.name.clone()),
            narrowed_by: Vec::new(),
        }
    }

    /// Whether the holder sees and changes own resources only.
    pub(crate) fn is_user(&self) -> bool {
        self.role == KeyRole::User
    }

    pub(crate) fn may_read(&self, bucket: &str, key: &str) -> bool {
        match (self.role, &self.read) {
            (KeyRole::Owner | KeyRole::Reader, _) | (KeyRole::User, None) => true,
            (KeyRole::User, Some(places)) => is_below(places, bucket, key) || is_below(&self.write, bucket, key),
        }
    }

    pub(crate) fn may_write(&self, bucket: &str, key: &str) -> bool {
        match self.role {
            KeyRole::Owner => true,
            KeyRole::Reader => false,
            KeyRole::User => is_below(&self.write, bucket, key),
        }
    }

    /// What of S3 the key opens.
    pub(crate) fn scope(&self) -> Scope {
        match self.role {
            KeyRole::Owner => Scope::All,
            KeyRole::Reader => Scope::Key { read: None, write: Vec::new() },
            KeyRole::User => Scope::Key { read: self.read.clone(), write: self.write.clone() },
        }
    }

    pub(crate) fn summary(&self, account: &str) -> KeySummary {
        let uris = |places: &Places| {
            places.iter().map(|(bucket, prefix)| S3Uri { bucket: bucket.clone(), prefix: prefix.clone() }).collect()
        };
        KeySummary {
            name: self.name.clone(),
            role: self.role,
            access_key_id: self.access_key_id.clone(),
            arn: arn::user(account, &self.name),
            read: self.read.as_ref().filter(|_| self.is_user()).map(uris),
            write: match self.role {
                KeyRole::Owner => None,
                KeyRole::User | KeyRole::Reader => Some(uris(&self.write)),
            },
            created_ms: self.created_ms,
            rotated_ms: self.rotated_ms,
        }
    }
}

/// Whether an object's key, or a prefix of keys, is in one of these places.
pub(crate) fn is_below(places: &[(String, String)], bucket: &str, key: &str) -> bool {
    places.iter().any(|(allowed, prefix)| allowed == bucket && key.starts_with(prefix.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(role: KeyRole) -> Member {
        let pair = |bucket: &str, prefix: &str| (bucket.to_owned(), prefix.to_owned());
        Member {
            name: "anna".to_owned(),
            role,
            access_key_id: "AKIA0".to_owned(),
            read: Some(vec![pair("data", "shared/")]),
            write: vec![pair("out", "anna/")],
            created_ms: 1,
            rotated_ms: 2,
        }
    }

    #[test]
    fn a_row_is_a_key_without_its_secret() {
        let anna = member(KeyRole::User);
        let row = anna.to_row("123456789012");
        assert_eq!(Member::of(&row), Some(anna));
        assert_eq!(row.arn, "arn:aws:iam::123456789012:user/anna");
        let spec = String::from_utf8(row.spec.clone()).unwrap();
        assert_eq!(
            spec,
            r#"{"version":1,"role":"user","access_key_id":"AKIA0","read":[["data","shared/"]],"write":[["out","anna/"]]}"#
        );
        for newer in [spec.replace("\"version\":1", "\"version\":2"), spec.replace("user", "auditor"), String::new()] {
            assert_eq!(Member::of(&ResourceRow { spec: newer.clone().into_bytes(), ..row.clone() }), None, "{newer}");
        }
    }

    #[test]
    fn places_hold_for_users_alone() {
        for (bucket, key, reads, writes) in [
            ("out", "anna/x", true, true),
            ("out", "anna/", true, true),
            ("out", "anna", false, false),
            ("out", "annabel/x", false, false),
            ("out", "", false, false),
            ("data", "shared/x", true, false),
            ("data", "other", false, false),
            ("other", "anna/x", false, false),
        ] {
            let user = member(KeyRole::User);
            assert_eq!((user.may_read(bucket, key), user.may_write(bucket, key)), (reads, writes), "{bucket}/{key}");
            let (owner, reader) = (member(KeyRole::Owner), member(KeyRole::Reader));
            assert!(owner.may_read(bucket, key) && owner.may_write(bucket, key));
            assert!(reader.may_read(bucket, key) && !reader.may_write(bucket, key));
        }
        let gone = Member::removed("anna");
        assert!(!gone.may_read("data", "shared/x") && !gone.may_write("out", "anna/x"));
    }
}
