//! A training's profile. Step times, utilisation, verdicts of rules and sampled stacks come in;
//! findings in plain sentences and one page of HTML that loads nothing go out. It reads no file and
//! asks no server: the caller that has the data builds the page.

mod findings;
mod fold;
mod html;
mod model;
mod page;
mod steps;

pub use findings::{Finding, findings};
pub use fold::StepFold;
pub use html::{escape, fill};
pub use model::{HostStacks, HostUse, Profile, RankSteps, RuleOutcome, Series, SlowStep, StepPoint};
pub use page::{page, samples};
pub use steps::{EVENTS, Step, host_of, parse};
