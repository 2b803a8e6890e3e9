//! The reasons for which a test may be skipped in CI: each holds only where the machine really lacks the thing.

use std::{path::Path, process::Command};

/// Whether a test that says this reason was right not to run here.
pub(crate) fn is_honest(reason: &str) -> bool {
    REASONS.iter().any(|(prefix, lacks)| reason.starts_with(prefix) && lacks())
}

/// Looks whether this machine lacks a thing.
type Lacks = fn() -> bool;

/// How a reason begins, and whether it holds here. Network is not among them: CI has its registries.
const REASONS: [(&str, Lacks); 9] = [
    ("needs root", || !says("id -u", "0")),
    ("needs an ordinary user", || says("id -u", "0")),
    ("needs user namespaces", no_user_namespaces),
    // The sandbox's own tests, told by its probe.
    ("this machine allows", no_user_namespaces),
    // Those run once for each way of isolation, and not every test means something for every way.
    ("plain processes do not promise this", || true),
    ("only root gives files away", || true),
    ("needs root to have secrets", || true),
    ("without root nothing is shown as another user's", || true),
    ("needs ../shared/data", || !Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").is_dir()),
];

fn no_user_namespaces() -> bool {
    !runs("unshare --user --map-root-user --net true")
}

fn runs(script: &str) -> bool {
    Command::new("sh").args(["-c", script]).output().is_ok_and(|output| output.status.success())
}

fn says(script: &str, answer: &str) -> bool {
    Command::new("sh").args(["-c", script]).output().is_ok_and(|output| output.stdout.trim_ascii() == answer.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_must_be_known_and_true() {
        assert!(!is_honest("too slow"));
        assert!(is_honest("needs root") != is_honest("needs an ordinary user"), "exactly one of them holds on any machine");
    }
}
