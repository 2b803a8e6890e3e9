//! Which changes of training and tuning jobs are published to topics: changes of their status, and
//! rules that find something and have an action for that.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value, json};
use shoal_plane::{JobView, RuleVerdict, TuningView};
use shoal_store::{ResourceKind, ResourceProgress, ResourceRow, RowChange, Rows, StoreError};
use shoal_wire::{CreateTrainingJob, PublishedMessage, RuleAction, Stored, TopicProtocol, timestamp};

use super::{Message, TopicArn, message_id};
use crate::identity::Identity;

/// The topic of the Debugger's rules, as AWS names it.
const RULES_TOPIC: &str = "SMDebugRules";

/// What jobs were at the last append.
pub(crate) struct JobStates {
    rows: Arc<dyn Rows>,
    identity: Identity,
    /// ARN of the topic of jobs' states.
    topic_arn: Option<String>,
    /// Whether rules' mails can be sent.
    has_mail: bool,
    /// Of jobs that are not over.
    known: BTreeMap<(ResourceKind, String), Known>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    status: String,
    /// Rules that have found something.
    found: Vec<String>,
}

/// A job as a change of rows leaves it.
struct Now<'a> {
    kind: ResourceKind,
    name: &'a str,
    status: &'a str,
    ended: bool,
    view: &'a [u8],
    modified_ms: u64,
    /// The whole row, if it is new.
    row: Option<&'a ResourceRow>,
}

impl JobStates {
    /// As rows have them.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) fn read(
        rows: Arc<dyn Rows>,
        live: impl Iterator<Item = (ResourceKind, String)>,
        identity: Identity,
        topic_arn: Option<String>,
        has_mail: bool,
    ) -> Result<Self, StoreError> {
        let mut known = BTreeMap::new();
        for (kind, name) in live {
            if let Some(row) = rows.resource(kind, &name)? {
                known.insert((kind, name), Known { status: row.status.clone(), found: found(kind, &row.view) });
            }
        }
        Ok(Self { rows, identity, topic_arn, has_mail, known })
    }

    /// What is published of these changes.
    pub(super) fn messages(&self, changes: &[RowChange]) -> Vec<Message> {
        changes.iter().filter_map(now).flat_map(|now| self.of(&now)).collect()
    }

    /// They are durable.
    pub(super) fn note(&mut self, changes: &[RowChange]) {
        for now in changes.iter().filter_map(now) {
            let key = (now.kind, now.name.to_owned());
            match now.ended {
                true => drop(self.known.remove(&key)),
                false => {
                    let found = if self.has_mail { found(now.kind, now.view) } else { Vec::new() };
                    self.known.insert(key, Known { status: now.status.to_owned(), found });
                }
            }
        }
    }

    fn of(&self, now: &Now<'_>) -> Vec<Message> {
        let known = self.known.get(&(now.kind, now.name.to_owned()));
        // Rows of jobs that are over are put again when their tags change.
        if known.is_none() && now.ended {
            return Vec::new();
        }
        let changes_status = self.topic_arn.is_some() && known.is_none_or(|it| it.status != now.status);
        let new_findings: Vec<String> = match self.has_mail {
            true => found(now.kind, now.view)
                .into_iter()
                .filter(|rule| known.is_none_or(|it| !it.found.contains(rule)))
                .collect(),
            false => Vec::new(),
        };
        if !changes_status && new_findings.is_empty() {
            return Vec::new();
        }
        let stored = match now.row {
            Some(row) => Ok(Some(row.clone())),
            None => self.rows.resource(now.kind, now.name),
        };
        let row = match stored {
            Ok(Some(row)) => row,
            Ok(None) => return Vec::new(),
            Err(error) => {
                tracing::error!("no notification is sent that {} is {}: {error}", now.name, now.status);
                return Vec::new();
            }
        };
        let state = self.topic_arn.as_ref().filter(|_| changes_status).map(|topic| self.state_change(now, &row, topic));
        let rules = new_findings.iter().filter_map(|rule| self.finding(now, &row, rule));
        state.into_iter().chain(rules).collect()
    }

    /// The event that EventBridge has of it.
    fn state_change(&self, now: &Now<'_>, row: &ResourceRow, topic_arn: &str) -> Message {
        let id =
            message_id(&["state", &row.arn, &row.created_ms.to_string(), now.status, &now.modified_ms.to_string()]);
        let (noun, detail) = match now.kind {
            ResourceKind::TUNING_JOB => ("HyperParameter Tuning Job", tuning_detail(now, row)),
            _ => ("Training Job", training_detail(now, row)),
        };
        let event = json!({
            "version": "0",
            "id": id,
            "detail-type": format!("SageMaker {noun} State Change"),
            "source": "aws.sagemaker",
            "account": self.identity.account,
            "time": timestamp::iso8601(now.modified_ms),
            "region": self.identity.region,
            "resources": [row.arn],
            "detail": detail,
        });
        let subject: String = format!("{}: {noun} {}", now.status, now.name).chars().take(100).collect();
        Message {
            id,
            topic_arn: topic_arn.to_owned(),
            message: PublishedMessage {
                subject: Some(subject),
                text: event.to_string(),
                ..PublishedMessage::default()
            },
            subscribe: Vec::new(),
        }
    }

    /// What a rule with an action for it has found.
    fn finding(&self, now: &Now<'_>, row: &ResourceRow, rule: &str) -> Option<Message> {
        let request = CreateTrainingJob::restore(&row.spec, &row.request).ok()?;
        let view: JobView = serde_json::from_slice(now.view).ok()?;
        let debugger = &request.debugger;
        let configured = debugger.rules.iter().chain(&debugger.profiler_rules).find(|it| it.name == rule)?;
        let addresses: Vec<_> = configured
            .actions
            .iter()
            .filter_map(|action| if let RuleAction::Email(to) = action { Some(to.clone()) } else { None })
            .collect();
        if addresses.is_empty() {
            return None;
        }
        let (status, details, at) = view.rule_status(rule);
        let text = format!(
            "The Debugger rule {rule} of the training job {} is in status {status} since {}.\n\n{}\n\nTraining job: {}\n",
            now.name,
            timestamp::iso8601(at.0),
            details.unwrap_or_default(),
            row.arn
        );
        let subject: String = format!("SMDebugRule: {rule} of {}", now.name).chars().take(100).collect();
        Some(Message {
            id: message_id(&["rule", &row.arn, &row.created_ms.to_string(), rule, &at.0.to_string()]),
            topic_arn: TopicArn::of(RULES_TOPIC, &self.identity),
            message: PublishedMessage {
                subject: Some(subject.chars().map(|it| if it.is_ascii_graphic() { it } else { ' ' }).collect()),
                text,
                ..PublishedMessage::default()
            },
            subscribe: addresses.into_iter().map(|to| (TopicProtocol::Email, to)).collect(),
        })
    }
}

