//! Old backups go: the heads first, so that none is ever there in part, then what no other needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::BackupError;
use crate::manifest::{Details, Head, Heads, Skipped};
use crate::run::Run;
use crate::target::Target;

/// What a thinning has removed.
#[derive(Debug, Default)]
pub(crate) struct Thinned {
    /// Names of backups.
    pub(crate) backups: Vec<String>,
    /// Names of contents.
    pub(crate) contents: Vec<String>,
    /// Why everything was left as it is.
    pub(crate) prevented: Option<String>,
}

/// Keeps this number of the newest backups. `contents`: what the target had at a moment when all
/// that rows named was in a backup or a tick; only of these may some go.
pub(crate) fn thin(target: &dyn Target, keep: Option<usize>, contents: Vec<String>) -> Result<Thinned, BackupError> {
    let Heads { whole: mut heads, skipped } = Head::all(target)?;
    let surplus = keep.map_or(0, |keep| heads.len().saturating_sub(keep.max(1)));
    let mut backups: Vec<String> = heads.drain(..surplus).map(|head| head.id).collect();
    let Some(oldest) = heads.first().filter(|_| !backups.is_empty()) else { return Ok(Thinned::default()) };
    // Of damaged ones, the old go, and the others keep all that may help to repair them.
    let (gone, stay): (Vec<Skipped>, Vec<Skipped>) = skipped.into_iter().partition(|it| it.id < oldest.id);
    backups.extend(gone.into_iter().map(|it| it.id));
    let (goes, used) = match unused(target, &heads, &stay) {
        Err(error @ BackupError::Damaged { .. }) => {
            let prevented = Some(format!("nothing was removed, as what is kept may need it: {error}"));
            return Ok(Thinned { prevented, ..Thinned::default() });
        }
        unused => unused?,
    };
    target.remove(&backups.iter().map(|id| Head::name(id)).collect::<Vec<_>>())?;
    let contents: Vec<String> = contents.into_iter().filter(|name| !used.contains(name)).collect();
    target.remove(&goes)?;
    target.remove(&contents)?;
    Ok(Thinned { backups, contents, prevented: None })
}

/// What no backup that stays needs, beside contents; and the contents that they need.
fn unused(
    target: &dyn Target,
    heads: &[Head],
    stay: &[Skipped],
) -> Result<(Vec<String>, BTreeSet<String>), BackupError> {
    let (mut goes, mut packs, mut used) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let whole = heads.iter().map(|head| head.read_details(target)).collect::<Result<Vec<_>, _>>()?;
    for details in whole.into_iter().chain(stay.iter().filter_map(|it| Details::unchecked(target, &it.id))) {
        packs.extend(details.packs.0.into_iter().map(|(name, _)| name));
        used.extend(details.contents);
    }
    let first_ticks = first_ticks(heads);
    for (name, tick) in Run::all(target)? {
        match first_ticks.get(&*tick.run) {
            Some(first) if tick.number > *first => used.extend(Run::contents(target, &name)?),
            _ => goes.push(name),
        }
    }
    let kept: BTreeSet<&str> = heads.iter().map(|head| &*head.id).chain(stay.iter().map(|it| &*it.id)).collect();
    let damaged: BTreeSet<&str> = stay.iter().map(|it| &*it.id).collect();
    for name in target.list("backups")?.into_keys() {
        let mut parts = name.split('/').skip(1);
        let (Some(id), Some(file)) = (parts.next(), parts.next()) else { continue };
        let is_used = match file.starts_with("pack-") {
            true => packs.contains(&name) || damaged.contains(id),
            false => kept.contains(id),
        };
        if !is_used && file != "head.json" {
            goes.push(name);
        }
    }
    Ok((goes, used))
}

/// Of each run, the tick with which its oldest backup was made.
fn first_ticks(heads: &[Head]) -> BTreeMap<&str, u64> {
    let mut first = BTreeMap::new();
    for (run, tick) in heads.iter().filter_map(|head| head.tick.as_ref()) {
        first.entry(&**run).and_modify(|first: &mut u64| *first = (*first).min(*tick)).or_insert(*tick);
    }
    first
}
