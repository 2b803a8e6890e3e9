//! What the profiler's rules of an instance judge: its samples, and the steps that its programs
//! write.

use std::time::{Duration, Instant};

use shoal_link::{ReportBody, Rule};
use shoal_rules::Reading;

use crate::profiler_rules::ProfilerRules;
use crate::step_files::StepFiles;

/// Between two looks for new files.
const INTERVAL: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Judging {
    rules: ProfilerRules,
    files: Option<StepFiles>,
    looked: Option<Instant>,
}

impl Judging {
    pub(crate) fn new(rules: ProfilerRules, files: Option<StepFiles>) -> Self {
        Self { rules, files, looked: None }
    }

    /// Judges the next reading, and now and then the steps since.
    pub(crate) fn observe(&mut self, reading: Reading) -> Vec<ReportBody> {
        let now_ms = reading.at_ms;
        let mut reports = self.rules.observe(reading);
        if self.looked.is_none_or(|looked| looked.elapsed() >= INTERVAL) {
            self.looked = Some(Instant::now());
            reports.extend(self.judge_steps(Some(now_ms)));
        }
        reports
    }

    /// By these rules from now on: what is to be reported of those that cannot be evaluated.
    pub(crate) fn replace(&mut self, rules: &[Rule]) -> Vec<ReportBody> {
        self.rules.replace(rules)
    }

    /// The program has ended: what is to be reported of the rules that have no conclusion yet.
    pub(crate) fn conclude(&mut self) -> Vec<ReportBody> {
        let mut reports = self.judge_steps(None);
        reports.extend(self.rules.conclude());
        reports
    }

    fn judge_steps(&mut self, now_ms: Option<u64>) -> Vec<ReportBody> {
        let Some(steps) = self.files.as_mut().and_then(StepFiles::read) else { return Vec::new() };
        let mut reports = Vec::from_iter(steps.iter().flat_map(|step| self.rules.observe_step(step)));
        reports.extend(now_ms.into_iter().flat_map(|now_ms| self.rules.pass_time(now_ms)));
        reports
    }
}