fn now(change: &RowChange) -> Option<Now<'_>> {
    let is_job = |kind| [ResourceKind::TRAINING_JOB, ResourceKind::TUNING_JOB].contains(&kind);
    match change {
        RowChange::Put(row) if is_job(row.kind) => {
            let ResourceRow { kind, name, status, ended, view, modified_ms, .. } = &**row;
            Some(Now { kind: *kind, name, status, ended: *ended, view, modified_ms: *modified_ms, row: Some(row) })
        }
        RowChange::Move(progress) if is_job(progress.kind) => {
            let ResourceProgress { kind, name, status, ended, view, modified_ms, .. } = &**progress;
            Some(Now { kind: *kind, name, status, ended: *ended, view, modified_ms: *modified_ms, row: None })
        }
        _ => None,
    }
}

/// Rules of a job that have found something.
fn found(kind: ResourceKind, view: &[u8]) -> Vec<String> {
    if kind != ResourceKind::TRAINING_JOB {
        return Vec::new();
    }
    let view: Option<JobView> = serde_json::from_slice(view).ok();
    let rules = view.into_iter().flat_map(|view| view.rules);
    rules.filter(|it| matches!(it.verdict, RuleVerdict::IssuesFound)).map(|it| it.rule).collect()
}

/// Members of the request, without what only SageMaker's own calls show.
fn request_of(row: &ResourceRow, members: &[&str]) -> Map<String, Value> {
    let request: Map<String, Value> = serde_json::from_slice(&row.request).unwrap_or_default();
    request.into_iter().filter(|(name, _)| members.contains(&name.as_str())).collect()
}

