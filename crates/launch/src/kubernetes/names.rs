//! Names of Kubernetes objects: DNS labels, which the names of jobs need not be.

/// Longest label of DNS.
const MAX_LABEL: usize = 63;
/// A hyphen and a hash.
const SUFFIX: usize = 17;

/// Of the Service of a job, and what the names of its pods begin with.
pub(super) fn service(job_name: &str) -> String {
    let label = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let name: String = job_name.chars().map(label).collect();
    if name == job_name && name.len() <= MAX_LABEL && !name.ends_with('-') {
        return name;
    }
    let start = name.chars().take(MAX_LABEL - SUFFIX).collect::<String>();
    format!("{}-{:016x}", start.trim_end_matches('-'), hash(job_name))
}

/// Of the pod of a host.
pub(super) fn pod(service: &str, host: u32) -> String {
    format!("{service}-{host}")
}

/// FNV-1a: the same in each version of this program, unlike the standard library's.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_and_differ_where_jobs_do() {
        assert_eq!(service("shoal-0a1b-train-1"), "shoal-0a1b-train-1");
        assert_eq!(service("shoal-0a1b-Train-1"), "shoal-0a1b-train-1-4816d0884a4d4664");
        let others = ["shoal-a-x+1", "shoal-a-x-1", "shoal-a-X-1", "shoal-a-x-", &format!("shoal-{}", "y".repeat(90))];
        let names = Vec::from_iter(others.iter().map(|name| service(name)));
        for (place, name) in names.iter().enumerate() {
            assert!(name.len() <= MAX_LABEL && !name.ends_with('-'), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'));
            assert!(!names[..place].contains(name), "{name}");
        }
        assert_eq!(pod(&names[1], 2), "shoal-a-x-1-2");
    }
}
