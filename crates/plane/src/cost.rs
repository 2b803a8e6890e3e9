//! What training jobs cost: seconds of their instances, and money by the prices of instance types.

use std::ops::{AddAssign, Range};

use crate::{Catalog, JobView, Time};

/// The cost of training jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// Billable seconds of all instances.
    pub instance_s: f64,
    /// What they cost, in US dollars, without those of [`Self::unpriced_s`].
    pub usd: f64,
    /// Of [`Self::instance_s`], seconds of instances whose type has no price.
    pub unpriced_s: f64,
    /// Seconds of managed spot training in which instances were taken away, which are not billed.
    pub saved_s: f64,
    /// What these would have cost, in US dollars.
    pub saved_usd: f64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.instance_s += other.instance_s;
        self.usd += other.usd;
        self.unpriced_s += other.unpriced_s;
        self.saved_s += other.saved_s;
        self.saved_usd += other.saved_usd;
    }
}

/// What a job costs, spread evenly over the time in which it trained.
#[derive(Debug, Clone, PartialEq)]
pub struct Billed {
    /// From the start of training to its end, or to now.
    pub span: Range<Time>,
    /// The whole cost.
    pub cost: Cost,
}

impl Billed {
    /// The part of the cost that falls `within` this time; `None` if none of the span does.
    pub fn within(&self, within: &Range<Time>) -> Option<Cost> {
        let share = share(&self.span, within);
        let Cost { instance_s, usd, unpriced_s, saved_s, saved_usd } = self.cost;
        (share > 0.0).then_some(Cost {
            instance_s: instance_s * share,
            usd: usd * share,
            unpriced_s: unpriced_s * share,
            saved_s: saved_s * share,
            saved_usd: saved_usd * share,
        })
    }
}

impl JobView {
    /// What the job has cost by `now` on these numbers of instances of each type; `None` before
    /// anything is billed.
    pub fn billed(&self, types: &[(&str, u32)], catalog: &Catalog, now: Time) -> Option<Billed> {
        let start = self.training_start?;
        let end = self.training_end.unwrap_or(if self.ended { self.modified } else { now }).max(start);
        let billable = self.billable_s.map_or_else(|| end.ms_since(start) as f64 / 1000.0, |seconds| seconds as f64);
        let whole = self.training_s.map_or(billable, |seconds| seconds as f64);
        let mut cost = Cost::default();
        for (kind, instances) in types {
            let instances = f64::from(*instances);
            let (seconds, saved) = (billable * instances, (whole - billable).max(0.0) * instances);
            let price = catalog.get(kind).map_or(0.0, |kind| kind.usd_per_hour) / 3600.0;
            cost += Cost {
                instance_s: seconds,
                usd: seconds * price,
                unpriced_s: if price > 0.0 { 0.0 } else { seconds },
                saved_s: saved,
                saved_usd: saved * price,
            };
        }
        Some(Billed { span: start..end, cost })
    }
}

/// Which share of a time is within another one; of no time, all or nothing.
fn share(time: &Range<Time>, within: &Range<Time>) -> f64 {
    if time.is_empty() {
        return if within.contains(&time.start) { 1.0 } else { 0.0 };
    }
    let (from, to) = (time.start.max(within.start), time.end.min(within.end));
    if from >= to { 0.0 } else { to.ms_since(from) as f64 / time.end.ms_since(time.start) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALWAYS: Range<Time> = Time(0)..Time(u64::MAX);

    fn view(training_s: Option<u64>, billable_s: Option<u64>, start: u64, end: Option<u64>) -> JobView {
        let text = format!(
            r#"{{"status": "InProgress", "secondary": "Training", "transitions": [], "failure_reason": null,
                "created": 0, "modified": 0, "training_start": {start}, "training_end": {}, "training_s": {},
                "billable_s": {}, "final_metrics": [], "pending": null, "attempt": null, "ended": {}}}"#,
            end.map_or("null".to_owned(), |it| it.to_string()),
            training_s.map_or("null".to_owned(), |it| it.to_string()),
            billable_s.map_or("null".to_owned(), |it| it.to_string()),
            end.is_some(),
        );
        serde_json::from_str(&text).expect("a view")
    }

    fn catalog() -> Catalog {
        Catalog::parse("ml.m5.large 2 8 0 - 0.36\nml.m5.xlarge 2 8 0 - 0\n").expect("a catalogue")
    }

    #[test]
    fn billable_seconds_of_all_instances_have_their_prices() {
        let types = [("ml.m5.large", 2), ("ml.m5.xlarge", 1)];
        let job = view(Some(3600), Some(1800), 0, Some(3_600_000));
        let cost = job.billed(&types, &catalog(), Time(0)).expect("it has run").cost;
        assert_eq!((cost.instance_s, cost.unpriced_s, cost.saved_s), (5400.0, 1800.0, 5400.0));
        assert!((cost.usd - 0.36).abs() < 1e-9 && (cost.saved_usd - 0.36).abs() < 1e-9, "{cost:?}");
    }

    #[test]
    fn a_job_counts_by_the_part_that_is_within() {
        let running = view(None, None, 1_000_000, None);
        let cost = |job: &JobView, now, within| {
            let billed = job.billed(&[("ml.m5.large", 1)], &catalog(), Time(now))?;
            billed.within(&within).map(|cost| cost.instance_s)
        };
        assert_eq!(cost(&running, 1_060_000, ALWAYS), Some(60.0));
        assert_eq!(cost(&running, 1_060_000, Time(1_045_000)..Time(2_000_000)), Some(15.0));
        assert_eq!(cost(&running, 1_060_000, Time(2_000_000)..Time(3_000_000)), None);
        let ended = view(Some(100), Some(100), 0, Some(100_000));
        assert_eq!(cost(&ended, 9_000_000, Time(0)..Time(25_000)), Some(25.0));
        let short = view(Some(1), Some(1), 5, Some(5));
        assert_eq!((cost(&short, 9, Time(5)..Time(6)), cost(&short, 9, Time(6)..Time(7))), (Some(1.0), None));
        let mut waiting = view(None, None, 0, None);
        waiting.training_start = None;
        assert_eq!(cost(&waiting, 9, ALWAYS), None);
    }
}
