//! A run of ticks in a target: one file for each, by number, without gaps.

use std::collections::BTreeSet;

use crate::BackupError;
use crate::manifest::damaged;
use crate::target::Target;
use crate::tick::Tick;

/// Which tick a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) run: String,
    pub(crate) number: u64,
}

/// The ticks that follow another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Following {
    /// The last before which none is missing; the other one itself, if there is none.
    pub(crate) last: u64,
    /// The one after it, where later ones are there.
    pub(crate) missing: Option<u64>,
}

impl Run {
    pub(crate) fn name(run: &str, number: u64) -> String {
        format!("ticks/{run}/{number:012}")
    }

    fn parse(name: &str) -> Option<Self> {
        let (run, number) = name.strip_prefix("ticks/")?.split_once('/')?;
        Some(Self { run: run.to_owned(), number: number.parse().ok()? })
    }

    /// Every tick of a target, by its file's name.
    pub(crate) fn all(target: &dyn Target) -> Result<Vec<(String, Self)>, BackupError> {
        let names = target.list("ticks")?.into_keys();
        Ok(names.filter_map(|name| Self::parse(&name).map(|tick| (name, tick))).collect())
    }

    /// The ticks that follow one. Their numbers have no gaps: one that is missing below a later one
    /// is damage.
    pub(crate) fn after(target: &dyn Target, run: &str, number: u64) -> Result<Following, BackupError> {
        let ticks = target.list(&format!("ticks/{run}"))?;
        let numbers: BTreeSet<u64> = ticks.keys().filter_map(|name| Self::parse(name)).map(|it| it.number).collect();
        let highest = numbers.last().copied().unwrap_or(number);
        for next in number + 1..=highest {
            // A list is not of one moment: one that it does not have may be there.
            if !numbers.contains(&next) && target.read(&Self::name(run, next))?.is_none() {
                return Ok(Following { last: next - 1, missing: Some(next) });
            }
        }
        Ok(Following { last: highest.max(number), missing: None })
    }

    pub(crate) fn read(target: &dyn Target, name: &str) -> Result<Tick, BackupError> {
        let bytes = target.read(name)?.ok_or_else(|| damaged(target, name, "it is missing"))?;
        Tick::decode(&bytes).ok_or_else(|| damaged(target, name, "its sum is not that of what was written"))
    }

    pub(crate) fn contents(target: &dyn Target, name: &str) -> Result<Vec<String>, BackupError> {
        Ok(Self::read(target, name)?.contents)
    }
}
