//! No `Debug` text reaches a database or an answer: it is for logs and panics, and the compiler may
//! change it. What is stored or answered has a name, `Display` or serde.

use super::{Source, purity::code};

/// The crates that store or answer, and those whose texts become a `FailureReason`.
const CRATES: [&str; 10] = ["agent", "algos", "contract", "environments", "plane", "s3", "sandbox", "server", "store", "wire"];
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
    let formats = |line: &str| (line.contains(":?}") || line.contains(":#?}")) && !LOGS.iter().any(|log| line.contains(log));
    let lines = code(text).into_iter().filter(|(_, line)| formats(line));
    lines.map(|(number, _)| format!("{path}:{number}: formats with Debug; give the type a name, Display or serde")).collect()
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
            ("#[cfg(test)]\nmod tests {\n    fn f() -> String { format!(\"{:?}\", 1) }\n}\n", 0),
        ] {
            assert_eq!(complaints("x.rs", text).len(), expected, "{text}");
        }
    }
}
