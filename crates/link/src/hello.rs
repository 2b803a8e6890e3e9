//! Who an agent is.

use serde::{Deserialize, Serialize};

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::PROTOCOL`] of the agent.
    pub protocol: u32,
    /// The attempt that it serves.
    pub attempt: String,
    /// Its host number, from 1.
    pub host: u32,
    /// The attempt's secret, hexadecimal.
    pub token: String,
    /// Its process id, for people.
    pub pid: u32,
    /// Whether it knows [`crate::ToAgent::Visit`]; agents before that existed say nothing here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub visits: bool,
    /// Whether it knows [`crate::Order::Sample`]; older agents send nothing here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sampling: bool,
    /// Whether it knows [`crate::Order::ProfilerRules`]; older agents send nothing here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub profiler_rules: bool,
}
