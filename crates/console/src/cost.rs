//! What a training job costs: seconds by instances, and money where the catalogue of instance types
//! has a price.

use shoal_plane::{Catalog, JobView, Time};

use super::amounts;

/// A job's cost until now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cost {
    /// `1 m 12 s × 2 instances`.
    pub(crate) time: String,
    /// `$0.46`.
    pub(crate) money: Option<String>,
}

/// The cost of a view as of `now_ms` on so many instances of each type; `None` before anything is
/// billed.
pub(crate) fn cost(view: &JobView, types: &[(&str, u32)], catalog: &Catalog, now_ms: u64) -> Option<Cost> {
    let cost = view.billed(types, catalog, Time(now_ms))?.cost;
    let instances = types.iter().map(|(_, instances)| instances).sum::<u32>();
    let seconds = (cost.instance_s / f64::from(instances.max(1))) as u64;
    let time = match instances {
        1 => amounts::duration(seconds * 1000),
        instances => format!("{} × {instances} instances", amounts::duration(seconds * 1000)),
    };
    let money = (cost.unpriced_s == 0.0).then(|| dollars(cost.usd));
    Some(Cost { time, money })
}

fn dollars(amount: f64) -> String {
    if amount < 0.005 { "less than $0.01".to_owned() } else { format!("${amount:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_times_instances_and_their_price() {
        let view = |billable_s, start: u64, ended| {
            let text = serde_json::json!({"status": "InProgress", "secondary": "Training", "transitions": [], "failure_reason": null, "created": 0,
                "modified": 0, "training_start": start, "training_end": null, "training_s": null, "billable_s": billable_s,
                "final_metrics": [], "pending": null, "attempt": null, "ended": ended});
            serde_json::from_value::<JobView>(text).unwrap()
        };
        let catalog = Catalog::parse("ml.m5.large 2 8 0 - 0.36\nml.m5.xlarge 2 8 0 - 0\n").unwrap();
        let check = |view: &JobView, instances, kind, now_ms, time: &str, money: Option<&str>| {
            let expected = Cost { time: time.to_owned(), money: money.map(str::to_owned) };
            assert_eq!(cost(view, &[(kind, instances)], &catalog, now_ms), Some(expected));
        };
        assert_eq!(view(None, 5, false).training_start, Some(Time(5)));
        check(&view(Some(100), 0, true), 1, "ml.m5.large", 0, "1 m 40 s", Some("$0.01"));
        check(&view(Some(3), 0, true), 1, "ml.m5.large", 0, "3.0 s", Some("less than $0.01"));
        check(&view(Some(7200), 0, true), 2, "ml.m5.large", 0, "2 h 00 m × 2 instances", Some("$1.44"));
        check(&view(None, 1000, false), 1, "ml.m5.xlarge", 21_000, "20 s", None);
        check(&view(None, 1000, false), 1, "ml.none.large", 21_000, "20 s", None);
        let both = cost(&view(Some(3600), 0, true), &[("ml.m5.large", 1), ("ml.m5.large", 3)], &catalog, 0);
        assert_eq!(both, Some(Cost { time: "1 h 00 m × 4 instances".to_owned(), money: Some("$1.44".to_owned()) }));
        let mut waiting = view(None, 0, false);
        waiting.training_start = None;
        assert_eq!(cost(&waiting, &[("ml.m5.large", 1)], &catalog, 9), None);
    }
}
