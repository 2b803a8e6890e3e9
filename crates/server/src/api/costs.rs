//! What training jobs cost, grouped.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use shoal_plane::{Billed, Catalog, Cost, Time};
use shoal_wire::{CostDay, CostGroup, CostLine, Error, ListCosts, Reply};

use super::{Api, blocking};
use crate::{clock::now_ms, internal::internal, ledger::LedgerJob};

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

impl Api {
    /// `Shoal.ListCosts`.
    pub(super) async fn list_costs(&self, request: ListCosts) -> Result<Reply, Error> {
        let (rows, ledger, catalog) = (self.rows.clone(), self.ledger.clone(), self.catalog.clone());
        let wants_days = request.days;
        let Costs { groups, total, days } = blocking(move || {
            let jobs = ledger.jobs(&*rows).map_err(|error| internal(&error))?;
            Ok(costs(&jobs, &catalog, &request, Time(now_ms())))
        })
        .await?;
        Ok(Reply::list_costs(&groups, &total, wants_days.then_some(&days[..])))
    }
}

/// What jobs cost, grouped, together and by day.
struct Costs {
    groups: Vec<CostLine>,
    total: CostLine,
    days: Vec<CostDay>,
}

fn costs(jobs: &[Arc<LedgerJob>], catalog: &Catalog, request: &ListCosts, now: Time) -> Costs {
    let time = |seconds: f64| Time((seconds * 1000.0).max(0.0) as u64);
    let within = request.after.map_or(Time(0), time)..request.before.map_or(Time(u64::MAX), time);
    let (mut groups, mut total) = (BTreeMap::<String, Sum>::new(), Sum::default());
    let mut days = BTreeMap::<u64, Cost>::new();
    for job in jobs {
        let Some(cost) = job.cost(catalog, now, &within) else { continue };
        total.add(cost);
        if let Some(billed) = job.billed(catalog, now).filter(|_| request.days) {
            add_days(&billed, &within, &mut days);
        }
        if request.group_by == CostGroup::InstanceType {
            for (kind, count) in &job.types {
                let cost = job.cost_of(&[(kind, *count)], catalog, now, &within).unwrap_or_default();
                groups.entry(kind.clone()).or_default().add(cost);
            }
        }
        for key in keys(job, request) {
            groups.entry(key).or_default().add(cost);
        }
    }
    let mut lines: Vec<CostLine> = groups.into_iter().map(|(key, sum)| sum.line(key)).collect();
    lines
        .sort_by(|a, b| (b.usd, b.instance_s).partial_cmp(&(a.usd, a.instance_s)).unwrap_or(std::cmp::Ordering::Equal));
    let day =
        |(start_ms, cost): (u64, Cost)| CostDay { start: start_ms / 1000, instance_s: cost.instance_s, usd: cost.usd };
    Costs { groups: lines, total: total.line(String::new()), days: days.into_iter().map(day).collect() }
}

