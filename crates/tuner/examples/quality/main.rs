//! How well a searcher searches: the best value so far, as regret, after every evaluation, on many
//! problems and seeds. One JSON line per run.
//!
//!     cargo run --release -p shoal-tuner --example quality -- --searcher '{"kind":"tpe"}' \
//!         --name tpe --seeds 20 --budget 200 [--workers 8] [--problems branin,hartmann6] \
//!         [--tables ../shared/data/hpo_tables] [--out runs.jsonl]
//!
//! With workers, so many trials are always under way, and the oldest ends first.

mod problems;
mod tables;

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use problems::Problem;
use serde_json::json;
use shoal_tuner::{Ask, Outcome, SearcherSpec, Study, StudySpec};

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().collect();
    let option =
        |name: &str| arguments.iter().position(|it| it == name).and_then(|place| arguments.get(place + 1)).cloned();
    let searcher: SearcherSpec =
        serde_json::from_str(&option("--searcher").unwrap_or_else(|| r#"{"kind":"random"}"#.to_owned()))?;
    let name = option("--name").unwrap_or_else(|| "ours".to_owned());
    let number = |name: &str, default: usize| option(name).map_or(Ok(default), |text| text.parse());
    let (seeds, first, budget, workers) =
        (number("--seeds", 20)?, number("--first-seed", 0)?, number("--budget", 200)?, number("--workers", 1)?);
    let directory = PathBuf::from(option("--tables").unwrap_or_else(|| "../shared/data/hpo_tables".to_owned()));
    let all = problems::NAMES.iter().chain(&tables::NAMES).copied().collect::<Vec<_>>().join(",");
    let mut out: Box<dyn Write> = match option("--out") {
        Some(path) => Box::new(std::fs::OpenOptions::new().create(true).append(true).open(path)?),
        None => Box::new(std::io::stdout()),
    };
    for problem in option("--problems").unwrap_or(all).split(',') {
        let it = problems::function(problem).map_or_else(|| tables::table(&directory, problem), Ok)?;
        for seed in first..first + seeds {
            let begin = Instant::now();
            let best = run(&it, searcher.clone(), seed as u64, budget, workers)?;
            let wall = begin.elapsed().as_secs_f64();
            let line = json!({"contender": name, "problem": problem, "seed": seed, "workers": workers, "budget": budget, "best": best, "wall_s": wall});
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Best regret so far after each evaluation.
fn run(
    problem: &Problem,
    searcher: SearcherSpec,
    seed: u64,
    budget: usize,
    workers: usize,
) -> Result<Vec<f64>, AnyError> {
    let mut study = Study::new(StudySpec { searcher, ..StudySpec::random(problem.space.clone(), seed) })?;
    let (mut running, mut started, mut best) = (VecDeque::new(), 0, Vec::new());
    while best.len() < budget {
        while started < budget && running.len() < workers {
            let Ask::Start(start) = study.ask() else { return Err("nothing more to start".into()) };
            running.push_back(start);
            started += 1;
        }
        let Some(start) = running.pop_front() else { break };
        let value = (problem.value)(&start.config);
        best.push((value - problem.least).min(best.last().copied().unwrap_or(f64::INFINITY)));
        study.end(start.trial, Outcome::Completed { values: vec![value] });
    }
    Ok(best)
}
