//! Workers in virtual time.

use std::{collections::VecDeque, time::Instant};

use serde_json::json;
use shoal_tuner::{Ask, Direction, Rng, Study, StudySpec, TrialId, Verdict, named::Strategy};

use crate::table::Table;

/// Virtual time that a run has: ten whole trials of the cheapest configurations on each worker.
const HORIZON: f64 = 810.0;
const CHECKS: [f64; 4] = [0.1, 0.25, 0.5, 1.0];

/// What came of one seed.
pub(crate) struct Run {
    seed: u64,
    /// When each target was reached.
    hits: Vec<Option<f64>>,
    /// Mean of the incumbent over the horizon, capped.
    area: f64,
    /// The incumbent at parts of the horizon.
    at: Vec<f64>,
    trials: usize,
    epochs: usize,
    whole: usize,
    cpu: f64,
}

impl Run {
    /// For comparison with the harness's own lines.
    pub(crate) fn json(&self, table: &Table, name: &str) -> String {
        let Self { seed, hits, area, at, trials, epochs, whole, cpu } = self;
        let hits: serde_json::Map<_, _> =
            table.targets.iter().map(ToString::to_string).zip(hits.iter().map(|it| json!(it))).collect();
        json!({"contender": name, "bench": table.name, "seed": seed, "horizon": HORIZON, "time_to": hits, "area": area, "inc_at": at, "trials": trials,
            "epochs": epochs, "full": whole, "cpu": cpu}).to_string()
    }
}

/// What a worker does next.
#[derive(Clone, Copy)]
struct Work {
    /// The end of the epoch.
    time: f64,
    trial: TrialId,
    epoch: u32,
}

pub(crate) fn simulate(table: &Table, strategy: &Strategy, seed: u64, workers: usize) -> Run {
    let Strategy { searcher, scheduler } = strategy.clone();
    let objectives = vec![Direction::Minimize];
    let spec = StudySpec { space: table.space.clone(), objectives, searcher, scheduler, seed, max_trials: None };
    let mut study = Study::new(spec).expect("a study");
    let mut places: Vec<Option<Work>> = vec![None; workers];
    let mut idle: VecDeque<usize> = (0..workers).collect();
    let (mut now, mut best, mut area) = (0.0, f64::INFINITY, 0.0);
    let mut run = Run {
        seed,
        hits: vec![None; table.targets.len()],
        area: 0.0,
        at: Vec::new(),
        trials: 0,
        epochs: 0,
        whole: 0,
        cpu: 0.0,
    };
    let ask = |study: &mut Study, now: f64, cpu: &mut f64| {
        let begin = Instant::now();
        let answer = study.ask();
        *cpu += begin.elapsed().as_secs_f64();
        let (trial, from) = match answer {
            Ask::Start(start) => (start.trial, start.origin.map_or(0, |origin| origin.resource)),
            Ask::Resume { trial, from, .. } => (trial, from),
            Ask::Wait | Ask::End => return None,
        };
        Some(Work { time: now + table.row(&study.history().trials()[trial as usize].config).0, trial, epoch: from + 1 })
    };
    loop {
        for place in std::mem::take(&mut idle) {
            places[place] = ask(&mut study, now, &mut run.cpu);
            if places[place].is_none() {
                idle.push_back(place);
            }
        }
        let next = (0..workers).filter_map(|place| places[place].map(|work| (work.time, place)));
        let Some((time, place)) = next.min_by(|one, other| one.partial_cmp(other).expect("numbers")) else { break };
        while run.at.len() < CHECKS.len() && time > CHECKS[run.at.len()] * HORIZON {
            run.at.push(best);
        }
        area += best.min(table.cap) * (time.min(HORIZON) - now);
        now = time;
        if now > HORIZON {
            break;
        }
        let Some(work) = places[place] else { break };
        let (cost, curve) = table.row(&study.history().trials()[work.trial as usize].config);
        let value = curve[work.epoch as usize - 1];
        run.epochs += 1;
        best = best.min(value);
        for (hit, target) in run.hits.iter_mut().zip(&table.targets) {
            if hit.is_none() && value <= *target {
                *hit = Some(now);
            }
        }
        let begin = Instant::now();
        let verdicts = study.report(work.trial, work.epoch, &[value]);
        run.cpu += begin.elapsed().as_secs_f64();
        places[place] = (work.epoch < table.epochs()).then(|| Work { time: now + cost, epoch: work.epoch + 1, ..work });
        if places[place].is_none() {
            run.whole += 1;
            study.end(work.trial, shoal_tuner::Outcome::Completed { values: vec![value] });
        }
        for (trial, verdict) in verdicts {
            if let (Verdict::Stop | Verdict::Pause, Some(at)) =
                (verdict, places.iter().position(|it| it.is_some_and(|it| it.trial == trial)))
            {
                places[at] = None;
            }
        }
        idle = (0..workers).filter(|&place| places[place].is_none()).collect();
        // Who has just become free asks first, as in the harness.
        if let Some(at) = idle.iter().position(|it| *it == place) {
            idle.remove(at);
            idle.push_front(place);
        }
    }
    run.at.resize(CHECKS.len(), best);
    run.area = area / HORIZON;
    run.trials = study.history().trials().len();
    run
}

/// A line of the table.
pub(crate) fn row(table: &Table, name: &str, runs: &[Run]) -> String {
    let count = runs.len() as f64;
    let mean = |of: &dyn Fn(&Run) -> f64| runs.iter().map(of).sum::<f64>() / count;
    let hits = (0..table.targets.len()).map(|target| {
        let mut times: Vec<f64> = runs.iter().map(|run| run.hits[target].unwrap_or(f64::INFINITY)).collect();
        times.sort_by(f64::total_cmp);
        let median = f64::midpoint(times[(runs.len() - 1) / 2], times[runs.len() / 2]);
        let median = if median.is_finite() { format!("{median:.0}") } else { ">hor.".to_owned() };
        format!("{median} ({}/{})", times.iter().filter(|time| time.is_finite()).count(), runs.len())
    });
    // Bootstrap of the mean.
    let mut rng = Rng::new(1, 1);
    let mut means: Vec<f64> =
        (0..2000).map(|_| runs.iter().map(|_| runs[rng.index(runs.len())].area).sum::<f64>() / count).collect();
    means.sort_by(f64::total_cmp);
    let at: Vec<String> = (0..CHECKS.len()).map(|check| format!("{:.4}", mean(&|run| run.at[check]))).collect();
    format!(
        "| {name} | {} | {:.4} ({:.4}-{:.4}) | {} | {:.0} | {:.0} | {:.1} | {:.2} |",
        hits.collect::<Vec<_>>().join(" | "),
        mean(&|run| run.area),
        means[50],
        means[1949],
        at.join(" | "),
        mean(&|run| run.trials as f64),
        mean(&|run| run.epochs as f64),
        mean(&|run| run.whole as f64),
        mean(&|run| run.cpu),
    )
}