fn training_detail(now: &Now<'_>, row: &ResourceRow) -> Value {
    const MEMBERS: [&str; 8] = [
        "HyperParameters",
        "AlgorithmSpecification",
        "RoleArn",
        "InputDataConfig",
        "OutputDataConfig",
        "ResourceConfig",
        "StoppingCondition",
        "CheckpointConfig",
    ];
    let mut detail = request_of(row, &MEMBERS);
    let mut add = |name: &str, value: Value| drop(detail.insert(name.to_owned(), value));
    add("TrainingJobName", json!(now.name));
    add("TrainingJobArn", json!(row.arn));
    add("TrainingJobStatus", json!(now.status));
    add("CreationTime", json!(row.created_ms));
    add("LastModifiedTime", json!(now.modified_ms));
    if let Ok(view) = serde_json::from_slice::<JobView>(now.view) {
        let transition = |it: &shoal_plane::Transition| {
            json!({
                "Status": it.status.name(), "StartTime": it.start.0, "EndTime": it.end.map(|time| time.0),
                "StatusMessage": it.message,
            })
        };
        add("SecondaryStatus", json!(view.secondary.name()));
        add("SecondaryStatusTransitions", view.transitions.iter().map(transition).collect());
        let times = [("TrainingStartTime", view.training_start), ("TrainingEndTime", view.training_end)];
        times
            .into_iter()
            .filter_map(|(name, time)| Some((name, time?)))
            .for_each(|(name, time)| add(name, json!(time.0)));
        view.failure_reason.into_iter().for_each(|reason| add("FailureReason", json!(reason)));
    }
    add("Tags", tags(row));
    Value::Object(detail)
}

fn tuning_detail(now: &Now<'_>, row: &ResourceRow) -> Value {
    let mut detail =
        request_of(row, &["HyperParameterTuningJobConfig", "TrainingJobDefinition", "TrainingJobDefinitions"]);
    // It may have secrets.
    let forget = |definition: &mut Value| drop(definition.as_object_mut().map(|it| it.remove("Environment")));
    detail.get_mut("TrainingJobDefinition").into_iter().for_each(forget);
    let all = detail.get_mut("TrainingJobDefinitions").and_then(Value::as_array_mut);
    all.into_iter().flatten().for_each(forget);
    let mut add = |name: &str, value: Value| drop(detail.insert(name.to_owned(), value));
    add("HyperParameterTuningJobName", json!(now.name));
    add("HyperParameterTuningJobArn", json!(row.arn));
    add("HyperParameterTuningJobStatus", json!(now.status));
    add("CreationTime", json!(row.created_ms));
    add("LastModifiedTime", json!(now.modified_ms));
    if let Ok(view) = serde_json::from_slice::<TuningView>(now.view) {
        view.ended.into_iter().for_each(|time| add("HyperParameterTuningEndTime", json!(time.0)));
    }
    add("Tags", tags(row));
    Value::Object(detail)
}

/// As a map, as EventBridge has them.
fn tags(row: &ResourceRow) -> Value {
    let tags = shoal_wire::tags::from_json(&row.tags).unwrap_or_default();
    Value::Object(tags.into_iter().map(|tag| (tag.key, Value::from(tag.value))).collect())
}

#[cfg(test)]
mod tests {
    use shoal_store::SqliteJournal;

    use super::*;

    fn states(topic: Option<&str>) -> JobStates {
        let dir = tempfile::tempdir().unwrap();
        let rows: Arc<dyn Rows> = Arc::new(SqliteJournal::open(&dir.path().join("shoal.db")).unwrap().rows());
        let identity = Identity { region: "r".to_owned(), account: "1".to_owned() };
        JobStates::read(rows, std::iter::empty(), identity, topic.map(str::to_owned), true).unwrap()
    }

    fn job(status: &str, ended: bool) -> Vec<RowChange> {
        vec![RowChange::Put(Box::new(ResourceRow {
            arn: "arn:job".to_owned(),
            status: status.to_owned(),
            ended,
            modified_ms: 7,
            request: br#"{"RoleArn":"role","Environment":{"SECRET":"s"}}"#.to_vec(),
            ..ResourceRow::new(ResourceKind::TRAINING_JOB, "job")
        }))]
    }

