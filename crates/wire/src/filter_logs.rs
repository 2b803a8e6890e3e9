//! CloudWatch Logs across streams: `FilterLogEvents` and `DescribeLogGroups`.

use serde::Deserialize;
use serde_json::json;

use crate::{
    Call, Error, FilterPattern, Input, Reply,
    call::read,
    logs::{group, identified},
};

/// Class of all groups of logs.
pub(crate) const CLASS: &str = "STANDARD";

/// A `FilterLogEvents`. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterLogEvents {
    /// Log group's name.
    pub group: String,
    /// Of which streams.
    pub streams: Streams,
    /// From here.
    pub start_ms: Option<u64>,
    /// Up to here; AWS leaves out what is later.
    pub end_ms: Option<u64>,
    /// Which lines.
    pub pattern: FilterPattern,
    /// The pattern as it was given: a token belongs to it.
    pub pattern_text: String,
    /// From the page before.
    pub next_token: Option<String>,
    /// 1 to 10,000, which is the default.
    pub limit: u32,
}

/// Streams of a group.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub enum Streams {
    /// Those of these names, all of which there must be.
    Named(Vec<String>),
    /// Those whose names begin so.
    Prefix(String),
}

/// A line that a filter found. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilteredLogEvent {
    /// Its stream.
    pub stream: String,
    /// When it was printed.
    pub at_ms: u64,
    /// Without the line's end.
    pub message: String,
    /// When it was stored.
    pub ingested_ms: u64,
    /// Unique, and the same whenever the line is asked for.
    pub event_id: String,
}

/// A log group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogGroup {
    /// Its name.
    pub name: String,
    /// [`crate::arn::log_group`].
    pub arn: String,
    /// When it or its first stream was made, in milliseconds since the epoch.
    pub created_ms: u64,
    /// Events are removed after so many days; `None` keeps them.
    pub retention_days: Option<u32>,
    /// Bytes of its events.
    pub bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FilterLogEventsRequest {
    log_group_name: Option<String>,
    log_group_identifier: Option<String>,
    log_stream_names: Option<Vec<String>>,
    log_stream_name_prefix: Option<String>,
    start_time: Option<u64>,
    end_time: Option<u64>,
    filter_pattern: Option<String>,
    next_token: Option<String>,
    limit: Option<u32>,
    start_from_head: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DescribeLogGroupsRequest {
    log_group_name_prefix: Option<String>,
    log_group_name_pattern: Option<String>,
    log_group_class: Option<String>,
    #[serde(default)]
    log_group_identifiers: Vec<String>,
    next_token: Option<String>,
    limit: Option<u32>,
}

impl Input for FilterLogEvents {
    fn read(call: Call) -> Result<Self, Error> {
        let request: FilterLogEventsRequest = read(call.input)?;
        let streams = match (request.log_stream_names, request.log_stream_name_prefix) {
            (Some(_), Some(_)) => {
                return Err(Error::validation(
                    "logStreamNames and logStreamNamePrefix are alternatives: give one of them.",
                ));
            }
            (Some(names), None) => Streams::Named(names),
            (None, prefix) => Streams::Prefix(prefix.unwrap_or_default()),
        };
        if let (Some(start), Some(end)) = (request.start_time, request.end_time)
            && start > end
        {
            return Err(Error::validation("startTime must not be later than endTime."));
        }
        if request.start_from_head == Some(false) {
            return Err(Error::validation(
                "This server returns the earliest events of all streams first: leave startFromHead out, or call \
                 GetLogEvents for the newest of one stream.",
            ));
        }
        let pattern_text = request.filter_pattern.unwrap_or_default();
        Ok(Self {
            group: group(request.log_group_name, request.log_group_identifier)?,
            streams,
            start_ms: request.start_time,
            end_ms: request.end_time,
            pattern: FilterPattern::parse(&pattern_text)?,
            pattern_text,
            next_token: request.next_token,
            limit: request.limit.unwrap_or(10_000),
        })
    }
}

impl Input for DescribeLogGroups {
    fn read(call: Call) -> Result<Self, Error> {
        let request: DescribeLogGroupsRequest = read(call.input)?;
        if request.log_group_name_prefix.is_some() && request.log_group_name_pattern.is_some() {
            return Err(Error::validation(
                "logGroupNamePrefix and logGroupNamePattern are alternatives: give one of them.",
            ));
        }
        let filters = [&request.log_group_name_prefix, &request.log_group_name_pattern, &request.log_group_class];
        if !request.log_group_identifiers.is_empty() && filters.iter().any(|filter| filter.is_some()) {
            return Err(Error::validation("logGroupIdentifiers excludes the other filters: leave them out."));
        }
        Ok(Self {
            prefix: request.log_group_name_prefix,
            part: request.log_group_name_pattern,
            class: request.log_group_class,
            names: request.log_group_identifiers.iter().map(|identifier| identified(identifier).to_owned()).collect(),
            next_token: request.next_token,
            limit: request.limit.unwrap_or(50),
        })
    }
}

/// A `DescribeLogGroups`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribeLogGroups {
    /// Beginning of the names.
    pub prefix: Option<String>,
    /// A part of the names, in any case.
    pub part: Option<String>,
    /// All groups here are of the class `CLASS`.
    pub class: Option<String>,
    /// Names of the groups; empty: all.
    pub names: Vec<String>,
    /// Where to go on.
    pub next_token: Option<String>,
    /// Most groups of the reply.
    pub limit: u32,
}

