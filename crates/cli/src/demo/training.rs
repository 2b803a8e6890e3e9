//! One training of the demo, through the public API: upload, create, wait, fetch the model.

use std::{
    io::Read,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::{
    curve::{self, Curve},
    dataset::{Dataset, Row, to_csv},
    house::House,
};
use crate::{
    client::{Client, LogReader},
    output::Progress,
    watch::{self, is_over},
};

/// Everything of the demo is in here.
const BUCKET: &str = "demo";

/// Which rows a training sees, and which it is measured on after each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The training rows; measured on the validation rows.
    Train,
    /// The training and the validation rows; measured on the test rows.
    All,
}

impl Seen {
    /// The prefixes of the channels `train` and `validation`.
    fn prefixes(self, dataset: &Dataset) -> [String; 2] {
        let name = dataset.name;
        match self {
            Self::Train => [format!("data/{name}/train/"), format!("data/{name}/validation/")],
            Self::All => [format!("data/{name}/"), format!("test/{name}/")],
        }
    }
}

/// One training.
#[derive(Debug)]
pub(super) struct Job<'a> {
    /// Its name.
    pub(super) name: String,
    /// Its rows.
    pub(super) seen: Seen,
    /// Beside the dataset's hyperparameters.
    pub(super) tuned: &'a [(String, String)],
    /// Each has its part of the training rows.
    pub(super) instances: usize,
}

/// What came out.
#[derive(Debug)]
pub(super) struct Training {
    /// How many instances it ran on.
    pub(super) instances: usize,
    /// As the client sees it, seconds.
    pub(super) submit_to_completed_s: f64,
    /// As the description tells it, seconds.
    pub(super) program_s: f64,
    /// Of the rows that it saw.
    pub(super) train: Curve,
    /// Of the rows that it is measured on.
    pub(super) measured: Curve,
    /// The model file.
    pub(super) model: Vec<u8>,
}

/// Stores the data, the training rows in `parts` files of about the same length.
pub fn upload(client: &Client, dataset: &Dataset, parts: usize) -> Result<()> {
    client.create_bucket(BUCKET)?;
    let [train, validation] = Seen::Train.prefixes(dataset);
    let [_, test] = Seen::All.prefixes(dataset);
    let put = |key: String, rows: &[Row]| client.put_object(BUCKET, &key, &mut to_csv(rows, true).as_bytes());
    for (number, rows) in dataset.train.chunks(dataset.train.len().div_ceil(parts).max(1)).enumerate() {
        put(format!("{train}part-{number}.csv"), rows)?;
    }
    put(format!("{validation}all.csv"), &dataset.validation)?;
    put(format!("{test}all.csv"), &dataset.test)
}

/// Trains, and fetches what came out.
pub(super) fn run(house: &House, dataset: &Dataset, job: &Job<'_>) -> Result<Training> {
    let (client, name) = (house.client(), &job.name);
    let mut request = request(dataset, name, job.seen, job.instances);
    for (name, value) in job.tuned {
        request["HyperParameters"][name] = json!(value);
    }
    let started = Instant::now();
    client.sagemaker("CreateTrainingJob", &request)?;
    let mut progress = Progress::on_stderr();
    let mut stopped = false;
    let description = loop {
        let description = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": name}))?;
        if is_over(&description) {
            break description;
        }
        if house.is_interrupted() && !stopped {
            stopped = true;
            progress.line("stopping");
            client.sagemaker("StopTrainingJob", &json!({"TrainingJobName": name}))?;
        }
        progress.draw(&format!("  {name}: {}", description["SecondaryStatus"].as_str().unwrap_or_default()));
        std::thread::sleep(Duration::from_millis(10));
    };
    let submit_to_completed_s = started.elapsed().as_secs_f64();
    drop(progress);
    ensure!(description["TrainingJobStatus"] == "Completed", "{}", watch::summary(&description));
    let lines = LogReader::new(name).read(client)?;
    let curves = curve::read(lines.iter().map(|event| event.message.as_str()), dataset.metric);
    let curve = |of: &str| {
        let found = curves.iter().find(|curve| curve.name == of && !curve.points.is_empty());
        found.cloned().with_context(|| format!("the log of {name} has no lines of {} for {of}", dataset.metric))
    };
    let seconds = |field: &str| description[field].as_f64().unwrap_or_default();
    Ok(Training {
        instances: job.instances,
        submit_to_completed_s,
        program_s: seconds("TrainingEndTime") - seconds("TrainingStartTime"),
        train: curve("train")?,
        measured: curve("validation")?,
        model: model(client, name)?,
    })
}

/// A CreateTrainingJob request for SageMaker's XGBoost image, each instance with its part of the
/// training rows.
pub fn request(dataset: &Dataset, name: &str, seen: Seen, instances: usize) -> Value {
    let [train, measured] = seen.prefixes(dataset);
    let channel = |channel: &str, prefix: &str, distribution: &str| {
        let uri = format!("s3://{BUCKET}/{prefix}");
        let source = json!({"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": distribution});
        json!({"ChannelName": channel, "ContentType": "text/csv", "DataSource": {"S3DataSource": source}})
    };
    json!({
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/demo",
        "AlgorithmSpecification": {"TrainingImage": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1", "TrainingInputMode": "File"},
        "HyperParameters": dataset.hyperparameters.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect::<serde_json::Map<_, _>>(),
        "InputDataConfig": [channel("train", &train, "ShardedByS3Key"), channel("validation", &measured, "FullyReplicated")],
        "OutputDataConfig": {"S3OutputPath": format!("s3://{BUCKET}/models/")},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": instances, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    })
}

/// The model file of a training that was made by [`request`].
pub fn model(client: &Client, name: &str) -> Result<Vec<u8>> {
    from_archive(&client.get_object(BUCKET, &format!("models/{name}/output/model.tar.gz"))?)
}

fn from_archive(archive: &[u8]) -> Result<Vec<u8>> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path()?.file_name().is_some_and(|name| name == "xgboost-model") {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            return Ok(bytes);
        }
    }
    None.context("model.tar.gz has no xgboost-model")
}
