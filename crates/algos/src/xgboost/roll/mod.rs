//! The roll: before a training over several hosts, who is there and who has data; during it, who
//! was lost. The first host calls it ([`caller`]) and every host answers ([`member`]), over one TCP
//! connection each with a line of JSON per message, open until the end.
//!
//! XGBoost's own collective notices a closed connection too, but not which host is gone nor why,
//! and a frozen host only after its long time-out.

mod caller;
mod member;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(super) use caller::Caller;
pub(super) use member::Member;

/// The caller listens on the first free one of so many ports: instances without networks of their
/// own share those of the machine with other jobs. The greeting names the job, so that nobody joins
/// another's roll.
const PORTS: u16 = 32;

/// How often each side says that it is alive, in seconds.
const HEARTBEAT_SECONDS: u64 = 1;

/// Another host ended, and how.
#[derive(Debug, Error, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[error("{host} {how}")]
pub(super) struct Loss {
    /// The host's name.
    pub(super) host: String,
    /// What happened to it.
    pub(super) how: String,
}

/// What a host found in its channels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    /// It has rows in every channel that the job has.
    pub(super) has_data: bool,
    /// Feature columns.
    pub(super) columns: usize,
    /// Every row has all columns, so all hosts must have as many.
    pub(super) dense: bool,
}

/// Who trains, and how they meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The hosts with data, in the order of ranks.
    pub(super) hosts: Vec<String>,
    /// Feature columns of all of them.
    pub(super) columns: usize,
    /// Port of the tracker on the calling host; 0 when one host trains alone.
    pub(super) tracker_port: u16,
}

/// What a host says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Hello { job: String, host: String },
    Alive,
    Ready(Report),
    Failed { how: String },
    Done,
}

/// Where the roll is called, and for whom.
#[derive(Debug, Clone)]
pub(super) struct Meeting {
    /// The training job's name.
    pub(super) job: String,
    /// All hosts; the first calls.
    pub(super) hosts: Vec<String>,
    /// The first port to try.
    pub(super) port: u16,
    /// How long a host may say nothing before it counts as lost: by the clock of a listener that is
    /// awake. While a tuning job's trial rests, all its hosts stand still, and they wake one after
    /// another.
    pub(super) silence: Duration,
}

impl Meeting {
    fn ports(&self) -> impl Iterator<Item = u16> + use<> {
        self.port..self.port.saturating_add(PORTS)
    }

    fn caller(&self) -> &str {
        self.hosts.first().map_or("", String::as_str)
    }
}

/// What the caller says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Call {
    Alive,
    Plan(Plan),
    Lost(Loss),
}

/// One message as a line.
fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("messages are plain data");
    line.push(b'\n');
    line
}
