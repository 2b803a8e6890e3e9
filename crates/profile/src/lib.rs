//! A training's profile. Step times, utilisation, verdicts of rules and sampled stacks come in;
//! findings in plain sentences and one page of HTML that loads nothing go out. It reads no file and
//! asks no server: whoever has the data builds the page.

mod steps;

pub use steps::{EVENTS, Step, host_of, parse};
