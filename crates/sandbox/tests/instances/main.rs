//! Real instances, once in every way in which this machine can make them: as root, rootless (this
//! executable again, as another user) and as plain processes. A test that a machine cannot run is
//! skipped by name, with the reason.
//!
//! `cargo test -p shoal-sandbox --test instances -- [NAME]` runs the tests whose name contains
//! NAME.

#![allow(clippy::unwrap_used, reason = "all of this is a test, which the lint cannot see without the usual harness")]

mod delegated;
mod ends;
mod frozen;
mod hidden;
mod images;
mod limits;
mod mounts;
mod networks;
mod programs;
mod stage;
mod syscalls;

use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use shoal_sandbox::{Isolation, Support, reexec_entry};
use stage::{Outcome, Stage, is_root};

/// Of the second user, as whom root runs the rootless tests; it owns nothing.
const NOBODY: u32 = 65534;

type Test = (&'static str, fn(&Stage) -> Outcome);

fn main() -> ExitCode {
    reexec_entry();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &arguments[..] {
        ["own", dir] => ends::own_an_instance(dir),
        ["play", "zygote"] => ExitCode::from(frozen::play_zygote() as u8),
        ["as", kind, filter] => run(kind, filter),
        _ => {
            let filter = arguments.iter().find(|argument| !argument.starts_with('-')).unwrap_or(&"");
            // A test's whole name has its way before it.
            run_every_way(filter.rsplit("::").next().unwrap_or_default())
        }
    }
}

/// One process for each way, as user and environment belong to a process.
fn run_every_way(filter: &str) -> ExitCode {
    let place = tempfile::Builder::new().prefix("shoal-sandbox-").tempdir().unwrap();
    let executable = place.path().join("instances");
    std::fs::copy("/proc/self/exe", &executable).unwrap();
    for path in [place.path(), &executable] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let way = |kind, isolation, user| {
        let groups = if user == Some(NOBODY) { delegated::Groups::to(NOBODY) } else { delegated::Groups::none() };
        let mut command = groups.command(&executable, user);
        command.args(["as", kind, filter]).env("SHOAL_ISOLATION", isolation).current_dir("/");
        command.status().unwrap().success()
    };
    let first = if is_root() {
        way("root", "auto", None) & way("rootless", "auto", Some(NOBODY))
    } else {
        way("rootless", "auto", None)
    };
    if first & way("processes", "processes", None) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(kind: &str, filter: &str) -> ExitCode {
    let began = Instant::now();
    let support = Support::probe();
    println!("\n{kind}: {:?}, found out in {:.0?}", support.isolation, began.elapsed());
    for (check, well, detail) in support.report() {
        println!("    {check}: {} {detail}", if well { "yes," } else { "no," });
    }
    let expected = match kind {
        "root" => Isolation::Full { rootless: false },
        "rootless" => Isolation::Full { rootless: true },
        _ => Isolation::Processes,
    };
    let stage = Stage::new(support);
    let tests: Vec<Test> = [
        programs::TESTS,
        mounts::TESTS,
        images::TESTS,
        hidden::TESTS,
        syscalls::TESTS,
        networks::TESTS,
        limits::TESTS,
        ends::TESTS,
        frozen::TESTS,
    ]
    .concat();
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(filter)) {
        let began = Instant::now();
        let outcome = if stage.support.isolation == expected {
            catch_unwind(AssertUnwindSafe(|| test(&stage)))
        } else {
            Ok(Err(format!("this machine allows {:?} only", stage.support.isolation)))
        };
        match outcome {
            Ok(Ok(())) => {
                passed += 1;
                println!("test {kind}::{name} ... ok ({:.0?})", began.elapsed());
            }
            Ok(Err(reason)) => {
                skipped += 1;
                println!("test {kind}::{name} ... skipped: {reason}");
            }
            Err(_) => {
                println!("test {kind}::{name} ... FAILED");
                failed.push(name);
            }
        }
    }
    println!("{kind}: {passed} passed, {skipped} skipped, {} failed {failed:?}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
