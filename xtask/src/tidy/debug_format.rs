//! No `Debug` text reaches a database or an answer: it is for logs and panics, and the compiler may
//! change it. What is stored or answered has a name, `Display` or serde.

use super::{Source, purity::code};

/// The crates that store or answer, and those whose texts become a `FailureReason`.
const CRATES: [&str; 10] =
    ["agent", "algos", "contract", "environments", "plane", "s3", "sandbox", "server", "store", "wire"];
/// What reads it is a person with a log.
const LOGS: [&str; 4] = ["tracing::", "log::", "panic!", "assert"];
/// Files that write Python's text, whose notation of strings `Debug` has.
const PYTHON: [&str; 1] = ["crates/environments/src/overlay.rs"];

/// Complaints with file and line.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let is_code = |source: &&Source| {
        CRATES.iter().any(|name| source.path.starts_with(&format!("crates/{name}/src/")))
            && source.path.ends_with(".rs")
            && !source.path.ends_with("tests.rs")
            && !source.path.contains("/conformance")
            && !PYTHON.contains(&source.path.as_str())
    };
    sources.iter().filter(is_code).flat_map(|source| complaints(&source.path, &source.text)).collect()
}

fn complaints(path: &str, text: &str) -> Vec<String> {
    let lines = code(text);
    let formats = |line: &str| line.contains(":?}") || line.contains(":#?}");
    let is_logged = |at: usize| {
        // Of the statement's lines, the last ones.
        let statement = lines[..at].iter().rev().take_while(|(_, line)| !line.trim_end().ends_with([';', '}']));
        let nearest = statement.take(4).map(|(_, line)| *line);
        nearest.chain([lines[at].1]).any(|line| LOGS.iter().any(|log| line.contains(log)))
    };
    let found = (0..lines.len()).filter(|at| formats(lines[*at].1) && !is_logged(*at));
    found
        .map(|at| format!("{path}:{}: formats with Debug; give the type a name, Display or serde", lines[at].0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_text_is_found_outside_of_logs_and_tests() {
        for (text, expected) in [
            ("fn f() -> String { format!(\"{status:?}\") }\n", 1),
            ("#[error(\"{0:?} is not known\")]\n", 1),
            ("fn f() -> String { format!(\"{:#?}\", 1) }\n", 1),
            ("fn f() { tracing::warn!(\"{end:?}\") }\n", 0),
            ("    tracing::warn!(\n        \"{} {:?}\",\n        1,\n        2\n    );\n", 0),
            ("    tracing::warn!(\"a\");\n    g(\"{:?}\");\n", 1),
            ("#[cfg(test)]\nmod tests {\n    fn f() -> String { format!(\"{:?}\", 1) }\n}\n", 0),
        ] {
            assert_eq!(complaints("x.rs", text).len(), expected, "{text}");
        }
    }
}
