//! The table of operations that are served. AWS's are generated from its service models, beside the
//! constraints of their inputs; ours are declared here. Requests are routed, checked and answered
//! by this table; what each does is `server`'s (`server/src/api/routes.rs`).

use http::request::Parts;

use crate::{
    ADD_KEY, DESCRIBE_PROFILE, DESCRIBE_STUDY, DESCRIBE_UTILIZATION, Error, ErrorCode, FEED_VISIT,
    INTERRUPT_TRAINING_JOB, LIST_CHECKPOINTS, LIST_COSTS, LIST_KEYS, LIST_NOTIFICATIONS, LIST_QUOTAS, LIST_TARGETS,
    Operation, Protocol, READ_VISIT, REMOVE_KEY, ROTATE_KEY, START_VISIT, Service, UPDATE_TUNING_JOB, constraints,
    query,
};

/// Operations of our own, which no service model has.
static OURS: [Operation; 17] = [
    ours(ADD_KEY, NEW_KEY),
    ours(LIST_KEYS, &[("Keys", KEY)]),
    ours(ROTATE_KEY, NEW_KEY),
    ours(REMOVE_KEY, &[]),
    ours(INTERRUPT_TRAINING_JOB, &[]),
    ours(LIST_CHECKPOINTS, &[("Checkpoints", &["Path", "Host", "Bytes", "Sha256", "SavedTime"]), ("NextToken", &[])]),
    ours(
        LIST_COSTS,
        &[
            (
                "Groups",
                &[
                    "Key",
                    "Jobs",
                    "InstanceSeconds",
                    "UnpricedInstanceSeconds",
                    "UsDollars",
                    "SavedInstanceSeconds",
                    "SavedUsDollars",
                ],
            ),
            ("Total", &[]),
            ("Days", &["Start", "InstanceSeconds", "UsDollars"]),
        ],
    ),
    ours(
        LIST_TARGETS,
        &[(
            "Targets",
            &[
                "Name",
                "Kind",
                "Status",
                "IsDefault",
                "MaxInstances",
                "SubmittedInstances",
                "InstanceTypes",
                "Details",
                "Problem",
            ],
        )],
    ),
    ours(
        LIST_QUOTAS,
        &[(
            "Quotas",
            &[
                "Name",
                "Jobs",
                "Instances",
                "Gpus",
                "StoredBytes",
                "LogBytes",
                "RequestsPerSecond",
                "MaxPriority",
                "UsedInstanceSeconds",
            ],
        )],
    ),
    ours(
        LIST_NOTIFICATIONS,
        &[
            (
                "Notifications",
                &[
                    "MessageId",
                    "TopicArn",
                    "Protocol",
                    "Endpoint",
                    "Subject",
                    "Status",
                    "Attempts",
                    "Time",
                    "ModifiedTime",
                    "Reason",
                ],
            ),
            ("NextToken", &[]),
        ],
    ),
    ours(
        DESCRIBE_STUDY,
        &[
            ("HyperParameterTuningJobName", &[]),
            ("HyperParameterTuningJobStatus", &[]),
            ("Message", &[]),
            ("CreationTime", &[]),
            ("EndTime", &[]),
            ("MaxTrials", &[]),
            ("MaxParallel", &[]),
            ("Running", &[]),
            ("Waiting", &[]),
            ("Paused", &[]),
            ("BestTrial", &[]),
            ("Definitions", &[]),
            ("Trials", &[]),
            ("NextToken", &[]),
        ],
    ),
    ours(DESCRIBE_PROFILE, &[("Profile", &[])]),
    ours(DESCRIBE_UTILIZATION, &[("Hosts", &["Host", "Time", "Metrics"])]),
    ours(UPDATE_TUNING_JOB, &[]),
    ours(START_VISIT, &[("VisitId", &[])]),
    ours(FEED_VISIT, &[("IsTaken", &[])]),
    ours(READ_VISIT, &[("Output", &["Stream", "Data"]), ("End", &[])]),
];

