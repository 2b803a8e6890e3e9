//! A run of ticks in a target: one file for each, by number, without gaps.

use std::collections::BTreeMap;

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

    /// The ticks that follow one, the next first; a gap ends them.
    pub(crate) fn after(target: &dyn Target, run: &str, number: u64) -> Result<Vec<u64>, BackupError> {
        let ticks = target.list(&format!("ticks/{run}"))?;
        let numbers: BTreeMap<u64, ()> =
            ticks.keys().filter_map(|name| Self::parse(name)).map(|tick| (tick.number, ())).collect();
        Ok((number + 1..).take_while(|number| numbers.contains_key(number)).collect())
    }

    pub(crate) fn read(target: &dyn Target, name: &str) -> Result<Tick, BackupError> {
        let bytes = target.read(name)?.ok_or_else(|| damaged(target, name, "it is missing"))?;
        Tick::decode(&bytes).ok_or_else(|| damaged(target, name, "its sum is not that of what was written"))
    }

    pub(crate) fn contents(target: &dyn Target, name: &str) -> Result<Vec<String>, BackupError> {
        Ok(Self::read(target, name)?.contents)
    }
}
