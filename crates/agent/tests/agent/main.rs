//! Real agents with real instances, once in every way in which this machine can make them: as root,
//! rootless (this executable again, as another user) and as plain processes.
//!
//! `cargo test -p shoal-agent --test agent -- [NAME]` runs the tests whose name contains NAME.

#![allow(clippy::unwrap_used, reason = "all of this is a test, which the lint cannot see without the usual harness")]

mod endings;
mod outages;
mod pauses;
mod server;
mod stage;
mod successes;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::panic::catch_unwind;
use std::process::{Command, ExitCode};
use std::time::Instant;

use shoal_sandbox::{Isolation, Support, reexec_entry};

/// As whom root runs the rootless tests; it owns nothing.
const NOBODY: u32 = 65534;

type Test = (&'static str, fn(&Support));

fn main() -> ExitCode {
    reexec_entry();
    shoal_agent::packer_entry();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("agent") => ExitCode::from(u8::try_from(stage::play_agent(&arguments[1..])).unwrap()),
        Some("algorithm") => successes::play_algorithm(&arguments[1]),
        Some("as") => run(&arguments[1], &arguments[2]),
        _ => {
            let filter = arguments.iter().find(|argument| !argument.starts_with('-')).map_or("", String::as_str);
            // A test's whole name has its way before it.
            run_every_way(filter.rsplit("::").next().unwrap_or_default())
        }
    }
}

/// One process for each way, as user and environment belong to a process.
fn run_every_way(filter: &str) -> ExitCode {
    let place = tempfile::Builder::new().prefix("shoal-agent-").tempdir().unwrap();
    let executable = place.path().join("agent-test");
    std::fs::copy("/proc/self/exe", &executable).unwrap();
    for path in [place.path(), &executable] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut ways = vec![(if is_root { "root" } else { "rootless" }, "auto", None), ("processes", "processes", None)];
    if is_root {
        ways.insert(1, ("rootless", "auto", Some(NOBODY)));
    }
    let mut failed = false;
    for (way, isolation, user) in ways {
        let mut command = Command::new(&executable);
        command.args(["as", way, filter]).env("SHOAL_ISOLATION", isolation).current_dir("/");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        failed |= !command.status().unwrap().success();
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn run(way: &str, filter: &str) -> ExitCode {
    let support = Support::probe();
    let expected = match way {
        "root" => Isolation::Full { rootless: false },
        "rootless" => Isolation::Full { rootless: true },
        _ => Isolation::Processes,
    };
    if support.isolation != expected {
        println!(
            "test {way} ... skipped: this machine allows {:?} only: {}",
            support.isolation,
            support.notes.join("; ")
        );
        return ExitCode::SUCCESS;
    }
    // Agents of one way are told what the machine allows, those of the others find out.
    if way == "root" {
        stage::SUPPORT.get_or_init(|| shoal_agent::support_variable(&support));
    }
    let tests: Vec<Test> = [successes::TESTS, endings::TESTS, outages::TESTS, pauses::TESTS].concat();
    let mut failed = Vec::new();
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(filter)) {
        let start = Instant::now();
        let ended = catch_unwind(|| test(&support));
        println!(
            "test {way}::{name} ... {} ({} ms)",
            if ended.is_ok() { "ok" } else { "FAILED" },
            start.elapsed().as_millis()
        );
        if ended.is_err() {
            failed.push(name);
        }
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
