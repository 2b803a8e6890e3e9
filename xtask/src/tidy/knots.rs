//! No knots of modules: modules of one level that all reach each other by their imports can only be
//! read together. Calls of methods that several modules give to one type are not seen.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, imports, purity::code};

/// Modules of one level that may reach each other.
const MAX_KNOT: usize = 4;

/// A module as its path in the crate; the root is empty.
type Module = Vec<String>;

/// Complaints about knots in crates. Tests and conformance suites are left out: they may import
/// whatever they check.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Vec<(Module, &Source)>> = BTreeMap::new();
    for source in sources {
        if let Some((name, module)) = module_of(&source.path) {
            crates.entry(name).or_default().push((module, source));
        }
    }
    let mut problems = Vec::new();
    for (name, modules) in crates {
        let mut knots = knots(&modules);
        knots.sort_by_key(|knot| std::cmp::Reverse(knot.members.len()));
        for Knot { around, members, reasons } in knots.into_iter().filter(|knot| knot.members.len() > MAX_KNOT) {
            let level = [vec![name.to_owned()], around].concat().join("::");
            let members = members.into_iter().collect::<Vec<_>>().join(", ");
            let reasons = reasons.join("\n    ");
            problems.push(format!(
                "{level}: these modules all reach each other by their imports: {members}; move what they share below \
                 them\n    {reasons}"
            ));
        }
    }
    problems
}

/// Crate and module of a source file.
fn module_of(path: &str) -> Option<(&str, Module)> {
    let (folder, file) = path.split_once("/src/")?;
    let name = folder.strip_prefix("crates/").unwrap_or(folder);
    let mut module: Module = file.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        module.pop();
    }
    let is_left_out = module.iter().any(|name| ["tests", "conformance", "bin"].contains(&name.as_str()));
    (!is_left_out).then_some((name, module))
}

/// More than one module that reach each other.
struct Knot {
    around: Module,
    members: BTreeSet<String>,
    /// `A > B: PATH`, one import for each pair.
    reasons: Vec<String>,
}

/// For each module that others of its level import: one import.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

fn knots(modules: &[(Module, &Source)]) -> Vec<Knot> {
    let parsed: Vec<_> = modules
        .iter()
        .map(|(module, source)| {
            let text: String = code(&source.text).into_iter().flat_map(|(_, line)| [line, "\n"]).collect();
            (module, imports::read(&text))
        })
        .collect();
    let names: BTreeSet<&Module> = modules.iter().map(|(module, _)| module).collect();
    let aliases: BTreeMap<&Module, &BTreeMap<String, Vec<String>>> =
        parsed.iter().map(|(module, found)| (*module, &found.aliases)).collect();
    let tree = Tree { names, aliases };
    let mut levels: BTreeMap<Module, Edges> = BTreeMap::new();
    for (module, found) in &parsed {
        for path in &found.paths {
            let Some(target) = tree.resolve(module, path, 0) else { continue };
            let common = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.get(common), target.get(common)) {
                let edges = levels.entry(module[..common].to_vec()).or_default().entry(from.clone()).or_default();
                edges.entry(to.clone()).or_insert_with(|| format!("{}: {}", module.join("::"), path.join("::")));
            }
        }
    }
    let of_level = |(around, edges): (Module, Edges)| {
        components(&edges)
            .into_iter()
            .map(move |members| {
                let within = |from: &String, to: &String| members.contains(from) && members.contains(to);
                let pairs =
                    edges.iter().flat_map(|(from, targets)| targets.iter().map(move |(to, path)| (from, to, path)));
                let reasons = pairs
                    .filter(|(from, to, _)| within(from, to))
                    .map(|(from, to, path)| format!("{from} > {to} ({path})"))
                    .collect();
                Knot { around: around.clone(), members, reasons }
            })
            .collect::<Vec<_>>()
    };
    levels.into_iter().flat_map(of_level).collect()
}

