//! Partitions: what `shoal targets` shows of them, and what instance types name that is in none.

use super::SlurmOptions;

/// Of `sinfo`: partition, whether it is up, its time limit, nodes allocated/idle/other/total,
/// processors likewise, generic resources.
pub(super) const FORMAT: &str = "%P|%a|%l|%F|%C|%G";

/// The nodes of a partition that have the same generic resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) name: String,
    pub(super) is_default: bool,
    /// `up`, `down`, ..
    pub(super) state: String,
    /// The longest time of a job; empty: any.
    pub(super) limit: String,
    pub(super) nodes: Counts,
    pub(super) cpus: Counts,
    /// Of a node: `gpu:a100:4`; may be empty.
    pub(super) gres: String,
}

/// Of nodes or processors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) idle: u64,
    /// Down or drained.
    pub(super) other: u64,
    pub(super) all: u64,
}

/// As `sinfo` prints them.
pub(super) fn partitions(text: &str) -> Vec<Partition> {
    text.lines().filter_map(partition).collect()
}

fn partition(line: &str) -> Option<Partition> {
    let fields = Vec::from_iter(line.split('|').map(str::trim));
    let [name, state, limit, nodes, cpus, gres] = fields[..] else { return None };
    Some(Partition {
        name: name.trim_end_matches('*').to_owned(),
        is_default: name.ends_with('*'),
        state: state.to_owned(),
        limit: if limit == "infinite" { String::new() } else { limit.to_owned() },
        nodes: counts(nodes)?,
        cpus: counts(cpus)?,
        gres: if gres == "(null)" { String::new() } else { gres.to_owned() },
    })
}

/// `allocated/idle/other/total`
fn counts(text: &str) -> Option<Counts> {
    let numbers = text.split('/').map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
    let [_, idle, other, all] = numbers[..] else { return None };
    Some(Counts { idle, other, all })
}

/// A sentence for each partition.
pub(super) fn sentences(partitions: &[Partition]) -> Vec<String> {
    let mut all = Vec::from_iter(partitions.iter().map(sentence));
    all.dedup();
    all
}

fn sentence(partition: &Partition) -> String {
    let Partition { name, state, nodes, cpus, gres, limit, .. } = partition;
    let default = if partition.is_default { " (default)" } else { "" };
    let mut text = format!("partition {name}{default}: {state}, {} of {} nodes idle", nodes.idle, nodes.all);
    if nodes.other > 0 {
        text.push_str(&format!(", {} down or drained", nodes.other));
    }
    text.push_str(&format!(", {} of {} processors free", cpus.idle, cpus.all));
    if !gres.is_empty() {
        text.push_str(&format!(", {gres} on a node"));
    }
    if !limit.is_empty() {
        text.push_str(&format!(", at most {limit}"));
    }
    text
}

/// What the target or its instance types name and the cluster does not have, in sentences.
pub(super) fn missing(options: &SlurmOptions, partitions: &[Partition]) -> Vec<String> {
    let of_types = options.types.iter().map(|(kind, of_type)| {
        let args = [&options.args[..], &of_type.args].concat();
        (format!("types.{kind:?}"), args)
    });
    let of_target = options.types.is_empty().then(|| ("the target".to_owned(), options.args.clone()));
    of_types.chain(of_target).flat_map(|(place, args)| missing_of(&place, &args, partitions)).collect()
}