    #[test]
    fn each_change_of_a_status_is_one_message() {
        let mut states = states(Some("topic"));
        let mut subjects = |status: &str, ended| {
            let changes = job(status, ended);
            let messages = states.messages(&changes);
            assert_eq!(
                states.messages(&changes),
                messages,
                "an append that fails is published again, with the same id"
            );
            states.note(&changes);
            messages.into_iter().map(|it| it.message.subject.unwrap_or_default()).collect::<Vec<_>>()
        };
        assert_eq!(subjects("InProgress", false), ["InProgress: Training Job job"]);
        assert_eq!(subjects("InProgress", false), Vec::<String>::new());
        assert_eq!(subjects("Stopping", false), ["Stopping: Training Job job"]);
        assert_eq!(subjects("Stopped", true), ["Stopped: Training Job job"]);
        assert_eq!(subjects("Stopped", true), Vec::<String>::new(), "its tags were changed");
    }

    #[test]
    fn events_are_eventbridges() {
        let states = states(Some("topic"));
        let message = states.messages(&job("InProgress", false)).remove(0);
        let event: Value = serde_json::from_str(&message.message.text).unwrap();
        assert_eq!(event["detail-type"], "SageMaker Training Job State Change");
        assert_eq!((&event["source"], &event["resources"][0]), (&json!("aws.sagemaker"), &json!("arn:job")));
        assert_eq!(event["detail"]["TrainingJobStatus"], "InProgress");
        assert_eq!(event["detail"]["RoleArn"], "role");
        assert!(event["detail"].get("Environment").is_none(), "environments may have secrets");
        assert_eq!(message.topic_arn, "topic");
    }

    #[test]
    fn a_rule_that_finds_something_sends_its_mail_once() {
        let raw = json!({
            "TrainingJobName": "job", "RoleArn": "arn:aws:iam::123456789012:role/a",
            "AlgorithmSpecification":
                {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["train"]},
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
            "DebugHookConfig": {"S3OutputPath": "s3://bucket/tensors"},
            "DebugRuleConfigurations": [{
                "RuleConfigurationName": "zeros", "RuleEvaluatorImage": "i",
                "RuleParameters": {
                    "rule_to_invoke": "AllZero",
                    "action_json": "[{\"name\": \"email\", \"endpoint\": \"me@x.org\"}]",
                },
            }],
        });
        let operation = shoal_wire::operations().find(|it| it.name == "CreateTrainingJob").unwrap();
        let request: CreateTrainingJob = shoal_wire::Call { operation, input: raw.clone() }.read().unwrap();
        let view = |rules: Value| {
            let view = json!({
                "status": "InProgress", "secondary": "Training", "transitions": [], "failure_reason": null, "created": 1,
                "modified": 2, "training_start": null, "training_end": null, "training_s": null, "billable_s": null,
                "final_metrics": [], "pending": null, "attempt": null, "ended": false, "rules": rules,
            });
            serde_json::from_value::<JobView>(view.clone()).expect("a view");
            view.to_string().into_bytes()
        };
        let row = |view: Vec<u8>| {
            vec![RowChange::Put(Box::new(ResourceRow {
                arn: "arn:job".to_owned(),
                status: "InProgress".to_owned(),
                view,
                spec: request.to_stored(),
                request: raw.to_string().into_bytes(),
                ..ResourceRow::new(ResourceKind::TRAINING_JOB, "job")
            }))]
        };
        let mut states = states(None);
        states.note(&row(view(json!([]))));
        let verdict = serde_json::to_value(RuleVerdict::IssuesFound).unwrap();
        let found = row(view(json!([{"rule": "zeros", "verdict": verdict, "details": "relu at step 3", "at": 5}])));
        let messages = states.messages(&found);
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].topic_arn, "arn:aws:sns:r:1:SMDebugRules");
        assert_eq!(messages[0].subscribe, [(TopicProtocol::Email, "me@x.org".to_owned())]);
        assert!(messages[0].message.text.contains("relu at step 3"), "{:?}", messages[0].message);
        states.note(&found);
        assert_eq!(states.messages(&found), Vec::new());
    }

    #[test]
    fn without_a_topic_nothing_is_told() {
        assert_eq!(states(None).messages(&job("InProgress", false)), Vec::new());
    }
}
