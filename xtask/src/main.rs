//! Project chores, `cargo xtask TASK`.
//!
//! `test` is the README's test command: it sets up what the tests need (a Python environment with
//! the real clients, libxgboost), runs the Rust tests and the client tests, and closes with one
//! line of counts. `ci` is `test` and every other check that a change has to pass, `checks` those
//! alone. `soak` is what takes too long for them. `tidy` executes the rules of ARCHITECTURE.md.
//! `codegen` rewrites the generated sources. `bench NAME ..` runs one measurement of `tools/bench`,
//! `bench` alone all of them, and writes docs/notes/measured.md. `clients` makes the tests' Python
//! environments and prints their interpreters. `package` builds the Python package's wheel and
//! tests it. `dist` makes what is handed to users. `gpu` runs what needs a GPU, or writes it to a
//! folder for a machine that has one. `torch-suite` renews the list of torch's own tests that Gloo
//! passes. `instructions` counts those of the process groups' hot loops. `kubernetes` builds what
//! the tests' clusters consist of. `fuzz` looks for inputs that break a reader, `sim` for histories
//! that break the control core.

mod bench;
mod checks;
mod clients;
mod codegen;
mod dist;
mod environment;
mod frameworks;
mod fuzz;
mod gpu;
mod instructions;
mod kubernetes;
mod lints;
mod outcome;
mod pytest;
mod python_package;
mod rust_tests;
mod skips;
mod soak;
mod static_program;
mod tidy;
mod workspace;

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Result, bail};
use environment::Environments;
use outcome::{Outcome, Skip};
use workspace::{Workspace, cargo, succeeds};

