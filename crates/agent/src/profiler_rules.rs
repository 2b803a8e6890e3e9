//! The profiler's rules at work over the samples of this instance. Pure: readings come in, reports
//! go out.

use shoal_contract::tensors::Mode;
use shoal_link::{ReportBody, Rule, RuleVerdict};
use shoal_profile::Step;
use shoal_rules::{Conclusion, Reading, Spent, StepTime, SystemEvaluation};

use crate::verdicts::{built_in, concluded, evaluated, parameters};

/// Why there may be no reading of an instance.
const NO_READINGS: &str = "no system metrics came of its instances: each program ended before its first sample, or this \
                           server takes none without a ProfilerConfig that has an S3OutputPath.";

/// Rules of an assignment that have no conclusion yet.
#[derive(Debug)]
pub(crate) struct ProfilerRules {
    host: String,
    /// As they were given.
    rules: Vec<Rule>,
    evaluations: Vec<(Rule, SystemEvaluation)>,
    has_reading: bool,
}

impl ProfilerRules {
    /// The rules for the instance of this name, and what is to be reported at once of those that
    /// cannot be evaluated.
    pub(crate) fn new(host: &str, rules: &[Rule]) -> (Self, Vec<ReportBody>) {
        let mut none = Self { host: host.to_owned(), rules: Vec::new(), evaluations: Vec::new(), has_reading: false };
        let reports = none.replace(rules);
        (none, reports)
    }

    /// These rules are evaluated from now on, in place of those before: of those that have not
    /// changed the evaluation continues, or has its conclusion; those that are missing have none.
    pub(crate) fn replace(&mut self, rules: &[Rule]) -> Vec<ReportBody> {
        self.evaluations.retain(|(rule, _)| rules.contains(rule));
        let added = Vec::from_iter(rules.iter().filter(|rule| !self.rules.contains(rule)).cloned());
        self.rules = rules.to_vec();
        let (added, mut reports) = built_in(&added);
        for rule in added {
            // The server has checked them, but may be of another version.
            match SystemEvaluation::new(&rule.name, &parameters(&rule)) {
                Ok(evaluation) => self.evaluations.push((rule, evaluation)),
                Err(error) => reports.push(evaluated(&rule, RuleVerdict::Error, &error.to_string(), false)),
            }
        }
        reports
    }

    /// Judges the next reading of the instance.
    pub(crate) fn observe(&mut self, reading: Reading) -> Vec<ReportBody> {
        self.has_reading = true;
        let reading = Reading { host: self.host.clone(), ..reading };
        self.pass(|evaluation| evaluation.observe(&reading))
    }

    /// Judges the next step of a program of the instance.
    pub(crate) fn observe_step(&mut self, step: &Step) -> Vec<ReportBody> {
        self.has_reading = true;
        let ms = |us: u64| us as f64 / 1000.0;
        let time = StepTime {
            host: format!("rank {} of {}", step.rank, self.host),
            step: step.number,
            mode: Mode::Train,
            duration_ms: ms(step.duration_us),
            spent: Spent {
                steps: step.steps,
                total_ms: ms(step.total_us),
                waiting_ms: ms(step.waiting_us),
                communicating_ms: ms(step.communicating_us),
            },
        };
        self.pass(|evaluation| evaluation.observe_step(&time))
    }

    /// Time passes while the program may have steps.
    pub(crate) fn pass_time(&mut self, now_ms: u64) -> Vec<ReportBody> {
        self.pass(|evaluation| evaluation.pass_time(now_ms))
    }

    fn pass(&mut self, mut judge: impl FnMut(&mut SystemEvaluation) -> Option<Conclusion>) -> Vec<ReportBody> {
        let mut reports = Vec::new();
        self.evaluations.retain_mut(|(rule, evaluation)| match judge(evaluation) {
            Some(conclusion) => {
                reports.extend(concluded(rule, &conclusion, RuleVerdict::Unobserved, false));
                false
            }
            None => true,
        });
        reports
    }

    /// The program has ended: what is to be reported of the rules that have no conclusion yet. A
    /// rule that has nothing to judge here may have it on another instance.
    pub(crate) fn conclude(&mut self) -> Vec<ReportBody> {
        let has_reading = self.has_reading;
        let conclude = |(rule, mut evaluation): (Rule, SystemEvaluation)| {
            if !has_reading {
                let details = format!("The rule {} was not evaluated: {NO_READINGS}", rule.rule);
                return vec![evaluated(&rule, RuleVerdict::Unobserved, &details, false)];
            }
            let conclusion = evaluation.end();
            conclusion.map(|it| concluded(&rule, &it, RuleVerdict::Unobserved, false)).unwrap_or_default()
        };
        std::mem::take(&mut self.evaluations).into_iter().flat_map(conclude).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, parameters: &[(&str, &str)], stops: bool) -> Rule {
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Rule { name: format!("my-{name}"), rule: name.to_owned(), parameters, stops, ..Rule::default() }
    }

