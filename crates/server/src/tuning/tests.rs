//! Studies made of rows and records: what a restart goes on with.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shoal_plane::{Command, Observation, StudyRecord};
use shoal_store::{Batch, CheckpointRow, Journal, RecordRow, ResourceKind, ResourceRow, RowChange, SqliteJournal};
use shoal_tuner::{Ask, Outcome, Record, SchedulerSpec, SearcherSpec};
use shoal_wire::{CreateTuningJob, Stored as _};

use super::{
    Looks, designs,
    searches::{Searches, Surroundings, Told},
};
use crate::{Image, ImageError, Images, core::NewChild};

/// Every image is the host.
pub(crate) struct Host;

impl Images for Host {
    fn known(&self, image: &str) -> Result<Option<Image>, ImageError> {
        self.resolve(image).map(Some)
    }

    fn resolve(&self, _: &str) -> Result<Image, ImageError> {
        Ok(Image::Host)
    }

    fn framework(&self, _: &str) -> Result<Option<shoal_link::PythonEnvironment>, ImageError> {
        Ok(None)
    }

    fn metric_definitions(&self, _: &str) -> Vec<(String, String)> {
        Vec::new()
    }

    fn resources(&self) -> Vec<String> {
        Vec::new()
    }
}

fn definition(name: Option<&str>) -> Value {
    let mut definition = json!({
        "AlgorithmSpecification": {"TrainingImage": "shoal/host", "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::123456789012:role/tests",
        "StaticHyperParameters": {"sagemaker_program": "a.py", "sagemaker_submit_directory": "/code"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    });
    if let Some(name) = name {
        definition["DefinitionName"] = json!(name);
        definition["TuningObjective"] = json!({"Type": "Minimize", "MetricName": "loss"});
        definition["HyperParameterRanges"] = ranges();
    }
    definition
}

fn ranges() -> Value {
    json!({"ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1"}],
        "CategoricalParameterRanges": [{"Name": "kind", "Values": ["a", "b"]}]})
}

pub(crate) fn request(strategy: &str, changes: &Value) -> Vec<u8> {
    let mut request = json!({
        "HyperParameterTuningJobName": "tune",
        "HyperParameterTuningJobConfig": {
            "Strategy": strategy,
            "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": 9, "MaxParallelTrainingJobs": 3},
            "ParameterRanges": ranges(),
            "RandomSeed": 5,
        },
        "TrainingJobDefinition": definition(None),
    });
    for (name, value) in changes.as_object().into_iter().flatten() {
        request[name] = value.clone();
    }
    serde_json::to_vec(&request).unwrap()
}

fn parsed(bytes: &[u8]) -> CreateTuningJob {
    let mut request = CreateTuningJob::from_raw(serde_json::from_slice(bytes).unwrap()).unwrap();
    crate::requests::resolve_auto_ranges(&mut request, &Host);
    request
}

struct Fixture {
    journal: SqliteJournal,
    row: ResourceRow,
    stored: u64,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn new(request: Vec<u8>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::open(&dir.path().join("shoal.db")).unwrap();
        let spec = parsed(&request).to_stored();
        let row = ResourceRow {
            uid: "0123456789ab".to_owned(),
            request,
            spec,
            ..ResourceRow::new(ResourceKind::TUNING_JOB, "tune")
        };
        Self { journal, row, stored: 0, _dir: dir }
    }

    fn open(&self) -> Searches {
        let rows = self.journal.rows();
        let around = Surroundings { rows: &rows, images: &Host, region: "us-east-1", account: "123456789012" };
        Searches::open(&self.row, &around).unwrap()
    }

    /// Asks as the core does until it has all that it wants, or is given none: an answer may be cut
    /// short by its time.
    fn suggest(&mut self, searches: &mut Searches, wanted: usize) -> (Vec<NewChild>, Vec<StudyRecord>) {
        let (mut children, mut all) = (Vec::new(), Vec::new());
        while children.len() < wanted {
            let missing = u32::try_from(wanted - children.len()).unwrap();
            let mut told = searches.suggest(&self.journal.rows(), 1, missing).unwrap();
            self.store(&told);
            all.extend_from_slice(records(&told));
            if told.children.is_empty() {
                break;
            }
            children.append(&mut told.children);
        }
        (children, all)
    }

    /// As the core does.
    fn put(&mut self, row: RowChange) {
        self.journal.append(&Batch { events: Vec::new(), rows: vec![row] }).unwrap();
    }

    /// As the core does.
    fn store(&mut self, told: &Told) {
        for record in records(told) {
            self.stored += 1;
            let bytes = serde_json::to_vec(record).unwrap();
            let row = RecordRow { tuning: "tune".to_owned(), seq: self.stored, bytes };
            self.put(RowChange::PutRecord(row));
        }
    }
}

fn records(told: &Told) -> &[StudyRecord] {
    match &told.command {
        Command::Suggested { records, .. } | Command::Judged { records, .. } => records,
        other => panic!("{other:?}"),
    }
}

fn ended(value: f64) -> Observation {
    Observation::Ended { outcome: Outcome::Completed { values: vec![value] } }
}

