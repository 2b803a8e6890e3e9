//! CloudWatch Logs: what changes groups, streams and their events.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Call, Error, Input, Reply, call::read, filter_logs::CLASS};

/// Days that `PutRetentionPolicy` accepts, as AWS has them.
const RETENTION_DAYS: [u32; 22] =
    [1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653];

/// Bytes of a `PutLogEvents`, each event with [`EVENT_OVERHEAD`] more.
const MAX_BATCH_BYTES: usize = 1 << 20;
const EVENT_OVERHEAD: usize = 26;

/// Milliseconds between the first and the last event of a `PutLogEvents`.
const MAX_SPAN_MS: u64 = 24 * 60 * 60 * 1000;

/// A call that changes log groups or streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogChange {
    /// `CreateLogGroup`.
    CreateGroup {
        /// Log group's name.
        group: String,
    },
    /// `DeleteLogGroup`.
    DeleteGroup {
        /// Log group's name.
        group: String,
    },
    /// `CreateLogStream`.
    CreateStream {
        /// Log group's name.
        group: String,
        /// Log stream's name.
        stream: String,
    },
    /// `DeleteLogStream`.
    DeleteStream {
        /// Log group's name.
        group: String,
        /// Log stream's name.
        stream: String,
    },
    /// `PutRetentionPolicy` and `DeleteRetentionPolicy`.
    SetRetention {
        /// Log group's name.
        group: String,
        /// `None`: events do not expire.
        days: Option<u32>,
    },
    /// `PutLogEvents`.
    PutEvents {
        /// Log group's name.
        group: String,
        /// Log stream's name.
        stream: String,
        /// When (milliseconds since the epoch) and what, in chronological order.
        events: Vec<(u64, String)>,
    },
}

/// Events of a `PutLogEvents` that were not stored (`rejectedLogEventsInfo`), by their indexes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RejectedLogEvents {
    /// The first event that is too far in the future.
    pub too_new_start: Option<usize>,
    /// Events before this one are too old.
    pub too_old_end: Option<usize>,
    /// Events before this one are older than the group's retention.
    pub expired_end: Option<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreateLogGroupRequest {
    log_group_name: String,
    kms_key_id: Option<String>,
    log_group_class: Option<String>,
    #[serde(default)]
    tags: serde_json::Map<String, Value>,
    #[serde(default)]
    deletion_protection_enabled: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupRequest {
    log_group_name: String,
    retention_in_days: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StreamRequest {
    log_group_name: String,
    log_stream_name: String,
    #[serde(default)]
    log_events: Vec<InputEvent>,
}

#[derive(Deserialize)]
struct InputEvent {
    timestamp: u64,
    message: String,
}

impl Input for LogChange {
    fn read(call: Call) -> Result<Self, Error> {
        match call.operation.name {
            "CreateLogGroup" => create_group(read(call.input)?),
            name if name.ends_with("LogStream") || name == "PutLogEvents" => {
                let StreamRequest { log_group_name: group, log_stream_name: stream, log_events } = read(call.input)?;
                match name {
                    "CreateLogStream" => Ok(Self::CreateStream { group, stream }),
                    "DeleteLogStream" => Ok(Self::DeleteStream { group, stream }),
                    _ => put_events(group, stream, log_events),
                }
            }
            name => {
                let GroupRequest { log_group_name: group, retention_in_days: days } = read(call.input)?;
                match name {
                    "DeleteLogGroup" => Ok(Self::DeleteGroup { group }),
                    "DeleteRetentionPolicy" => Ok(Self::SetRetention { group, days: None }),
                    _ => {
                        let days = days.filter(|days| RETENTION_DAYS.contains(days));
                        let wrong = || {
                            let days = RETENTION_DAYS.map(|days| days.to_string()).join(", ");
                            Error::validation(format!("retentionInDays must be one of [{days}]."))
                        };
                        Ok(Self::SetRetention { group, days: Some(days.ok_or_else(wrong)?) })
                    }
                }
            }
        }
    }
}

fn create_group(request: CreateLogGroupRequest) -> Result<LogChange, Error> {
    let unsupported = [
        (request.kms_key_id.is_some(), "kmsKeyId"),
        (request.log_group_class.is_some_and(|class| class != CLASS), "logGroupClass other than STANDARD"),
        (!request.tags.is_empty(), "tags"),
        (request.deletion_protection_enabled, "deletionProtectionEnabled"),
    ];
    if let Some((_, what)) = unsupported.into_iter().find(|(is_given, _)| *is_given) {
        return Err(Error::validation(format!("{what} has no effect on this server; leave it out.")));
    }
    Ok(LogChange::CreateGroup { group: request.log_group_name })
}

fn put_events(group: String, stream: String, events: Vec<InputEvent>) -> Result<LogChange, Error> {
    let events: Vec<_> = events.into_iter().map(|event| (event.timestamp, event.message)).collect();
    let bytes: usize = events.iter().map(|(_, message)| message.len() + EVENT_OVERHEAD).sum();
    if bytes > MAX_BATCH_BYTES {
        return Err(Error::validation(format!("Upload too large: {bytes} bytes exceeds limit of {MAX_BATCH_BYTES}")));
    }
    if !events.is_sorted_by_key(|(at_ms, _)| *at_ms) {
        return Err(Error::validation("Log events in a single PutLogEvents request must be in chronological order."));
    }
    let span = events.first().zip(events.last()).map_or(0, |(first, last)| last.0 - first.0);
    if span > MAX_SPAN_MS {
        return Err(Error::validation(
            "The batch of log events in a single PutLogEvents request cannot span more than 24 hours.",
        ));
    }
    Ok(LogChange::PutEvents { group, stream, events })
}

impl Reply {
    /// `PutLogEvents`. Sequence tokens have no meaning any more, at AWS neither.
    pub fn put_log_events(rejected: &RejectedLogEvents) -> Self {
        let members = [
            ("tooNewLogEventStartIndex", rejected.too_new_start),
            ("tooOldLogEventEndIndex", rejected.too_old_end),
            ("expiredLogEventEndIndex", rejected.expired_end),
        ];
        let info: serde_json::Map<_, _> =
            members.into_iter().filter_map(|(name, at)| Some((name.to_owned(), json!(at?)))).collect();
        let reply = Self::of(json!({"nextSequenceToken": "0"}));
        if info.is_empty() { reply } else { reply.with("rejectedLogEventsInfo", Value::Object(info)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Service, operations::operations};

    #[test]
    fn what_a_group_cannot_have_is_refused() {
        let operation = operations().find(|it| it.service == Service::Logs && it.name == "CreateLogGroup").unwrap();
        let check = |more: Value, expected: &str| {
            let mut input = json!({"logGroupName": "g"});
            input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let message =
                LogChange::read(Call { operation, input }).err().map_or_else(String::new, |error| error.message);
            assert!(message.starts_with(expected) && message.is_empty() == expected.is_empty(), "{more}: {message}");
        };
        check(json!({}), "");
        check(json!({"logGroupClass": "STANDARD", "tags": {}, "deletionProtectionEnabled": false}), "");
        check(json!({"logGroupClass": "DELIVERY"}), "logGroupClass");
        check(json!({"kmsKeyId": "k"}), "kmsKeyId");
        check(json!({"tags": {"a": "b"}}), "tags");
        check(json!({"deletionProtectionEnabled": true}), "deletionProtectionEnabled");
    }
}
