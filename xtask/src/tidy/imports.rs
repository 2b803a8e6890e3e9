//! The paths that a Rust source names, read from its tokens.

use std::collections::BTreeMap;

/// Paths of a module within its crate.
#[derive(Debug, Default)]
pub(super) struct Imports {
    /// All that begin with `crate`, `self` or `super`, and all that are imported, segment by
    /// segment.
    pub(super) paths: Vec<Vec<String>>,
    /// Imported names, and what they stand for.
    pub(super) aliases: BTreeMap<String, Vec<String>>,
}

/// Reads code without comments.
pub(super) fn read(text: &str) -> Imports {
    let tokens = tokens(text);
    let mut found = Imports::default();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "use" => at = tree(&tokens, at + 1, &[], &mut found),
            "crate" | "self" | "super" if tokens.get(at + 1).is_some_and(|next| next == "::") => {
                let mut path = vec![tokens[at].clone()];
                at += 1;
                while tokens.get(at).is_some_and(|next| next == "::")
                    && tokens.get(at + 1).is_some_and(|next| is_name(next))
                {
                    path.push(tokens[at + 1].clone());
                    at += 2;
                }
                found.paths.push(path);
            }
            _ => at += 1,
        }
    }
    found
}

/// Reads a tree of imports below a path; gives the place behind it.
fn tree(tokens: &[String], mut at: usize, below: &[String], found: &mut Imports) -> usize {
    let mut path = below.to_vec();
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    let behind = tree(tokens, at, &path, found);
                    if behind == at {
                        // No import, but text in a string literal.
                        return at;
                    }
                    at = behind + usize::from(tokens.get(behind).is_some_and(|token| token == ","));
                }
                return at + 1;
            }
            "as" => {
                if let Some(name) = tokens.get(at + 1) {
                    found.aliases.insert(name.clone(), path.clone());
                }
                found.paths.push(path);
                return at + 2;
            }
            "*" => {
                found.paths.push(path);
                return at + 1;
            }
            name if is_name(name) => {
                // `a::{self}` is `a`.
                if name != "self" || path.is_empty() {
                    path.push(token.clone());
                }
                at += 1;
            }
            _ => break,
        }
    }
    if let Some(name) = path.last() {
        found.aliases.entry(name.clone()).or_insert_with(|| path.clone());
    }
    found.paths.push(path);
    at
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::` and single other characters.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_from_imports_and_code() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<_> = read(text).paths.into_iter().map(|path| path.join("::")).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("use crate::a::B;", &["crate::a::B"]);
        check("pub(crate) use a::{self, b::{C, D as E}, f::*};", &["a", "a::b::C", "a::b::D", "a::f"]);
        check("fn f() { crate::a::g(super::h::i) }", &["crate::a::g", "super::h::i"]);
        check("let useful = abuse;", &[]);
        check("fn f(self) -> Self { self.a }", &[]);
        check(r#"f("use std::{"); g(")")"#, &["std"]);
    }

    #[test]
    fn names_stand_for_what_was_imported() {
        let aliases = read("pub use b::{C, D as E};").aliases;
        assert_eq!(aliases["C"], ["b", "C"]);
        assert_eq!(aliases["E"], ["b", "D"]);
    }
}
