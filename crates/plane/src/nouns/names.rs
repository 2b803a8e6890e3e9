//! Names that must not be taken for one another: each kind is a type of its own, and reads as a
//! string.

use std::{borrow::Borrow, fmt, ops::Deref};

use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[doc = $doc:literal])+ $name:ident) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == *other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == **other
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

name! {
    /// Names one attempt of one job for ever: the job's uid and the attempt's number. What runs for
    /// it is found by this name: its directory, its processes, its reports.
    AttemptId
}

name! {
    /// A training job's name.
    JobName
}

name! {
    /// A tuning job's name.
    TuningName
}

impl AttemptId {
    /// Of a job's `number`th attempt, from 1.
    pub(crate) fn of(uid: &str, number: u32) -> Self {
        Self(format!("{uid}-{number}"))
    }
}