    fn reading(gpu: &[f64]) -> Reading {
        Reading { cpu: vec![97.0; 2], memory: 30.0, gpu: gpu.to_vec(), ..Reading::default() }
    }

    /// Names, verdicts, details and orders to stop.
    fn verdicts(reports: &[ReportBody]) -> Vec<(&str, RuleVerdict, &str, bool)> {
        let verdict = |report| match report {
            &ReportBody::RuleEvaluated { ref rule, verdict, ref details, stops } => {
                Some((&**rule, verdict, &**details, stops))
            }
            _ => None,
        };
        reports.iter().filter_map(verdict).collect()
    }

    fn notes(reports: &[ReportBody]) -> Vec<&str> {
        let mut notes = Vec::new();
        for report in reports {
            if let ReportBody::Note { text } = report {
                notes.push(text.as_str());
            }
        }
        notes
    }

    #[test]
    fn a_finding_is_reported_once_and_stops_where_that_is_its_action() {
        let soon = [("patience", "5")];
        let given = [rule("CPUBottleneck", &soon, true), rule("LowGPUUtilization", &[], false)];
        let (mut rules, reports) = ProfilerRules::new("algo-2", &given);
        assert_eq!(reports, []);
        let found = Vec::from_iter((0..20).map(|_| rules.observe(reading(&[2.0])))).concat();
        let [(name, RuleVerdict::IssuesFound, details, true)] = verdicts(&found)[..] else { panic!("{found:?}") };
        assert_eq!(name, "my-CPUBottleneck");
        assert!(details.contains("100 % of 5 readings of algo-2 have cores above 90 %"), "{details}");
        assert_eq!(notes(&found), [format!("rule my-CPUBottleneck: {details}")]);
        let ended = rules.conclude();
        assert_eq!(verdicts(&ended), [("my-LowGPUUtilization", RuleVerdict::NoIssuesFound, "", false)]);
        assert_eq!(rules.conclude(), []);
    }

    #[test]
    fn rules_come_and_go_while_others_continue() {
        let soon = |steps: &str| rule("CPUBottleneck", &[("patience", steps)], false);
        let usage = rule("OverallSystemUsage", &[], false);
        let (mut rules, _) = ProfilerRules::new("algo-1", &[soon("5"), usage]);
        assert_eq!(Vec::from_iter((0..4).map(|_| rules.observe(reading(&[2.0])))).concat(), []);
        // One stays, one comes.
        let low = rule("LowGPUUtilization", &[], false);
        assert_eq!(rules.replace(&[soon("5"), low.clone()]), []);
        let found = Vec::from_iter((0..4).map(|_| rules.observe(reading(&[2.0])))).concat();
        assert_eq!(verdicts(&found).len(), 1, "its readings before count: {found:?}");
        // One that has its conclusion is not evaluated again, unless it changes.
        assert_eq!(rules.replace(&[soon("5"), low.clone()]), []);
        assert_eq!(Vec::from_iter((0..8).map(|_| rules.observe(reading(&[2.0])))).concat(), []);
        rules.replace(&[soon("6"), low]);
        let found = Vec::from_iter((0..8).map(|_| rules.observe(reading(&[2.0])))).concat();
        assert_eq!(verdicts(&found).len(), 1, "{found:?}");
        let reports = rules.replace(&[rule("NoSuchRule", &[], false)]);
        let [(_, RuleVerdict::Error, details, _)] = verdicts(&reports)[..] else { panic!("{reports:?}") };
        assert!(details.contains("not a built-in rule"), "{details}");
        assert_eq!(rules.conclude(), []);
    }

