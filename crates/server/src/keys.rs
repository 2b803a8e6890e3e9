//! Access keys: the owner's, kept in the data directory, and temporary ones of running attempts,
//! derived from it.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use shoal_plane::AttemptId;
use shoal_wire::{proof, sigv4::Credentials};

use crate::hex::random_hex;

/// A pair of keys, and the session token that temporary ones carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessKeys {
    /// `AKIA...` or, temporary, `ASIA...`.
    pub access_key_id: String,
    /// Secret.
    pub secret_access_key: String,
    /// Only with temporary keys.
    pub session_token: Option<String>,
}

impl AccessKeys {
    /// Reads the owner's keys: two lines, `access_key_id=` and `secret_access_key=`.
    ///
    /// # Errors
    /// The file is absent, unreadable or not of that form.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
                .map(|value| value.trim().to_owned())
                .filter(|value| !value.is_empty())
                .ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("{}: no line {name}= with a value", path.display()),
                    )
                })
        };
        Ok(Self {
            access_key_id: field("access_key_id")?,
            secret_access_key: field("secret_access_key")?,
            session_token: None,
        })
    }

    /// Reads the keys, or makes them on first start (mode 0600).
    ///
    /// # Errors
    /// As [`AccessKeys::read`]; or the file cannot be written, or the system gives no randomness.
    pub fn read_or_create(path: &Path) -> io::Result<Self> {
        match Self::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let keys = Self {
            access_key_id: format!("AKIA{}", random_hex(8)?.to_uppercase()),
            secret_access_key: random_hex(20)?,
            session_token: None,
        };
        let temporary = path.with_extension("new");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        writeln!(file, "access_key_id={}\nsecret_access_key={}", keys.access_key_id, keys.secret_access_key)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        Ok(keys)
    }

    /// The secret by which an attempt's agents are known, 256 bits. Like the temporary keys it is
    /// derived, never stored.
    pub(crate) fn agent_token(&self, attempt: &str) -> String {
        self.derive("agent:", attempt)
    }

    /// What a Prometheus on another machine shows to read `/metrics`.
    pub(crate) fn metrics_token(&self) -> String {
        self.derive("metrics", "")
    }

    pub(crate) fn derive(&self, label: &str, of: &str) -> String {
        proof::of(&self.secret_access_key, label, of)
    }

    /// Whether two texts are the same, in a time that does not depend on how much of them is.
    pub(crate) fn equal(&self, one: &str, other: &str) -> bool {
        proof::equal(&self.secret_access_key, one, other)
    }

    /// A token that signs a browser in to the console once, within ten minutes of `now_ms` (since
    /// the epoch). Who has the keys makes it; the server need not be asked.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn console_token(&self, now_ms: u64) -> io::Result<String> {
        shoal_console::sign_in_token(&self.credentials(), now_ms)
    }

    pub(crate) fn credentials(&self) -> Credentials {
        let Self { access_key_id, secret_access_key, session_token } = self.clone();
        Credentials { access_key_id, secret_access_key, session_token }
    }

    /// The temporary keys of an attempt. Nothing of them is stored: the same attempt has the same
    /// keys after a restart.
    #[must_use]
    pub fn of_attempt(&self, attempt: &AttemptId) -> Self {
        let derive = |label: &str| self.derive(label, attempt);
        Self {
            access_key_id: format!("ASIA{}", &derive("key:")[..16].to_uppercase()),
            secret_access_key: derive("secret:")[..40].to_owned(),
            session_token: Some(derive("session:")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_once_and_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let first = AccessKeys::read_or_create(&path).unwrap();
        assert_eq!(first, AccessKeys::read_or_create(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(first.access_key_id.len(), 20);
        assert_eq!(first.secret_access_key.len(), 40);
    }

    #[test]
    fn attempts_have_keys_of_their_own() {
        let owner = AccessKeys {
            access_key_id: "AKIA0".to_owned(),
            secret_access_key: "secret".to_owned(),
            session_token: None,
        };
        let (one, two) = (owner.of_attempt(&"a-1".into()), owner.of_attempt(&"a-2".into()));
        assert_eq!(one, owner.of_attempt(&"a-1".into()));
        assert_ne!(one.access_key_id, two.access_key_id);
        assert_ne!(one.secret_access_key, two.secret_access_key);
        assert_ne!(one.session_token, two.session_token);
    }

    #[test]
    fn a_damaged_file_of_keys_is_an_error_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        for damaged in [
            "",
            "access_key_id=AKIA0\n",
            "secret_access_key=s\n",
            "access_key_id=AKIA0\nsecret_access_key=\n",
            "access_key_id=\nsecret_access_key=s\n",
            "access_key_id AKIA0\nsecret_access_key s\n",
        ] {
            fs::write(&path, damaged).unwrap();
            let error = AccessKeys::read_or_create(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{damaged:?}");
            assert!(error.to_string().contains("keys: no line "), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), damaged, "no keys of anyone are replaced");
        }
        fs::write(&path, "# mine\r\nsecret_access_key= s \r\nother=1\naccess_key_id=AKIA0\r\n").unwrap();
        let keys = AccessKeys::read(&path).unwrap();
        assert_eq!((keys.access_key_id.as_str(), keys.secret_access_key.as_str()), ("AKIA0", "s"));
    }

    #[test]
    fn what_is_derived_depends_on_its_label_its_subject_and_the_owner() {
        let owner = |secret: &str| AccessKeys {
            access_key_id: "AKIA0".to_owned(),
            secret_access_key: secret.to_owned(),
            session_token: None,
        };
        let (mut all, mut count) = (std::collections::BTreeSet::new(), 0);
        for secret in ["one", "two"] {
            let owner = owner(secret);
            for attempt in ["a-1", "a-11", "b-1"] {
                let keys = owner.of_attempt(&attempt.into());
                assert_eq!((keys.access_key_id.len(), keys.secret_access_key.len()), (20, 40));
                all.extend([keys.access_key_id, keys.secret_access_key, owner.agent_token(attempt)]);
                all.extend(keys.session_token);
                count += 4;
            }
            all.insert(owner.metrics_token());
            count += 1;
        }
        assert_eq!(all.len(), count, "no secret is another one's");
    }
}
