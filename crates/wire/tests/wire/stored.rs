//! Stored requests: what was accepted once is read by every later version, whatever its rules have
//! become.

use std::fmt::Debug;

use serde_json::{Value, json};
use shoal_wire::{Child, CreateTrainingJob, CreateTuningJob, ErrorCode, Stored, UpdateTrainingJob, stored_description};

const TRAINING_JOB: (&str, &str) =
    (include_str!("../golden/raw/training_job.json"), include_str!("../golden/v1/training_job.json"));
const TUNING_JOB: (&str, &str) =
    (include_str!("../golden/raw/tuning_job.json"), include_str!("../golden/v1/tuning_job.json"));

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn restored<T: Stored>((raw, stored): (&str, &str)) -> T {
    T::restore(stored.as_bytes(), raw.as_bytes()).expect("a stored request")
}

#[test]
fn version_1_is_read_and_written() {
    fn check<T: Stored + Debug + PartialEq>(golden: (&str, &str)) {
        let created = T::from_raw(json_of(golden.0))
            .expect("accepted by the version that had no stored form, and by every later one");
        assert_eq!(restored::<T>(golden), created);
        assert_eq!(
            serde_json::from_slice::<Value>(&created.to_stored()).expect("JSON"),
            json_of(golden.1),
            "the next form is the next version"
        );
    }
    check::<CreateTrainingJob>(TRAINING_JOB);
    check::<CreateTuningJob>(TUNING_JOB);
}

#[test]
fn what_observes_a_job_is_read_and_written() {
    let golden = json_of(include_str!("../golden/v1/training_job_observed.json"));
    let raw = json_of(include_str!("../golden/raw/training_job_observed.json"));
    let Ok(created) = crate::calls::create(&raw) else { panic!("a sound request") };
    assert_eq!(serde_json::from_slice::<Value>(&created.to_stored()).expect("JSON"), golden);
    let restored = CreateTrainingJob::restore(golden.to_string().as_bytes(), raw.to_string().as_bytes());
    assert_eq!(restored, Ok(created));
}

/// Requests that today's rules refuse in every way: a value that no enumeration has, one of another
/// type, a text that is too long.
#[test]
fn no_rule_is_applied_to_a_stored_request() {
    let mut raw = json_of(TRAINING_JOB.0);
    raw["AlgorithmSpecification"]["TrainingInputMode"] = json!("Telepathy");
    raw["AlgorithmSpecification"]["MetricDefinitions"][0]["Regex"] = json!("(");
    raw["OutputDataConfig"]["S3OutputPath"] = json!(17);
    raw["Environment"]["A"] = json!("x".repeat(100_000));
    CreateTrainingJob::from_raw(raw.clone()).expect_err("today's rules");
    let job: CreateTrainingJob = restored((&raw.to_string(), TRAINING_JOB.1));
    let accepted: CreateTrainingJob = restored(TRAINING_JOB);
    assert_eq!(
        (job.algorithm, job.output, job.environment),
        (accepted.algorithm, accepted.output, accepted.environment)
    );
    assert_eq!(Value::Object(job.raw), raw, "the echo is what was received");

    let mut raw = json_of(TUNING_JOB.0);
    raw["HyperParameterTuningJobConfig"]["Strategy"] = json!("Guess");
    let definition = &mut raw["TrainingJobDefinitions"][0];
    definition["HyperParameterRanges"] = json!("none");
    CreateTuningJob::from_raw(raw.clone()).expect_err("today's rules");
    let job: CreateTuningJob = restored((&raw.to_string(), TUNING_JOB.1));
    assert_eq!(job.definitions, restored::<CreateTuningJob>(TUNING_JOB).definitions);
}

/// The request of a trial is composed of what is stored: rules that became stricter end no tuning
/// job.
#[test]
fn trials_of_a_stored_tuning_job_are_not_judged() {
    let mut stored = json_of(TUNING_JOB.1);
    let template = &mut stored["request"]["definitions"][0]["training"];
    let own = Child {
        name: "t-001-0",
        tuned: &[("eta".to_owned(), "0.5".to_owned())],
        alternative: 1,
        tags: &[],
        keeps_checkpoints: true,
    };
    let child = |stored: &Value| {
        let job: CreateTuningJob = restored((TUNING_JOB.0, &stored.to_string()));
        job.definitions[0].child(&own).expect("a training job")
    };
    template["raw"]["AlgorithmSpecification"]["TrainingInputMode"] = json!("Telepathy");
    let trial = child(&stored);
    CreateTrainingJob::from_raw(Value::Object(trial.raw.clone())).expect_err("today's rules");
    assert_eq!(trial.raw["AlgorithmSpecification"]["TrainingInputMode"], "Telepathy");
    let accepted = child(&json_of(TUNING_JOB.1));
    assert_eq!(CreateTrainingJob { raw: accepted.raw.clone(), ..trial }, accepted);
    assert_eq!(
        CreateTrainingJob::from_raw(Value::Object(accepted.raw.clone())).as_ref(),
        Ok(&accepted),
        "a client that sent it would have the same"
    );
}

#[test]
fn an_update_checks_what_it_changes() {
    let mut raw = json_of(TRAINING_JOB.0);
    raw["AlgorithmSpecification"]["TrainingInputMode"] = json!("Telepathy");
    let mut job: CreateTrainingJob = restored((&raw.to_string(), TRAINING_JOB.1));
    let none = UpdateTrainingJob {
        name: job.name.clone(),
        profiler: None,
        profiler_rules: None,
        keep_alive_s: None,
        remote_debug: None,
    };
    let parameters = json!({"rule_to_invoke": "CPUBottleneck"});
    let rule = json!({"RuleConfigurationName": "r", "RuleEvaluatorImage": "i", "RuleParameters": parameters});
    UpdateTrainingJob { profiler_rules: Some(vec![rule.clone()]), ..none.clone() }.apply(&mut job).expect("a rule");
    assert_eq!(job.raw["ProfilerRuleConfigurations"], json!([rule]));
    let error =
        UpdateTrainingJob { keep_alive_s: Some(60), ..none }.apply(&mut job).expect_err("managed spot training");
    assert!(error.message.contains("warm pool"), "{error}");
}

#[test]
fn what_is_damaged_or_of_a_later_version_is_an_error_of_the_server() {
    let later = TRAINING_JOB.1.replacen("\"v\": 1", "\"v\": 2", 1);
    for (stored, part) in
        [(later.as_str(), "version 2"), ("{", "EOF"), ("", "refuses"), ("{\"v\":1,\"request\":{}}", "missing field")]
    {
        let error = CreateTrainingJob::restore(stored.as_bytes(), TRAINING_JOB.0.as_bytes()).expect_err(part);
        assert!(error.code == ErrorCode::InternalFailure && error.message.contains(part), "{error}");
        let error = stored_description(stored.as_bytes()).expect_err(part);
        assert!(error.code == ErrorCode::InternalFailure && error.message.contains(part), "{error}");
    }
    let described = stored_description(TRAINING_JOB.1.as_bytes()).expect("a golden job");
    assert_eq!(described.output, restored::<CreateTrainingJob>(TRAINING_JOB).output);
}
