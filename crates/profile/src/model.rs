//! What a profile is made of, as data that travels.

use serde::{Deserialize, Serialize};

/// A training's profile. Times are seconds since `begin_s`, which is of the epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Profile {
    /// Training job's name.
    pub job: String,
    /// `InProgress` and so on.
    pub status: String,
    /// When its program began.
    pub begin_s: f64,
    /// Its end, or the moment of this profile.
    pub end_s: f64,
    /// What instances used.
    pub hosts: Vec<HostUse>,
    /// Samples of all instances.
    pub samples: u64,
    /// Steps, by rank.
    pub ranks: Vec<RankSteps>,
    /// Rules and what became of them.
    pub rules: Vec<RuleOutcome>,
    /// Sampled stacks.
    pub stacks: Vec<HostStacks>,
    /// What is missing here, in sentences.
    pub notes: Vec<String>,
}

/// What an instance used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostUse {
    /// `algo-1`
    pub host: String,
    /// Cores that it counts on.
    pub cores: f64,
    /// Its metrics.
    pub series: Vec<Series>,
}

/// A metric over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Series {
    /// `CPUUtilization` and so on; 100 for each core.
    pub metric: String,
    /// Of one GPU.
    pub gpu: Option<u32>,
    /// Of one rank.
    pub rank: Option<u32>,
    /// Time, mean and greatest value.
    pub points: Vec<(f64, f64, f64)>,
}

/// The steps of a rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RankSteps {
    /// `algo-1`
    pub host: String,
    /// Of the process.
    pub rank: u32,
    /// How many.
    pub steps: u64,
    /// When the first one began.
    pub first_s: f64,
    /// Sum of their times, in seconds.
    pub total_s: f64,
    /// Of these, waiting for data.
    pub waiting_s: f64,
    /// Of these, waiting for other ranks.
    pub communicating_s: f64,
    /// Milliseconds that half of the steps do not reach.
    pub p50_ms: f64,
    /// Milliseconds that 95 of 100 do not reach.
    pub p95_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Steps of more than twice the usual time.
    pub slow_steps: u64,
    /// What they took more than usual, in seconds.
    pub slow_s: f64,
    /// The longest of them, by number.
    pub slow: Vec<SlowStep>,
    /// Over time.
    pub points: Vec<StepPoint>,
}

/// A step that took much longer than usual.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SlowStep {
    /// Its number.
    pub step: u64,
    /// When it began.
    pub at_s: f64,
    /// Milliseconds.
    pub ms: f64,
    /// Of these, waiting for data, where it is known.
    pub waiting_ms: f64,
    /// Of these, waiting for other ranks, where it is known.
    pub communicating_ms: f64,
}

/// Steps that began within a time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StepPoint {
    /// When it begins.
    pub at_s: f64,
    /// Mean of the steps.
    pub mean_ms: f64,
    /// The longest one.
    pub max_ms: f64,
}

/// A rule of the job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RuleOutcome {
    /// `RuleConfigurationName`.
    pub name: String,
    /// `IssuesFound` and so on.
    pub status: String,
    /// What met it.
    pub details: String,
}

/// Stacks of an instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostStacks {
    /// `algo-1`
    pub host: String,
    /// `frame;frame count` a line.
    pub folded: String,
}

impl Profile {
    /// Seconds that it is about.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (self.end_s - self.begin_s).max(0.0)
    }
}

impl RankSteps {
    /// Milliseconds of a step, without what it waits for other ranks: what makes a rank slow.
    pub(crate) fn own_ms(&self) -> f64 {
        self.per_step_ms(self.total_s - self.communicating_s)
    }

    /// Milliseconds of a step, of seconds of all.
    pub(crate) fn per_step_ms(&self, seconds: f64) -> f64 {
        1000.0 * seconds.max(0.0) / self.steps.max(1) as f64
    }

    /// `rank 3 (algo-2)`.
    pub(crate) fn name(&self) -> String {
        format!("rank {} ({})", self.rank, self.host)
    }
}

impl HostUse {
    /// A metric of the instance itself.
    pub(crate) fn own(&self, metric: &str) -> Option<&Series> {
        self.series.iter().find(|it| it.metric == metric && it.gpu.is_none() && it.rank.is_none())
    }

    /// Mean of a metric of the instance or of its GPUs.
    pub(crate) fn mean(&self, metric: &str) -> Option<f64> {
        mean(self.series.iter().filter(|it| it.metric == metric && it.rank.is_none()).filter_map(Series::mean))
    }
}

impl Series {
    pub(crate) fn mean(&self) -> Option<f64> {
        mean(self.points.iter().map(|(_, mean, _)| *mean))
    }

    pub(crate) fn high(&self) -> Option<f64> {
        self.points.iter().map(|(.., high)| *high).reduce(f64::max)
    }
}

/// None of nothing.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}
