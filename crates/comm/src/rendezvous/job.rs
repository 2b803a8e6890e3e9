//! Ranks of a training job: its instances, one rank on each, as Shoal's agents (and SageMaker's images) tell a program.

use crate::Error;

/// The rank of this instance and how many there are, from `SM_CURRENT_HOST` and `SM_HOSTS`, a list in JSON.
///
/// # Errors
/// [`Error::Config`]: they do not fit each other.
pub(super) fn place(hosts: &str, current: &str) -> Result<(usize, usize), Error> {
    let list = hosts.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
    // Names of hosts: letters, digits and hyphens, so nothing in them is escaped.
    let mut names: Vec<_> = list.split(',').map(|name| name.trim().trim_matches('"')).collect();
    names.sort_unstable_by_key(|name| (name.len(), *name));
    let rank = names.iter().position(|name| *name == current).ok_or_else(|| {
        Error::config(format!(
            "SM_CURRENT_HOST is {current:?}, which is not in SM_HOSTS, {hosts}: leave both as the job's agent sets them, or set RANK and WORLD_SIZE"
        ))
    })?;
    Ok((rank, names.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_ranks_in_the_order_of_their_numbers() {
        let hosts = r#"["algo-1","algo-10", "algo-2"]"#;
        assert_eq!(place(hosts, "algo-1").unwrap(), (0, 3));
        assert_eq!(place(hosts, "algo-2").unwrap(), (1, 3));
        assert_eq!(place(hosts, "algo-10").unwrap(), (2, 3));
        for (hosts, current) in [(hosts, "algo-3"), ("", "algo-1"), ("algo-1", "algo-1")] {
            let error = place(hosts, current).unwrap_err().to_string();
            assert!(error.contains("SM_CURRENT_HOST") && error.contains("WORLD_SIZE"), "{error}");
        }
    }
}
