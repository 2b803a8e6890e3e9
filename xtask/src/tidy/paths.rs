//! Files and directories that ARCHITECTURE.md names exist.

use super::Source;

const PAGE: &str = "ARCHITECTURE.md";
/// Where a path on the page may begin: crates are named without `crates/`.
const ROOTS: [&str; 2] = ["", "crates/"];

/// Complaints with file and line. `exists` answers for a path relative to the repository's root.
pub(super) fn check(sources: &[Source], exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let pages = sources.iter().filter(|source| source.path == PAGE);
    pages.flat_map(|page| complaints(&page.text, exists)).collect()
}

fn complaints(text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let lines = text.lines().enumerate();
    let named = lines.flat_map(|(index, line)| paths(line).map(move |path| (index + 1, path)));
    let is_missing =
        |(_, path): &(usize, &str)| is_ours(path, exists) && !ROOTS.iter().any(|root| exists(&format!("{root}{path}")));
    named
        .filter(is_missing)
        .map(|(line, path)| format!("{PAGE}:{line}: {path} does not exist; correct the page"))
        .collect()
}

/// Words that look like relative paths.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let is_path = |letter: char| letter.is_alphanumeric() || "_-./".contains(letter);
    line.split(move |letter| !is_path(letter))
        .map(|word| word.trim_end_matches(['.', '/']))
        .filter(|word| word.contains('/'))
}

/// Whether a path begins in this repository: others are of a data directory, of an instance, or of
/// another program.
fn is_ours(path: &str, exists: &dyn Fn(&str) -> bool) -> bool {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let is_of_crate = rest.starts_with("src") || rest.starts_with("tests");
    !first.is_empty() && (exists(first) || (is_of_crate && exists(&format!("crates/{first}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_do_not_exist_are_found() {
        let present = [
            "crates",
            "crates/server",
            "crates/server/src/core.rs",
            "docs",
            "docs/guide.md",
            "console",
            "console/assets",
        ];
        let exists = |path: &str| present.contains(&path);
        for (text, expected) in [
            ("The loop (`server/src/core.rs`).", 0),
            ("The loop (`server/src/loop.rs`).", 1),
            ("See docs/guide.md, `console/assets/` and docs/missing.md.", 1),
            ("`crates/server/src/core.rs` and crates/server/src/none.rs", 1),
            // Of an instance, of a data directory, of another program.
            ("`/opt/ml/code`, `runs/<attempt>/`, `horovod/runner/elastic`, and/or", 0),
        ] {
            assert_eq!(complaints(text, &exists).len(), expected, "{text}");
        }
    }
}
