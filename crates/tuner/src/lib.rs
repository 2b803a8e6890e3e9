//! Hyperparameter search as a library: what to try next ([`Searcher`]), and which trials go on
//! ([`Scheduler`]). Pure: no clock, no I/O, no threads, no randomness but a seed; the same seed and
//! the same order of events give the same bits on every machine.
//!
//! A [`Study`] composes the two over a [`Space`]. It is asked for trials, told what they report,
//! and every answer is data:
//!
//! ```
//! use shoal_tuner::{Ask, Outcome, Space, Study, StudySpec};
//!
//! let space: Space = serde_json::from_str(r#"[{"name":"eta","type":"continuous","min":0.01,"max":1.0,"scaling":"Logarithmic"}]"#).unwrap();
//! let mut study = Study::new(StudySpec::random(space, 7)).unwrap();
//! for _ in 0..3 {
//!     let Ask::Start(start) = study.ask() else { break };
//!     let eta = study.space().number(&start.config, "eta").unwrap();
//!     study.end(start.trial, Outcome::Completed { values: vec![(eta - 0.1).abs()] });
//! }
//! assert_eq!(study.history().trials().len(), 3);
//! ```
//!
//! What happens to a study is a list of [`Record`]s; folding them ([`Study::replay`]) gives the
//! same study without searching again, so a caller that keeps them goes on after a crash as if
//! there had been none, also with a later version of this library.
//!
//! Promises, each held by `tests/conformance` for every searcher with every scheduler:
//! - A proposal lies in the space and was not tried before, as long as the space has something
//!   else.
//! - Reports that are late, repeated or of unknown trials change nothing. What is not a number is
//!   worse than all numbers; a trial that ends with it failed.
//! - A study that says to wait has a running trial to wait for, and one that says to end means it.
//! - A study that is stored and read back goes on as the one that was not.
//!
//! Where to look: `space` and `scaling` say what may be tried; `history` is what is known; `search`
//! has a file per searcher, `schedule` one per scheduler. [`named`] has strategies by name,
//! [`protocol`] a study for other languages, `progress` the criteria by which a search may end,
//! `transfer` warm starts, [`importance()`] and [`pareto`] what people want to know afterwards.
//! `docs/tuning.md` shows it from Rust, Python and the shell.

mod config;
mod direction;
mod error;
mod exp;
mod history;
mod importance;
pub mod named;
mod near;
pub mod pareto;
mod progress;
pub mod protocol;
mod random;
mod record;
mod scaling;
pub mod schedule;
pub mod search;
mod sobol;
mod space;
mod spec;
mod study;
mod transfer;

pub use config::{Config, Value};
pub use direction::Direction;
pub use error::{SpaceError, SpecError};
pub use history::{History, Report, Trial, TrialState};
pub use importance::importance;
pub use near::{edits, near};
pub use progress::{IMPROVEMENT, Progress};
pub use random::Rng;
pub use record::{Ask, Memo, Origin, Outcome, Record, Start, TrialId, Verdict};
pub use scaling::Scaling;
pub use schedule::{Next, Scheduler, SchedulerSpec, Stage};
pub use search::{Proposal, Searcher, SearcherSpec, View};
pub use sobol::Sobol;
pub use space::{Condition, Configs, Domain, Parameter, Space};
pub use spec::StudySpec;
pub use study::{Snapshot, Study};
pub use transfer::Transferred;

/// The page's Rust is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tuning.md")]
struct Guide;
