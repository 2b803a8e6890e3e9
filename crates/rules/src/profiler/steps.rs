//! StepOutlier, MaxInitializationTime and Dataloader: when steps come, and what feeds them.

use std::collections::BTreeMap;

use shoal_contract::tensors::Mode;

use super::{MAX_DEVICES, Reading, SCAN_INTERVAL, StepTime, SystemRule, finding};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{COUNT, Kind, POSITIVE, Parameter};

/// Why rules about steps may have nothing to judge.
pub(super) const NO_STEPS: &str = "no step times came: they need a ProfilerConfig with an S3OutputPath, and PyTorch, \
                                   Keras or a boosting library in a framework's environment, whose optimizers, \
                                   batches or rounds are the steps. `shoal jobs stacks` shows what a program does.";

/// Steps of which the usual duration is known.
const FIRST_STEPS: u64 = 20;

pub(crate) static STEP_OUTLIER: Declaration = Declaration {
    name: "StepOutlier",
    summary: "Several steps took much longer than usual.",
    parameters: &[
        Parameter {
            name: "stddev",
            kind: POSITIVE,
            default: Some("3"),
            doc: "Standard deviations above the mean from which on a step is an outlier.",
        },
        Parameter {
            name: "mode",
            kind: Kind::Choice(&["TRAIN", "EVAL", "PREDICT", "GLOBAL"]),
            default: None,
            doc: "Phase whose steps are judged; all without it.",
        },
        Parameter { name: "n_outliers", kind: COUNT, default: Some("10"), doc: "Outliers that are ignored." },
        SCAN_INTERVAL,
    ],
    collections: &[],
    make: Make::System(|parameters| {
        Box::new(StepOutlier {
            deviations: parameters.number("stddev"),
            mode: Mode::parse(parameters.text("mode")),
            ignored: parameters.integer("n_outliers"),
            series: BTreeMap::new(),
        })
    }),
};

pub(crate) static MAX_INITIALIZATION_TIME: Declaration = Declaration {
    name: "MaxInitializationTime",
    summary: "The first step comes late.",
    parameters: &[
        Parameter { name: "threshold", kind: COUNT, default: Some("20"), doc: "Minutes until the first step." },
        SCAN_INTERVAL,
    ],
    collections: &[],
    make: Make::System(|parameters| {
        Box::new(Initialization {
            threshold_ms: parameters.integer("threshold").saturating_mul(60_000),
            start_ms: None,
            has_step: false,
        })
    }),
};

pub(crate) static DATALOADER: Declaration = Declaration {
    name: "Dataloader",
    summary: "Processes that load data are too few or too many for the cores.",
    parameters: &[
        Parameter {
            name: "min_threshold",
            kind: POSITIVE,
            default: Some("70"),
            doc: "Processes that load data, in percent of the cores, at least.",
        },
        Parameter { name: "max_threshold", kind: POSITIVE, default: Some("200"), doc: "The same, at most." },
        SCAN_INTERVAL,
    ],
    collections: &[],
    make: Make::System(|parameters| {
        Box::new(Dataloader {
            least: parameters.number("min_threshold"),
            most: parameters.number("max_threshold"),
            outside: BTreeMap::new(),
            has_loaders: false,
        })
    }),
};

#[derive(Debug)]
struct StepOutlier {
    deviations: f64,
    mode: Option<Mode>,
    ignored: u64,
    series: BTreeMap<(String, Mode), Durations>,
}

/// Usual durations by Welford's recurrence, and outliers, which are no part of them.
#[derive(Debug, Default)]
struct Durations {
    count: u64,
    mean: f64,
    squares: f64,
    outliers: u64,
    /// Steps that were no outliers and have no time of their own.
    unreported: u64,
    /// The first ones, until there are enough.
    first: Vec<f64>,
}

/// Of the first steps, those that take longer than the median by this factor are no part of what
/// is usual: they compile and load.
const WARMING_UP: f64 = 3.0;

impl Durations {
    /// Whether it is an outlier.
    fn add(&mut self, duration: f64, deviations: f64) -> bool {
        if (self.first.len() as u64) < FIRST_STEPS {
            self.first.push(duration);
            if self.first.len() as u64 == FIRST_STEPS {
                let mut sorted = self.first.clone();
                sorted.sort_by(f64::total_cmp);
                let most = WARMING_UP * sorted[sorted.len() / 2];
                let usual = sorted.iter().filter(|it| **it <= most);
                self.unreported += FIRST_STEPS - usual.clone().count() as u64;
                usual.for_each(|it| self.learn(*it));
            }
            return false;
        }
        let deviation = (self.squares / self.count.max(1) as f64).sqrt();
        // Steps that take exactly as long as each other have no deviation.
        let limit = self.mean + deviations * deviation.max(0.01 * self.mean);
        if duration > limit {
            self.outliers += 1;
            return true;
        }
        self.learn(duration);
        false
    }

