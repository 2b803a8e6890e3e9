//! Old backups go: the heads first, so that none is ever there in part, then what no other needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::BackupError;
use crate::manifest::Head;
use crate::run::Run;
use crate::target::Target;

/// What a thinning has removed.
#[derive(Debug, Default)]
pub(crate) struct Thinned {
    /// Names of backups.
    pub(crate) backups: Vec<String>,
    /// Names of contents.
    pub(crate) contents: Vec<String>,
}

/// Keeps this number of the newest backups. `contents`: what the target had at a moment when all
/// that rows named was in a backup or a tick; only of these may some go.
pub(crate) fn thin(target: &dyn Target, keep: Option<usize>, contents: Vec<String>) -> Result<Thinned, BackupError> {
    let mut heads = Head::all(target)?;
    let surplus = keep.map_or(0, |keep| heads.len().saturating_sub(keep.max(1)));
    let backups: Vec<String> = heads.drain(..surplus).map(|head| head.id).collect();
    if backups.is_empty() {
        return Ok(Thinned::default());
    }
    // A damaged one that is kept leaves everything as it is.
    let details = heads.iter().map(|head| head.read_details(target)).collect::<Result<Vec<_>, _>>()?;
    target.remove(&backups.iter().map(|id| Head::name(id)).collect::<Vec<_>>())?;
    let (mut packs, mut used) = (BTreeSet::new(), BTreeSet::new());
    for details in details {
        packs.extend(details.packs.0.into_iter().map(|(name, _)| name));
        used.extend(details.contents);
    }
    let mut goes = Vec::new();
    let first_ticks = first_ticks(&heads);
    for (name, tick) in Run::all(target)? {
        match first_ticks.get(&*tick.run) {
            Some(first) if tick.number > *first => used.extend(Run::contents(target, &name)?),
            _ => goes.push(name),
        }
    }
    let heads: BTreeSet<String> = heads.into_iter().map(|head| head.id).collect();
    for name in target.list("backups")?.into_keys() {
        let mut parts = name.split('/').skip(1);
        let (Some(id), Some(file)) = (parts.next(), parts.next()) else { continue };
        let is_used = if file.starts_with("pack-") { packs.contains(&name) } else { heads.contains(id) };
        if !is_used {
            goes.push(name);
        }
    }
    let contents: Vec<String> = contents.into_iter().filter(|name| !used.contains(name)).collect();
    target.remove(&goes)?;
    target.remove(&contents)?;
    Ok(Thinned { backups, contents })
}

/// Of each run, the tick with which its oldest backup was made.
fn first_ticks(heads: &[Head]) -> BTreeMap<&str, u64> {
    let mut first = BTreeMap::new();
    for (run, tick) in heads.iter().filter_map(|head| head.tick.as_ref()) {
        first.entry(&**run).and_modify(|first: &mut u64| *first = (*first).min(*tick)).or_insert(*tick);
    }
    first
}
