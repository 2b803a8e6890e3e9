//! A line of the audit log.

use serde::{Deserialize, Serialize};
use shoal_wire::timestamp;

/// Longest `User-Agent` that is noted, in bytes.
const MAX_AGENT_BYTES: usize = 256;

/// What a caller did. Nothing of a request's body is in it but names of resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// When it was answered, ISO 8601 with milliseconds.
    pub(crate) time: String,
    /// The request's id.
    pub(crate) id: String,
    /// Name of the key, or `owner`: of a role's keys and of those of a training job's program, that
    /// of the key behind them, whose rights they have. `arn` names the session or the attempt.
    pub(crate) user: String,
    /// The caller's ARN; empty if it is not known.
    pub(crate) arn: String,
    /// Id of the key, as the request has it.
    pub(crate) key: String,
    /// Of a role's keys: id of the key that assumed it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) issuer: String,
    /// The peer's address.
    pub(crate) source: String,
    /// The request's `User-Agent`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) agent: String,
    /// As signatures name it: `sagemaker`.
    pub(crate) service: String,
    /// The operation.
    pub(crate) operation: String,
    /// ARNs or names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    /// It changes nothing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) read: bool,
    /// Code of the error that was answered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) error: String,
    /// Records before this one that were lost since the disk did not take them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) lost: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// How a call was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As the caller wanted.
    Done,
    /// By the error of this code, which is not about rights.
    Failed(String),
    /// The caller has no right to it, or did not prove who it is.
    Refused(String),
}

/// Calls that change only what programs report, or carry bytes: they come by the thousand.
const NOT_LOGGED: [(&str, &str); 7] = [
    ("sagemaker", "BatchPutMetrics"),
    ("sagemaker", "FeedVisit"),
    ("sagemaker", "ReadVisit"),
    ("monitoring", "PutMetricData"),
    ("logs", "PutLogEvents"),
    ("s3", "UploadPart"),
    ("s3", "UploadPartCopy"),
];

/// How the names of operations begin that change nothing.
const READS: [&str; 8] = ["Describe", "Get", "List", "BatchGet", "Query", "Search", "Filter", "Head"];
/// Others of that kind.
const READS_TOO: [&str; 3] = ["SimulatePrincipalPolicy", "LookupEvents", "SelectObjectContent"];

/// Whether an operation changes nothing.
pub(crate) fn is_read(operation: &str) -> bool {
    READS.iter().any(|verb| operation.starts_with(verb)) || READS_TOO.contains(&operation)
}

impl Record {
    /// Whether the record belongs in the log: refusals always, changes, and reads if wanted.
    pub(crate) fn is_logged(&self, outcome: &Outcome, with_reads: bool) -> bool {
        if matches!(outcome, Outcome::Refused(_)) {
            return true;
        }
        let is_bulk = NOT_LOGGED.iter().any(|(service, name)| *service == self.service && *name == self.operation);
        !self.operation.is_empty() && !is_bulk && (with_reads || !self.read)
    }

    /// Completes a record whose caller and operation are known.
    pub(crate) fn complete(mut self, outcome: &Outcome, now_ms: u64) -> Self {
        self.time = timestamp::iso8601_ms(now_ms);
        self.read = is_read(&self.operation);
        if let Outcome::Failed(code) | Outcome::Refused(code) = outcome {
            self.error.clone_from(code);
        }
        if self.agent.len() > MAX_AGENT_BYTES {
            let end = (0..=MAX_AGENT_BYTES).rev().find(|at| self.agent.is_char_boundary(*at)).unwrap_or(0);
            self.agent.truncate(end);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use shoal_wire::{Service, operations};

    use super::*;
    use crate::team::{Access, access};

    fn record(service: &str, operation: &str) -> Record {
        Record { service: service.to_owned(), operation: operation.to_owned(), ..Record::default() }
            .complete(&Outcome::Done, 0)
    }

    #[test]
    fn changes_and_refusals_are_logged_and_reads_where_wanted() {
        let refused = Outcome::Refused("AccessDenied".to_owned());
        let failed = Outcome::Failed("ResourceInUse".to_owned());
        for (service, operation, outcome, expected) in [
            ("sagemaker", "StopTrainingJob", &Outcome::Done, [true, true]),
            ("sagemaker", "CreateTrainingJob", &failed, [true, true]),
            ("sagemaker", "DescribeTrainingJob", &Outcome::Done, [false, true]),
            ("sagemaker", "DescribeTrainingJob", &failed, [false, true]),
            ("sagemaker", "DescribeTrainingJob", &refused, [true, true]),
            ("sagemaker", "BatchPutMetrics", &Outcome::Done, [false, false]),
            ("sagemaker", "BatchPutMetrics", &refused, [true, true]),
            ("s3", "PutObject", &Outcome::Done, [true, true]),
            ("s3", "UploadPart", &Outcome::Done, [false, false]),
            ("s3", "GetObject", &refused, [true, true]),
            ("sts", "AssumeRole", &Outcome::Done, [true, true]),
            ("", "", &Outcome::Done, [false, false]),
        ] {
            let logged = [false, true].map(|with_reads| record(service, operation).is_logged(outcome, with_reads));
            assert_eq!(logged, expected, "{service} {operation} {outcome:?}");
        }
    }

    /// What users may change is no read, whatever it is called.
    #[test]
    fn no_change_is_taken_for_a_read() {
        for operation in operations() {
            assert!(access(operation) != Access::Changes || !is_read(operation.name) || operation.name == "ReadVisit");
        }
        assert!(operations().any(|it| it.service == Service::SageMaker && !is_read(it.name)));
    }

    #[test]
    fn a_long_agent_is_cut_between_letters() {
        let long = Record { agent: "é".repeat(MAX_AGENT_BYTES), ..Record::default() };
        let cut = long.complete(&Outcome::Done, 1_700_000_000_123);
        assert_eq!(cut.agent.len(), MAX_AGENT_BYTES);
        assert_eq!(cut.time, "2023-11-14T22:13:20.123Z");
    }
}