    fn learn(&mut self, duration: f64) {
        self.count += 1;
        let distance = duration - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (duration - self.mean);
    }
}

impl SystemRule for StepOutlier {
    fn observe_step(&mut self, step: &StepTime) -> Option<Finding> {
        let key = (step.host.clone(), step.mode);
        let is_too_many = self.series.len() >= MAX_DEVICES && !self.series.contains_key(&key);
        if self.mode.is_some_and(|mode| mode != step.mode) || is_too_many || !step.duration_ms.is_finite() {
            return None;
        }
        let durations = self.series.entry(key).or_default();
        let is_outlier = durations.add(step.duration_ms, self.deviations);
        durations.unreported = durations.unreported.saturating_add(step.spent.steps.saturating_sub(1));
        (is_outlier && durations.outliers > self.ignored).then(|| {
            let text = format!(
                "step {} of {} took {} ms on {}, and is outlier {} of {} steps: {} ms are usual. Check what \
                 happens in these steps (checkpoints, evaluation, data that comes late, another rank).",
                step.step,
                step.mode.name(),
                Short(step.duration_ms),
                step.host,
                durations.outliers,
                durations.count + durations.outliers + durations.unreported,
                Short(durations.mean)
            );
            Finding { step: step.step, ..finding(step.host.clone(), step.duration_ms, text) }
        })
    }

    fn end(&mut self) -> Result<String, String> {
        if self.series.is_empty() {
            return Err(NO_STEPS.to_owned());
        }
        Ok(String::new())
    }
}

#[derive(Debug)]
struct Initialization {
    threshold_ms: u64,
    start_ms: Option<u64>,
    has_step: bool,
}

impl SystemRule for Initialization {
    fn observe_step(&mut self, _: &StepTime) -> Option<Finding> {
        self.has_step = true;
        None
    }

    fn pass_time(&mut self, now_ms: u64) -> Option<Finding> {
        let waited = now_ms.saturating_sub(*self.start_ms.get_or_insert(now_ms));
        (!self.has_step && waited >= self.threshold_ms).then(|| {
            let minutes = waited as f64 / 60_000.0;
            let text = format!(
                "no step has ended {} minutes after the start. Try FastFile mode or fewer files, a model that is \
                 downloaded or compiled before, and check what the program waits for (`shoal jobs stacks`).",
                Short(minutes)
            );
            finding("first step".to_owned(), minutes, text)
        })
    }

    fn end(&mut self) -> Result<String, String> {
        // Time is passed only where there is a source of step times.
        if self.has_step || self.start_ms.is_some() { Ok(String::new()) } else { Err(NO_STEPS.to_owned()) }
    }
}

#[derive(Debug)]
struct Dataloader {
    least: f64,
    most: f64,
    /// Readings in a row outside of the thresholds, by host.
    outside: BTreeMap<String, u32>,
    has_loaders: bool,
}

/// Why there may be none to count.
const NO_LOADERS: &str = "no processes that load data were seen; those are known that PyTorch's DataLoader starts \
                          (num_workers above 0), as current versions of it name them.";

/// Processes come and go between epochs.
const READINGS_IN_A_ROW: u32 = 10;

impl SystemRule for Dataloader {
    fn observe(&mut self, reading: &Reading) -> Option<Finding> {
        let loaders = reading.data_loaders.filter(|_| !reading.cpu.is_empty())?;
        self.has_loaders = true;
        let percent = 100.0 * f64::from(loaders) / reading.cpu.len() as f64;
        let is_inside = (self.least..=self.most).contains(&percent);
        if self.outside.len() >= MAX_DEVICES && !self.outside.contains_key(&reading.host) {
            return None;
        }
        let in_a_row = self.outside.entry(reading.host.clone()).or_default();
        *in_a_row = if is_inside { 0 } else { *in_a_row + 1 };
        (*in_a_row >= READINGS_IN_A_ROW).then(|| {
            let (side, limit) = if percent < self.least { ("less than", self.least) } else { ("more than", self.most) };
            let cores = reading.cpu.len();
            let text = format!(
                "{loaders} processes load data on {} with {cores} cores: {} %, {side} {} %. Try num_workers={} for \
                 each process that trains, divided by how many of these there are.",
                reading.host,
                Short(percent),
                Short(limit),
                cores
            );
            finding(reading.host.clone(), percent, text)
        })
    }

