//! CloudWatch Logs: one stream per host of a training job.

use shoal_store::{LogDirection, LogQuery, Telemetry};
use shoal_wire::{DescribeLogStreams, Error, ErrorCode, GetLogEvents, LogEvent, LogStream, LogStreamOrder, Reply, arn};

use super::{Api, blocking};
use crate::admission::internal;

/// The one log group.
const GROUP: &str = "/aws/sagemaker/TrainingJobs";
/// Most bytes of a GetLogEvents reply, as AWS has it; a line counts its length and 26 bytes.
const MOST_BYTES: usize = 1 << 20;

impl Api {
    pub(super) async fn log_streams(&self, request: DescribeLogStreams) -> Result<Reply, Error> {
        check_group(&request.group)?;
        let world = self.world.clone();
        let prefix = request.prefix.unwrap_or_default();
        let mut found = blocking(move || world.telemetry.streams(&prefix).map_err(|error| internal(&error))).await?;
        if request.order == LogStreamOrder::LastEventTime {
            found.sort_by_key(|stream| stream.last_ms);
        }
        if request.descending {
            found.reverse();
        }
        // All at once, whatever the limit: SDK v2 asks for as many as there are instances and never sends the token back.
        let streams = found
            .into_iter()
            .map(|stream| LogStream {
                arn: arn::log_stream(&self.identity.region, &self.identity.account, GROUP, &stream.name),
                created_ms: stream.created_ms,
                first_event_ms: stream.first_ms,
                last_event_ms: stream.last_ms,
                last_ingestion_ms: stream.ingested_ms,
                name: stream.name,
            })
            .collect();
        Ok(Reply::DescribeLogStreams { streams, next_token: None })
    }

    pub(super) async fn log_events(&self, request: GetLogEvents) -> Result<Reply, Error> {
        check_group(&request.group)?;
        let (direction, from) = match &request.next_token {
            Some(token) => parse_token(token)?,
            None if request.from_head => (LogDirection::Forward, None),
            None => (LogDirection::Backward, None),
        };
        let query = LogQuery {
            stream: request.stream,
            from,
            direction,
            start_ms: request.start_ms,
            end_ms: request.end_ms,
            limit: request.limit as usize,
        };
        let world = self.world.clone();
        blocking(move || read(&world.telemetry, &query)).await
    }
}

fn read(telemetry: &Telemetry, query: &LogQuery) -> Result<Reply, Error> {
    let page = telemetry.read_logs(query).map_err(|error| internal(&error))?;
    let mut page = page.ok_or_else(|| Error::new(ErrorCode::ResourceNotFound, "The specified log stream does not exist."))?;
    let fits = |lengths: &mut dyn Iterator<Item = usize>| {
        let mut left = MOST_BYTES;
        let count = lengths
            .take_while(|length| {
                let taken = length + 26;
                let fits = taken <= left;
                left = left.saturating_sub(taken);
                fits
            })
            .count();
        // A line longer than the limit is still shown, alone.
        count.max(1)
    };
    match query.direction {
        LogDirection::Forward => {
            let keep = fits(&mut page.events.iter().map(|event| event.text.len()));
            page.forward -= page.events.len().saturating_sub(keep) as u64;
            page.events.truncate(keep);
        }
        LogDirection::Backward => {
            let keep = fits(&mut page.events.iter().rev().map(|event| event.text.len()));
            let drop = page.events.len().saturating_sub(keep);
            page.backward += drop as u64;
            page.events.drain(..drop);
        }
    }
    let events =
        page.events.into_iter().map(|event| LogEvent { at_ms: event.at_ms, message: event.text, ingested_ms: event.ingested_ms }).collect();
    Ok(Reply::GetLogEvents { events, forward_token: format!("f/{}", page.forward), backward_token: format!("b/{}", page.backward) })
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

fn check_group(group: &str) -> Result<(), Error> {
    match group {
        GROUP => Ok(()),
        _ => Err(Error::new(ErrorCode::ResourceNotFound, "The specified log group does not exist.")),
    }
}
