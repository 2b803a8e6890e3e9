//! The environments of framework images, as `shoal env-cache prepare` creates them in
//! ~/.cache/shoal: PyTorch's for every run of the tests, the large others for `--all`.

use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    environment::UNREACHABLE,
    outcome::{Outcome, Skip},
    workspace::{Workspace, shown, succeeds},
};

/// What `cargo xtask test --all` creates as well, and how the tests that need one begin their
/// reason.
const LARGE: [(&str, &str); 2] =
    [("tensorflow", "needs the TensorFlow environment"), ("huggingface", "needs the Hugging Face environment")];
/// How tests say that they need the wheel of [`DEEPSPEED`].
const NEEDS_DEEPSPEED: &str = "needs a wheel of DeepSpeed";
/// How tests begin that are one of many of their kind.
const NEEDS_ALL: &str = "needs `cargo xtask test --all`";
/// Built of its source: the package index has no wheel.
const DEEPSPEED: &str = "deepspeed==0.19.8";
/// What builds it.
const FOR_DEEPSPEED: [&str; 8] = ["einops", "hjson", "msgpack", "ninja", "psutil", "py-cpuinfo", "pydantic", "tqdm"];

/// Whether the user asked for the large ones, too.
pub(crate) fn all_are_wanted() -> bool {
    env::args().any(|word| word == "--all")
}

/// Creates the environments of PyTorch and XGBoost, and with `--all` the others; PyTorch's
/// interpreter.
pub(crate) fn prepare(shoal: &Path, workspace: &Workspace, outcome: &mut Outcome) -> Result<Option<PathBuf>> {
    let python = prepare_one(shoal, "pytorch", outcome)?;
    prepare_one(shoal, "xgboost", outcome)?;
    if all_are_wanted() {
        for (name, _) in LARGE {
            prepare_one(shoal, name, outcome)?;
        }
        if let Some(python) = &python
            && !deepspeed(python, workspace)?
        {
            outcome.fail("a wheel of DeepSpeed");
        }
    }
    Ok(python)
}

fn prepare_one(shoal: &Path, name: &str, outcome: &mut Outcome) -> Result<Option<PathBuf>> {
    match create(shoal, name)? {
        Created::Ready(python) => return Ok(Some(python)),
        Created::Unreachable => outcome.skipped.push(Skip {
            name: format!("the environment {name}"),
            reason: "needs a package registry: it is fetched once and then kept in ~/.cache/shoal".to_owned(),
        }),
        Created::Failed => outcome.fail(&format!("shoal env-cache prepare {name}")),
    }
    Ok(None)
}

/// What became of an environment.
enum Created {
    Ready(PathBuf),
    Unreachable,
    Failed,
}

/// Creates one, or finds it in the cache.
fn create(shoal: &Path, name: &str) -> Result<Created> {
    let mut command = Command::new(shoal);
    command.args(["env-cache", "prepare", name]).stdout(Stdio::piped()).stderr(Stdio::piped());
    eprintln!("$ {}", shown(&command));
    let mut process = command.spawn().with_context(|| format!("could not run {}", shown(&command)))?;
    let mut is_unreachable = false;
    // The answer on standard output is one line, which the pipe holds.
    for line in BufReader::new(process.stderr.take().context("standard error is a pipe")?).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        is_unreachable |= UNREACHABLE.iter().any(|sign| line.contains(sign));
        eprintln!("{line}");
    }
    let output = process.wait_with_output()?;
    if output.status.success() {
        return interpreter(&String::from_utf8_lossy(&output.stdout)).map(Created::Ready);
    }
    Ok(if is_unreachable { Created::Unreachable } else { Created::Failed })
}

/// Of
/// `pytorch: Python 3.11.7, /home/me/.cache/shoal/environments/pytorch-0123456789abcdef/bin/python`.
fn interpreter(line: &str) -> Result<PathBuf> {
    match line.trim().split_once(", /") {
        Some((_, path)) => Ok(Path::new("/").join(path)),
        None => bail!("shoal env-cache prepare printed no interpreter: {line}"),
    }
}

/// Builds DeepSpeed's wheel, as docs/distributions.md shows, unless the cache has it.
fn deepspeed(python: &Path, workspace: &Workspace) -> Result<bool> {
    let home = env::var_os("HOME").context("HOME is not set")?;
    let cache = env::var_os("SHOAL_CACHE").map_or_else(|| Path::new(&home).join(".cache/shoal"), PathBuf::from);
    let wheels = cache.join("wheels");
    let is_built =
        |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&DEEPSPEED.replace("==", "-"));
    if std::fs::read_dir(&wheels).is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(is_built))) {
        return Ok(true);
    }
    let tools = workspace.target.join("for-deepspeed");
    let mut install = Command::new(python);
    install.args(["-m", "pip", "install", "--quiet", "--target"]).arg(&tools).args(FOR_DEEPSPEED);
    if !succeeds(&mut install)? {
        return Ok(false);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(std::iter::once(tools.join("bin")).chain(env::split_paths(&path)))?;
    let mut build = Command::new(python);
    build
        .args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w"])
        .arg(&wheels)
        .arg(DEEPSPEED);
    build.env("PYTHONPATH", &tools).env("PATH", path);
    build.envs([("DS_ACCELERATOR", "cpu"), ("DS_BUILD_OPS", "0"), ("DS_BUILD_SHM_COMM", "1")]);
    succeeds(&mut build)
}

/// One line about the tests that `--all` would have run; none where it left none out.
pub(crate) fn left_out(skipped: &[Skip]) -> Option<String> {
    let is_large = |skip: &&Skip| {
        [NEEDS_DEEPSPEED, NEEDS_ALL].iter().any(|reason| skip.reason.starts_with(reason))
            || LARGE.iter().any(|(_, reason)| skip.reason.starts_with(reason))
    };
    let count = skipped.iter().filter(is_large).count();
    (count > 0).then(|| {
        format!("not run: {count} tests with TensorFlow, Hugging Face and DeepSpeed, whose environments are large, or of the same libraries as others; run them with `cargo xtask test --all`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_is_read() {
        let line = "pytorch: Python 3.11.7, /c/environments/pytorch-0123456789abcdef/bin/python\n";
        assert_eq!(interpreter(line).unwrap(), Path::new("/c/environments/pytorch-0123456789abcdef/bin/python"));
        assert!(interpreter("").is_err());
    }

    #[test]
    fn one_line_says_what_all_would_run() {
        let skip = |reason: &str| Skip { name: "t".to_owned(), reason: reason.to_owned() };
        assert_eq!(left_out(&[skip("needs root")]), None);
        let reasons = ["needs the TensorFlow environment: x", "needs a wheel of DeepSpeed 0.19.8: y", "needs root"];
        let line = left_out(&reasons.map(skip)).unwrap();
        assert!(line.contains("not run: 2 tests") && line.contains("cargo xtask test --all"), "{line}");
    }
}