    fn end(&mut self) -> Result<String, String> {
        if self.has_loaders { Ok(String::new()) } else { Err(NO_LOADERS.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{evaluation, judge};
    use super::*;
    use crate::system_rule::Spent;

    #[test]
    fn the_eleventh_slow_step_is_found() {
        let run = |slow: f64, given: &[(&str, &str)]| {
            let mut evaluation = evaluation("StepOutlier", given);
            let found = (0..1000).find_map(|step| {
                let usual = 100.0 + (step % 7) as f64;
                let duration_ms = if step % 50 == 49 { slow } else { usual };
                evaluation.observe_step(&StepTime {
                    host: "algo-1".into(),
                    step,
                    mode: Mode::Train,
                    duration_ms,
                    spent: Spent::default(),
                })
            });
            found.or_else(|| evaluation.end()).unwrap()
        };
        let found = run(300.0, &[]).finding.unwrap();
        assert_eq!((found.step, found.value), (549, 300.0));
        assert!(found.text.contains("is outlier 11 of 550 steps: 103 ms are usual"), "{}", found.text);
        assert_eq!(run(108.0, &[]).finding, None);
        assert_eq!(run(300.0, &[("n_outliers", "30")]).finding, None);
        assert!(run(300.0, &[("mode", "EVAL")]).details.contains("no step times came"));
    }

    #[test]
    fn a_first_step_that_compiles_hides_no_outlier() {
        let mut evaluation = evaluation("StepOutlier", &[("n_outliers", "1"), ("stddev", "50")]);
        let found = (0..100).find_map(|step| {
            let duration_ms = if step == 0 {
                9000.0
            } else if [60, 80].contains(&step) {
                500.0
            } else {
                20.0 + (step % 3) as f64
            };
            let spent = Spent::default();
            evaluation.observe_step(&StepTime { host: "algo-1".into(), step, mode: Mode::Train, duration_ms, spent })
        });
        let found = found.expect("a finding").finding.unwrap();
        assert_eq!(found.step, 80);
        assert!(found.text.contains("is outlier 2 of 81 steps: 21.01 ms are usual"), "{}", found.text);
    }

    #[test]
    fn a_late_first_step_is_found() {
        for (first_step, is_found) in [(5, false), (50, true)] {
            let mut evaluation = evaluation("MaxInitializationTime", &[("threshold", "10")]);
            let found = (0..60).find_map(|minute| {
                if minute == first_step {
                    let mode = Mode::Train;
                    let spent = Spent::default();
                    evaluation.observe_step(&StepTime {
                        host: "algo-1".into(),
                        step: 0,
                        mode,
                        duration_ms: 1.0,
                        spent,
                    });
                }
                evaluation.pass_time(777 + 60_000 * minute)
            });
            assert_eq!(found.is_some(), is_found, "{first_step}");
            if let Some(found) = found {
                assert!(found.details.contains("no step has ended 10 minutes after the start"), "{}", found.details);
            }
        }
    }

    #[test]
    fn without_a_source_of_steps_their_rules_are_not_evaluated() {
        for rule in ["MaxInitializationTime", "StepOutlier"] {
            let error = judge(rule, &[], 2000, |_| Reading { cpu: vec![1.0], ..Reading::default() }).unwrap_err();
            assert!(error.contains("no step times came"), "{error}");
        }
        let mut waiting = evaluation("MaxInitializationTime", &[]);
        assert_eq!(waiting.pass_time(0), None);
        assert_eq!(waiting.end().unwrap().status, crate::evaluation::Status::NoIssuesFound);
    }

    #[test]
    fn too_few_and_too_many_processes_that_load_data_are_found() {
        let reading = |loaders| move |_| Reading { cpu: vec![1.0; 4], data_loaders: loaders, ..Reading::default() };
        let found = judge("Dataloader", &[], 20, reading(Some(1))).unwrap().unwrap();
        assert!(found.text.starts_with("1 processes load data on algo-1 with 4 cores: 25 %, less than 70 %"));
        assert!(judge("Dataloader", &[], 20, reading(Some(9))).unwrap().unwrap().text.contains("more than 200 %"));
        assert_eq!(judge("Dataloader", &[], 20, reading(Some(4))), Ok(None));
        assert_eq!(judge("Dataloader", &[], 9, reading(Some(1))), Ok(None));
        assert!(judge("Dataloader", &[], 20, reading(None)).is_err());
    }
}
