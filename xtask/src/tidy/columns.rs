//! Lines of Rust stay within what two panes of an editor show. rustfmt breaks code; this finds what
//! it leaves: comments, and statements that it gave up on.

use super::Source;

/// Columns of a line of code.
const COLUMNS: usize = 120;
/// Columns of a line that is a comment.
const COMMENT_COLUMNS: usize = 100;

/// Complaints with file and line. Literals may be longer, as a text that is searched for stays
/// whole, and tables, examples and links in comments.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let is_rust = |source: &&Source| source.path.ends_with(".rs");
    sources.iter().filter(is_rust).flat_map(|source| complaints(&source.path, &source.text)).collect()
}

fn complaints(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let (mut is_example, mut literal) = (false, None);
    for (index, line) in text.lines().enumerate() {
        let is_in_literal = literal.is_some();
        let columns = line.chars().count();
        let comment = line.trim_start().strip_prefix("//").filter(|_| !is_in_literal);
        let limit = match comment.map(|it| it.trim_start_matches(['/', '!']).trim()) {
            Some(comment) => {
                is_example ^= comment.starts_with("```");
                let is_whole = is_example || comment.starts_with('|') || !can_be_broken(comment);
                (!is_whole).then_some(COMMENT_COLUMNS)
            }
            None => {
                let has_literal = is_in_literal || line.contains('"');
                literal = open_literal(line, literal);
                (!has_literal).then_some(COLUMNS)
            }
        };
        if let Some(limit) = limit.filter(|limit| columns > *limit) {
            problems.push(format!("{path}:{}: {columns} columns, more than {limit}; break the line", index + 1));
        }
    }
    problems
}

/// What ends the string literal that is open behind this line.
fn open_literal(line: &str, mut open: Option<String>) -> Option<String> {
    let mut rest = line;
    loop {
        if let Some(end) = &open {
            let Some(at) = rest.find(end.as_str()) else { return open };
            let is_escaped = end == "\"" && rest[..at].chars().rev().take_while(|it| *it == '\\').count() % 2 == 1;
            rest = &rest[at + end.len()..];
            if !is_escaped {
                open = None;
            }
        } else {
            let at = rest.find(['"', '/', '\''])?;
            let (before, found) = rest.split_at(at);
            if found.starts_with("//") {
                return None;
            }
            if let Some(behind) = found.strip_prefix('"') {
                let hashes = before.chars().rev().take_while(|it| *it == '#').count();
                let is_raw = before[..before.len() - hashes].ends_with('r');
                open = Some(format!("\"{}", "#".repeat(if is_raw { hashes } else { 0 })));
                rest = behind;
            } else {
                // A quotation mark as a character opens nothing.
                let behind = ["'\"'", "'\\\"'"].iter().find_map(|it| found.strip_prefix(it));
                rest = behind.unwrap_or(&found[1..]);
            }
        }
    }
}

/// Whether a space outside of code spans stands within the limit.
fn can_be_broken(comment: &str) -> bool {
    let mut is_code = false;
    comment.chars().take(COMMENT_COLUMNS).any(|letter| {
        is_code ^= letter == '`';
        letter == ' ' && !is_code
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_found() {
        let long = |words: &str, columns: usize| words.repeat(columns / words.len() + 1);
        for (text, expected) in [
            (format!("// {}", long("word ", 100)), 1),
            (format!("//! {}", long("word ", 90)), 0),
            (format!("    /// | {}", long("cell | ", 100)), 0),
            (format!("/// ```\n/// {}\n/// ```", long("code ", 100)), 0),
            (format!("/// ```\n/// ```\n/// {}", long("word ", 100)), 1),
            (format!("// {}", long("https://", 100)), 0),
            (format!("f({})", long("a, ", 120)), 1),
            (format!("f(\"{}\")", long("a, ", 120)), 0),
            (format!("let s = r#\"\n{}\n\"#;", long("a, ", 120)), 0),
            (format!("let s = \"\\\"\n{}\n\";", long("a, ", 120)), 0),
            (format!("let s = ('\"', 'a');\n{}", long("a, ", 120)), 1),
            (format!("let s = r#\"a\"#;\n{}", long("a, ", 120)), 1),
        ] {
            assert_eq!(complaints("x.rs", &text).len(), expected, "{text}");
        }
    }
}
