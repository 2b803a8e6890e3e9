//! Trials that ended otherwise than they should have: those that failed by what they failed of,
//! those that were cancelled by whom, and those whose objective was no number.

use shoal_wire::{StudyDescription, StudyTrial, headline};

/// Trials whose ends have one reason.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group<'a> {
    /// `Failed` or `Cancelled`.
    pub(crate) state: &'a str,
    /// The first one's reason, in one line.
    pub(crate) gist: String,
    /// The first one's reason as it stands in `FailureReason`.
    pub(crate) reason: &'a str,
    /// In the order of their numbers.
    pub(crate) trials: Vec<&'a StudyTrial>,
}

/// Failed trials, then cancelled ones; the most frequent reason first.
pub(crate) fn groups(study: &StudyDescription) -> Vec<Group<'_>> {
    let mut groups: Vec<(String, Group<'_>)> = Vec::new();
    for state in ["Failed", "Cancelled"] {
        let before = groups.len();
        for trial in study.trials.iter().filter(|trial| trial.state == state) {
            let reason = trial.reason.as_deref().unwrap_or("no reason is known");
            let gist = headline(reason).into_owned();
            let key = alike(&gist, trial);
            match groups[before..].iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.trials.push(trial),
                None => groups.push((key, Group { state, gist, reason, trials: vec![trial] })),
            }
        }
        groups[before..].sort_by_key(|(_, group)| std::cmp::Reverse(group.trials.len()));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Trials whose last word on their objective was no number, though their programs did not fail.
pub(crate) fn astray(study: &StudyDescription) -> Vec<&StudyTrial> {
    study.trials.iter().filter(|trial| trial.is_over() && trial.state != "Failed" && trial.is_astray()).collect()
}

/// `trials 3, 7, 12 and 5 more`.
pub(crate) fn numbers(trials: &[&StudyTrial]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<_> = trials.iter().take(SHOWN).map(|trial| trial.number.to_string()).collect();
    let more = trials.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("trial{} {}{more}", if trials.len() == 1 { "" } else { "s" }, shown.join(", "))
}

/// What makes two reasons one: they differ in numbers only, or in the trial's name and values.
fn alike(gist: &str, trial: &StudyTrial) -> String {
    let mut text = gist.replace(&trial.training_job_name, "*");
    for (_, value) in trial.values.iter().filter(|(_, value)| !value.is_empty() && value.parse::<f64>().is_err()) {
        text = text.replace(value.as_str(), "*");
    }
    let mut masked = String::with_capacity(text.len());
    let mut in_number = false;
    for c in text.chars() {
        let goes_on = c.is_ascii_digit() || (in_number && matches!(c, '.' | 'e' | 'E' | '-' | '+'));
        match (goes_on, in_number) {
            (true, false) => masked.push('#'),
            (true, true) => {}
            (false, _) => masked.push(c),
        }
        in_number = goes_on;
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::study::tests::example;

    #[test]
    fn ends_of_one_reason_stand_together() {
        let mut study = example();
        let one = study.trials[2].clone();
        study.trials.clear();
        let mut trial = |number: u32, state: &str, reason: &str| {
            let values = vec![("eta".to_owned(), format!("0.{number}")), ("kind".to_owned(), format!("k{number}x"))];
            let (state, reason, training_job_name) =
                (state.to_owned(), Some(reason.to_owned()), format!("t-{number:03}-aa"));
            study.trials.push(StudyTrial { number, training_job_name, state, reason, values, ..one.clone() });
        };
        let traceback = |eta: &str, kind: &str| {
            format!("Traceback (most recent call last):\n  File \"a.py\", line 3\nValueError: eta {eta} with {kind}")
        };
        trial(1, "Cancelled", "it was stopped by its user (StopTrainingJob)");
        trial(2, "Failed", "AlgorithmError: algo-1 ran out of memory (limit 1.0 GiB), exit code: 137");
        trial(3, "Failed", &format!("AlgorithmError: {}, exit code: 1", traceback("0.3", "k3x")));
        // As SageMaker's toolkit words it.
        let said = traceback("1e-05", "k4x");
        let wrapped = format!(
            "ExecuteUserScriptError:\nExitCode 1\nErrorMessage \"{said}\"\nCommand \"python3 a.py\", exit code: 1"
        );
        trial(4, "Failed", &format!("AlgorithmError: {wrapped}"));
        trial(5, "Completed", "");
        trial(6, "Failed", "AlgorithmError: algo-2: Traceback\nValueError: of a second host, exit code: 1");
        let found = groups(&study);
        let shown: Vec<_> = found.iter().map(|it| (it.state, it.gist.as_str(), numbers(&it.trials))).collect();
        assert_eq!(
            shown,
            [
                ("Failed", "AlgorithmError: ValueError: eta 0.3 with k3x, exit code: 1", "trials 3, 4".to_owned()),
                (
                    "Failed",
                    "AlgorithmError: algo-1 ran out of memory (limit 1.0 GiB), exit code: 137",
                    "trial 2".to_owned()
                ),
                ("Failed", "AlgorithmError: algo-2: ValueError: of a second host, exit code: 1", "trial 6".to_owned()),
                ("Cancelled", "it was stopped by its user (StopTrainingJob)", "trial 1".to_owned()),
            ]
        );
        assert!(found[0].reason.contains("Traceback"));
        let many: Vec<_> = std::iter::repeat_n(&one, 10).collect();
        assert_eq!(numbers(&many), "trials 3, 3, 3, 3, 3, 3, 3, 3 and 2 more");
    }

    #[test]
    fn a_trial_that_ended_in_no_number_is_astray() {
        let mut study = example();
        study.trials[0].not_numbers = vec![2];
        study.trials[1].not_numbers = vec![2];
        study.trials[2].not_numbers = vec![1];
        // The second one came back to numbers, the third one failed.
        assert_eq!(numbers(&astray(&study)), "trial 1");
        assert_eq!((study.trials[0].value(), study.trials[0].resource()), (None, 2));
        assert_eq!((study.trials[1].value(), study.trials[1].resource()), (Some(0.76), 9));
    }
}
