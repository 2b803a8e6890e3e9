//! Files that an instance reads: a directory of the agent's machine, or objects that the agent gets
//! from the server over a connection of its own ([`crate::ToServer::Objects`]).

use std::path::Path;

use serde::{Deserialize, Serialize};

/// A tree of files. A local one is written as its path alone, as servers did that knew no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Input {
    /// A directory on this machine, which nobody changes.
    Local(String),
    /// Objects of the server.
    Objects(ObjectTree),
}

/// What names a tree of objects. Its manifest is asked for by [`crate::ToServer::List`], since it
/// may be long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectTree {
    /// Name of the tree: the same for the same objects at the same paths.
    pub tree: String,
}

/// Ids of objects begin with this that no cache of a node keeps when no job reads them any more:
/// the server has them encrypted.
pub const PRIVATE_ID: &str = "private";

/// A file of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// Below the tree's directory, `/` between names.
    pub path: String,
    /// The object; it never changes.
    pub id: String,
    /// Its bytes.
    pub size: u64,
    /// Of a pipe: these bytes are streamed, and there is no object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Input {
    /// Its directory on this machine; empty if it has none yet.
    #[must_use]
    pub fn directory(&self) -> &Path {
        match self {
            Self::Local(path) => Path::new(path),
            Self::Objects(_) => Path::new(""),
        }
    }
}