/// A key as it is listed.
const KEY: &[&str] = &["Name", "Role", "AccessKeyId", "Arn", "Read", "Write", "CreationTime", "RotationTime"];
/// A key that is new.
const NEW_KEY: &[(&str, &[&str])] = &[
    ("Name", &[]),
    ("Role", &[]),
    ("AccessKeyId", &[]),
    ("SecretAccessKey", &[]),
    ("Arn", &[]),
    ("Read", &[]),
    ("Write", &[]),
    ("CreationTime", &[]),
    ("RotationTime", &[]),
];

const fn ours(target: &'static str, output: &'static [(&'static str, &'static [&'static str])]) -> Operation {
    let (_, name) = target.split_at("Shoal.".len());
    Operation {
        service: Service::SageMaker,
        name,
        target,
        http: ("POST", "/"),
        input: None,
        output: Some(output),
        errors: &[],
    }
}

/// All operations that are served.
pub fn operations() -> impl Iterator<Item = &'static Operation> {
    constraints::TABLES.iter().copied().flatten().chain(&OURS)
}

/// Whether this is the target of an operation of our own.
pub(crate) fn is_ours(target: &str) -> bool {
    OURS.iter().any(|operation| operation.target == target)
}

/// The operation that a request names.
///
/// # Errors
/// It names none, or one that is not served.
pub fn operation(service: Service, head: &Parts, body: &[u8]) -> Result<&'static Operation, Error> {
    match Protocol::of(service, head) {
        Protocol::Query => {
            let pairs = query::request_pairs(head, body)?;
            let Some((_, action)) = pairs.iter().find(|(name, _)| name == "Action") else {
                return Err(unnamed("parameter Action"));
            };
            named(service, action).ok_or_else(|| unknown(service, action))
        }
        Protocol::Json => match head.headers.get("x-amz-target").map(|target| target.to_str().unwrap_or_default()) {
            Some(target) => {
                let found = of(service).find(|operation| operation.target == target && !target.is_empty());
                let own = target.rsplit_once('.').filter(|(prefix, _)| Some(*prefix) == service.target_prefix());
                found.ok_or_else(|| unknown(service, own.map_or(target, |(_, name)| name)))
            }
            None if service == Service::SageMaker && head.uri.path() != "/" => {
                let asked = (head.method.as_str(), head.uri.path());
                let found = of(service).find(|operation| operation.http == asked);
                found.ok_or_else(|| unknown(service, &format!("{} {}", asked.0, asked.1)))
            }
            None => Err(unnamed("header X-Amz-Target")),
        },
    }
}

fn of(service: Service) -> impl Iterator<Item = &'static Operation> {
    operations().filter(move |operation| operation.service == service)
}

fn named(service: Service, name: &str) -> Option<&'static Operation> {
    of(service).find(|operation| operation.name == name)
}

fn unnamed(place: &str) -> Error {
    Error::new(ErrorCode::UnknownOperationException, format!("The {place}, which names the operation, is missing."))
}

fn unknown(service: Service, operation: &str) -> Error {
    let shown: String = operation.chars().take(128).collect();
    Error::new(
        ErrorCode::UnknownOperationException,
        format!("Shoal does not serve the operation \"{}\" of {}.", shown.escape_debug(), service.scope()),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn requests_cannot_mean_two_operations() {
        let (mut names, mut targets, mut paths) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for operation in operations() {
            assert!(names.insert((operation.service.scope(), operation.name)), "{operation:?}");
            assert!(operation.target.is_empty() || targets.insert(operation.target), "{operation:?}");
            assert!(operation.http.1 == "/" || paths.insert(operation.http), "{operation:?}");
            assert_eq!(
                operation.target.is_empty() && operation.http.1 == "/",
                !operation.service.answers_json(),
                "{operation:?}"
            );
        }
        assert_eq!(paths.len(), 2, "those of SageMaker's metrics");
    }
}
