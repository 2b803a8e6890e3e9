//! The keys of the owner, by name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::command::{self, Task};
use crate::flights::Flights;
use crate::wrapping::WrappingKey;
use crate::{DataKey, Envelope, Holder, KeyError, key_file};

/// Where a key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file with keys: the first one wraps, all unwrap.
    File(PathBuf),
    /// A program and its arguments.
    Command(Vec<String>),
}

/// The keys that the owner has declared.
#[derive(Debug, Default)]
pub struct KeyRing {
    keys: BTreeMap<String, Key>,
    /// `REGION:ACCOUNT` of ARNs.
    place: String,
    /// Of commands. Data keys are a server's to cache: a command may take as long as a network.
    opened: Flights<Wrapped, DataKey>,
    /// Of each command, the data key that contents are encrypted under at present, and how it is
    /// wrapped.
    present: Flights<String, (DataKey, Vec<u8>)>,
}

/// A key's name, and a data key that it has wrapped.
type Wrapped = (String, Vec<u8>);

#[derive(Debug)]
enum Key {
    File(Vec<WrappingKey>),
    Command(Vec<String>),
}

impl KeyRing {
    /// Reads the keys. Commands are not run.
    ///
    /// # Errors
    /// [`KeyError::Declared`]: a file cannot be used.
    pub fn open(sources: &BTreeMap<String, KeySource>, region: &str, account: &str) -> Result<Self, KeyError> {
        let mut keys = BTreeMap::new();
        for (name, source) in sources {
            let key = match source {
                KeySource::Command(command) => Key::Command(command.clone()),
                KeySource::File(path) => {
                    let read = key_file::read(path);
                    Key::File(read.map_err(|why| KeyError::Declared(format!("[kms.{name:?}]: {why}")))?)
                }
            };
            keys.insert(name.clone(), key);
        }
        Ok(Self { keys, place: format!("{region}:{account}"), ..Self::default() })
    }

    /// Whether there is a key of this name.
    pub fn has(&self, name: &str) -> bool {
        self.keys.contains_key(name)
    }

    /// The name of the key that a client names by its id, its alias or the ARN of either. Aliases
    /// are names with `alias/` before them.
    ///
    /// # Errors
    /// [`KeyError::Unknown`].
    pub fn find(&self, id: &str) -> Result<&str, KeyError> {
        let place = format!(":kms:{}:", self.place);
        let of_arn = id.strip_prefix("arn:").and_then(|arn| arn.split_once(&place)).map(|(_, resource)| resource);
        let name = match of_arn {
            Some(resource) => resource.strip_prefix("key/").or_else(|| resource.strip_prefix("alias/")),
            None => Some(id.strip_prefix("alias/").unwrap_or(id)),
        };
        let known = name.and_then(|name| self.keys.get_key_value(name));
        known.map(|(name, _)| name.as_str()).ok_or_else(|| KeyError::Unknown(id.to_owned()))
    }

    /// The ARN of the key of this name.
    pub fn arn(&self, name: &str) -> String {
        format!("arn:aws:kms:{}:key/{name}", self.place)
    }

    /// A data key for a new content, and its envelope under this key.
    ///
    /// # Errors
    /// [`KeyError::Unknown`], [`KeyError::Unavailable`].
    pub fn new_data_key(&self, name: &str) -> Result<(DataKey, Envelope), KeyError> {
        let (data, wrapped) = match self.key(name)? {
            Key::File(keys) => {
                let data = DataKey::random()?;
                let wrapped = keys[0].wrap(&data, &context(name))?;
                (data, wrapped)
            }
            Key::Command(command) => self.present(name, command)?,
        };
        Ok((data, Envelope::new(Holder::Kms(name.to_owned()), &wrapped)))
    }

