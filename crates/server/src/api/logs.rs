//! CloudWatch Logs: one stream per host of a training job.

use std::cmp::Ordering;

use shoal_store::{LogDirection, LogQuery, StreamInfo, TRAINING_JOBS, Telemetry};
use shoal_wire::{DescribeLogStreams, Error, ErrorCode, GetLogEvents, LogEvent, LogStream, LogStreamOrder, Reply, arn};

use super::{Api, blocking, token};
use crate::internal::internal;

/// Streams of a DescribeLogStreams reply without a prefix, unless the request says fewer.
const MOST_STREAMS: usize = 50;
/// Most bytes of a reply with lines, as AWS has it.
pub(super) const MOST_BYTES: usize = 1 << 20;

impl Api {
    pub(super) async fn log_streams(&self, request: DescribeLogStreams) -> Result<Reply, Error> {
        let order = Order { by_time: request.order == LogStreamOrder::LastEventTime, descending: request.descending };
        let question =
            token::question(&("log streams", &request.group, &request.prefix, order.by_time, order.descending))?;
        let after =
            request.next_token.as_deref().map(|given| Place::read(&token::open(&question, given)?)).transpose()?;
        // With a prefix all come at once, whatever the limit: SDK v2 asks for as many as there are
        // instances and never sends a token back.
        let limit = match request.prefix {
            Some(_) => usize::MAX,
            None => request.limit.map_or(MOST_STREAMS, |limit| limit as usize),
        };
        let (telemetry, group, prefix) =
            (self.telemetry.clone(), request.group.clone(), request.prefix.unwrap_or_default());
        let (found, next) = blocking(move || {
            check_group(&telemetry, &group)?;
            // In the store's own order no more are read than the page has.
            let (from, most) = match &after {
                _ if order != Order::default() => (None, usize::MAX),
                after => (after.as_ref().map(|place| place.name.as_str()), limit.saturating_add(1)),
            };
            let found = telemetry.streams_of(&group, &prefix, from, most).map_err(|error| internal(&error))?;
            Ok(page(found, order, after.as_ref(), limit))
        })
        .await?;
        let next_token = next.map(|place| token::seal(&question, &place.write()));
        let streams: Vec<_> = found
            .into_iter()
            .map(|stream| LogStream {
                arn: arn::log_stream(&self.identity.region, &self.identity.account, &request.group, &stream.name),
                created_ms: stream.created_ms,
                first_event_ms: stream.first_ms,
                last_event_ms: stream.last_ms,
                last_ingestion_ms: stream.ingested_ms,
                name: stream.name,
            })
            .collect();
        Ok(Reply::describe_log_streams(&streams, next_token.as_deref()))
    }

    pub(super) async fn log_events(&self, request: GetLogEvents) -> Result<Reply, Error> {
        let (direction, from) = match &request.next_token {
            Some(token) => parse_token(token)?,
            None if request.from_head => (LogDirection::Forward, None),
            None => (LogDirection::Backward, None),
        };
        let query = LogQuery {
            group: request.group,
            stream: request.stream,
            from,
            direction,
            start_ms: request.start_ms,
            end_ms: request.end_ms,
            limit: request.limit as usize,
            max_bytes: MOST_BYTES,
        };
        let telemetry = self.telemetry.clone();
        blocking(move || {
            check_group(&telemetry, &query.group)?;
            let (events, forward_token, backward_token) = read(&telemetry, &query)?;
            Ok(Reply::get_log_events(&events, &forward_token, &backward_token))
        })
        .await
    }
}

/// An order of streams; by default by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Order {
    /// By the last event, those without one first; equal ones by name.
    by_time: bool,
    descending: bool,
}

/// Where a page of streams ended: a place in their order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// None where the order is by name.
    last_ms: Option<u64>,
    name: String,
}

impl Place {
    fn of(stream: &StreamInfo, order: Order) -> Self {
        Self { last_ms: stream.last_ms.filter(|_| order.by_time), name: stream.name.clone() }
    }

    /// Names of streams have no colon.
    fn write(&self) -> String {
        format!("{}:{}", self.last_ms.map(|ms| ms.to_string()).unwrap_or_default(), self.name)
    }

    fn read(text: &str) -> Result<Self, Error> {
        let place = text.split_once(':').and_then(|(ms, name)| {
            let last_ms = if ms.is_empty() { None } else { Some(ms.parse().ok()?) };
            Some(Self { last_ms, name: name.to_owned() })
        });
        place.ok_or_else(|| Error::validation("The specified nextToken is invalid."))
    }
}

/// At most `limit` streams in their order behind a place, and the place where they end; `None` if
/// there are no more.
fn page(
    mut streams: Vec<StreamInfo>,
    order: Order,
    after: Option<&Place>,
    limit: usize,
) -> (Vec<StreamInfo>, Option<Place>) {
    if let Some(after) = after {
        let behind = if order.descending { Ordering::Less } else { Ordering::Greater };
        streams.retain(|stream| Place::of(stream, order).cmp(after) == behind);
    }
    streams.sort_by_cached_key(|stream| Place::of(stream, order));
    if order.descending {
        streams.reverse();
    }
    let has_more = streams.len() > limit;
    streams.truncate(limit);
    let end = streams.last().filter(|_| has_more).map(|stream| Place::of(stream, order));
    (streams, end)
}