fn missing_of(place: &str, args: &[String], partitions: &[Partition]) -> Vec<String> {
    // The last one counts.
    let option = |name: &str| args.iter().rev().find_map(|arg| arg.strip_prefix(name));
    let named = Vec::from_iter(option("--partition=").into_iter().flat_map(|names| names.split(',')));
    let mut all = Vec::new();
    for name in named.iter().filter(|name| partitions.iter().all(|partition| partition.name != **name)) {
        let mut names = Vec::from_iter(partitions.iter().map(|partition| &*partition.name));
        names.dedup();
        all.push(format!("{place}: the cluster has no partition {name}; it has {}", names.join(", ")));
    }
    let is_meant = |partition: &&Partition| match named.is_empty() {
        true => partition.is_default,
        false => named.contains(&&*partition.name),
    };
    let meant = Vec::from_iter(partitions.iter().filter(is_meant));
    let wanted = option("--gres=").into_iter().flat_map(|gres| gres.split(','));
    for gres in wanted.filter(|gres| !meant.is_empty() && !meant.iter().any(|partition| has(partition, gres))) {
        let there = Vec::from_iter(meant.iter().map(|it| &*it.gres).filter(|gres| !gres.is_empty()));
        let there = if there.is_empty() { "none".to_owned() } else { there.join("; ") };
        all.push(format!("{place}: no node of partition {} has gres {gres}; a node has {there}", meant[0].name));
    }
    all
}

/// Whether a node of a partition has so much of a generic resource: `gpu`, `gpu:2`, `gpu:a100:2`.
fn has(partition: &Partition, wanted: &str) -> bool {
    let wanted = Gres::of(wanted);
    let found = partition.gres.split(',').map(|gres| Gres::of(gres.split('(').next().unwrap_or_default()));
    let of_name = found.filter(|gres| gres.name == wanted.name && (wanted.kind.is_none() || gres.kind == wanted.kind));
    of_name.map(|gres| gres.count).sum::<u64>() >= wanted.count
}

struct Gres<'a> {
    name: &'a str,
    kind: Option<&'a str>,
    count: u64,
}

impl<'a> Gres<'a> {
    fn of(text: &'a str) -> Self {
        let mut parts = Vec::from_iter(text.split(':'));
        let count = parts.last().and_then(|last| last.parse().ok());
        if count.is_some() {
            parts.pop();
        }
        Self {
            name: parts.first().copied().unwrap_or_default(),
            kind: parts.get(1).copied(),
            count: count.unwrap_or(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SlurmType;

    const TEXT: &str = "main*|up|infinite|1/2/0/3|8/16/0/24|(null)\nshort|up|1:00|0/0/3/3|0/0/24/24|gpu:2\n\
                        gpu|up|infinite|0/1/0/1|0/64/0/64|gpu:a100:4(S:0-1),shard:8\n";

    #[test]
    fn partitions_are_sentences() {
        assert_eq!(
            sentences(&partitions(TEXT))[..2],
            [
                "partition main (default): up, 2 of 3 nodes idle, 16 of 24 processors free",
                "partition short: up, 0 of 3 nodes idle, 3 down or drained, 0 of 24 processors free, gpu:2 on a node, \
                 at most 1:00"
            ]
        );
    }

    #[test]
    fn what_types_name_and_the_cluster_lacks_is_shown() {
        let of = |args: &[&str]| {
            let args = args.iter().map(|arg| (*arg).to_owned()).collect();
            let types = [("ml.x".to_owned(), SlurmType { args, nodes: None })].into();
            missing(&SlurmOptions { types, ..SlurmOptions::default() }, &partitions(TEXT)).join("; ")
        };
        assert_eq!(
            of(&["--partition=gpus"]),
            "types.\"ml.x\": the cluster has no partition gpus; it has main, short, gpu"
        );
        for fine in [&["--partition=gpu", "--gres=gpu:a100:4"][..], &["--partition=short", "--gres=gpu"], &[]] {
            assert_eq!(of(fine), "");
        }
        assert_eq!(of(&["--gres=gpu:1"]), "types.\"ml.x\": no node of partition main has gres gpu:1; a node has none");
        assert_eq!(
            of(&["--partition=gpu", "--gres=gpu:8"]),
            "types.\"ml.x\": no node of partition gpu has gres gpu:8; a node has gpu:a100:4(S:0-1),shard:8"
        );
    }
}
