//! How far a tuning job's trial is and how far it may go: a file of our own beside SageMaker's, for
//! programs that know it.

use serde_json::{Value, json};

/// Relative to `/opt/ml`. It is replaced as a whole, by renaming, while the program runs.
pub const RESOURCE_FILE: &str = "input/config/shoal_resource.json";

/// Units of the trial's resource (rounds, epochs), counted from the start of its first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resource {
    /// For so many of them the objective's values are known: a program that goes on from an earlier
    /// checkpoint need not say them again.
    pub from: u64,
    /// After so many the program is to save a checkpoint and wait until the file says more; `None`:
    /// it runs to its end.
    pub until: Option<u64>,
    /// After so many (the tuning job's `MaxResource`) the trial is complete: a program that has
    /// more to do saves its model and ends there, else it is stopped. `None`: no limit.
    pub max: Option<u64>,
}

impl Resource {
    /// The file's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut value = json!({ "from": self.from });
        for (name, units) in [("until", self.until), ("max", self.max)] {
            if let Some(units) = units {
                value[name] = units.into();
            }
        }
        value.to_string().into_bytes()
    }

    /// Reads the file's content; `None` if it is not one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let units = |name: &str| match value.get(name) {
            None | Some(Value::Null) => Some(None),
            Some(units) => units.as_u64().map(Some),
        };
        Some(Self {
            from: value.get("from").and_then(Value::as_u64).unwrap_or(0),
            until: units("until")?,
            max: units("max")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let resource = |from, until, max| Resource { from, until, max };
        for resource in [
            Resource::default(),
            resource(3, Some(9), None),
            resource(0, Some(1), Some(27)),
            resource(9, None, Some(27)),
        ] {
            assert_eq!(Resource::parse(&resource.to_bytes()), Some(resource));
        }
        assert_eq!(Resource::parse(br#"{"until": 27}"#), Some(resource(0, Some(27), None)));
        for bytes in [&b""[..], b"{\"until\":", b"{\"until\": -1}", b"{\"until\": \"9\"}", b"{\"max\": -1}"] {
            assert_eq!(Resource::parse(bytes), None);
        }
    }
}
