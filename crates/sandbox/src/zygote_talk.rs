//! What a zygote and its owner say to each other.

use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::talk::send;

/// To a zygote.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Run once, with this environment. The descriptors are the run's standard output and error.
    Run { env: Vec<(String, String)> },
    /// SIGTERM to the run.
    Terminate,
}

/// From a zygote.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The run has begun.
    Began,
    /// The run has ended, and no process of it is left.
    Ended { code: Option<i32>, signal: Option<i32> },
}

/// What a zygote does.
#[derive(Debug)]
pub(crate) struct Run {
    pub stream: UnixStream,
    /// It has forked.
    pub began: AtomicBool,
}

impl Run {
    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        // A zygote that is gone has no run either.
        let _ = send(&self.stream, &Order::Terminate, &[]);
    }
}
