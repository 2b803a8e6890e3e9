//! Whose an object is: what a training job wrote itself, told from its inputs, from checkpoints,
//! and from what other jobs wrote beside or below it. Pure: descriptions of jobs in, yes or no out.

use std::collections::BTreeSet;

use serde_json::Value;
use shoal_wire::{S3Uri, arn};

/// Where a training job's things lie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Belongings {
    /// Below these it writes: its output, a script's intermediate output, and what observes it.
    pub(super) output: Vec<S3Uri>,
    /// And its checkpoints.
    checkpoints: Option<S3Uri>,
    /// It reads these: channels and its source.
    inputs: Vec<S3Uri>,
}

impl Belongings {
    /// Of a description of a training job.
    pub(super) fn of(job: &Value) -> Self {
        let name = job["TrainingJobName"].as_str().unwrap_or_default();
        let uri = |value: &Value| value.as_str().and_then(|text| text.parse::<S3Uri>().ok());
        let output = uri(&job["OutputDataConfig"]["S3OutputPath"]).map(|path| arn::output(&path, name, ""));
        let intermediate =
            uri(&hyperparameter(job, "sagemaker_s3_output")).map(|path| arn::output(&path, name, "intermediate/"));
        let observers = [
            ("DebugHookConfig", "debug-output"),
            ("TensorBoardOutputConfig", "tensorboard-output"),
            ("ProfilerConfig", "profiler-output"),
        ];
        let observed = observers.into_iter().filter_map(|(member, kind)| {
            uri(&job[member]["S3OutputPath"]).map(|path| arn::observed(&path, name, kind))
        });
        let channels = job["InputDataConfig"].as_array().into_iter().flatten();
        let channels = channels.filter_map(|channel| uri(&channel["DataSource"]["S3DataSource"]["S3Uri"]));
        let source = [
            hyperparameter(job, "sagemaker_submit_directory"),
            job["Environment"]["SAGEMAKER_SUBMIT_DIRECTORY"].clone(),
        ];
        Self {
            output: output.into_iter().chain(intermediate).chain(observed).collect(),
            checkpoints: uri(&job["CheckpointConfig"]["S3Uri"]),
            inputs: channels.chain(source.iter().filter_map(uri)).collect(),
        }
    }
}

/// SDKs write values as JSON.
fn hyperparameter(job: &Value, name: &str) -> Value {
    let value = &job["HyperParameters"][name];
    value
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok())
        .filter(Value::is_string)
        .unwrap_or_else(|| value.clone())
}

/// Where all jobs of a server write, with the job's name.
#[derive(Debug, Default)]
pub(super) struct Writers(BTreeSet<(S3Uri, String)>);

impl Writers {
    /// Of descriptions of all training jobs.
    pub(super) fn of(jobs: &[Value]) -> Self {
        let places = |job: &Value| {
            let name = job["TrainingJobName"].as_str().unwrap_or_default().to_owned();
            let Belongings { output, checkpoints, .. } = Belongings::of(job);
            Vec::from_iter(output.into_iter().chain(checkpoints).map(|place| (place, name.clone())))
        };
        Self(jobs.iter().flat_map(places).collect())
    }