/// The modules of a crate, and the names that each imports.
struct Tree<'a> {
    names: BTreeSet<&'a Module>,
    aliases: BTreeMap<&'a Module, &'a BTreeMap<String, Vec<String>>>,
}

impl Tree<'_> {
    /// The module in which what a path names is declared; none outside of the crate.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        // Imports may name each other in a circle.
        if depth > 8 {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let (mut at, mut rest) = match first.as_str() {
            "crate" => (Module::new(), rest),
            "self" => (from.clone(), rest),
            "super" => (from[..from.len().checked_sub(1)?].to_vec(), rest),
            _ => (from.clone(), path),
        };
        let is_outside = |name: &String, at: &Module| !self.names.contains(&[at.clone(), vec![name.clone()]].concat());
        if !["crate", "self", "super"].contains(&first.as_str()) && is_outside(first, &at) {
            return None;
        }
        while let Some((name, after)) = rest.split_first() {
            if name == "super" {
                at.pop()?;
            } else if !is_outside(name, &at) {
                at.push(name.clone());
            } else {
                let alias = self.aliases.get(&at).and_then(|names| names.get(name));
                let further = alias.and_then(|path| self.resolve(&at, path, depth + 1));
                return further.or(Some(at));
            }
            rest = after;
        }
        Some(at)
    }
}

/// Strongly connected components of more than one node.
fn components(edges: &Edges) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            for next in edges.get(node).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let all: BTreeMap<_, _> = edges.keys().map(|node| (node, reached(node))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (node, reach) in &all {
        if found.iter().any(|knot| knot.contains(*node)) {
            continue;
        }
        let back = |other: &String| all.get(other).is_some_and(|theirs| theirs.contains(*node));
        let knot: BTreeSet<String> = reach.iter().filter(|other| back(other)).map(|other| (*other).clone()).collect();
        if knot.len() > 1 {
            found.push(knot);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Vec<Source> {
        files
            .iter()
            .map(|(path, text)| Source { path: format!("crates/x/src/{path}.rs"), text: (*text).into() })
            .collect()
    }

    #[test]
    fn knots_are_found_through_reexports_and_folders() {
        let check = |files: &[(&str, &str)], expected: &[&[&str]]| {
            let sources = crate_of(files);
            let modules: Vec<_> =
                sources.iter().map(|source| (module_of(&source.path).expect("of a crate").1, source)).collect();
            let found: Vec<Vec<String>> =
                knots(&modules).into_iter().map(|knot| knot.members.into_iter().collect()).collect();
            assert_eq!(found, expected, "{files:?}");
        };
        check(&[("a", "use crate::b::B;"), ("b", "fn f() {}")], &[]);
        check(&[("a", "use crate::b::B;"), ("b", "use crate::a::A;")], &[&["a", "b"]]);
        check(
            &[("lib", "pub use b::B;\nmod a;\nmod b;"), ("a", "use crate::B;"), ("b", "fn f() { super::a::g(); }")],
            &[&["a", "b"]],
        );
        check(&[("a", "use crate::{b::{B, C}, c};"), ("b", ""), ("c", "use crate::a;")], &[&["a", "c"]]);
        check(&[("a/one", "use crate::b::B;"), ("a", "mod one;"), ("b", "use crate::a::one::X;")], &[&["a", "b"]]);
        check(&[("a", "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}"), ("b", "use crate::a::A;")], &[]);
        check(&[("a", "use super::Shared;"), ("lib", "struct Shared; mod a;")], &[]);
    }

    #[test]
    fn a_knot_of_more_than_four_modules_is_a_complaint() {
        let complaints_of_ring = |size: usize| {
            let names = ["a", "b", "c", "d", "e"];
            let import = |at: usize| format!("use crate::{}::X;", names[(at + 1) % size]);
            let ring: Vec<_> = (0..size).map(|at| (names[at], import(at))).collect();
            let files: Vec<_> = ring.iter().map(|(name, text)| (*name, text.as_str())).collect();
            check(&crate_of(&files)).len()
        };
        assert_eq!([4, 5].map(complaints_of_ring), [0, 1]);
    }
}
