//! What sampled stacks show of a training whose steps are not measured.

use std::collections::BTreeMap;

use super::{Finding, percent};
use crate::model::Profile;
use crate::page::entries;

/// Share of a process's samples from which on waiting for data matters.
const MATTERS: f64 = 0.2;
/// Samples of a process from which on they are judged.
const ENOUGH: u64 = 50;
/// What returns the next batch: function, and part of its file's name.
const LOADERS: [(&str, &str); 2] = [("__next__ (", "dataloader.py"), ("__next__ (", "iterator_ops.py")];

pub(super) fn findings(profile: &Profile) -> Option<Finding> {
    if !profile.ranks.is_empty() {
        return None;
    }
    // Processes that load data beside the training do not wait for it.
    let mut processes = BTreeMap::<(&str, &str), (u64, u64)>::new();
    for host in &profile.stacks {
        for (stack, count) in entries(&host.folded) {
            let process = stack.split(';').next().unwrap_or_default();
            let (all, loading) = processes.entry((&host.host, process)).or_default();
            *all = all.saturating_add(count);
            *loading = loading.saturating_add(if stack.split(';').any(is_loader) { count } else { 0 });
        }
    }
    let of = |((host, process), (all, loading)): (_, (u64, u64))| (host, process, all, loading as f64 / all as f64);
    let judged = processes.into_iter().map(of).filter(|it| it.2 >= ENOUGH && it.3 >= MATTERS);
    let (host, process, all, share): (&str, &str, _, _) = judged.max_by(|a, b| a.3.total_cmp(&b.3))?;
    Some(Finding {
        title: "The program waits for its data".to_owned(),
        text: format!(
            "{} of {all} sampled stacks of {process} ({host}) are within the data loader's __next__.",
            percent(share)
        ),
        advice: "Load data beside the training (DataLoader(num_workers=..., persistent_workers=True), tf.data's \
                 prefetch), use cheaper transformations, or fewer and larger files. With a ProfilerConfig steps are \
                 measured, too."
            .to_owned(),
        share,
    })
}

fn is_loader(frame: &str) -> bool {
    LOADERS.iter().any(|(function, file)| frame.starts_with(function) && frame.contains(file))
}
