//! The name of an attempt.

use std::{borrow::Borrow, fmt, ops::Deref};

use serde::{Deserialize, Serialize};

/// Names one attempt of one job for ever: the job's uid and the attempt's number. What runs for it
/// is found by this name: its directory, its processes, its reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttemptId(String);

impl AttemptId {
    /// Of a job's `number`th attempt, from 1.
    pub(crate) fn of(uid: &str, number: u32) -> Self {
        Self(format!("{uid}-{number}"))
    }
}

impl Deref for AttemptId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for AttemptId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for AttemptId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<str> for AttemptId {
    fn eq(&self, other: &str) -> bool {
        self.0 == *other
    }
}

impl PartialEq<&str> for AttemptId {
    fn eq(&self, other: &&str) -> bool {
        self.0 == **other
    }
}

impl From<&str> for AttemptId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for AttemptId {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<AttemptId> for String {
    fn from(id: AttemptId) -> Self {
        id.0
    }
}
