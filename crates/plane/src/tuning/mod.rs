//! Hyperparameter tuning jobs: `job` has what is known of a live one, `decide` what follows
//! from commands, `follow` what follows from what is known.
//!
//! | status | entered when | leaves to |
//! |---|---|---|
//! | InProgress | created | Stopping, Completed, Failed |
//! | Stopping | its user or a completion criterion ends it while trials live | Completed, Failed, Stopped |
//! | Completed, Failed, Stopped | no trial lives | - |
//!
//! - A trial is one training job, however often it pauses.
//! - The tuner is asked for trials while places are free, and told every report and every end, by
//!   actions that are numbered in the order of the facts. Its answers come back as commands, and
//!   its records with them; they are facts from then on. Nobody asks it anything while the tuning
//!   job ends.
//! - A failed trial is one more thing that the tuner learns. The tuning job fails when the first
//!   [`MAX_FAILURES`] trials, or all there were, failed; or when a trial completed and its
//!   objective metric has never been seen.
//! - A paused trial rests frozen, holding its memory and nothing else, until somebody waits for
//!   that memory: then it is ended, its model is stored, and it is released; it resumes from its
//!   checkpoint as another attempt. What holds GPUs is released at once.
//! - Of a definition that says `Pause::Park` every paused trial is ended at once in the same way.
//!   Its instances are free for the next one, and to its user it has the statuses of one that rests
//!   frozen.

pub(crate) mod decide;
pub(crate) mod follow;
pub(crate) mod job;

/// Failed trials before the tuning job gives up, if none has succeeded by then.
pub(crate) const MAX_FAILURES: u32 = 5;