/// Adds a job's cost to each day, by its beginning, on which it ran.
fn add_days(billed: &Billed, within: &Range<Time>, days: &mut BTreeMap<u64, Cost>) {
    let (from, to) = (billed.span.start.max(within.start), billed.span.end.min(within.end));
    let mut day = from.0 / DAY_MS * DAY_MS;
    while day <= to.0 {
        let part = Time(day).max(within.start)..Time(day + DAY_MS).min(within.end);
        if let Some(cost) = billed.within(&part) {
            *days.entry(day).or_default() += cost;
        }
        day += DAY_MS;
    }
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

/// The groups in which all of a job counts.
fn keys(job: &LedgerJob, request: &ListCosts) -> BTreeSet<String> {
    let key = match request.group_by {
        CostGroup::InstanceType => return BTreeSet::new(),
        CostGroup::Job => job.name.clone(),
        CostGroup::TuningJob => job.tuning.clone().unwrap_or_default(),
        CostGroup::Experiment => job.experiment.clone(),
        CostGroup::Role => job.role.clone(),
        CostGroup::Tag => {
            let tags = job.tags.iter().filter(|tag| request.tag_key.as_ref().is_none_or(|key| *key == tag.key));
            let tagged: BTreeSet<_> = tags.map(|tag| format!("{}={}", tag.key, tag.value)).collect();
            // What no tag counts is in the total, too.
            return if tagged.is_empty() { BTreeSet::from([String::new()]) } else { tagged };
        }
    };
    BTreeSet::from([key])
}

#[cfg(test)]
mod tests {
    use shoal_store::{Batch, Journal as _, ResourceKind, ResourceRow, RowChange, SqliteJournal};

    use super::*;
    use crate::ledger::Ledger;

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
        let jobs = Ledger::new().jobs(&journal.rows()).unwrap();
        let ask = |group_by, tag_key: Option<&str>, after| {
            let tag_key = tag_key.map(str::to_owned);
            let request = ListCosts { group_by, tag_key, after, before: None, days: false };
            let Costs { groups, total, days } = costs(&jobs, &catalog, &request, Time(9_000_000));
            assert_eq!(days, []);
            let lines: Vec<_> =
                groups.into_iter().map(|line| format!("{} {} {:.2}", line.key, line.jobs, line.usd)).collect();
            (lines.join(", "), total)
        };
        let (lines, total) = ask(CostGroup::Tag, None, None);
        assert_eq!(lines, "team=x 1 1.00, who=me 1 1.00, team=y 1 0.00");
        assert_eq!((total.jobs, total.instance_s, total.unpriced_s, total.saved_s), (2, 5400.0, 1800.0, 1800.0));
        assert_eq!(ask(CostGroup::Tag, Some("team"), None).0, "team=x 1 1.00, team=y 1 0.00");
        assert_eq!(ask(CostGroup::Tag, Some("who"), None).0, "who=me 1 1.00,  1 0.00", "without that tag");
        assert_eq!(ask(CostGroup::TuningJob, None, None).0, "tuning 1 1.00,  1 0.00");
        assert_eq!(ask(CostGroup::InstanceType, None, None).0, "ml.a.large 1 1.00, ml.b.large 1 0.00");
        assert_eq!(ask(CostGroup::Experiment, None, None).0, "e 2 1.00");
        assert_eq!(ask(CostGroup::Role, None, Some(1800.0)).0, "role 2 0.50");
        assert_eq!(ask(CostGroup::Job, None, Some(4000.0)), (String::new(), Sum::default().line(String::new())));
    }

    #[test]
    fn a_deletion_changes_no_cost() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = SqliteJournal::open(&directory.path().join("shoal.db")).unwrap();
        let catalog = Catalog::parse("ml.a.large 2 8 0 - 1.0\n").unwrap();
        let job = row("trial", "ml.a.large", 3600, r#"[{"Key": "team", "Value": "x"}]"#);
        let mut shown = |rows: Vec<RowChange>| {
            journal.append(&Batch { events: Vec::new(), rows }).unwrap();
            let jobs = Ledger::new().jobs(&journal.rows()).unwrap();
            [CostGroup::Job, CostGroup::Tag, CostGroup::Role, CostGroup::Experiment, CostGroup::TuningJob].map(
                |group_by| {
                    let request = ListCosts { group_by, tag_key: None, after: None, before: None, days: false };
                    format!("{:?}", costs(&jobs, &catalog, &request, Time(9_000_000)).groups)
                },
            )
        };
        let before = shown(vec![RowChange::Put(Box::new(job.clone()))]);
        assert!(before[0].contains("trial"), "{before:?}");
        let kept = crate::ledger::deleted(&job, 9_000_000).unwrap();
        let after = shown(vec![
            RowChange::Put(Box::new(kept)),
            RowChange::Delete(ResourceKind::TRAINING_JOB, "trial".to_owned()),
        ]);
        assert_eq!(before, after);
    }

    #[test]
    fn a_job_costs_on_each_day_on_which_it_ran() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = SqliteJournal::open(&directory.path().join("shoal.db")).unwrap();
        let mut long = row("long", "ml.a.large", 7200, "[]");
        let mut view: serde_json::Value = serde_json::from_slice(&long.view).unwrap();
        // An hour before midnight to an hour after.
        for (member, value) in [("training_start", 82_800_000), ("training_end", 90_000_000), ("training_s", 7200)] {
            view[member] = value.into();
        }
        long.view = view.to_string().into_bytes();
        let rows = [long, row("short", "ml.b.large", 3600, "[]")].map(|row| RowChange::Put(Box::new(row)));
        journal.append(&Batch { events: Vec::new(), rows: rows.into() }).unwrap();
        let catalog = Catalog::parse("ml.a.large 2 8 0 - 1.0\nml.b.large 2 8 0 - 0\n").unwrap();
        let jobs = Ledger::new().jobs(&journal.rows()).unwrap();
        let ask = |after, before| {
            let request = ListCosts { group_by: CostGroup::Job, tag_key: None, after, before, days: true };
            costs(&jobs, &catalog, &request, Time(900_000_000)).days
        };
        let day = |start, instance_s, usd| CostDay { start, instance_s, usd };
        assert_eq!(ask(None, None), [day(0, 7200.0, 1.0), day(86_400, 3600.0, 1.0)]);
        assert_eq!(ask(Some(88_200.0), None), [day(86_400, 1800.0, 0.5)], "a part of the second day");
        assert_eq!(ask(None, Some(1800.0)), [day(0, 1800.0, 0.0)]);
        assert_eq!(ask(Some(100_000.0), None), []);
    }
}
