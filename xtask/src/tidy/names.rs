//! File names tell one idea, and every crate says in its first line what it is for.

use super::Source;

/// Names under which everything and nothing fits.
const FORBIDDEN: [&str; 8] = ["utils", "util", "helpers", "helper", "common", "misc", "manager", "imp"];

/// Packages whose modules are named by others: scripts import them so.
const NAMED_BY_OTHERS: [&str; 3] =
    ["py/python/horovod/", "py/python/smdistributed/", "py/python/shoal/torch_sagemaker/"];

/// Complaints about names of sources and about crates that do not state their job.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for Source { path, text } in sources {
        let mut parts = path.trim_end_matches(".rs").trim_end_matches(".py").split('/');
        let is_ours = !NAMED_BY_OTHERS.iter().any(|package| path.starts_with(package));
        if let Some(part) = parts.find(|part| is_ours && FORBIDDEN.contains(part)) {
            problems.push(format!("{path}: {part:?} names no idea; say what is in it"));
        }
        let is_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
        let states_job =
            text.lines().next().and_then(|line| line.strip_prefix("//! ")).is_some_and(|job| job.len() >= 20);
        if is_root && !states_job {
            problems.push(format!("{path}: must begin with `//!` and the crate's one job"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_and_silent_crates_are_found() {
        for (path, text, expected) in [
            ("crates/wire/src/utils.rs", "", 1),
            ("crates/wire/src/common/a.rs", "", 1),
            ("crates/wire/src/commons.rs", "", 0),
            ("py/python/horovod/common/elastic.py", "", 0),
            ("py/python/shoal/util.py", "", 1),
            ("crates/wire/src/lib.rs", "//! What AWS's clients say.\n", 0),
            ("crates/wire/src/lib.rs", "use std::fmt;\n", 1),
            ("crates/wire/src/lib.rs", "//! Things.\n", 1),
            ("crates/wire/src/other.rs", "use std::fmt;\n", 0),
        ] {
            let problems = check(&[Source { path: path.into(), text: text.into() }]);
            assert_eq!(problems.len(), expected, "{path}: {problems:?}");
        }
    }
}
