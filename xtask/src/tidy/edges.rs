//! Which of our crates may use which, and what the pure ones may use of others.

use serde_json::Value;

/// Our crates, and those of ours that each may depend on. Anything not listed is forbidden.
const EDGES: [(&str, &[&str]); 28] = [
    // The tuner's function for names that were nearly right.
    ("wire", &["tuner"]),
    ("tuner", &[]),
    // The tuner's types: suggestions and verdicts are facts of the core.
    ("plane", &["tuner"]),
    ("link", &[]),
    ("contract", &[]),
    ("rules", &["contract"]),
    ("profile", &[]),
    ("encryption", &[]),
    // Contents are encrypted on their way to files.
    ("store", &["encryption"]),
    ("elsewhere", &[]),
    ("backup", &["store", "elsewhere"]),
    ("launch", &[]),
    ("sandbox", &[]),
    ("policy", &[]),
    // Buckets' policies, and keys of customers.
    ("s3", &["store", "policy", "encryption"]),
    ("console", &["wire", "plane", "store"]),
    // Machines handle the core's actions and the link's messages as values.
    ("runtime", &["plane", "link"]),
    (
        "server",
        &[
            "wire",
            "s3",
            "policy",
            "console",
            "plane",
            "tuner",
            "store",
            "elsewhere",
            "encryption",
            "link",
            "launch",
            "runtime",
            "rules",
            "profile",
        ],
    ),
    ("environments", &[]),
    ("agent", &["contract", "elsewhere", "link", "sandbox", "environments", "rules", "profile"]),
    ("algos", &["contract"]),
    ("comm", &[]),
    ("parallel", &[]),
    // The client half of the binary signs requests (wire); doctor asks the sandbox and the store
    // what this machine allows; a server is told its capacity in the nouns of plane.
    // `advise --links` measures process groups, and `timeline` joins what they recorded.
    (
        "cli",
        &[
            "server",
            "agent",
            "algos",
            "comm",
            "launch",
            "link",
            "wire",
            "sandbox",
            "contract",
            "store",
            "plane",
            "tuner",
            "parallel",
            "encryption",
            "environments",
            "profile",
            "backup",
        ],
    ),
    // Not shipped: the command line's client, and what a server is composed of beside it; it speaks
    // as agents do.
    (
        "bench",
        &[
            "cli",
            "algos",
            "comm",
            "environments",
            "launch",
            "link",
            "plane",
            "sandbox",
            "server",
            "store",
            "tuner",
            "wire",
        ],
    ),
    // For tests only.
    ("sim", &["plane", "tuner", "link", "runtime"]),
    // The Python package.
    ("py", &["comm", "parallel", "tuner"]),
    ("xtask", &[]),
];

/// Crates without a clock, I/O, async or randomness.
pub(super) const PURE: [&str; 11] =
    ["wire", "tuner", "plane", "policy", "link", "contract", "rules", "profile", "parallel", "runtime", "sim"];

/// The foreign crates that a pure crate may use: none of them touches the world unasked.
const PURE_MAY_USE: [&str; 13] = [
    "crc-fast",
    "fancy-regex",
    "half",
    "hex-simd",
    "hmac",
    "http",
    "libm",
    "percent-encoding",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "time",
];

/// One of our crates and what it declares.
#[derive(Debug)]
pub(super) struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug)]
struct Dependency {
    name: String,
    /// For tests only.
    dev: bool,
}

/// The workspace's members, from `cargo metadata`.
pub(super) fn packages(metadata: &Value) -> Vec<Package> {
    let members: Vec<_> = metadata["workspace_members"].as_array().into_iter().flatten().collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter(|package| members.contains(&&package["id"]))
        .map(|package| Package {
            name: text(&package["name"]),
            dependencies: package["dependencies"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|dependency| Dependency { name: text(&dependency["name"]), dev: dependency["kind"] == "dev" })
                .collect(),
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Complaints about edges that the tables do not allow.
pub(super) fn check(packages: &[Package]) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages {
        let name = package.name.trim_start_matches("shoal-");
        let Some((_, allowed)) = EDGES.iter().find(|(known, _)| *known == name) else {
            problems.push(format!(
                "{}: a crate that the table of edges in xtask/src/tidy/edges.rs does not know",
                package.name
            ));
            continue;
        };
        for dependency in &package.dependencies {
            match dependency.name.strip_prefix("shoal-") {
                // A crate's tests may ask for a feature of itself (its conformance suite).
                Some(other) if other == name && dependency.dev => {}
                Some(other) if !allowed.contains(&other) => {
                    problems
                        .push(format!("{}: must not depend on {}; see ARCHITECTURE.md", package.name, dependency.name));
                }
                None if PURE.contains(&name)
                    && !dependency.dev
                    && !PURE_MAY_USE.contains(&dependency.name.as_str()) =>
                {
                    problems.push(format!("{}: is pure and must not depend on {}", package.name, dependency.name));
                }
                _ => {}
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn complaints(package: &str, dependency: &str, kind: Option<&str>) -> usize {
        let metadata = json!({
            "workspace_members": ["a"],
            "packages": [
                {"id": "a", "name": package, "dependencies": [{"name": dependency, "kind": kind}]},
                {"id": "b", "name": "foreign", "dependencies": [{"name": "shoal-wire", "kind": null}]},
            ],
        });
        check(&packages(&metadata)).len()
    }

    #[test]
    fn edges_outside_the_table_are_found() {
        for (package, dependency, kind, expected) in [
            ("shoal-server", "shoal-plane", None, 0),
            ("shoal-server", "shoal-agent", None, 1),
            ("shoal-server", "shoal-agent", Some("dev"), 1),
            ("shoal-plane", "shoal-store", None, 1),
            ("shoal-plane", "serde", None, 0),
            ("shoal-plane", "tokio", None, 1),
            ("shoal-link", "rand", None, 1),
            ("shoal-link", "tempfile", Some("dev"), 0),
            ("shoal-store", "rusqlite", None, 0),
            ("shoal-launch", "shoal-launch", Some("dev"), 0),
            ("shoal-everything", "serde", None, 1),
        ] {
            assert_eq!(complaints(package, dependency, kind), expected, "{package} -> {dependency}");
        }
    }
}
