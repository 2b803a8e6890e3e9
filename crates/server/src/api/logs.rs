//! CloudWatch Logs: one stream per host of a training job.

use shoal_store::{LogDirection, LogQuery, TRAINING_JOBS, Telemetry};
use shoal_wire::{DescribeLogStreams, Error, ErrorCode, GetLogEvents, LogEvent, LogStream, LogStreamOrder, Reply, arn};

use super::{Api, blocking};
use crate::admission::internal;

/// Streams of a DescribeLogStreams reply without a prefix, unless the request says fewer.
const MOST_STREAMS: usize = 50;
/// Most bytes of a reply with lines, as AWS has it.
pub(super) const MOST_BYTES: usize = 1 << 20;

impl Api {
    pub(super) async fn log_streams(&self, request: DescribeLogStreams) -> Result<Reply, Error> {
        let world = self.world.clone();
        // With a prefix all come at once, whatever the limit: SDK v2 asks for as many as there are
        // instances and never sends a token back.
        let (by_time, whole) = (request.order == LogStreamOrder::LastEventTime, request.prefix.is_some());
        let limit = request.limit.map_or(MOST_STREAMS, |limit| limit as usize);
        let paged = !by_time && !whole && !request.descending;
        let most = if paged { limit } else { usize::MAX };
        let prefix = request.prefix.unwrap_or_default();
        let after = request.next_token;
        let group = request.group.clone();
        let found = blocking(move || {
            check_group(&world.telemetry, &group)?;
            world.telemetry.streams_of(&group, &prefix, after.as_deref(), most).map_err(|error| internal(&error))
        });
        let mut found = found.await?;
        if by_time {
            found.sort_by_key(|stream| stream.last_ms);
        }
        if request.descending {
            found.reverse();
        }
        if !whole {
            found.truncate(limit);
        }
        let next_token = found.last().filter(|_| paged && found.len() == limit).map(|stream| stream.name.clone());
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
        let world = self.world.clone();
        blocking(move || {
            check_group(&world.telemetry, &query.group)?;
            let (events, forward_token, backward_token) = read(&world.telemetry, &query)?;
            Ok(Reply::get_log_events(&events, &forward_token, &backward_token))
        })
        .await
    }
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
}
