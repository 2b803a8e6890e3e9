//! What is on the screen, asked of the public API.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::client::{Client, ClientError, now_ms};
use crate::instances;
use crate::tuning::study;
use crate::utilization;

/// Most jobs that are looked at one by one.
const DETAILED: usize = 60;
/// Most tuning jobs that are shown, the newest.
const TUNINGS: usize = 8;
/// How many of those that ended are shown.
const ENDED: usize = 5;
/// Metrics shown of a job.
const METRICS: usize = 4;
/// How old a metric's last value may be, in seconds.
const FRESH_S: u64 = 900;

/// The server's training jobs at one moment.
#[derive(Debug, Default)]
pub(super) struct Picture {
    /// `http://127.0.0.1:9777`.
    pub(super) server: String,
    /// Tuning jobs that are not over.
    pub(super) tunings: Vec<Tuning>,
    /// Jobs that are not over.
    pub(super) jobs: Vec<Job>,
    /// Not over, but too many to be looked at.
    pub(super) more: usize,
    /// The last that ended, the newest first.
    pub(super) ended: Vec<Job>,
    /// Why this picture is an old one.
    pub(super) trouble: Option<String>,
}

/// A tuning job.
#[derive(Debug, Clone, Default)]
pub(super) struct Tuning {
    pub(super) name: String,
    /// Status.
    pub(super) state: String,
    /// Seconds since the epoch.
    pub(super) created: f64,
    /// Trials that have ended, in whatever way.
    pub(super) over: u64,
    /// Of these, those that failed.
    pub(super) failed: u64,
    /// Trials that run.
    pub(super) running: u32,
    /// Trials that wait for instances.
    pub(super) waiting: u32,
    /// Trials that are paused.
    pub(super) paused: u32,
    /// Most trials.
    pub(super) most: Option<u64>,
    /// Metric, value, training job.
    pub(super) best: Option<(String, f64, String)>,
}

/// A training job.
#[derive(Debug, Clone, Default)]
pub(super) struct Job {
    pub(super) name: String,
    /// Secondary status.
    pub(super) state: String,
    /// Times in seconds since the epoch.
    pub(super) created: f64,
    /// When instances began to work on it.
    pub(super) started: Option<f64>,
    pub(super) ended: Option<f64>,
    /// Seconds.
    pub(super) max_runtime: Option<f64>,
    /// Types and how many of each.
    pub(super) instances: Vec<(String, u64)>,
    /// Name and last value.
    pub(super) metrics: Vec<(String, f64)>,
    /// What its instances use now.
    pub(super) utilization: Option<String>,
    /// What its last transition, or its failure, says.
    pub(super) message: String,
}

impl Job {
    /// Whether it waits for capacity.
    pub(super) fn waits(&self) -> bool {
        matches!(self.state.as_str(), "Pending" | "Waiting")
    }

    /// Whether it is a trial that makes room for others.
    pub(super) fn is_paused(&self) -> bool {
        self.state == "Paused"
    }
}

/// Asks.
///
/// # Errors
/// See [`ClientError`].
pub(super) fn gather(client: &Client) -> Result<Picture, ClientError> {
    let (tunings, trials) = tunings(client)?;
    let mut picture = Picture { server: client.url(), tunings, ..Picture::default() };
    for status in ["InProgress", "Stopping"] {
        let input = json!({"StatusEquals": status, "SortBy": "CreationTime", "SortOrder": "Descending"});
        for summary in client.list("ListTrainingJobs", "TrainingJobSummaries", input, usize::MAX)? {
            if picture.jobs.len() == DETAILED {
                picture.more += 1;
            } else if let Some(mut job) = job(client, &summary, true)? {
                // A trial that is frozen, or waits to be resumed, is in training to the API.
                if let Some(state) = trials.get(&job.name).filter(|_| job.state != "Stopping") {
                    state.clone_into(&mut job.state);
                }
                picture.jobs.push(job);
            }
        }
    }
    let input = json!({"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": 100});
    let answer = client.sagemaker("ListTrainingJobs", &input)?;
    let mut over: Vec<&Value> =
        answer["TrainingJobSummaries"].as_array().into_iter().flatten().filter(|it| is_over(it)).collect();
    over.sort_by(|left, right| modified(right).total_cmp(&modified(left)));
    for summary in over.into_iter().take(ENDED) {
        picture.ended.extend(job(client, summary, false)?);
    }
    Ok(picture)
}

/// Those that are not over, the newest first; and their trials that wait or are paused, by their
/// training jobs' names.
fn tunings(client: &Client) -> Result<(Vec<Tuning>, HashMap<String, String>), ClientError> {
    let (mut tunings, mut trials) = (Vec::new(), HashMap::new());
    for status in ["InProgress", "Stopping"] {
        let input =
            json!({"StatusEquals": status, "SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": TUNINGS});
        let answer = client.sagemaker("ListHyperParameterTuningJobs", &input)?;
        for summary in answer["HyperParameterTuningJobSummaries"].as_array().into_iter().flatten() {
            let name = &summary["HyperParameterTuningJobName"];
            match client.sagemaker("DescribeHyperParameterTuningJob", &json!({"HyperParameterTuningJobName": name})) {
                Err(error) if error.is_not_found() => {}
                description => tunings.push(read_tuning(&description?)),
            }
            match study::fetch(client, name.as_str().unwrap_or_default(), true) {
                Err(error) if error.is_not_found() => {}
                study => {
                    let study = study?;
                    if let Some(tuning) =
                        tunings.last_mut().filter(|tuning| Some(tuning.name.as_str()) == name.as_str())
                    {
                        (tuning.running, tuning.waiting, tuning.paused) = (study.running, study.waiting, study.paused);
                    }
                    let resting =
                        study.trials.into_iter().filter(|trial| matches!(trial.state.as_str(), "Waiting" | "Paused"));
                    trials.extend(resting.map(|trial| (trial.training_job_name, trial.state)));
                }
            }
        }
    }
    tunings.truncate(TUNINGS);
    Ok((tunings, trials))
}

