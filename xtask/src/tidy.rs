//! The rules of ARCHITECTURE.md, executed. Each rule is a function from what there is to a list of
//! complaints, tested with input that breaks it.

mod algorithms;
mod budget;
mod columns;
mod debug_format;
mod edges;
mod imports;
mod knots;
mod licences;
mod manifest;
mod names;
mod paths;
mod purity;
mod unused_words;
mod words;

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// A file of the project.
#[derive(Debug)]
struct Source {
    /// Relative to the repository's root, with `/`.
    path: String,
    /// All of it.
    text: String,
}

/// How often each word of GLOSSARY.md's "Words not used" may occur.
const UNUSED_WORDS: &str = "xtask/unused_words.txt";

/// Everything that breaks a rule, as `where: what; what to do`.
pub(crate) fn problems(workspace: &Workspace) -> Result<Vec<String>> {
    let sources = sources(workspace)?;
    let unused_words = fs::read_to_string(workspace.root.join(UNUSED_WORDS))?;
    let root_manifest = fs::read_to_string(workspace.root.join("Cargo.toml"))?;
    let deny = fs::read_to_string(workspace.root.join("deny.toml"))?;
    Ok([
        edges::check(&edges::packages(&workspace.metadata)),
        purity::check(&sources),
        knots::check(&sources),
        algorithms::check(&sources),
        budget::check(&sources),
        columns::check(&sources),
        debug_format::check(&sources),
        names::check(&sources),
        paths::check(&sources, &|path| workspace.root.join(path).exists()),
        words::check(&sources),
        unused_words::check(&sources, &unused_words),
        manifest::check(&root_manifest),
        licences::check(&licences::packages(&workspace.metadata), &licences::allowed(&deny)),
    ]
    .concat())
}

/// Lowers the limits of words that have become fewer, and writes those of new words
/// (`cargo xtask tidy --renew`).
pub(crate) fn renew(workspace: &Workspace) -> Result<()> {
    let path = workspace.root.join(UNUSED_WORDS);
    let allowed = fs::read_to_string(&path)?;
    fs::write(&path, unused_words::renewed(&sources(workspace)?, &allowed))
        .with_context(|| format!("could not write {}", path.display()))
}

fn sources(workspace: &Workspace) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    collect(&workspace.root, &workspace.root, &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

/// Text files that people write here, build outputs left out.
fn collect(root: &Path, dir: &Path, sources: &mut Vec<Source>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("could not read {}", dir.display()))? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            if !["target", ".git", "__pycache__", ".venv", "node_modules"].contains(&name.as_str()) {
                collect(root, &path, sources)?;
            }
        } else if [".rs", ".py", ".toml", ".md", ".sh"].iter().any(|end| name.ends_with(end)) || name == "run" {
            let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
            let path = path.strip_prefix(root).context("found below the root")?.to_string_lossy().replace('\\', "/");
            sources.push(Source { path, text });
        }
    }
    Ok(())
}
