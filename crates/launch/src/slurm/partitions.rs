//! Partitions, as `sinfo` prints them.

/// Partition, whether it is up, its time limit, nodes allocated/idle/other/total, processors
/// likewise, generic resources.
pub(super) const FORMAT: &str = "%P|%a|%l|%F|%C|%G";

/// A sentence for each partition.
pub(super) fn sentences(text: &str) -> Vec<String> {
    let mut all = Vec::from_iter(text.lines().filter_map(sentence));
    all.dedup();
    all
}

fn sentence(line: &str) -> Option<String> {
    let fields = Vec::from_iter(line.split('|').map(str::trim));
    let [partition, up, limit, nodes, cpus, resources] = fields[..] else { return None };
    let [nodes, cpus] = [nodes, cpus].map(|text| Vec::from_iter(text.split('/')));
    let ([_, idle, other, all], [_, idle_cpus, _, all_cpus]) = (&nodes[..], &cpus[..]) else { return None };
    let name = partition.trim_end_matches('*');
    let default = if partition.ends_with('*') { " (default)" } else { "" };
    let mut text = format!("partition {name}{default}: {up}, {idle} of {all} nodes idle");
    if *other != "0" {
        text.push_str(&format!(", {other} down or drained"));
    }
    text.push_str(&format!(", {idle_cpus} of {all_cpus} processors free"));
    if !matches!(resources, "" | "(null)") {
        text.push_str(&format!(", {resources} on a node"));
    }
    if limit != "infinite" {
        text.push_str(&format!(", at most {limit}"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_sentences() {
        let text = "main*|up|infinite|1/2/0/3|8/16/0/24|(null)\nshort|up|1:00|0/0/3/3|0/0/24/24|gpu:2\n";
        assert_eq!(
            sentences(text),
            [
                "partition main (default): up, 2 of 3 nodes idle, 16 of 24 processors free",
                "partition short: up, 0 of 3 nodes idle, 3 down or drained, 0 of 24 processors free, gpu:2 on a node, \
                 at most 1:00"
            ]
        );
    }
}
