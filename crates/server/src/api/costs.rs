//! What training jobs cost, grouped.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use shoal_plane::{Catalog, Cost, JobView, Time};
use shoal_store::{ResourceFilter, ResourceKind, ResourceRow, Rows};
use shoal_wire::{CostGroup, CostLine, Error, ListCosts, Reply, Resources, stored_description, tags};

use super::{Api, blocking};
use crate::{admission::internal, clock::now_ms};

/// Rows that are read at once.
const PAGE: usize = 1000;

impl Api {
    /// `Shoal.ListCosts`.
    pub(super) async fn list_costs(&self, request: ListCosts) -> Result<Reply, Error> {
        let (rows, catalog) = (self.rows.clone(), self.catalog.clone());
        let (groups, total) = blocking(move || costs(&*rows, &catalog, &request, Time(now_ms()))).await?;
        Ok(Reply::list_costs(&groups, &total))
    }
}

fn costs(
    rows: &dyn Rows,
    catalog: &Catalog,
    request: &ListCosts,
    now: Time,
) -> Result<(Vec<CostLine>, CostLine), Error> {
    let time = |seconds: f64| Time((seconds * 1000.0).max(0.0) as u64);
    let within = request.after.map_or(Time(0), time)..request.before.map_or(Time(u64::MAX), time);
    let (mut groups, mut total) = (BTreeMap::<String, Sum>::new(), Sum::default());
    let mut filter = ResourceFilter { limit: PAGE, ..ResourceFilter::new(ResourceKind::TRAINING_JOB) };
    loop {
        let page = rows.list(&filter).map_err(|error| internal(&error))?;
        for row in &page.rows {
            let Some(job) = Job::read(row) else { continue };
            let Some(cost) = job.view.cost(&job.resources.types(), catalog, now, &within) else { continue };
            total.add(cost);
            for (key, cost) in job.groups(row, cost, request, &|types| job.view.cost(types, catalog, now, &within)) {
                groups.entry(key).or_default().add(cost);
            }
        }
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    let mut lines: Vec<CostLine> = groups.into_iter().map(|(key, sum)| sum.line(key)).collect();
    lines
        .sort_by(|a, b| (b.usd, b.instance_s).partial_cmp(&(a.usd, a.instance_s)).unwrap_or(std::cmp::Ordering::Equal));
    Ok((lines, total.line(String::new())))
}

#[derive(Default)]
struct Sum {
    jobs: u64,
    cost: Cost,
}

impl Sum {
    fn add(&mut self, cost: Cost) {
        self.jobs += 1;
        self.cost += cost;
    }

    fn line(self, key: String) -> CostLine {
        let Cost { instance_s, usd, unpriced_s, saved_s, saved_usd } = self.cost;
        CostLine { key, jobs: self.jobs, instance_s, unpriced_s, usd, saved_s, saved_usd }
    }
}

/// The cost of a job on these types of instances.
type CostOf<'a> = dyn Fn(&[(&str, u32)]) -> Option<Cost> + 'a;

/// A training job as far as its cost depends on it.
struct Job {
    view: JobView,
    resources: Resources,
}

impl Job {
    /// None if an earlier version's row cannot be read.
    fn read(row: &ResourceRow) -> Option<Self> {
        let view = serde_json::from_slice(&row.view).ok()?;
        Some(Self { view, resources: stored_description(&row.spec).ok()?.resources })
    }

    /// The job's groups, with what it adds to each; `of_types`: its cost on some instances.
    fn groups(&self, row: &ResourceRow, cost: Cost, request: &ListCosts, of_types: &CostOf<'_>) -> Vec<(String, Cost)> {
        if request.group_by == CostGroup::InstanceType {
            let types = self.resources.types();
            return types.iter().filter_map(|one| Some((one.0.to_owned(), of_types(&[*one])?))).collect();
        }
        keys(row, request).into_iter().map(|key| (key, cost)).collect()
    }
}

fn keys(row: &ResourceRow, request: &ListCosts) -> BTreeSet<String> {
    let members = || serde_json::from_slice::<Members>(&row.request).unwrap_or_default();
    let key = match request.group_by {
        CostGroup::Job | CostGroup::InstanceType => row.name.clone(),
        CostGroup::TuningJob => row.parent.clone().unwrap_or_default(),
        CostGroup::Experiment => members().experiment_config.experiment_name,
        CostGroup::Role => members().role_arn,
        CostGroup::Tag => {
            let all = tags::from_json(&row.tags).unwrap_or_default().into_iter();
            return all
                .filter(|tag| request.tag_key.as_ref().is_none_or(|key| *key == tag.key))
                .map(|tag| format!("{}={}", tag.key, tag.value))
                .collect();
        }
    };
    BTreeSet::from([key])
}

/// The members of a request by which jobs are grouped.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Members {
    role_arn: String,
    experiment_config: ExperimentConfig,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ExperimentConfig {
    experiment_name: String,
}

#[cfg(test)]
mod tests {
    use shoal_store::{Batch, Journal as _, RowChange, SqliteJournal};

    use super::*;

    fn row(name: &str, kind: &str, billable_s: u64, tags: &str) -> ResourceRow {
        let view = serde_json::json!({
            "status": "Completed", "secondary": "Completed", "transitions": [], "failure_reason": null, "created": 0,
            "modified": 0, "training_start": 0, "training_end": 3_600_000, "training_s": 3600, "billable_s": billable_s,
            "final_metrics": [], "pending": null, "attempt": null, "ended": true});
        let spec = serde_json::json!({"v": 1, "request": {
            "output": {"s3_output_path": {"bucket": "b", "prefix": ""}, "kms_key_id": null, "compression": "GZIP"},
            "resources": {"instance_type": kind, "instance_count": 1, "volume_gb": 1, "keep_alive_s": 0, "instance_groups": []}}});
        ResourceRow {
            view: view.to_string().into_bytes(),
            spec: spec.to_string().into_bytes(),
            request: br#"{"RoleArn": "role", "ExperimentConfig": {"ExperimentName": "e"}}"#.to_vec(),
            tags: tags.as_bytes().to_vec(),
            parent: (name == "trial").then(|| "tuning".to_owned()),
            ..ResourceRow::new(ResourceKind::TRAINING_JOB, name)
        }
    }

    #[test]
    fn jobs_are_grouped_and_counted_once_in_the_total() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = SqliteJournal::open(&directory.path().join("shoal.db")).unwrap();
        let rows = [
            row("trial", "ml.a.large", 3600, r#"[{"Key": "team", "Value": "x"}, {"Key": "who", "Value": "me"}]"#),
            row("other", "ml.b.large", 1800, r#"[{"Key": "team", "Value": "y"}]"#),
            ResourceRow { spec: b"damaged".to_vec(), ..row("damaged", "ml.a.large", 1, "[]") },
        ];
        let rows_changed = rows.into_iter().map(|row| RowChange::Put(Box::new(row))).collect();
        journal.append(&Batch { events: Vec::new(), rows: rows_changed }).unwrap();
        let catalog = Catalog::parse("ml.a.large 2 8 0 - 1.0\nml.b.large 2 8 0 - 0\n").unwrap();
        let ask = |group_by, tag_key: Option<&str>, after| {
            let request = ListCosts { group_by, tag_key: tag_key.map(str::to_owned), after, before: None };
            let (lines, total) = costs(&journal.rows(), &catalog, &request, Time(9_000_000)).unwrap();
            let lines: Vec<_> =
                lines.into_iter().map(|line| format!("{} {} {:.2}", line.key, line.jobs, line.usd)).collect();
            (lines.join(", "), total)
        };
        let (lines, total) = ask(CostGroup::Tag, None, None);
        assert_eq!(lines, "team=x 1 1.00, who=me 1 1.00, team=y 1 0.00");
        assert_eq!((total.jobs, total.instance_s, total.unpriced_s, total.saved_s), (2, 5400.0, 1800.0, 1800.0));
        assert_eq!(ask(CostGroup::Tag, Some("team"), None).0, "team=x 1 1.00, team=y 1 0.00");
        assert_eq!(ask(CostGroup::TuningJob, None, None).0, "tuning 1 1.00,  1 0.00");
        assert_eq!(ask(CostGroup::InstanceType, None, None).0, "ml.a.large 1 1.00, ml.b.large 1 0.00");
        assert_eq!(ask(CostGroup::Experiment, None, None).0, "e 2 1.00");
        assert_eq!(ask(CostGroup::Role, None, Some(1800.0)).0, "role 2 0.50");
        assert_eq!(ask(CostGroup::Job, None, Some(4000.0)), (String::new(), Sum::default().line(String::new())));
    }
}
