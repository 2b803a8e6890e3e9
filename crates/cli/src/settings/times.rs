//! Settings that are times.

use anyhow::Result;

use super::{Typed, parse};

/// Seconds of silence after which an agent's instance is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silence {
    pub(crate) here_s: u64,
    /// On compute targets, by default more than an hour: their schedulers notice dead nodes, so an
    /// agent that cannot reach this server is not given up.
    pub(crate) targets_s: u64,
}

impl Silence {
    pub(super) fn of(typed: &Typed) -> Result<Self> {
        if typed.value("silence_s") == "auto" {
            return Ok(Self { here_s: 60, targets_s: 3900 });
        }
        let seconds = parse(typed, "silence_s", "`auto` or a number of seconds")?;
        Ok(Self { here_s: seconds, targets_s: seconds })
    }
}

/// Days, or `none`.
pub(super) fn days<T: std::str::FromStr>(typed: &Typed, name: &str, wanted: &str) -> Result<Option<T>> {
    if typed.value(name) == "none" { Ok(None) } else { parse(typed, name, wanted).map(Some) }
}
