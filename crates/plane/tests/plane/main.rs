//! The control core from outside: scenarios as text, golden files, and random histories.

mod blame;
mod elastic;
mod failures;
mod golden;
mod interruptions;
mod lifecycle;
mod nodes;
mod packing;
mod queueing;
mod quotas;
mod random;
mod reservation;
mod retries;
mod rules;
mod samples;
mod script;
mod seeds;
mod serving;
mod stops;
mod targets;
mod tuning;
mod tuning_ends;
mod tuning_rest;
mod tuning_script;
