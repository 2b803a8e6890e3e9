//! The pure crates name no clock, no I/O, no async and no randomness outside their tests.

use super::{Source, edges::PURE};

/// What a pure crate must not name, as it stands in code.
const FORBIDDEN: [&str; 16] = [
    "tokio",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::env",
    "std::os",
    "std::io::stdin",
    "std::io::stdout",
    "SystemTime",
    "Instant::now",
    "now_utc",
    "getrandom",
    "rand::",
    // Their order differs from run to run.
    "HashMap",
    "HashSet",
];

/// Modules of std that a grouped import (`use std::{fs, ...}`) must not bring in.
const FORBIDDEN_MODULES: [&str; 6] = ["fs", "net", "process", "thread", "env", "os"];

/// Complaints with file and line.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let pure = |source: &&Source| {
        PURE.iter().any(|name| source.path.starts_with(&format!("crates/{name}/src/")))
            && source.path.ends_with(".rs")
            && !source.path.ends_with("/tests.rs")
            && !source.path.contains("/tests/")
    };
    sources.iter().filter(pure).flat_map(|source| complaints(&source.path, &source.text)).collect()
}

fn complaints(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut complain = |number: usize, what: &str| {
        let instead = if what.starts_with("Hash") { "use BTreeMap or BTreeSet" } else { "take it as an argument" };
        problems.push(format!("{path}:{number}: a pure crate must not use {what}; {instead}"));
    };
    // Depth of brackets within a `use std::{...}`, which may go over many lines.
    let mut depth = 0_usize;
    for (number, line) in code(text) {
        for word in FORBIDDEN {
            if line.contains(word) {
                complain(number, word);
            }
        }
        let mut rest = line;
        if depth == 0 {
            let Some((_, list)) = line.split_once("use std::{") else { continue };
            (depth, rest) = (1, list);
        }
        let mut name = String::new();
        for letter in rest.chars().chain([',']) {
            match letter {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if letter.is_alphanumeric() || letter == '_' {
                name.push(letter);
            } else if !name.is_empty() {
                // The first segment at the list's own level; what follows `::` is within it.
                if depth <= 1 && FORBIDDEN_MODULES.contains(&name.as_str()) {
                    complain(number, &format!("std::{name}"));
                }
                name.clear();
            }
        }
    }
    problems
}

/// Lines of code with their numbers: comments cut off, items under `#[cfg(test)]` left out. Relies
/// on rustfmt's indentation.
pub(super) fn code(text: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut all = text.lines().enumerate();
    while let Some((index, line)) = all.next() {
        if line.trim() == "#[cfg(test)]" {
            let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            // The item ends at once (`mod tests;`) or at its closing brace.
            let mut first = true;
            for (_, inner) in all.by_ref() {
                if inner == end || (first && (inner.ends_with(';') || inner.ends_with('}'))) {
                    break;
                }
                first = first && inner.trim_start().starts_with("#[");
            }
            continue;
        }
        lines.push((index + 1, line.split("//").next().unwrap_or_default()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impurity_is_found_and_tests_are_spared() {
        for (text, expected) in [
            ("use std::fs;\n", 1),
            ("use std::{collections::BTreeMap, fs};\n", 1),
            ("use std::{\n    collections::BTreeMap,\n    net::{IpAddr, Ipv4Addr},\n};\n", 1),
            ("use std::collections::BTreeMap;\n", 0),
            ("use std::collections::{BTreeMap, HashSet};\n", 1),
            ("fn f() { let t = std::time::SystemTime::now(); }\n", 1),
            ("// std::fs is for others\nfn f() {}\n", 0),
            ("#[cfg(test)]\nmod tests {\n    use std::fs;\n}\nfn f() {}\n", 0),
            ("#[cfg(test)]\nmod tests {\n    use std::fs;\n}\nuse std::net::TcpStream;\n", 1),
            ("#[cfg(test)]\nmod tests;\nuse std::net::TcpStream;\n", 1),
            ("use std::{\n    fmt,\n};\nfn f() {\n    g(\n        fs,\n    );\n}\n", 0),
        ] {
            assert_eq!(complaints("x.rs", text).len(), expected, "{text}");
        }
    }

    #[test]
    fn only_pure_crates_are_asked() {
        let source = |path: &str| Source { path: path.into(), text: "use std::fs;\n".into() };
        let sources = ["crates/wire/src/a.rs", "crates/store/src/a.rs", "crates/wire/tests/a.rs"].map(source);
        let problems = check(&sources);
        assert_eq!(problems, ["crates/wire/src/a.rs:1: a pure crate must not use std::fs; take it as an argument"]);
    }
}
