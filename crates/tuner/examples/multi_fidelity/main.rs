//! Schedulers and multi-fidelity searchers over stored learning curves, in virtual time. The rules
//! are those of the tuning harness (`run_mf.py`): 4 workers; a trial reports after every epoch;
//! deciding, pausing and resuming cost nothing; ties in time go to the lower worker.
//!
//! `multi_fidelity TABLE [--seeds 20] [--workers 4] [--out FILE] STRATEGY...`: a strategy is a
//! name, or JSON with `searcher` and `scheduler`. `multi_fidelity decisions`: decisions per CPU
//! second in process, for random search and ASHA.

mod decisions;
mod simulate;
mod table;

use std::io::Write as _;

use shoal_tuner::named::{self, Resources, Strategy};

use crate::{
    simulate::{Run, simulate},
    table::Table,
};

fn strategy(name: &str) -> Strategy {
    let resources = Resources { min: Some(1), max: Some(81), eta: Some(3) };
    if !name.starts_with('{') {
        return Strategy::named(name, resources).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let spec: serde_json::Value = serde_json::from_str(name).expect("JSON with searcher and scheduler");
    let part = |what: &str, default: &str| spec.get(what).cloned().unwrap_or_else(|| default.into());
    Strategy {
        searcher: named::searcher(&part("searcher", "random")).expect("a searcher"),
        scheduler: named::scheduler(&part("scheduler", "asha"), resources).expect("a scheduler"),
    }
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let table = arguments.next().expect("a table of learning curves, or `decisions`");
    if table == "decisions" {
        decisions::measure();
        return Ok(());
    }
    let table = Table::read(&table)?;
    let (mut seeds, mut workers, mut out, mut strategies) = (20, 4, None, Vec::new());
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number");
        match argument.as_str() {
            "--seeds" => seeds = number(),
            "--workers" => workers = number(),
            "--out" => {
                out = Some(
                    std::fs::OpenOptions::new().create(true).append(true).open(arguments.next().expect("a file"))?,
                );
            }
            _ => strategies.push(argument),
        }
    }
    println!(
        "| strategy | {} | mean incumbent (95 %) | at 10 % | 25 % | 50 % | 100 % | trials | epochs | whole | CPU s |",
        table.target_names()
    );
    println!("|---|{}---|---|---|---|---|---|---|---|---|", "---|".repeat(table.targets.len()));
    for name in strategies {
        let strategy = strategy(&name);
        let runs: Vec<Run> = (0..seeds).map(|seed| simulate(&table, &strategy, seed as u64, workers)).collect();
        println!("{}", simulate::row(&table, &name, &runs));
        if let Some(out) = &mut out {
            for run in &runs {
                writeln!(out, "{}", run.json(&table, &name))?;
            }
        }
    }
    Ok(())
}
