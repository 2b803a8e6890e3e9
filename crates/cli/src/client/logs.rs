//! Reading a training job's log streams, each from where the last read ended.

use std::mem;

use serde_json::{Value, json};
use shoal_wire::Service;

use super::{Client, ClientError};

/// The group in which every training job has its streams.
const GROUP: &str = "/aws/sagemaker/TrainingJobs";

/// One line of a host's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEvent {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// `algo-1`.
    pub host: String,
    /// The line.
    pub message: String,
}

/// Where the reading of a job's logs stands.
#[derive(Debug)]
pub struct LogReader {
    prefix: String,
    /// Stream's name and the token for its next read.
    streams: Vec<(String, Option<String>)>,
    /// Read, and not yet handed out: what came before an error is not lost by it.
    pending: Vec<LogEvent>,
}

impl LogReader {
    /// From the beginning of this job's logs.
    pub fn new(job: &str) -> Self {
        Self { prefix: format!("{job}/"), streams: Vec::new(), pending: Vec::new() }
    }

    /// How many hosts have a log so far.
    pub(crate) fn hosts(&self) -> usize {
        self.streams.len()
    }

    /// What was written since the last call, over all hosts in order of time.
    ///
    /// # Errors
    /// See [`ClientError`]; a job without logs yet is no error.
    pub fn read(&mut self, client: &Client) -> Result<Vec<LogEvent>, ClientError> {
        let input = json!({"logGroupName": GROUP, "logStreamNamePrefix": self.prefix});
        let answer = match client.json(Service::Logs, "DescribeLogStreams", &input) {
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            answer => answer?,
        };
        for stream in answer["logStreams"].as_array().into_iter().flatten() {
            let name = stream["logStreamName"].as_str().unwrap_or_default();
            if !self.streams.iter().any(|(known, _)| known == name) {
                self.streams.push((name.to_owned(), None));
            }
        }
        for (name, token) in &mut self.streams {
            loop {
                let mut input = json!({"logGroupName": GROUP, "logStreamName": name, "startFromHead": true});
                if let Some(token) = token {
                    input["nextToken"] = json!(token);
                }
                let answer = client.json(Service::Logs, "GetLogEvents", &input)?;
                let next = answer["nextForwardToken"].as_str().map(str::to_owned);
                // The same token again is the end of what there is.
                let end = next.is_none() || next == *token;
                *token = next;
                let host = host(name);
                self.pending.extend(answer["events"].as_array().into_iter().flatten().map(|event| line(event, host)));
                if end {
                    break;
                }
            }
        }
        let mut events = mem::take(&mut self.pending);
        events.sort_by_key(|event| event.at_ms);
        Ok(events)
    }
}

impl Client {
    /// The end of what a job's first host has said.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(crate) fn last_lines(&self, job: &str, most: usize) -> Result<Vec<String>, ClientError> {
        let input = json!({"logGroupName": GROUP, "logStreamNamePrefix": format!("{job}/"), "limit": 1});
        let answer = self.json(Service::Logs, "DescribeLogStreams", &input)?;
        let Some(stream) = answer["logStreams"][0]["logStreamName"].as_str() else { return Ok(Vec::new()) };
        let input = json!({"logGroupName": GROUP, "logStreamName": stream, "startFromHead": false, "limit": most});
        let answer = self.json(Service::Logs, "GetLogEvents", &input)?;
        Ok(answer["events"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|event| Some(event["message"].as_str()?.to_owned()))
            .collect())
    }
}

/// `algo-1` of `job/algo-1-1700000000`.
fn host(stream: &str) -> &str {
    let name = stream.rsplit('/').next().unwrap_or(stream);
    name.rsplit_once('-').map_or(name, |(host, _)| host)
}

fn line(event: &Value, host: &str) -> LogEvent {
    LogEvent {
        at_ms: event["timestamp"].as_u64().unwrap_or_default(),
        host: host.to_owned(),
        message: event["message"].as_str().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_streams() {
        for (stream, expected) in [("job/algo-1-1700000000", "algo-1"), ("a-b/algo-12-17", "algo-12"), ("odd", "odd")] {
            assert_eq!(host(stream), expected);
        }
    }
}
