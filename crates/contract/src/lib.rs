//! What a training program may rely on: paths, variables, metric lines, failure file, ranks. Pure:
//! this crate parses and formats bytes, and who reads and writes them is the caller's affair.
//!
//! The contract is the one of SageMaker's training containers, so a program in any language that
//! runs there runs here. It has two sides. The agent writes it: [`config_files`] and
//! [`environment()`] from [`Facts`], then [`escape_line`] and [`Scraper`] for what the program
//! says, [`failure_text`] and [`Tail`] for how it ends. A training program reads it:
//! [`Job::parse`].
//!
//! A job that brings a script for one of SageMaker's framework images has it started as the toolkit
//! in those images does: [`Script`] is that part of the contract.

mod config;
mod elastic;
mod environment;
mod exit;
mod facts;
mod failure;
mod groups;
mod headline;
mod hyperparameters;
mod job;
mod launch_error;
mod log_line;
mod metrics;
mod mpi;
mod paths;
mod ports;
mod python;
mod rank_lines;
mod ranks;
mod record_io;
mod resource;
mod script;
pub mod tensors;
mod tf_config;
mod threads;

pub use config::config_files;
pub use elastic::{HOSTS_FILE, hosts_file, processes_per_instance};
pub use environment::environment;
pub use exit::{FAILURE, SUCCESS};
pub use facts::{
    ChannelFacts, CheckpointFacts, DebugHookFacts, ElasticFacts, EndpointFacts, Facts, GroupFacts, ProfilerFacts,
    ProxyFacts,
};
pub use failure::{MAX_CHARACTERS, Tail, failure_text};
pub use headline::headline;
pub use job::{ChannelConfig, ConfigError, Job, checkpoint_directory};
pub use launch_error::LaunchError;
pub use log_line::escape_line;
pub use metrics::{Definition, Expressions, Rejected, Scraper, Value};
pub use mpi::Mpirun;
pub use paths::{BASE, LAUNCHER, Paths, pipe_name};
pub use ports::Port;
pub use rank_lines::{Places, RankLine, RankLines};
pub use ranks::{RankNames, Ranks, variables};
pub use record_io::{record_header, record_padding};
pub use resource::{RESOURCE_FILE, Resource};
pub use script::{Script, program_failure, script_failure};
pub use threads::Threads;
