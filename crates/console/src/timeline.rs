//! A job's phases to scale.

use shoal_plane::{JobView, Transition};

use super::amounts;

/// A phase on the line. Places and lengths are in parts of a thousand.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    /// In small letters, for its colour.
    pub(crate) kind: String,
    pub(crate) left: String,
    pub(crate) width: String,
    pub(crate) middle: String,
    pub(crate) duration: String,
    pub(crate) message: String,
    pub(crate) start_ms: u64,
    /// Wide enough for its name.
    pub(crate) roomy: bool,
    /// It lasts still.
    pub(crate) lasting: bool,
}

/// The least share of the line that can be seen and pointed at.
const LEAST: f64 = 0.008;
/// The share from which on a name fits in.
const ROOMY: f64 = 0.14;

/// Phases of a view as of `now_ms`. Statuses that end a job are moments, not phases, and are left
/// out.
pub(crate) fn timeline(view: &JobView, now_ms: u64) -> Vec<Phase> {
    let lasted = |it: &Transition| it.end.map_or(now_ms, |end| end.0).saturating_sub(it.start.0);
    let ends = |it: &&Transition| {
        !matches!(it.status.name(), "Completed" | "Failed" | "Stopped" | "MaxRuntimeExceeded" | "MaxWaitTimeExceeded")
    };
    let phases: Vec<_> = view.transitions.iter().filter(ends).collect();
    let whole = phases.iter().map(|it| lasted(it)).sum::<u64>().max(1) as f64;
    let shares: Vec<f64> = phases.iter().map(|it| (lasted(it) as f64 / whole).max(LEAST)).collect();
    let sum: f64 = shares.iter().sum();
    let mut left = 0.0;
    let mut line = Vec::with_capacity(phases.len());
    for (it, share) in phases.into_iter().zip(shares) {
        let width = share / sum;
        let percent = |share: f64| format!("{:.2}%", share * 100.0);
        line.push(Phase {
            name: it.status.name(),
            kind: it.status.name().to_lowercase(),
            left: percent(left),
            width: percent(width),
            middle: percent(left + width / 2.0),
            duration: amounts::duration(lasted(it)),
            message: it.message.clone(),
            start_ms: it.start.0,
            roomy: width > ROOMY,
            lasting: it.end.is_none(),
        });
        left += width;
    }
    line
}

#[cfg(test)]
mod tests {
    use shoal_plane::{SecondaryStatus as S, Time};

    use super::*;

    #[test]
    fn phases_are_to_scale() {
        let transition = |status, start, end: Option<u64>| Transition {
            status,
            start: Time(start),
            end: end.map(Time),
            message: String::new(),
        };
        let json = serde_json::json!({"status": "InProgress", "secondary": "Training", "transitions": [], "failure_reason": null, "created": 0,
            "modified": 0, "training_start": null, "training_end": null, "training_s": null, "billable_s": null, "final_metrics": [],
            "pending": null, "attempt": null, "ended": false});
        let mut view: JobView = serde_json::from_value(json).unwrap();
        let shown = |view: &JobView| {
            timeline(view, 4000)
                .iter()
                .map(|it| format!("{} {} {} {}", it.name, it.left, it.width, it.duration))
                .collect::<Vec<_>>()
        };
        assert!(shown(&view).is_empty());
        view.transitions = vec![transition(S::Starting, 0, Some(1000)), transition(S::Training, 1000, None)];
        assert_eq!(shown(&view), ["Starting 0.00% 25.00% 1.0 s", "Training 25.00% 75.00% 3.0 s"]);
        view.transitions = vec![
            transition(S::Starting, 0, Some(1)),
            transition(S::Training, 1, Some(4000)),
            transition(S::Completed, 4000, Some(4000)),
        ];
        let line = timeline(&view, 9999);
        assert_eq!(line.len(), 2, "an end is no phase");
        assert_eq!((line[0].width.as_str(), line[1].roomy), ("0.79%", true), "what is short can be seen");
    }
}