    /// What below `place`, where `job` writes, is not its output: what it reads, checkpoints, and
    /// what others write.
    pub(super) fn spared<'a>(&'a self, place: &S3Uri, job: &'a str, own: &'a Belongings) -> Vec<&'a str> {
        let below = self.0.range((place.clone(), String::new())..);
        let below =
            below.take_while(|(other, _)| other.bucket == place.bucket && other.prefix.starts_with(&place.prefix));
        let others = below.filter(|(_, writer)| writer != job).map(|(other, _)| other);
        let inputs = own.inputs.iter().chain(&own.checkpoints);
        // A channel of the whole bucket does not make an input of a model in it: the nearer name
        // counts.
        let inputs = inputs.filter(|input| input.bucket == place.bucket && input.prefix.starts_with(&place.prefix));
        others.chain(inputs).map(|other| other.prefix.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Keys of the bucket that go with the job `a`.
    fn gone(a: &Value, others: &[Value], keys: &[&'static str]) -> Vec<&'static str> {
        let writers = Writers::of(&[std::slice::from_ref(a), others].concat());
        let own = Belongings::of(a);
        let is_gone = |key: &&&str| {
            own.output.iter().any(|place| {
                let spared = writers.spared(place, "a", &own);
                key.starts_with(&place.prefix) && !spared.iter().any(|prefix| key.starts_with(prefix))
            })
        };
        keys.iter().filter(is_gone).copied().collect()
    }

    fn job(name: &str, output: &str) -> Value {
        json!({"TrainingJobName": name, "OutputDataConfig": {"S3OutputPath": output}})
    }

    #[test]
    fn the_output_of_a_job_is_what_it_wrote_below_its_own_name() {
        for (path, below) in
            [("s3://bkt", "a/output/"), ("s3://bkt/", "a/output/"), ("s3://bkt/out/deep/", "out/deep/a/output/")]
        {
            let found = Belongings::of(&job("a", path)).output;
            assert_eq!(found, [S3Uri { bucket: "bkt".into(), prefix: below.into() }], "{path}");
        }
        let mut script = job("a", "s3://bkt/");
        script["HyperParameters"] = json!({"sagemaker_s3_output": "\"s3://bkt/more\""});
        let keys = [
            "a/output/model.tar.gz",
            "a/output/model/x",
            "more/a/output/intermediate/x",
            "more/a/output/x",
            "ab/output/model.tar.gz",
        ];
        assert_eq!(gone(&script, &[], &keys), keys[..3]);
    }

    #[test]
    fn what_observed_a_job_goes_with_it() {
        let mut observed = job("a", "s3://bkt/");
        observed["DebugHookConfig"] = json!({"S3OutputPath": "s3://bkt/debug"});
        observed["ProfilerConfig"] = json!({"S3OutputPath": "s3://bkt/debug/"});
        let keys = [
            "debug/a/debug-output/claim.smd",
            "debug/a/profiler-output/system/x.json",
            "debug/a/other",
            "debug/b/debug-output/claim.smd",
        ];
        assert_eq!(gone(&observed, &[], &keys), keys[..2]);
    }

    #[test]
    fn what_other_jobs_wrote_stays() {
        let keys = [
            "a/output/model.tar.gz",
            "a/b/output/model.tar.gz",
            "a/output/output/model.tar.gz",
            "a/output/b/output/model.tar.gz",
        ];
        assert_eq!(gone(&job("a", "s3://bkt/"), &[job("b", "s3://bkt/a/")], &keys[..2]), keys[..1]);
        let nested = [job("output", "s3://bkt/a"), job("b", "s3://bkt/a/output/")];
        assert_eq!(gone(&job("a", "s3://bkt/"), &nested, &keys[2..]), keys[..0]);
        let checkpoints = json!({"TrainingJobName": "c", "CheckpointConfig": {"S3Uri": "s3://bkt/a/output/c"}});
        assert_eq!(
            gone(&job("a", "s3://bkt/"), &[checkpoints], &["a/output/c/1.pt", "a/output/model.tar.gz"]),
            keys[..1]
        );
    }

    #[test]
    fn what_a_job_reads_and_its_checkpoints_stay() {
        let mut a = job("a", "s3://bkt/");
        a["InputDataConfig"] = json!([
            {"DataSource": {"S3DataSource": {"S3Uri": "s3://bkt/a/output/data"}}},
            // Of the whole bucket: its own model is none of its inputs.
            {"DataSource": {"S3DataSource": {"S3Uri": "s3://bkt/"}}},
        ]);
        a["CheckpointConfig"] = json!({"S3Uri": "s3://bkt/a/output/checkpoints/"});
        a["HyperParameters"] = json!({"sagemaker_submit_directory": "\"s3://bkt/a/output/source.tar.gz\""});
        let keys = [
            "a/output/model.tar.gz",
            "a/output/data.csv",
            "a/output/checkpoints/1",
            "a/output/source.tar.gz",
            "a/source/x/sourcedir.tar.gz",
            "a/input/train/x/rows.csv",
        ];
        assert_eq!(gone(&a, &[], &keys), keys[..1]);
    }
}
