//! Built-in algorithms are declared in `algos`; no other crate's code names one, its resource
//! parameter or its library.

use super::{Source, purity::code};

/// Where declarations lie: `crates/algos/src/xgboost/declaration.rs`.
const ALGOS: &str = "crates/algos/src/";

/// Beginnings of paths that may name them, and why.
const ALLOWED: [(&str, &str); 9] = [
    (ALGOS, "declares them"),
    ("crates/cli/src/demo", "shows XGBoost"),
    ("crates/cli/src/lib.rs", "examples in its help"),
    ("crates/cli/src/train.rs", "examples in its help"),
    ("crates/cli/src/train/request.rs", "an example in a message"),
    ("crates/cli/src/tune.rs", "examples in its help"),
    // The Python package of the same name, with which scripts train in SageMaker's framework
    // images: no built-in algorithm.
    ("crates/agent/src/toolkit.rs", "Python packages"),
    ("crates/environments/src/", "Python packages"),
    ("crates/rules/src/debugger/tree_report.rs", "the Debugger's CreateXgboostReport"),
];

/// Complaints with file and line.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let declarations =
        sources.iter().filter(|source| source.path.starts_with(ALGOS) && source.path.ends_with("/declaration.rs"));
    let mut words: Vec<String> = declarations.flat_map(|source| declared(&source.text)).collect();
    words.sort();
    words.dedup();
    let is_code = |source: &&Source| {
        source.path.starts_with("crates/")
            && source.path.contains("/src/")
            && source.path.ends_with(".rs")
            && !source.path.ends_with("/tests.rs")
            && !source.path.contains("/tests/")
            && !ALLOWED.iter().any(|(allowed, _)| source.path.starts_with(allowed))
    };
    sources.iter().filter(is_code).flat_map(|source| complaints(source, &words)).collect()
}

/// Names of algorithms, repositories, resource parameters and libraries, and the libraries'
/// variables, in lower case.
fn declared(text: &str) -> Vec<String> {
    let fields = code(text).into_iter().flat_map(|(_, line)| line.split([',', '{']));
    let value = |field: &str| {
        let (name, value) = field.trim().split_once(": \"")?;
        ["name", "variable"].contains(&name).then(|| value.split('"').next().unwrap_or_default().to_lowercase())
    };
    fields.filter_map(value).collect()
}

fn complaints(source: &Source, words: &[String]) -> Vec<String> {
    let named = |(number, line): (usize, &str)| {
        let line = line.to_lowercase();
        let word = words.iter().find(|word| line.contains(*word))?;
        let path = &source.path;
        Some(format!(
            "{path}:{number}: names {word:?}, which a built-in algorithm declares; read it from its declaration"
        ))
    };
    code(&source.text).into_iter().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_an_algorithm_is_found() {
        let declaration = "static A: Algorithm = Algorithm {\n    name: \"forest\",\n    hyperparameters: \
                           Hyperparameters {\n        \
                           resource: Some(Resource { name: \"trees\", unit: \"all\" }),\n    },\n};\nstatic L: Library \
                           = Library {\n    \
                           variable: \"FOREST_LIB\",\n};\n";
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        for (path, text, expected) in [
            ("crates/server/src/a.rs", "let rounds = given.get(\"trees\");\n", 1),
            ("crates/server/src/a.rs", "const A: &str = \"SageMaker's Forest\";\n// forest\nlet all = 1;\n", 1),
            ("crates/server/src/a.rs", "let lib = env(\"FOREST_LIB\");\n", 1),
            ("crates/server/src/a.rs", "#[cfg(test)]\nmod tests {\n    let a = \"forest\";\n}\n", 0),
            ("crates/server/src/a/tests.rs", "let a = \"forest\";\n", 0),
            ("crates/cli/src/demo/a.rs", "let a = \"forest\";\n", 0),
            ("tests/a.rs", "let a = \"forest\";\n", 0),
        ] {
            let sources = [source("crates/algos/src/forest/declaration.rs", declaration), source(path, text)];
            assert_eq!(check(&sources).len(), expected, "{path}: {text}: {:?}", check(&sources));
        }
    }
}