    /// The data key in an envelope of the owner's.
    ///
    /// # Errors
    /// [`KeyError::Unknown`], [`KeyError::Unavailable`], [`KeyError::Wrong`],
    /// [`KeyError::NoCustomerKey`].
    pub fn open_envelope(&self, envelope: &Envelope) -> Result<DataKey, KeyError> {
        let name = envelope.kms_key().ok_or(KeyError::NoCustomerKey)?;
        let wrong = || KeyError::Wrong(name.to_owned());
        let wrapped = envelope.wrapped().ok_or_else(wrong)?;
        match self.key(name)? {
            Key::File(keys) => keys.iter().find_map(|key| key.unwrap(&wrapped, &context(name))).ok_or_else(wrong),
            Key::Command(command) => self.opened(name, command, &wrapped),
        }
    }

    /// The envelope of a copy: its data key under the newest key of a file. What a command has
    /// wrapped it rotates itself.
    ///
    /// # Errors
    /// As of [`Self::open_envelope`].
    pub fn rewrap(&self, envelope: &Envelope) -> Result<Envelope, KeyError> {
        let Some((name, Key::File(keys))) = envelope.kms_key().and_then(|name| self.keys.get_key_value(name)) else {
            return Ok(envelope.clone());
        };
        let wrapped = keys[0].wrap(&self.open_envelope(envelope)?, &context(name))?;
        let renewed = Envelope::new(envelope.holder.clone(), &wrapped);
        Ok(Envelope { bucket_key: envelope.bucket_key, ..renewed })
    }

    /// Whether a key works: a data key goes in and comes back.
    ///
    /// # Errors
    /// As above.
    pub fn check(&self, name: &str) -> Result<(), KeyError> {
        let data = DataKey::random()?;
        let back = match self.key(name)? {
            Key::File(keys) => keys[0].unwrap(&keys[0].wrap(&data, &context(name))?, &context(name)),
            Key::Command(command) => {
                let wrapped = run(command, Task::Wrap, name, data.bytes())?;
                DataKey::of(&run(command, Task::Unwrap, name, &wrapped)?)
            }
        };
        let is_same = back.is_some_and(|back| back.bytes() == data.bytes());
        if is_same { Ok(()) } else { Err(KeyError::Unavailable(changed(name))) }
    }

    fn key(&self, name: &str) -> Result<&Key, KeyError> {
        self.keys.get(name).ok_or_else(|| KeyError::Unknown(name.to_owned()))
    }

    /// One data key for all contents of some minutes, as AWS's bucket keys: each content has a key
    /// of its own that is derived from it.
    fn present(&self, name: &str, command: &[String]) -> Result<(DataKey, Vec<u8>), KeyError> {
        self.present.get(name.to_owned(), || {
            let data = DataKey::random()?;
            let wrapped = run(command, Task::Wrap, name, data.bytes())?.to_vec();
            self.opened.keep((name.to_owned(), wrapped.clone()), data.clone());
            Ok((data, wrapped))
        })
    }

    fn opened(&self, name: &str, command: &[String], wrapped: &[u8]) -> Result<DataKey, KeyError> {
        self.opened.get((name.to_owned(), wrapped.to_vec()), || {
            let bytes = run(command, Task::Unwrap, name, wrapped)?;
            DataKey::of(&bytes).ok_or_else(|| KeyError::Unavailable(changed(name)))
        })
    }
}

/// What a data key is bound to that the owner's key of this name wraps.
fn context(name: &str) -> Vec<u8> {
    [b"shoal data key, 1 ".as_slice(), name.as_bytes()].concat()
}

fn run(command: &[String], task: Task, name: &str, input: &[u8]) -> Result<zeroize::Zeroizing<Vec<u8>>, KeyError> {
    let unavailable = |why| KeyError::Unavailable(format!("key \"{name}\": {why}"));
    command::run(command, task, name, input).map_err(unavailable)
}