impl DescribeLogGroups {
    /// Whether a group is asked for. A pattern is a part of the name in any case.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.prefix.as_ref().is_none_or(|prefix| name.starts_with(prefix.as_str()))
            && self.part.as_ref().is_none_or(|part| name.to_lowercase().contains(&part.to_lowercase()))
            && self.class.as_ref().is_none_or(|class| class == CLASS)
            && (self.names.is_empty() || self.names.iter().any(|asked| asked == name))
    }
}

impl Reply {
    /// `FilterLogEvents`, by time.
    pub fn filter_log_events(events: &[FilteredLogEvent], next_token: Option<&str>) -> Self {
        let entry = |event: &FilteredLogEvent| {
            json!({
                "logStreamName": event.stream,
                "timestamp": event.at_ms,
                "message": event.message,
                "ingestionTime": event.ingested_ms,
                "eventId": event.event_id,
            })
        };
        // AWS has deprecated the list of searched streams, and leaves it empty.
        Self::page("events", events.iter().map(entry), "nextToken", next_token).with("searchedLogStreams", json!([]))
    }

    /// `DescribeLogGroups`, by name.
    pub fn describe_log_groups(groups: &[LogGroup], next_token: Option<&str>) -> Self {
        let entry = |group: &LogGroup| {
            let mut entry = json!({
                "logGroupName": group.name,
                "arn": format!("{}:*", group.arn),
                "logGroupArn": group.arn,
                "creationTime": group.created_ms,
                "metricFilterCount": 0,
                "storedBytes": group.bytes,
                "logGroupClass": CLASS,
            });
            if let Some(days) = group.retention_days {
                entry["retentionInDays"] = json!(days);
            }
            entry
        };
        Self::page("logGroups", groups.iter().map(entry), "nextToken", next_token)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{Service, operations::operations};

    fn call(name: &str, input: Value) -> Call {
        let operation = operations().find(|it| it.service == Service::Logs && it.name == name).unwrap();
        Call { operation, input }
    }

    #[test]
    fn groups_are_chosen_by_what_is_asked() {
        let check = |input: Value, expected: &[&str]| {
            let request = DescribeLogGroups::read(call("DescribeLogGroups", input.clone())).unwrap();
            let found: Vec<_> = ["/aws/a", "/aws/b", "own"].into_iter().filter(|name| request.wants(name)).collect();
            assert_eq!(found, expected, "{input}");
        };
        check(json!({}), &["/aws/a", "/aws/b", "own"]);
        check(json!({"logGroupNamePrefix": "/aws/"}), &["/aws/a", "/aws/b"]);
        check(json!({"logGroupNamePattern": "WN"}), &["own"]);
        check(json!({"logGroupClass": "STANDARD"}), &["/aws/a", "/aws/b", "own"]);
        check(json!({"logGroupClass": "INFREQUENT_ACCESS"}), &[]);
        check(
            json!({"logGroupIdentifiers": ["own", "arn:aws:logs:r:123456789012:log-group:/aws/b"]}),
            &["/aws/b", "own"],
        );
        check(json!({"logGroupIdentifiers": ["other"]}), &[]);
        let both = json!({"logGroupIdentifiers": ["own"], "logGroupNamePrefix": "o"});
        assert!(DescribeLogGroups::read(call("DescribeLogGroups", both)).is_err());
    }

    #[test]
    fn the_newest_first_is_refused() {
        let read = |input: Value| FilterLogEvents::read(call("FilterLogEvents", input));
        assert!(read(json!({"logGroupName": "g", "startFromHead": true})).is_ok());
        let refused = read(json!({"logGroupName": "g", "startFromHead": false})).expect_err("the earliest are first");
        assert!(refused.message.contains("startFromHead"), "{}", refused.message);
    }
}
