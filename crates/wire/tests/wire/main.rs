//! The wire crate from outside: requests in, typed calls out; typed replies in, responses out.

mod autotune;
mod calls;
mod changes;
mod golden;
mod observers;
mod replies;
mod signatures;
mod stored;
mod training_job_rules;
mod tuning;
mod tuning_rules;
