//! One training of the demo, through the public API: upload, create, wait, fetch the model, predict.

use std::{
    io::Read,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::{
    curve::{self, Curve},
    dataset::{Dataset, to_csv},
    house::House,
};
use crate::{
    client::{Client, LogReader},
    output::Progress,
    watch::{self, is_over},
};

/// Everything of the demo is in here.
const BUCKET: &str = "demo";

/// What came out.
#[derive(Debug)]
pub(super) struct Training {
    /// How many instances it ran on.
    pub(super) instances: usize,
    /// As the client sees it, seconds.
    pub(super) submit_to_completed_s: f64,
    /// As the description tells it, seconds.
    pub(super) program_s: f64,
    /// From the logs.
    pub(super) curves: Vec<Curve>,
    /// Of the validation rows, in their order.
    pub(super) predictions: Vec<f32>,
}

/// Stores the data under a prefix, the training rows in `parts` files of about the same length.
pub(crate) fn upload(client: &Client, dataset: &Dataset, parts: usize) -> Result<String> {
    client.create_bucket(BUCKET)?;
    let prefix = format!("data/{}", dataset.name);
    for (number, rows) in dataset.train.chunks(dataset.train.len().div_ceil(parts).max(1)).enumerate() {
        client.put_object(BUCKET, &format!("{prefix}/train/part-{number}.csv"), &mut to_csv(rows, true).as_bytes())?;
    }
    client.put_object(BUCKET, &format!("{prefix}/validation/all.csv"), &mut to_csv(&dataset.validation, true).as_bytes())?;
    Ok(prefix)
}

/// Trains on so many instances, each with its part of the training rows.
pub(super) fn run(house: &House, dataset: &Dataset, prefix: &str, instances: usize) -> Result<Training> {
    run_with(house, dataset, dataset.hyperparameters, &format!("{}-{instances}", dataset.name), prefix, instances)
}

/// The same with these hyperparameters, under this name.
pub(super) fn run_with(
    house: &House,
    dataset: &Dataset,
    hyperparameters: &[(&'static str, &'static str)],
    name: &str,
    prefix: &str,
    instances: usize,
) -> Result<Training> {
    let client = house.client();
    let mut request = request(dataset, name, prefix, instances);
    request["HyperParameters"] = hyperparameters.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let started = Instant::now();
    client.sagemaker("CreateTrainingJob", &request)?;
    let mut progress = Progress::new();
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
    ensure!(curves.len() == 2, "the log of {name} has no lines of {} for train and validation", dataset.metric);
    let model = model(client, name)?;
    let predictions = shoal_algos::xgboost::predict(&model, &to_csv(&dataset.validation, false))?;
    let seconds = |field: &str| description[field].as_f64().unwrap_or_default();
    Ok(Training {
        instances,
        submit_to_completed_s,
        program_s: seconds("TrainingEndTime") - seconds("TrainingStartTime"),
        curves,
        predictions,
    })
}

/// A CreateTrainingJob request for SageMaker's XGBoost image, each instance with its part of the training rows.
pub(crate) fn request(dataset: &Dataset, name: &str, prefix: &str, instances: usize) -> Value {
    let channel = |channel: &str, distribution: &str| {
        let uri = format!("s3://{BUCKET}/{prefix}/{channel}/");
        let source = json!({"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": distribution});
        json!({"ChannelName": channel, "ContentType": "text/csv", "DataSource": {"S3DataSource": source}})
    };
    json!({
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/demo",
        "AlgorithmSpecification": {"TrainingImage": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1", "TrainingInputMode": "File"},
        "HyperParameters": dataset.hyperparameters.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect::<serde_json::Map<_, _>>(),
        "InputDataConfig": [channel("train", "ShardedByS3Key"), channel("validation", "FullyReplicated")],
        "OutputDataConfig": {"S3OutputPath": format!("s3://{BUCKET}/models/")},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": instances, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    })
}

/// The model file of a training that was made by [`request`].
pub(crate) fn model(client: &Client, name: &str) -> Result<Vec<u8>> {
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
