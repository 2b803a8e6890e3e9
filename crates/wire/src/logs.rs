//! CloudWatch Logs: what is asked for and what is told.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Call, Error, Input, Reply, call::read};

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
    /// 1 to 50. SDK v2 loops for ever on a reply with a token, so a server does well to ignore this
    /// together with a prefix.
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
struct DescribeLogStreamsRequest {
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
struct GetLogEventsRequest {
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

impl Input for DescribeLogStreams {
    fn read(call: Call) -> Result<Self, Error> {
        let request: DescribeLogStreamsRequest = read(call.input)?;
        if request.order_by == LogStreamOrder::LastEventTime && request.log_stream_name_prefix.is_some() {
            return Err(Error::validation("Cannot order by LastEventTime with a logStreamNamePrefix."));
        }
        Ok(Self {
            group: group(request.log_group_name, request.log_group_identifier)?,
            prefix: request.log_stream_name_prefix,
            order: request.order_by,
            descending: request.descending,
            limit: request.limit,
            next_token: request.next_token,
        })
    }
}

impl Input for GetLogEvents {
    fn read(call: Call) -> Result<Self, Error> {
        let request: GetLogEventsRequest = read(call.input)?;
        Ok(Self {
            group: group(request.log_group_name, request.log_group_identifier)?,
            stream: request.log_stream_name,
            start_ms: request.start_time,
            end_ms: request.end_time,
            next_token: request.next_token,
            limit: request.limit.unwrap_or(10_000),
            from_head: request.start_from_head,
        })
    }
}

/// A log group by its name, or by an identifier that is a name or an ARN.
pub(crate) fn group(name: Option<String>, identifier: Option<String>) -> Result<String, Error> {
    match (name, identifier) {
        (Some(name), None) => Ok(name),
        (None, Some(identifier)) => Ok(identified(&identifier).to_owned()),
        (None, None) => Err(Error::validation("LogGroupName or LogGroupIdentifier must be given.")),
        (Some(_), Some(_)) => {
            Err(Error::validation("LogGroupName and LogGroupIdentifier are alternatives: give one of them."))
        }
    }
}

/// The group's name in an identifier, which is a name or an ARN.
pub(crate) fn identified(identifier: &str) -> &str {
    let name = identifier.split_once(":log-group:").map_or(identifier, |(_, name)| name);
    name.split(':').next().unwrap_or_default()
}

impl Reply {
    /// `DescribeLogStreams`, in the order asked for.
    pub fn describe_log_streams(streams: &[LogStream], next_token: Option<&str>) -> Self {
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
        Self::page("logStreams", streams.iter().map(entry), "nextToken", next_token)
    }

    /// `GetLogEvents`, oldest first. At the end the token with which was asked comes back, which is
    /// how clients know.
    pub fn get_log_events(events: &[LogEvent], forward_token: &str, backward_token: &str) -> Self {
        let entry = |event: &LogEvent| json!({"timestamp": event.at_ms, "message": event.message, "ingestionTime": event.ingested_ms});
        Self::of(json!({
            "events": events.iter().map(entry).collect::<Value>(),
            "nextForwardToken": forward_token,
            "nextBackwardToken": backward_token,
        }))
    }
}