fn main() -> ExitCode {
    let task = env::args().nth(1).unwrap_or_default();
    if ["", "help", "--help", "-h"].contains(&task.as_str()) {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    match run(&task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask {task}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The tasks, as CONTRIBUTING.md has them: its first block.
fn help() -> &'static str {
    include_str!("../../CONTRIBUTING.md").split("```\n").nth(1).unwrap_or_default()
}

/// Whether all is well.
fn run(task: &str) -> Result<bool> {
    let workspace = Workspace::find()?;
    match task {
        "test" => {
            let mut outcome = test(&workspace, || Ok(()))?;
            rust_tests::nccl(&workspace, &mut outcome)?;
            refuse_skips(&workspace, &mut outcome);
            Ok(outcome.report())
        }
        "ci" => {
            // The tests in Python wait more than they compute, and what compiles beside them leaves
            // them the processor.
            let (started, mut beside) = (Instant::now(), None);
            let mut outcome = test(&workspace, || {
                beside = Some(checks::Beside::start(&workspace)?);
                Ok(())
            })?;
            match beside {
                Some(beside) => beside.join(&mut outcome)?,
                None => checks::run(&workspace, &mut outcome)?,
            }
            outcome.steps.push(("all".to_owned(), started.elapsed().as_secs()));
            refuse_skips(&workspace, &mut outcome);
            Ok(outcome.report())
        }
        "checks" => checks::task(&workspace),
        "bench" => bench::run(&workspace),
        "clients" => {
            let environments = Environments::find(&workspace)?;
            println!("{}", environments.clients()?.display());
            environments.sdk_v3()?.iter().for_each(|python| println!("{}", python.display()));
            Ok(true)
        }
        "package" => {
            let Some(python) = Environments::find(&workspace)?.package()? else {
                bail!("the package registry cannot be reached")
            };
            let mut outcome = Outcome::default();
            python_package::run(&workspace, &python, None, &mut outcome)?;
            Ok(outcome.report())
        }
        "dist" if env::args().any(|word| word == "--static") => {
            static_program::run(&workspace, &Environments::find(&workspace)?.clients()?)
        }
        "dist" => {
            let Some(python) = Environments::find(&workspace)?.package()? else {
                bail!("the package registry cannot be reached")
            };
            dist::run(&workspace, &python)
        }
        "gpu" => gpu::run(&workspace),
        "torch-suite" => {
            let Some(python) = Environments::find(&workspace)?.package()? else {
                bail!("the package registry cannot be reached")
            };
            python_package::renew_torch_suite(&workspace, &python)
        }
        "tidy" => {
            if env::args().any(|word| word == "--renew") {
                tidy::renew(&workspace)?;
            }
            let problems = tidy::problems(&workspace)?;
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            eprintln!("tidy: {} problems", problems.len());
            Ok(problems.is_empty())
        }
        "instructions" => instructions::run(&workspace),
        "kubernetes" => {
            println!("{}", kubernetes::prepare(&workspace)?.display());
            Ok(true)
        }
        "fuzz" => fuzz::run(&workspace),
        "sim" => sim(&workspace),
        "soak" => soak::run(&workspace),
        "codegen" => codegen::run(&workspace.root).map(|()| true),
        other => {
            bail!(
                "no such task {other:?}; there are: test, ci, checks, tidy, codegen, bench, clients, package, dist, gpu, torch-suite, instructions, kubernetes, fuzz, sim, soak"
            )
        }
    }
}

/// Rust tests, then those of the Python package and the real clients against what was built;
/// `between` begins when all is built.
fn test(workspace: &Workspace, between: impl FnOnce() -> Result<()>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let started = Instant::now();
    let ends = Mutex::new(Vec::new());
    let passed = |what: &str| {
        let seconds = started.elapsed().as_secs();
        println!("[{seconds} s] {what}");
        ends.lock().unwrap_or_else(PoisonError::into_inner).push((what.to_owned(), seconds));
    };
    let environments = Environments::find(workspace).inspect_err(|error| eprintln!("{error:#}")).ok();
    let python = environments.as_ref().and_then(|it| it.clients().inspect_err(|error| eprintln!("{error:#}")).ok());
    if python.is_none() {
        outcome.fail("the clients' Python environment");
    }
    let package = environments.as_ref().map(|it| it.package().inspect_err(|error| eprintln!("{error:#}")));
    let sdk_v3 = environments.map(|it| it.sdk_v3().inspect_err(|error| eprintln!("{error:#}")));
    match &sdk_v3 {
        Some(Ok(None)) => outcome.skipped.push(Skip {
            name: "SDK v3".to_owned(),
            reason: "needs a package registry: SDK v3 is fetched once and then kept in ~/.cache/shoal".to_owned(),
        }),
        Some(Err(_)) => outcome.fail("SDK v3's Python environment"),
        Some(Ok(Some(_))) | None => {}
    }
    let sdk_v3 = sdk_v3.and_then(Result::ok).flatten();
    if !succeeds(cargo(workspace).args(["test", "--workspace", "--no-run"]))? {
        outcome.fail("the workspace does not build");
        return Ok(outcome);
    }
    passed("build");
    let shoal = workspace.target.join("debug/shoal");
    if !succeeds(Command::new(&shoal).arg("setup"))? {
        outcome.fail("shoal setup");
    }
    // Their tests are skipped without them, which CI takes for a failure where they can be built.
    if let Err(error) = kubernetes::prepare(workspace) {
        eprintln!("{error:#}");
    }
    passed("Kubernetes' programs");
    // The network brings PyTorch and the wheel is compiled while tests run, many of which wait. The
    // clients' tests need the wheel: servers find it beside the binary.
    let (torch, of_torch, package, of_package) = thread::scope(|scope| {
        let torch = scope.spawn(|| {
            let mut outcome = Outcome::default();
            let torch = frameworks::prepare(&shoal, workspace, &mut outcome)?;
            passed("PyTorch's environment");
            Ok::<_, anyhow::Error>((torch, outcome))
        });
        let package = scope.spawn(|| {
            let mut outcome = Outcome::default();
            let package = install_package(workspace, package, &mut outcome)?;
            passed("the Python package's wheel");
            Ok::<_, anyhow::Error>((package, outcome))
        });
        rust_tests::run(workspace, python.as_deref().and_then(Path::parent), &mut outcome)?;
        passed("Rust tests");
        let (torch, of_torch) = torch.join().unwrap_or_else(|_| bail!("PyTorch's environment: a thread panicked"))?;
        let (package, of_package) = package.join().unwrap_or_else(|_| bail!("the wheel: a thread panicked"))?;
        Ok::<_, anyhow::Error>((torch, of_torch, package, of_package))
    })?;
    outcome.add(Outcome::default(), of_torch);
    outcome.add(Outcome::default(), of_package);
    between()?;
    if let Some(python) = package {
        python_package::test(workspace, &python, torch.as_deref(), &mut outcome)?;
        let packed = dist::check_debug(workspace, &python).inspect_err(|error| eprintln!("dist: {error:#}"));
        outcome.count("dist of the debug build, installed", packed.is_ok());
    }
    passed("the Python package's tests");
    if let Some(python) = python {
        clients::run(workspace, &python, sdk_v3.as_deref(), &shoal, &mut outcome)?;
    }
    passed("clients' tests");
    outcome.steps = ends.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(outcome)
}

/// Builds the Python package and installs it into its environment, if that could be made; the
/// environment's interpreter, if the package is there.
fn install_package(
    workspace: &Workspace,
    environment: Option<Result<Option<PathBuf>>>,
    outcome: &mut Outcome,
) -> Result<Option<PathBuf>> {
    match environment {
        Some(Ok(Some(python))) => Ok(python_package::install(workspace, &python, outcome)?.then_some(python)),
        Some(Ok(None)) => {
            outcome.skipped.push(Skip {
                name: "the Python package".to_owned(),
                reason: "needs a package registry: maturin is fetched once and then kept in ~/.cache/shoal".to_owned(),
            });
            Ok(None)
        }
        Some(Err(_)) | None => {
            outcome.fail("the Python package's environment");
            Ok(None)
        }
    }
}

/// In CI a skip is a failure where the machine does not lack what it says.
fn refuse_skips(workspace: &Workspace, outcome: &mut Outcome) {
    if env::var_os("CI").is_some_and(|value| value == "true") {
        outcome.refuse_skips(|reason| skips::is_honest(&workspace.root, reason));
    }
}

/// Histories of many seeds: `cargo xtask sim [--seeds N] [--from SEED]`.
fn sim(workspace: &Workspace) -> Result<bool> {
    succeeds(
        cargo(workspace).args(["run", "-q", "-p", "shoal-sim", "--example", "seeds", "--"]).args(env::args().skip(2)),
    )
}