#[test]
fn studies_of_records_go_on_as_those_that_were_never_closed() {
    let mut fixture = Fixture::new(request("Bayesian", &json!({})));
    let mut open = fixture.open();
    for round in 0..3 {
        let (children, _) = fixture.suggest(&mut open, 2);
        assert_eq!(children.len(), 2);
        for NewChild { child, .. } in &children {
            let judged = open.observe(2, 0, child.trial, &ended(f64::from(child.trial) / 7.0));
            assert_eq!(records(&judged).len(), 1);
            fixture.store(&judged);
            assert_eq!(
                records(&open.observe(2, 0, child.trial, &ended(0.0))).len(),
                0,
                "an end that is said again is no news"
            );
        }
        let again = fixture.open().suggest(&fixture.journal.rows(), 1, 1).unwrap();
        let on = open.suggest(&fixture.journal.rows(), 1, 1).unwrap();
        assert_eq!((&again.command, again.children.len()), (&on.command, 1), "round {round}");
        // That suggestion was not stored: the study is opened without it.
        open = fixture.open();
    }
    let (last, _) = fixture.suggest(&mut open, 9);
    assert_eq!(last.len(), 3, "no more than MaxNumberOfTrainingJobs");
    let name = &last[2].child.name;
    assert!(name.starts_with("tune-009-") && name.len() == "tune-009-".len() + 8, "{name}");
}

#[test]
fn definitions_share_the_trials_evenly() {
    let definitions = json!({
        "TrainingJobDefinitions": [definition(Some("one")), definition(Some("two"))],
        "TrainingJobDefinition": null,
        "HyperParameterTuningJobConfig": {"Strategy": "Random", "ResourceLimits": {"MaxNumberOfTrainingJobs": 5, "MaxParallelTrainingJobs": 5}},
    });
    let mut fixture = Fixture::new(request("Random", &definitions));
    let mut open = fixture.open();
    let (mut children, _) = fixture.suggest(&mut open, 3);
    open = fixture.open();
    let (more, all) = fixture.suggest(&mut open, 9);
    children.extend(more);
    let of: Vec<u32> = children.iter().map(|new| new.child.definition).collect();
    assert_eq!(of, [0, 1, 0, 1, 0]);
    assert!(
        !all.iter().any(|it| matches!(it.record, Record::Asked { answer: Ask::End, .. })),
        "trials are still running"
    );
}

