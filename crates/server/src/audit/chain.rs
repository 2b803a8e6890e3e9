//! The chain of lines: each has its number and the hash of the one before.

use serde::{Deserialize, Serialize};

use super::record::Record;
use crate::{hex::sha256_hex, keys::AccessKeys};

/// What the first line has as the hash of the one before.
const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A line as it is written: what it is, and its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) number: u64,
    #[serde(flatten)]
    pub(super) record: Record,
    /// SHA-256 of the line before, hexadecimal.
    pub(super) previous: String,
}

/// The end of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    /// Number of the last line; 0 of an empty chain.
    pub(super) number: u64,
    /// SHA-256 of the last line.
    pub(super) hash: String,
}

impl Default for End {
    fn default() -> Self {
        Self { number: 0, hash: NOTHING.to_owned() }
    }
}

impl End {
    /// The next line, with its newline; it is the end from then on.
    pub(super) fn append(&mut self, record: Record) -> String {
        let line = Line { number: self.number + 1, record, previous: self.hash.clone() };
        let text = serde_json::to_string(&line).expect("it has string keys only");
        *self = Self::after(line.number, &text);
        text + "\n"
    }

    /// The end after a line, which is given without its newline.
    pub(super) fn after(number: u64, text: &str) -> Self {
        Self { number, hash: sha256_hex(text) }
    }
}

/// What `audit.seal` has: which lines there are, under the owner's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seal {
    /// Number of the first line that is kept.
    pub(super) first: u64,
    /// Number of the last line.
    pub(super) last: u64,
    /// Hash of the last line.
    pub(super) hash: String,
    seal: String,
}

impl Seal {
    pub(super) fn new(owner: &AccessKeys, first: u64, end: &End) -> Self {
        let seal = derived(owner, first, end.number, &end.hash);
        Self { first, last: end.number, hash: end.hash.clone(), seal }
    }

    /// Whether it is the owner's.
    pub(super) fn holds(&self, owner: &AccessKeys) -> bool {
        owner.equal(&self.seal, &derived(owner, self.first, self.last, &self.hash))
    }
}

fn derived(owner: &AccessKeys, first: u64, last: u64, hash: &str) -> String {
    owner.derive("audit-seal:", &format!("{first} {last} {hash}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_chained_and_come_back() {
        let mut end = End::default();
        let record = Record { user: "anna".to_owned(), operation: "StopTrainingJob".to_owned(), ..Record::default() };
        let first = end.append(record.clone());
        let second = end.append(record.clone());
        let read = |text: &str| serde_json::from_str::<Line>(text).unwrap();
        assert_eq!((read(&first).number, read(&first).previous.as_str()), (1, NOTHING));
        assert_eq!(read(&second).previous, sha256_hex(first.trim_end()));
        assert_eq!((read(&second).number, read(&second).record), (2, record));
        assert_eq!(end, End::after(2, second.trim_end()));
    }

    #[test]
    fn a_seal_is_the_owners() {
        let owner = |secret: &str| AccessKeys {
            access_key_id: "AKIA0".to_owned(),
            secret_access_key: secret.to_owned(),
            session_token: None,
        };
        let seal = Seal::new(&owner("mine"), 1, &End::default());
        assert!(seal.holds(&owner("mine")) && !seal.holds(&owner("other")));
        assert!(!Seal { last: 9, ..seal.clone() }.holds(&owner("mine")));
        assert!(!Seal { first: 2, ..seal }.holds(&owner("mine")));
    }
}
