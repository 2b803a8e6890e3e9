//! How fast a scheduler hears what a trial prints, and how fast a trial that it stops makes room
//! for the next.

use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use shoal_plane::{Event, Fact};
use shoal_store::{DataDir, Journal, LogQuery, SqliteJournal, Telemetry};
use shoal_tuner::{Record, Verdict};

use super::{put_program, request, run_one};
use crate::{
    report::{Goal, Line, line},
    server::Server,
    spread::Spread,
};
use shoal_cli::output::Progress;

/// Trials at once.
pub(super) const PARALLEL: u32 = 4;
const TRIALS: u32 = 40;
/// Prints the time with each value; the wall clock is the server's, too.
const PROGRAM: &str = r#"
import json, time
x = float(json.load(open("/opt/ml/input/config/hyperparameters.json"))["x"])
print(f"began now={time.time() * 1000:.3f}", flush=True)
for epoch in range(1, 28):
    time.sleep(0.02)
    print(f"loss={x + 1 / epoch:.6f}; now={time.time() * 1000:.3f}", flush=True)
"#;

pub(super) fn measure(runs: usize, progress: &mut Progress, lines: &mut Vec<Line>) -> Result<()> {
    let mut all = Vec::with_capacity(runs);
    for run in 1..=runs {
        progress.draw(&format!("delays: run {run} of {runs}"));
        let mut server = Server::start()?;
        put_program(&server, "train.py", PROGRAM)?;
        let mut request = request("delays", "Hyperband", TRIALS, PARALLEL, "train.py");
        request["HyperParameterTuningJobConfig"]["StrategyConfig"] =
            serde_json::json!({"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": 27}});
        run_one(&server, &request, Duration::from_millis(50), &mut |_| Ok(()))?;
        server.kill();
        let delays = delays(&server.data_dir())?;
        ensure!(delays.gone.0.len() >= 10, "only {} trials were stopped", delays.gone.0.len());
        all.push(delays);
    }
    let kinds: [(&str, Of, f64); 3] = [
        ("a value that is printed until it is judged", |it| &it.heard, 50.0),
        ("the decision to stop a trial until its program is gone", |it| &it.gone, 100.0),
        ("the decision until the next trial's program runs in its place", |it| &it.refilled, 100.0),
    ];
    for (what, of, most) in kinds {
        let each = |figure: fn(&Spread) -> f64| all.iter().map(|run| figure(of(run))).collect();
        lines.push(line(format!("{what}, median"), each(Spread::median), "ms", None));
        lines.push(line(format!("{what}, p95"), each(|it| it.percentile(95.0)), "ms", Some(Goal::AtMost(most))));
    }
    Ok(())
}

/// In milliseconds.
#[derive(Default)]
struct Delays {
    heard: Spread,
    gone: Spread,
    refilled: Spread,
}

/// One of them.
type Of = fn(&Delays) -> &Spread;

/// What a trial printed: when it began, and when it said each value.
type Printed = HashMap<String, (f64, Vec<f64>)>;

fn delays(data_dir: &Path) -> Result<Delays> {
    let dir = DataDir::open(data_dir)?;
    let printed = printed(&dir)?;
    let journal = SqliteJournal::open(&dir.journal_path())?;
    let mut events = Vec::new();
    journal.events_after(0, &mut |_, bytes| {
        events.extend(Event::decode(bytes).ok());
        Ok(())
    })?;
    let mut delays = Delays::default();
    // By wish: the job that waits for its judgement, and when it printed the value.
    let mut waiting = HashMap::new();
    let (mut jobs, mut stopped, mut places) = (HashMap::new(), HashMap::new(), VecDeque::new());
    for Event { at, name: job, fact } in events {
        let at = at.0 as f64;
        match fact {
            Fact::JobCreated { trial: Some(trial), .. } => {
                jobs.insert((trial.definition, trial.trial), job.clone());
                if let (Some(Some(decided)), Some((began, _))) = (places.pop_front(), printed.get(&job)) {
                    delays.refilled.0.push(began - decided);
                }
            }
            Fact::ObjectiveReported { resource, seq: Some(seq), .. } => {
                let said = printed.get(&job).and_then(|(_, values)| values.get(resource as usize - 1));
                waiting.insert(seq, *said.with_context(|| format!("value {resource} of {job} is not in its log"))?);
            }
            Fact::Judged { seq, records, .. } => {
                if let Some(said) = waiting.remove(&seq) {
                    delays.heard.0.push(at - said);
                }
                for record in records {
                    let Record::Reported { verdicts, .. } = record.record else { continue };
                    for (trial, verdict) in verdicts {
                        if let (Verdict::Stop, Some(job)) = (verdict, jobs.get(&(record.definition, trial))) {
                            stopped.entry(job.clone()).or_insert(at);
                        }
                    }
                }
            }
            Fact::RankEnded { .. } => {
                if let Some(decided) = stopped.get(&job) {
                    delays.gone.0.push(at - decided);
                }
            }
            Fact::JobEnded { .. } => places.push_back(stopped.get(&job).copied()),
            _ => {}
        }
    }
    Ok(delays)
}

fn printed(dir: &DataDir) -> Result<Printed> {
    let telemetry = Telemetry::open(&dir.telemetry_path())?;
    let mut printed = Printed::new();
    for stream in telemetry.streams("", None, usize::MAX)? {
        let job = stream.name.split('/').next().unwrap_or_default().to_owned();
        let mut from = 0;
        loop {
            let query = LogQuery { stream: stream.name.clone(), from: Some(from), ..LogQuery::default() };
            let page = telemetry.read_logs(&query)?.context("a stream has gone")?;
            if page.events.is_empty() {
                break;
            }
            for event in &page.events {
                let Some(now) = event.text.split_once("now=").and_then(|(_, now)| now.trim().parse::<f64>().ok())
                else {
                    continue;
                };
                let of_job = printed.entry(job.clone()).or_default();
                if event.text.starts_with("began") {
                    of_job.0 = now;
                } else {
                    of_job.1.push(now);
                }
            }
            from = page.forward;
        }
    }
    Ok(printed)
}
