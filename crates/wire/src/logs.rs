//! CloudWatch Logs: what is asked for and what is told.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::Error;

/// A `DescribeLogStreams`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribeLogStreams {
    /// Log group's name.
    pub group: String,
    /// Beginning of the streams' names.
    pub prefix: Option<String>,
    /// Key of the order.
    pub order: LogStreamOrder,
    /// Largest first.
    pub descending: bool,
    /// 1 to 50. SDK v2 loops for ever on a reply with a token, so a server does well to ignore this together with a prefix.
    pub limit: Option<u32>,
    /// From the page before.
    pub next_token: Option<String>,
}

/// `orderBy` of `DescribeLogStreams`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum LogStreamOrder {
    /// By name.
    #[default]
    LogStreamName,
    /// By the last event.
    LastEventTime,
}

/// A `GetLogEvents`. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetLogEvents {
    /// Log group's name.
    pub group: String,
    /// Log stream's name.
    pub stream: String,
    /// From here.
    pub start_ms: Option<u64>,
    /// Up to, but without, here.
    pub end_ms: Option<u64>,
    /// From the reply before.
    pub next_token: Option<String>,
    /// 1 to 10,000, which is the default.
    pub limit: u32,
    /// Oldest first; without it the newest page comes first. Says nothing where there is a token.
    pub from_head: bool,
}

/// A line of `DescribeLogStreams`. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogStream {
    /// `<job>/algo-<n>-<epoch>`.
    pub name: String,
    /// [`crate::arn::log_stream`].
    pub arn: String,
    /// Stream's age.
    pub created_ms: u64,
    /// `None` without events.
    pub first_event_ms: Option<u64>,
    /// `None` without events.
    pub last_event_ms: Option<u64>,
    /// `None` without events.
    pub last_ingestion_ms: Option<u64>,
}

/// A line of a log. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEvent {
    /// When it was printed.
    pub at_ms: u64,
    /// Without the line's end.
    pub message: String,
    /// When it was stored.
    pub ingested_ms: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeLogStreamsRequest {
    log_group_name: Option<String>,
    log_group_identifier: Option<String>,
    log_stream_name_prefix: Option<String>,
    #[serde(default)]
    order_by: LogStreamOrder,
    #[serde(default)]
    descending: bool,
    next_token: Option<String>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GetLogEventsRequest {
    log_group_name: Option<String>,
    log_group_identifier: Option<String>,
    log_stream_name: String,
    start_time: Option<u64>,
    end_time: Option<u64>,
    next_token: Option<String>,
    limit: Option<u32>,
    #[serde(default)]
    start_from_head: bool,
}

impl DescribeLogStreamsRequest {
    pub(crate) fn check(self) -> Result<DescribeLogStreams, Error> {
        if self.order_by == LogStreamOrder::LastEventTime && self.log_stream_name_prefix.is_some() {
            return Err(Error::validation("Cannot order by LastEventTime with a logStreamNamePrefix."));
        }
        Ok(DescribeLogStreams {
            group: group(self.log_group_name, self.log_group_identifier)?,
            prefix: self.log_stream_name_prefix,
            order: self.order_by,
            descending: self.descending,
            limit: self.limit,
            next_token: self.next_token,
        })
    }
}

impl GetLogEventsRequest {
    pub(crate) fn check(self) -> Result<GetLogEvents, Error> {
        Ok(GetLogEvents {
            group: group(self.log_group_name, self.log_group_identifier)?,
            stream: self.log_stream_name,
            start_ms: self.start_time,
            end_ms: self.end_time,
            next_token: self.next_token,
            limit: self.limit.unwrap_or(10_000),
            from_head: self.start_from_head,
        })
    }
}

/// A log group by its name, or by an identifier that is a name or an ARN.
pub(crate) fn group(name: Option<String>, identifier: Option<String>) -> Result<String, Error> {
    match (name, identifier) {
        (Some(name), None) => Ok(name),
        (None, Some(identifier)) => {
            let name = identifier.split_once(":log-group:").map_or(identifier.as_str(), |(_, name)| name);
            Ok(name.split(':').next().unwrap_or_default().to_owned())
        }
        (None, None) => Err(Error::validation("LogGroupName or LogGroupIdentifier must be given.")),
        (Some(_), Some(_)) => Err(Error::validation("LogGroupName and LogGroupIdentifier are alternatives: give one of them.")),
    }
}

/// The body of `DescribeLogStreams`.
pub(crate) fn streams(streams: &[LogStream], next_token: Option<&str>) -> Value {
    let entry = |stream: &LogStream| {
        let mut entry = json!({"logStreamName": stream.name, "creationTime": stream.created_ms, "arn": stream.arn, "storedBytes": 0});
        let times = [
            ("firstEventTimestamp", stream.first_event_ms),
            ("lastEventTimestamp", stream.last_event_ms),
            ("lastIngestionTime", stream.last_ingestion_ms),
        ];
        for (name, time) in times {
            if let Some(time) = time {
                entry[name] = json!(time);
            }
        }
        entry
    };
    let mut body = json!({"logStreams": streams.iter().map(entry).collect::<Value>()});
    if let Some(token) = next_token {
        body["nextToken"] = json!(token);
    }
    body
}

/// The body of `GetLogEvents`.
pub(crate) fn events(events: &[LogEvent], forward_token: &str, backward_token: &str) -> Value {
    let entry = |event: &LogEvent| json!({"timestamp": event.at_ms, "message": event.message, "ingestionTime": event.ingested_ms});
    json!({
        "events": events.iter().map(entry).collect::<Value>(),
        "nextForwardToken": forward_token,
        "nextBackwardToken": backward_token,
    })
}
