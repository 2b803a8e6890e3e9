//! `ShardedByS3Key`: which objects an instance gets.

/// The keys of instance `host` (from 1) of `hosts`, in key order.
///
/// AWS promises each of n instances about 1/n of the objects and does not say which. Here the keys are sorted by their bytes and dealt
/// round robin, so that objects named in sequence (`part-0001`, ..) spread evenly, and no instance gets two more than another.
/// With fewer keys than instances the last ones get none.
///
/// # Panics
/// If `host` is not in `1..=hosts`.
pub fn partition<S: AsRef<str>>(keys: &[S], host: u32, hosts: u32) -> Vec<&str> {
    assert!((1..=hosts).contains(&host), "host {host} of {hosts}");
    let mut sorted: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
    sorted.sort_unstable();
    sorted.into_iter().skip(host as usize - 1).step_by(hosts as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_goes_to_one_host() {
        let keys = ["c", "a", "e", "b", "d"];
        let cases: [(u32, &[&[&str]]); 3] = [
            (1, &[&["a", "b", "c", "d", "e"]]),
            (2, &[&["a", "c", "e"], &["b", "d"]]),
            (6, &[&["a"], &["b"], &["c"], &["d"], &["e"], &[]]),
        ];
        for (hosts, expected) in cases {
            let got: Vec<_> = (1..=hosts).map(|host| partition(&keys, host, hosts)).collect();
            assert_eq!(got, expected);
        }
    }
}
