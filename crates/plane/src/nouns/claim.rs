//! For whom a gang uses capacity.

use serde::{Deserialize, Serialize};

/// For whom a gang uses capacity, and how urgent that is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Claim {
    /// Gangs of higher priority go first, whatever their users have used.
    #[serde(default, skip_serializing_if = "crate::nouns::is_default")]
    pub priority: i32,
    /// Counts against this user's quota and share; none: no user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Tags, as `KEY=VALUE`, against whose quotas it counts, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}