fn changed(name: &str) -> String {
    format!("key \"{name}\": what its command unwraps is not what it has wrapped: it must give back the same 32 bytes")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn ring(source: KeySource) -> Result<KeyRing, KeyError> {
        KeyRing::open(&BTreeMap::from([("team".to_owned(), source)]), "us-east-1", "1")
    }

    #[test]
    fn a_rotated_key_opens_what_the_one_before_has_wrapped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("team.key");
        let open = |keys: &[u8]| {
            let lines = Vec::from_iter(keys.iter().map(|byte| format!("{byte:02x}").repeat(32)));
            write(&path, &lines.join("\n"), 0o600);
            ring(KeySource::File(path.clone())).unwrap()
        };
        let (data, before) = open(&[1]).new_data_key("team").unwrap();
        let rotated = open(&[2, 1]);
        assert_eq!(rotated.open_envelope(&before).unwrap().bytes(), data.bytes());
        let (_, after) = rotated.new_data_key("team").unwrap();
        assert!(open(&[2]).open_envelope(&after).is_ok(), "the first line wraps");
        let copy = rotated.rewrap(&Envelope { bucket_key: true, ..before.clone() }).unwrap();
        assert_eq!(open(&[2]).open_envelope(&copy).unwrap().bytes(), data.bytes());
        assert!(copy.bucket_key);
        assert_eq!(open(&[2]).open_envelope(&before).unwrap_err(), KeyError::Wrong("team".to_owned()));
        let renamed = Envelope { holder: Holder::Kms("other".to_owned()), ..before };
        assert_eq!(rotated.open_envelope(&renamed).unwrap_err(), KeyError::Unknown("other".to_owned()));
        rotated.check("team").unwrap();
        write(&path, &"01".repeat(32), 0o644);
        let error = ring(KeySource::File(path)).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("[kms.\"team\"]") && error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn keys_are_found_by_id_alias_and_arn() {
        let sources = ["team", "aws/s3"].map(|name| (name.to_owned(), KeySource::Command(Vec::new())));
        let ring = KeyRing::open(&BTreeMap::from(sources), "us-east-1", "1").unwrap();
        assert_eq!(ring.arn("team"), "arn:aws:kms:us-east-1:1:key/team");
        for (id, expected) in [
            ("team", Some("team")),
            ("alias/team", Some("team")),
            ("arn:aws:kms:us-east-1:1:key/team", Some("team")),
            ("arn:aws:kms:us-east-1:1:alias/team", Some("team")),
            ("alias/aws/s3", Some("aws/s3")),
            ("arn:aws:kms:us-east-1:2:key/team", None),
            ("arn:aws:kms:eu-west-1:1:key/team", None),
            ("arn:aws:kms:us-east-1:1:team", None),
            ("other", None),
            ("", None),
        ] {
            assert_eq!(ring.find(id).ok(), expected, "{id}");
        }
    }

    /// A command that counts its runs.
    #[test]
    fn a_command_is_run_once_for_the_contents_of_some_minutes() {
        let dir = tempfile::tempdir().unwrap();
        let (program, log) = (dir.path().join("kms"), dir.path().join("log"));
        let script = format!("#!/bin/sh\necho \"$*\" >> {}\ntr 'A-Za-z' 'N-ZA-Mn-za-m'\n", log.display());
        write(&program, &script, 0o700);
        let command = vec![program.display().to_string(), "--region=x".to_owned()];
        let ring = || ring(KeySource::Command(command.clone())).unwrap();
        let first = ring();
        let (data, envelope) = first.new_data_key("team").unwrap();
        let (_, again) = first.new_data_key("team").unwrap();
        assert_eq!(envelope, again);
        assert_eq!(first.open_envelope(&envelope).unwrap().bytes(), data.bytes());
        assert_eq!(fs::read_to_string(&log).unwrap(), "--region=x wrap team\n");
        let other = ring();
        for _ in 0..2 {
            assert_eq!(other.open_envelope(&envelope).unwrap().bytes(), data.bytes());
        }
        assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 2);
        other.check("team").unwrap();
        write(&program, "#!/bin/sh\necho denied >&2\nexit 1\n", 0o700);
        let error = ring().open_envelope(&envelope).unwrap_err();
        assert!(matches!(&error, KeyError::Unavailable(why) if why.contains("denied")), "{error}");
        assert!(other.open_envelope(&envelope).is_ok(), "it is cached");
    }
}
