//! Trials that do nothing, end to end on real agents; and the same with Ray Tune.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{TuningArgs, put_program, request, run_one};
use crate::{
    report::{Goal, Line, line},
    server::{Server, temporary_dir},
};
use shoal_cli::output::Progress;

/// Trials at once.
pub(super) const PARALLEL: u32 = 4;
const TRIALS: u32 = 100;

/// Ray Tune with its defaults, but for what it would print; the time is of `fit` alone, on a
/// cluster that is up.
const RAY: &str = r#"
import os, sys, time
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
import ray
from ray import tune
ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
def trial(config):
    tune.report({"loss": (config["x"] - 0.3) ** 2})
tuner = tune.Tuner(
    trial,
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=int(sys.argv[1]), max_concurrent_trials=int(sys.argv[2])),
    run_config=tune.RunConfig(verbose=0, storage_path=sys.argv[3]),
)
began = time.monotonic()
results = tuner.fit()
seconds = time.monotonic() - began
assert len(results) == int(sys.argv[1]) and results.get_best_result().metrics["loss"] >= 0
print(f"seconds={seconds} version={ray.__version__}")
"#;

pub(super) fn measure(args: &TuningArgs, progress: &mut Progress, lines: &mut Vec<Line>) -> Result<()> {
    let (mut ours, mut theirs, mut version) = (Vec::new(), Vec::new(), String::new());
    for run in 1..=args.runs {
        progress.draw(&format!("trials that do nothing: run {run} of {}", args.runs));
        ours.push(shoal()?);
        if let Some(python) = &args.peer {
            progress.draw(&format!("the same with Ray Tune: run {run} of {}", args.runs));
            let dir = temporary_dir(None)?;
            let mut command = Command::new(python);
            command.args(["-c", RAY, &TRIALS.to_string(), &PARALLEL.to_string()]).arg(dir.path());
            let out = command.output().with_context(|| format!("could not run {}", python.display()))?;
            let said = String::from_utf8_lossy(&out.stdout);
            let word = |name: &str| said.split_whitespace().find_map(|word| word.strip_prefix(name)).map(str::to_owned);
            let seconds = word("seconds=").and_then(|seconds| seconds.parse::<f64>().ok());
            theirs.push(
                seconds.with_context(|| format!("Ray Tune failed:\n{said}{}", String::from_utf8_lossy(&out.stderr)))?,
            );
            version = word("version=").unwrap_or_default();
        }
    }
    let ratio: Vec<_> = theirs.iter().zip(&ours).map(|(theirs, ours)| theirs / ours).collect();
    lines.push(line(format!("{TRIALS} trials that do nothing, {PARALLEL} at once"), ours, "s", None));
    if !theirs.is_empty() {
        lines.push(line(format!("- with Ray Tune {version}"), theirs, "s", None));
        lines.push(line("- Ray Tune's time against ours", ratio, "times", Some(Goal::AtLeast(10.0))));
    }
    Ok(())
}

fn shoal() -> Result<f64> {
    let server = Server::start()?;
    put_program(&server, "nothing.sh", "echo 'loss=0.5;'\n")?;
    let request = request("nothing", "Random", TRIALS, PARALLEL, "nothing.sh");
    let began = Instant::now();
    let end = run_one(&server, &request, Duration::from_millis(10), &mut |_| Ok(()))?;
    let seconds = began.elapsed().as_secs_f64();
    let completed = &end["TrainingJobStatusCounters"]["Completed"];
    ensure!(completed.as_u64() == Some(TRIALS.into()), "{completed} of {TRIALS} trials completed");
    Ok(seconds)
}
