//! Schedulers by small scenarios that were worked out by hand, and by properties over random
//! histories.
#![expect(clippy::unwrap_used, reason = "tests")]

mod behind;
mod halving;
mod median;
mod options;
mod pbt;
mod properties;
mod world;