fn read_tuning(description: &Value) -> Tuning {
    let counters = &description["TrainingJobStatusCounters"];
    let count = |name: &str| counters[name].as_u64().unwrap_or(0);
    let best = &description["BestTrainingJob"];
    let metric = &best["FinalHyperParameterTuningJobObjectiveMetric"];
    let failed = count("RetryableError") + count("NonRetryableError");
    Tuning {
        name: text(&description["HyperParameterTuningJobName"]),
        state: text(&description["HyperParameterTuningJobStatus"]),
        created: description["CreationTime"].as_f64().unwrap_or_default(),
        over: count("Completed") + count("Stopped") + failed,
        failed,
        most: description["HyperParameterTuningJobConfig"]["ResourceLimits"]["MaxNumberOfTrainingJobs"].as_u64(),
        best: metric["Value"]
            .as_f64()
            .map(|value| (text(&metric["MetricName"]), value, text(&best["TrainingJobName"]))),
        ..Tuning::default()
    }
}

fn is_over(summary: &Value) -> bool {
    matches!(summary["TrainingJobStatus"].as_str(), Some("Completed" | "Failed" | "Stopped"))
}

fn modified(summary: &Value) -> f64 {
    summary["LastModifiedTime"].as_f64().unwrap_or_default()
}

/// A job in full; `None` if it was deleted in between.
fn job(client: &Client, summary: &Value, live: bool) -> Result<Option<Job>, ClientError> {
    let name = text(&summary["TrainingJobName"]);
    let description = match client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": name})) {
        Err(error) if error.is_not_found() => return Ok(None),
        description => description?,
    };
    let mut job = read(&description);
    if live && job.started.is_some() {
        job.utilization = utilization::now(client, &name)?;
    }
    if live && job.metrics.is_empty() && job.started.is_some() {
        let definitions = description["AlgorithmSpecification"]["MetricDefinitions"].as_array().into_iter().flatten();
        for metric in definitions.take(METRICS).map(|it| text(&it["Name"])) {
            job.metrics.extend(last_value(client, &name, &metric)?.map(|value| (metric, value)));
        }
    }
    Ok(Some(job))
}

fn read(description: &Value) -> Job {
    let resources = &description["ResourceConfig"];
    let last = description["SecondaryStatusTransitions"]
        .as_array()
        .and_then(|all| all.last())
        .map(|it| text(&it["StatusMessage"]));
    let metrics = description["FinalMetricDataList"].as_array().into_iter().flatten().take(METRICS);
    Job {
        name: text(&description["TrainingJobName"]),
        state: text(&description["SecondaryStatus"]),
        created: description["CreationTime"].as_f64().unwrap_or_default(),
        started: description["TrainingStartTime"].as_f64(),
        ended: description["TrainingEndTime"].as_f64(),
        max_runtime: description["StoppingCondition"]["MaxRuntimeInSeconds"].as_f64(),
        instances: instances::of(resources),
        metrics: metrics.filter_map(|it| Some((text(&it["MetricName"]), it["Value"].as_f64()?))).collect(),
        utilization: None,
        message: description["FailureReason"].as_str().map(str::to_owned).or(last).unwrap_or_default(),
    }
}

/// The newest value of a metric of a job that runs.
fn last_value(client: &Client, job: &str, metric: &str) -> Result<Option<f64>, ClientError> {
    let now_s = now_ms() / 1000;
    let asked = client.cloudwatch(
        "GetMetricStatistics",
        &json!({
            "Namespace": "/aws/sagemaker/TrainingJobs", "MetricName": metric, "Statistics": ["Average"], "Period": 1,
            "Dimensions": [{"Name": "TrainingJobName", "Value": job}], "StartTime": now_s - FRESH_S, "EndTime": now_s + 1,
        }),
    );
    let answer = match asked {
        // A metric that the server does not tell is left out; the rest of the picture is worth
        // seeing.
        Err(ClientError::Refused(_)) => return Ok(None),
        answer => answer?,
    };
    let points = answer["Datapoints"].as_array().into_iter().flatten();
    let newest = points.max_by(|left, right| time(left).total_cmp(&time(right)));
    Ok(newest.and_then(|point| point["Average"].as_f64()))
}

fn time(point: &Value) -> f64 {
    point["Timestamp"].as_f64().unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_that_were_stopped_are_over() {
        let counters =
            json!({"Completed": 3, "InProgress": 6, "RetryableError": 1, "NonRetryableError": 2, "Stopped": 4});
        let limits = json!({"MaxNumberOfTrainingJobs": 30});
        let tuning = read_tuning(&json!({
            "HyperParameterTuningJobName": "a", "TrainingJobStatusCounters": counters,
            "HyperParameterTuningJobConfig": {"ResourceLimits": limits},
        }));
        assert_eq!((tuning.over, tuning.failed, tuning.most), (10, 3, Some(30)));
    }
}
