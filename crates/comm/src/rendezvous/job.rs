//! Ranks of a training job: its instances, one rank on each, as Shoal's agents (and SageMaker's
//! images) tell a program.

use crate::Error;

/// The rank of this instance and how many there are, from `SM_CURRENT_HOST` and `SM_HOSTS`, a list
/// in JSON; or from the hosts of the job's distribution that `SM_TRAINING_ENV` names, where it is
/// for some of them only.
///
/// # Errors
/// [`Error::Config`]: they do not fit each other, or the distribution is not for this instance.
pub(super) fn place(hosts: &str, current: &str, training: Option<&str>) -> Result<(usize, usize), Error> {
    let of_distribution = training.map(of_distribution).unwrap_or_default();
    if !of_distribution.is_empty() {
        let rank = of_distribution.iter().position(|name| *name == current).ok_or_else(|| {
            let named = of_distribution.join(", ");
            Error::config(format!(
                "this instance, {current}, is in no instance group of the job's distribution, which is for {named}: \
                 join the group on those alone, or \
                 set RANK and WORLD_SIZE"
            ))
        })?;
        return Ok((rank, of_distribution.len()));
    }
    let mut names = names(hosts);
    names.sort_unstable_by_key(|name| (name.len(), *name));
    let rank = names.iter().position(|name| *name == current).ok_or_else(|| {
        Error::config(format!(
            "SM_CURRENT_HOST is {current:?}, which is not in SM_HOSTS, {hosts}: leave both as the job's agent sets \
             them, or set RANK and WORLD_SIZE"
        ))
    })?;
    Ok((rank, names.len()))
}

/// Hosts of the distribution in their order, the first of which `MASTER_ADDR` names; none without
/// one. Quotes within values are escaped, and no list of that name comes before it.
fn of_distribution(training: &str) -> Vec<&str> {
    const KEY: &str = "\"distribution_hosts\":";
    let list = training.find(KEY).map(|at| training[at + KEY.len()..].trim_start());
    list.and_then(|list| list.find(']').map(|end| names(&list[..=end]))).unwrap_or_default()
}

/// Of a list of hosts in JSON: letters, digits and hyphens, so nothing in them is escaped.
fn names(list: &str) -> Vec<&str> {
    let list = list.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
    list.split(',').map(|name| name.trim().trim_matches('"')).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_ranks_in_the_order_of_their_numbers() {
        let hosts = r#"["algo-1","algo-10", "algo-2"]"#;
        for training in [None, Some("{}"), Some(r#"{"distribution_hosts":[],"hosts":["algo-1","algo-10","algo-2"]}"#)] {
            assert_eq!(place(hosts, "algo-1", training).unwrap(), (0, 3));
            assert_eq!(place(hosts, "algo-2", training).unwrap(), (1, 3));
            assert_eq!(place(hosts, "algo-10", training).unwrap(), (2, 3));
        }
        for (hosts, current) in [(hosts, "algo-3"), ("", "algo-1"), ("algo-1", "algo-1")] {
            let error = place(hosts, current, None).unwrap_err().to_string();
            assert!(error.contains("SM_CURRENT_HOST") && error.contains("WORLD_SIZE"), "{error}");
        }
    }

    #[test]
    fn hosts_of_the_distribution_are_ranks_in_its_order() {
        let (hosts, training) = (
            r#"["algo-1","algo-2","algo-10"]"#,
            r#"{"a":"\"distribution_hosts\":[]","distribution_hosts":["algo-10", "algo-2"]}"#,
        );
        assert_eq!(place(hosts, "algo-10", Some(training)).unwrap(), (0, 2));
        assert_eq!(place(hosts, "algo-2", Some(training)).unwrap(), (1, 2));
        let error = place(hosts, "algo-1", Some(training)).unwrap_err().to_string();
        assert!(
            error.contains("algo-1, is in no instance group of the job's distribution, which is for algo-10, algo-2"),
            "{error}"
        );
    }
}