    #[test]
    fn what_an_instance_cannot_judge_another_one_may() {
        let given = ["LowGPUUtilization", "StepOutlier", "OverallSystemUsage", "ProfilerReport"];
        let (mut rules, _) = ProfilerRules::new("algo-1", &given.map(|name| rule(name, &[], true)));
        assert_eq!(rules.observe(reading(&[])), []);
        let ended = rules.conclude();
        let found = verdicts(&ended);
        assert_eq!(
            Vec::from_iter(found.iter().map(|(_, verdict, ..)| *verdict)),
            [RuleVerdict::Unobserved, RuleVerdict::Unobserved, RuleVerdict::NoIssuesFound, RuleVerdict::NoIssuesFound]
        );
        assert!(found[0].2.ends_with("no instance of the training job has a GPU."), "{}", found[0].2);
        assert!(found[1].2.contains("no step times came"), "{}", found[1].2);
        let usage = "algo-1 CPU: p50 97 %, p95 97 %, max 97 %. algo-1 memory: p50 30 %, p95 30 %, max 30 %.";
        assert_eq!(
            notes(&ended),
            [format!("rule my-OverallSystemUsage: {usage}"), format!("rule my-ProfilerReport: {usage}")]
        );
    }

    /// Steps of 10 ms, of which each hundredth takes `slow_us`.
    fn steps(slow_us: u64) -> impl Iterator<Item = Step> {
        (0..2000).map(move |number| {
            let duration_us = if number % 100 == 99 { slow_us } else { 10_000 };
            Step { number, duration_us, steps: 1, total_us: duration_us, waiting_us: 2_500, ..Step::default() }
        })
    }

    #[test]
    fn rules_about_steps_judge_them() {
        let given = ["StepOutlier", "MaxInitializationTime", "OverallFrameworkMetrics"].map(|it| rule(it, &[], true));
        let (mut rules, _) = ProfilerRules::new("algo-2", &given);
        let found = Vec::from_iter(steps(80_000).map(|step| rules.observe_step(&step))).concat();
        let [("my-StepOutlier", RuleVerdict::IssuesFound, details, true)] = verdicts(&found)[..] else {
            panic!("{found:?}")
        };
        assert!(details.contains("step 1099 of TRAIN took 80 ms on rank 0 of algo-2"), "{details}");
        let ended = rules.conclude();
        let [(_, first, ..), (_, second, details, _)] = verdicts(&ended)[..] else { panic!("{ended:?}") };
        assert_eq!([first, second], [RuleVerdict::NoIssuesFound; 2]);
        assert!(details.contains("rank 0 of algo-2: 2000 steps of 10.7 ms on average"), "{details}");

        let (mut healthy, _) = ProfilerRules::new("algo-2", &given);
        let found = Vec::from_iter(steps(10_100).map(|step| healthy.observe_step(&step))).concat();
        assert_eq!(found, []);
        assert_eq!(verdicts(&healthy.conclude())[0], ("my-StepOutlier", RuleVerdict::NoIssuesFound, "", true));
    }

    #[test]
    fn a_first_step_that_does_not_come_is_found() {
        let (mut rules, _) =
            ProfilerRules::new("algo-1", &[rule("MaxInitializationTime", &[("threshold", "1")], true)]);
        assert_eq!(rules.pass_time(1_000), []);
        let found = rules.pass_time(61_000);
        let [(_, RuleVerdict::IssuesFound, details, true)] = verdicts(&found)[..] else { panic!("{found:?}") };
        assert!(details.contains("no step has ended 1 minutes after the start"), "{details}");
    }

    #[test]
    fn a_program_without_a_sample_has_nothing_that_could_be_judged() {
        let (mut rules, _) = ProfilerRules::new("algo-1", &[rule("CPUBottleneck", &[], true)]);
        let ended = rules.conclude();
        let [(_, RuleVerdict::Unobserved, details, _)] = verdicts(&ended)[..] else { panic!("{ended:?}") };
        assert!(details.contains("ended before its first sample"), "{details}");
    }

    #[test]
    fn rules_that_this_agent_cannot_evaluate_are_errors_at_once() {
        let own = rule("Mine", &[("source_s3_uri", "s3://b/mine.py")], false);
        let newer = rule("CPUBottleneck", &[("colour", "red")], false);
        let tensors = rule("AllZero", &[], false);
        let (mut rules, reports) = ProfilerRules::new("algo-1", &[own, newer, tensors]);
        let found = verdicts(&reports);
        for (name, why) in [("my-Mine", "source_s3_uri"), ("my-CPUBottleneck", "colour"), ("my-AllZero", "tensors")] {
            let of_rule = found.iter().find(|(rule, ..)| *rule == name).expect(name);
            assert!(of_rule.1 == RuleVerdict::Error && of_rule.2.contains(why), "{of_rule:?}");
        }
        assert_eq!(rules.conclude(), []);
    }
}