/// A page with its tokens forward and backward.
fn read(telemetry: &Telemetry, query: &LogQuery) -> Result<(Vec<LogEvent>, String, String), Error> {
    let page = telemetry.read_logs(query).map_err(|error| internal(&error))?;
    let page =
        page.ok_or_else(|| Error::new(ErrorCode::ResourceNotFound, "The specified log stream does not exist."))?;
    let events = page
        .events
        .into_iter()
        .map(|event| LogEvent { at_ms: event.at_ms, message: event.text, ingested_ms: event.ingested_ms })
        .collect();
    Ok((events, format!("f/{}", page.forward), format!("b/{}", page.backward)))
}

fn parse_token(token: &str) -> Result<(LogDirection, Option<u64>), Error> {
    let invalid = || Error::validation("The specified nextToken is invalid.");
    let (direction, position) = token.split_once('/').ok_or_else(invalid)?;
    let position = position.parse().map_err(|_| invalid())?;
    match direction {
        "f" => Ok((LogDirection::Forward, Some(position))),
        "b" => Ok((LogDirection::Backward, Some(position))),
        _ => Err(invalid()),
    }
}

/// Refuses a group that nobody made. The training jobs' is there before its first line.
pub(super) fn check_group(telemetry: &Telemetry, group: &str) -> Result<(), Error> {
    let is_there = group == TRAINING_JOBS
        || telemetry.log_groups().map_err(|error| internal(&error))?.iter().any(|found| found.name == group);
    if is_there {
        Ok(())
    } else {
        Err(Error::new(ErrorCode::ResourceNotFound, "The specified log group does not exist."))
    }
}

#[cfg(test)]
mod tests {
    use shoal_store::LogLines;

    use super::*;

    fn pages(telemetry: &Telemetry, direction: LogDirection, limit: usize) -> Vec<Vec<String>> {
        let mut pages = Vec::new();
        let mut from = None;
        loop {
            let query = LogQuery {
                stream: "s".to_owned(),
                from,
                direction,
                limit,
                max_bytes: MOST_BYTES,
                ..LogQuery::default()
            };
            let (events, forward_token, backward_token) = read(telemetry, &query).unwrap();
            let token = if direction == LogDirection::Forward { forward_token } else { backward_token };
            if events.is_empty() {
                assert_eq!(parse_token(&token).unwrap(), (direction, from), "at the end the same token comes back");
                return pages;
            }
            pages.push(events.into_iter().map(|event| event.message).collect());
            from = parse_token(&token).unwrap().1;
        }
    }

    #[test]
    fn every_line_is_on_one_page_whatever_their_sizes() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        // One line is longer than a whole reply, others fill replies in part.
        let lines: Vec<String> =
            [10, 400_000, 700_000, 3, MOST_BYTES + 9, 5, 1].iter().map(|length| "x".repeat(*length)).collect();
        let with_times = lines.iter().enumerate().map(|(at, text)| (at as u64, text.clone())).collect();
        telemetry
            .append_logs(&[LogLines { stream: "s".to_owned(), lines: with_times, ..LogLines::default() }])
            .unwrap();
        for limit in [1, 2, 10_000] {
            let forward = pages(&telemetry, LogDirection::Forward, limit);
            assert_eq!(forward.concat(), lines, "forward by {limit}");
            let mut backward = pages(&telemetry, LogDirection::Backward, limit);
            backward.reverse();
            assert_eq!(backward.concat(), lines, "backward by {limit}");
            let fits = |page: &Vec<String>| {
                page.len() == 1 || page.iter().map(|line| line.len() + 26).sum::<usize>() <= MOST_BYTES
            };
            assert!(forward.iter().chain(&backward).all(fits), "no reply is too long");
        }
    }

    #[test]
    fn tokens_of_others_are_refused() {
        for token in ["", "f", "f/", "f/x", "x/3", "f/-1"] {
            assert!(parse_token(token).is_err(), "{token:?}");
        }
    }

    #[test]
    fn streams_of_every_order_come_in_pages_that_end() {
        let stream = |name: &str, last_ms: Option<u64>| StreamInfo {
            name: name.to_owned(),
            created_ms: 0,
            lines: 0,
            first_ms: None,
            bytes: 0,
            last_ms,
            ingested_ms: None,
        };
        let all = [("a", Some(7)), ("b", None), ("c", Some(3)), ("d", Some(7)), ("é", None)];
        let all: Vec<_> = all.into_iter().map(|(name, last_ms)| stream(name, last_ms)).collect();
        for (by_time, ascending) in [(false, ["a", "b", "c", "d", "é"]), (true, ["b", "é", "c", "a", "d"])] {
            for descending in [false, true] {
                let mut expected = ascending.to_vec();
                if descending {
                    expected.reverse();
                }
                for limit in 1..7 {
                    let (mut names, mut after, mut pages) = (Vec::new(), None, 0);
                    loop {
                        let (found, next) = page(all.clone(), Order { by_time, descending }, after.as_ref(), limit);
                        names.extend(found.into_iter().map(|stream| stream.name));
                        pages += 1;
                        let Some(next) = next else { break };
                        after = Some(Place::read(&next.write()).unwrap());
                    }
                    assert_eq!(names, expected, "by time: {by_time}, descending: {descending}, {limit} at a time");
                    assert_eq!(pages, all.len().div_ceil(limit), "the last page has something");
                }
            }
        }
        for made_up in ["", "a", "x:a", "-1:a"] {
            assert!(Place::read(made_up).is_err(), "{made_up}");
        }
    }
}
