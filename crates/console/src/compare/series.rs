//! Series of the runs that are compared, thinned as a job's are, and their parameters for parallel
//! coordinates. A metric that several hosts report is a line for each of them.

use http::Response;
use serde::Serialize;
use serde_json::{Map, Value, json};
use shoal_store::{HostSeries, Sample, StoreError, Stretch, Telemetry};

use super::{Console, PageError, Visit, job_of, metrics, names, text, title};
use crate::{
    blocking,
    responses::{Body, answer},
    series::{LEAST_POINTS, MOST_POINTS, Series, thin},
};

/// Points with a step that are read of a series at most.
const MOST_STEPS: usize = 200_000;

/// A line of a chart.
#[derive(Debug, Serialize)]
struct Line {
    /// The run's place among those that are compared.
    run: usize,
    /// The host, where several report the metric.
    host: Option<u32>,
    #[serde(flatten)]
    series: Series,
}

impl Console {
    /// All series of the runs, and what they were given and came to.
    pub(in super::super) async fn compared_series(&self, visit: &Visit) -> Result<Response<Body>, PageError> {
        let described = self.described_runs(&names(visit)?).await?;
        let runs: Vec<Value> = described.iter().map(summary).collect();
        let owners: Vec<String> = described.iter().map(owner).collect();
        let sources = self.sources.clone();
        let lines = blocking(move || {
            let mut lines = Vec::new();
            for (run, owner) in owners.iter().enumerate() {
                lines.extend(lines_of(&sources.telemetry, run, owner, owners.len())?);
            }
            Ok(lines)
        })
        .await?;
        let found = json!({"runs": runs, "series": lines});
        Ok(answer("application/json", found.to_string()))
    }
}

/// A run's parameters as numbers or texts, and the last values of its metrics.
fn summary(described: &Value) -> Value {
    let parameters = described["Parameters"].as_object().into_iter().flatten().map(|(name, value)| {
        let value = if value["StringValue"].is_null() { &value["NumberValue"] } else { &value["StringValue"] };
        (name.clone(), value.clone())
    });
    let last = metrics(described).map(|it| (text(it, "MetricName").to_owned(), it["Last"].clone()));
    json!({
        "name": text(described, "TrialComponentName"),
        "title": title(described),
        "status": text(&described["Status"], "PrimaryStatus"),
        "parameters": parameters.collect::<Map<_, _>>(),
        "metrics": last.collect::<Map<_, _>>(),
    })
}

/// The name of a run's series.
fn owner(described: &Value) -> String {
    let own = || format!("experiment-trial-component/{}", text(described, "TrialComponentName").to_lowercase());
    job_of(described).map_or_else(own, str::to_owned)
}

fn lines_of(telemetry: &Telemetry, run: usize, owner: &str, runs: usize) -> Result<Vec<Line>, StoreError> {
    let mut lines = Vec::new();
    for metric in telemetry.metrics(owner)? {
        let most = |hosts: usize| (MOST_POINTS / (hosts * runs)).max(LEAST_POINTS);
        let steps = telemetry.step_samples(owner, &metric, MOST_STEPS)?;
        if !steps.is_empty() {
            let series = thin(&metric, None, &by_step(&steps), most(1));
            lines.push(Line { run, host: None, series });
            continue;
        }
        let hosts = telemetry.read_stretches(owner, &metric, 1, u64::MAX)?.hosts;
        let is_only = hosts.len() == 1;
        lines.extend(hosts.iter().map(|(host, points)| {
            let host = host.filter(|_| !is_only);
            Line { run, host, series: thin(&metric, host, points, most(hosts.len())) }
        }));
    }
    Ok(lines)
}

/// Points by the steps that their program logged.
fn by_step(samples: &[Sample]) -> HostSeries {
    let stretch = |it: &Sample| Stretch { first_step: it.step, low: *it, high: *it, last: *it };
    HostSeries { total: samples.len() as u64, stretches: samples.iter().map(stretch).collect() }
}

#[cfg(test)]
mod tests {
    use shoal_store::{Ingest, MetricPoint};

    use super::*;

    fn point(at_ms: u64) -> MetricPoint {
        MetricPoint { metric: "loss".to_owned(), at_ms, value: at_ms as f64 }
    }

    #[test]
    fn hosts_are_lines_and_a_program_s_steps_are_kept() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        for host in [1, 2] {
            let points = vec![point(u64::from(host)), point(10)];
            let ingest =
                Ingest { attempt: "a".to_owned(), host, seq: 1, job: "job".to_owned(), points, ..Ingest::default() };
            telemetry.ingest(&ingest).unwrap();
        }
        let own = "experiment-trial-component/run";
        telemetry.append_steps(own, &[point(1), point(2)], &[Some(100), Some(200)], 1 << 20).unwrap();
        let lines = lines_of(&telemetry, 0, "job", 2).unwrap();
        let shown = |line: &Line| {
            let series = serde_json::to_value(&line.series).unwrap();
            (line.host, series["name"].as_str().unwrap().to_owned(), series["step"].clone())
        };
        let expected =
            [(Some(1), "loss algo-1".to_owned(), json!([1, 2])), (Some(2), "loss algo-2".to_owned(), json!([1, 2]))];
        assert_eq!(lines.iter().map(shown).collect::<Vec<_>>(), expected);
        let lines = lines_of(&telemetry, 1, own, 2).unwrap();
        assert_eq!(lines.iter().map(shown).collect::<Vec<_>>(), [(None, "loss".to_owned(), json!([100, 200]))]);
        assert_eq!(owner(&json!({"TrialComponentName": "Run"})), own);
    }

    #[test]
    fn a_summary_has_what_parallel_coordinates_need() {
        let described = json!({"TrialComponentName": "r", "Status": {"PrimaryStatus": "Completed"},
            "Parameters": {"rate": {"NumberValue": 0.5}, "kind": {"StringValue": "tree"}},
            "Metrics": [{"MetricName": "loss", "Last": 0.25}]});
        let found = summary(&described);
        assert_eq!(found["parameters"], json!({"rate": 0.5, "kind": "tree"}));
        assert_eq!((&found["metrics"], &found["title"]), (&json!({"loss": 0.25}), &json!("r")));
    }
}