#[test]
fn the_tag_chooses_beyond_the_api() {
    let of = |value: &str| {
        let tags = json!({"Tags": [{"Key": "shoal:strategy", "Value": value}]});
        let mut request = parsed(&request("Random", &json!({})));
        request.tags = serde_json::from_value(tags["Tags"].clone()).unwrap();
        designs(&request, 1, &Host).map(|designs| designs[0].clone())
    };
    let conditional =
        r#"{"scheduler":{"kind":"asha","max_resource":9},"conditions":{"x":{"parent":"kind","in":["a"]}}}"#;
    for text in [conditional.to_owned(), base64_simd::STANDARD.encode_to_string(conditional)] {
        let design = of(&text).unwrap();
        assert!(matches!(design.study.scheduler, SchedulerSpec::Asha(_)), "{text}");
        assert_eq!(design.study.space.parameters()[0].condition.as_ref().unwrap().parent, "kind");
    }
    assert_eq!(of("sobol").unwrap().study.searcher, SearcherSpec::Sobol);
    let several = of(r#"{"objectives":[{"metric":"seconds"}]}"#).unwrap();
    assert_eq!((several.objectives.len(), several.study.objectives.len()), (2, 2));
    for (wrong, said) in
        [("newton", "newton"), ("{\"what\":1}", "what"), (r#"{"conditions":{"y":{"parent":"kind","in":["a"]}}}"#, "y")]
    {
        let error = of(wrong).unwrap_err();
        assert!(error.message.contains(said), "{}", error.message);
    }
}

#[test]
fn a_look_costs_what_is_new() {
    let mut fixture = Fixture::new(request("Bayesian", &json!({})));
    let designs = designs(&parsed(&fixture.row.request), 5, &Host).unwrap();
    let looks = Looks::default();
    let look = |fixture: &Fixture, row: &ResourceRow| {
        let seen = looks.of(row);
        let mut seen = seen.lock().unwrap();
        let new = seen.catch_up(&fixture.journal.rows(), row, &designs).unwrap();
        let (studies, findings) = seen.findings();
        (new, studies[0].records().to_vec(), findings.weights[0].clone())
    };
    let mut open = fixture.open();
    for round in 1..=3 {
        let (children, mut records) = fixture.suggest(&mut open, 3);
        for NewChild { child, .. } in &children {
            let told = open.observe(2, 0, child.trial, &ended(f64::from(child.trial * child.trial)));
            fixture.store(&told);
            records.extend_from_slice(self::records(&told));
        }
        let (new, all, weights) = look(&fixture, &fixture.row);
        assert_eq!((new, all.len()), (6, 6 * round), "only what is new is read");
        assert!(records.iter().all(|it| all.contains(&it.record)));
        assert_eq!(weights.len(), if round == 1 { 0 } else { 2 }, "what is found out is of all records");
        assert_eq!(look(&fixture, &fixture.row), (0, all, weights));
    }
    // Another of its name, and back after others.
    let another = ResourceRow { uid: "ba9876543210".to_owned(), ..fixture.row.clone() };
    assert_eq!(look(&fixture, &another).0, 18);
    for number in 0..3 {
        look(&fixture, &ResourceRow { uid: format!("{number}"), ..fixture.row.clone() });
    }
    assert_eq!((look(&fixture, &another).0, look(&fixture, &fixture.row).0), (0, 18), "the last ones are kept");
}

#[test]
fn a_copy_begins_with_a_checkpoint_or_is_none() {
    let strategy = r#"{"scheduler":{"kind":"pbt","population":2,"quantile":0.5,"max_resource":3}}"#;
    let changes = json!({"Tags": [{"Key": "shoal:strategy", "Value": strategy}]});
    for (comes, is_over, is_old) in
        [(true, false, false), (true, false, true), (false, true, false), (false, false, false)]
    {
        let mut definition = definition(None);
        definition["CheckpointConfig"] = json!({"S3Uri": "s3://bucket/kept"});
        let mut changes = changes.clone();
        changes["TrainingJobDefinition"] = definition;
        let mut fixture = Fixture::new(request("Random", &changes));
        let mut open = fixture.open();
        let (children, _) = fixture.suggest(&mut open, 2);
        for (value, NewChild { child, .. }) in [0.5, 1.0].into_iter().zip(&children) {
            fixture.put(RowChange::Put(Box::new(ResourceRow {
                ended: is_over,
                ..ResourceRow::new(ResourceKind::TRAINING_JOB, &child.name)
            })));
            let told = open.observe(2, 0, child.trial, &Observation::Reported { resource: 1, value: Some(value) });
            fixture.store(&told);
        }
        let best = children[0].child.name.clone();
        let receipt = |saved_ms| {
            let (path, sha256) = ("state".to_owned(), String::new());
            RowChange::PutCheckpoint(CheckpointRow { job: best.to_string(), path, host: 1, bytes: 1, sha256, saved_ms })
        };
        if is_old {
            fixture.put(receipt(1));
        }
        let rows = fixture.journal.rows();
        let began = Instant::now();
        let told = std::thread::scope(|scope| {
            let asked = scope.spawn(|| open.suggest(&rows, 3, 1).unwrap());
            if !is_over {
                std::thread::sleep(Duration::from_millis(100));
                assert!(!asked.is_finished() || is_old, "it waits for what may still come");
            }
            if comes {
                fixture.put(receipt(u64::MAX >> 1));
            }
            asked.join().unwrap()
        });
        let copied = records(&told)
            .iter()
            .any(|it| matches!(&it.record, Record::Asked { answer: Ask::Start(start), .. } if start.origin.is_some()));
        assert!(copied, "{:?}", records(&told));
        assert_eq!(told.children[0].child.origin, comes.then_some(best));
        assert!(began.elapsed() < Duration::from_secs(60), "and not for ever");
    }
}

#[test]
fn a_record_that_cannot_be_used_is_named_and_nothing_of_it_stays() {
    for (bytes, expected) in [
        (&b"{"[..], "EOF"),
        (br#"{"definition": 7, "record": {"ended": {"trial": 0, "outcome": "failed"}}}"#, "record 1"),
        (br#"{"definition": 0}"#, "record"),
    ] {
        let mut fixture = Fixture::new(request("Random", &json!({})));
        let row = RecordRow { tuning: "tune".to_owned(), seq: 1, bytes: bytes.to_vec() };
        fixture.put(RowChange::PutRecord(row));
        let rows = fixture.journal.rows();
        let around = Surroundings { rows: &rows, images: &Host, region: "us-east-1", account: "123456789012" };
        let opened = Searches::open(&fixture.row, &around).map(|_| ()).unwrap_err();
        let text = format!("{opened:?}");
        assert!(text.contains("record 1 of tuning job tune") && text.contains(expected), "{text}");
        let designs = designs(&parsed(&fixture.row.request), 5, &Host).unwrap();
        let mut seen = super::looks::Seen::default();
        for _ in ["first look", "second look"] {
            let error = seen.catch_up(&rows, &fixture.row, &designs).unwrap_err();
            assert!(error.to_string().starts_with("record 1 of tuning job tune: "), "{error}");
            assert!(seen.studies().is_empty());
        }
    }
}

#[test]
fn a_seed_is_the_requests_or_drawn_once_for_a_tuning_job() {
    let given = parsed(&request("Random", &json!({})));
    assert_eq!(super::seed(&given, "any"), 5);
    let mut drawn = given;
    drawn.seed = None;
    assert_eq!(super::seed(&drawn, "0123456789ab"), super::seed(&drawn, "0123456789ab"));
    assert_ne!(super::seed(&drawn, "0123456789ab"), super::seed(&drawn, "0123456789ac"));
}
