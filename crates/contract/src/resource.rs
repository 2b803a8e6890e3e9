//! How far a tuning job's trial is and how far it may go: a file of our own beside SageMaker's, for programs that know it.

use serde_json::{Value, json};

/// Relative to `/opt/ml`. It is replaced as a whole, by renaming, while the program runs.
pub const RESOURCE_FILE: &str = "input/config/shoal_resource.json";

/// Units of the trial's resource (rounds, epochs), counted from the start of its first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resource {
    /// For so many of them the objective's values are known: a program that goes on from an earlier checkpoint need not say them again.
    pub from: u64,
    /// After so many the program is to save a checkpoint and wait until the file says more; `None`: it runs to its end.
    pub until: Option<u64>,
}

impl Resource {
    /// The file's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        let value = match self.until {
            Some(until) => json!({ "from": self.from, "until": until }),
            None => json!({ "from": self.from }),
        };
        value.to_string().into_bytes()
    }

    /// Reads the file's content; `None` if it is not one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let until = match value.get("until") {
            None | Some(Value::Null) => None,
            Some(until) => Some(until.as_u64()?),
        };
        Some(Self { from: value.get("from").and_then(Value::as_u64).unwrap_or(0), until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for resource in [Resource::default(), Resource { from: 3, until: Some(9) }, Resource { from: 0, until: Some(1) }] {
            assert_eq!(Resource::parse(&resource.to_bytes()), Some(resource));
        }
        assert_eq!(Resource::parse(br#"{"until": 27}"#), Some(Resource { from: 0, until: Some(27) }));
        for bytes in [&b""[..], b"{\"until\":", b"{\"until\": -1}", b"{\"until\": \"9\"}"] {
            assert_eq!(Resource::parse(bytes), None);
        }
    }
}
