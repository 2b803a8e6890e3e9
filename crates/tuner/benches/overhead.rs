//! What deciding costs: `cargo bench -p shoal-tuner --bench overhead [-- --peer COMMAND...]`. A
//! peer is any command that speaks the JSON-lines protocol; it is driven through a pipe exactly as
//! we are, in the same run. Objective and space are those of `tuning/harness/run_overhead.py`: ten
//! parameters, no work. CPU seconds are this process's (or the contender's), as the kernel counts
//! them. Linux only.

#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made ends")]

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use shoal_tuner::{
    Ask, Config, Outcome, Space, Study, StudySpec,
    named::Resources,
    protocol::{Session, Usage},
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.split_first() {
        Some((first, rest)) if first == "--serve" => serve(&rest[0]),
        Some((first, rest)) if first == "--case" => {
            in_process(&rest[0], rest[1].parse().unwrap(), rest[2].parse().unwrap());
        }
        Some((first, peer)) if first == "--peer" => measure(Some(peer)),
        _ => measure(None),
    }
}

fn measure(peer: Option<&[String]>) {
    let own = std::env::current_exe().unwrap();
    println!("| what | trials | decisions | CPU s | per CPU s | us each, last tenth | MiB |");
    println!("|---|---|---|---|---|---|---|");
    for (strategy, trials, parallel) in [
        ("random", 10_000, 1),
        ("random", 100_000, 1_000),
        ("asha", 10_000, 4),
        ("asha", 100_000, 1_000),
        ("hyperband", 100_000, 1_000),
    ] {
        // In a process of its own, so that its memory is its own.
        let (trials, parallel) = (trials.to_string(), parallel.to_string());
        assert!(Command::new(&own).args(["--case", strategy, &trials, &parallel]).status().unwrap().success());
    }
    for (strategy, trials) in [("random", 10_000), ("asha", 10_000)] {
        let mut contender = Command::new(&own);
        contender.args(["--serve", strategy]);
        let ours = through_a_pipe(strategy, contender, trials);
        if let (Some(peer), "random") = (peer, strategy) {
            let mut contender = Command::new(&peer[0]);
            contender.args(&peer[1..]);
            let theirs = through_a_pipe(&peer.join(" "), contender, trials);
            println!("\n{:.1} times the peer's\n", ours / theirs);
        }
    }
}

const RESOURCES: Resources = Resources { min: Some(1), max: Some(81), eta: Some(3) };

fn space() -> Value {
    let real = |name: &str, min: f64, max: f64, scaling: &str| json!({"name": name, "type": "continuous", "min": min, "max": max, "scaling": scaling});
    let whole =
        |name: &str, max: i64| json!({"name": name, "type": "integer", "min": 1, "max": max, "scaling": "Linear"});
    let choice = |name: &str| json!({"name": name, "type": "categorical", "values": ["p", "q", "r", "s"]});
    json!([
        real("a", 0.0, 1.0, "Linear"),
        real("b", 0.0, 1.0, "Linear"),
        real("c", -5.0, 5.0, "Linear"),
        real("d", -5.0, 5.0, "Linear"),
        real("e", 1e-5, 1.0, "Logarithmic"),
        real("f", 1e-5, 1.0, "Logarithmic"),
        whole("g", 100),
        whole("h", 12),
        choice("i"),
        choice("j"),
    ])
}

/// A cheap bowl, in the units of the space.
fn objective(space: &Space, config: &Config) -> f64 {
    config.0.iter().enumerate().map(|(index, value)| (space.unit(index, value.unwrap()) - 0.3).powi(2)).sum()
}

/// Asks, reports (with a scheduler) and ends with so many trials in flight, the oldest first.
fn in_process(strategy: &str, trials: usize, parallel: usize) {
    let base = resident_mib_of("self");
    let space: Space = serde_json::from_value(space()).unwrap();
    let mut study = Study::new(StudySpec::named(strategy, space, 7, RESOURCES).unwrap()).unwrap();
    let (mut flying, mut decisions, mut started) = (VecDeque::new(), 0_u64, 0_usize);
    let begin = cpu_s("self");
    let (mut tenth, mut tenth_decisions) = (begin, 0);
    while started < trials {
        if started >= trials / 10 * 9 && tenth_decisions == 0 {
            (tenth, tenth_decisions) = (cpu_s("self"), decisions);
        }
        while flying.len() < parallel && started < trials {
            decisions += 1;
            match study.ask() {
                Ask::Start(start) => {
                    started += 1;
                    let value = objective(study.space(), &start.config);
                    flying.push_back((start.trial, value, 0, start.to));
                }
                Ask::Resume { trial, from, to } => {
                    let value = objective(study.space(), &study.history().trial(trial).unwrap().config);
                    flying.push_back((trial, value, from, to));
                }
                Ask::Wait | Ask::End => break,
            }
        }
        let (trial, value, mut resource, to) = flying.pop_front().unwrap();
        if strategy == "random" {
            study.end(trial, Outcome::Completed { values: vec![value] });
            continue;
        }
        loop {
            resource += 1;
            decisions += 1;
            let verdicts = study.report(trial, resource, &[value + 1.0 / f64::from(resource)]);
            if !verdicts.is_empty() || to == Some(resource) {
                break;
            }
        }
        if study.history().trial(trial).is_some_and(|known| known.state == shoal_tuner::TrialState::Running) {
            // It may go on to a further rung, and does when its turn comes.
            let to = study.history().trial(trial).unwrap().to;
            flying.push_back((trial, value, resource, to));
        }
    }
    let end = cpu_s("self");
    row(
        &format!("{strategy}, in process, {parallel} parallel"),
        trials,
        decisions,
        end - begin,
        Some((end - tenth) * 1e6 / (decisions - tenth_decisions) as f64),
        resident_mib_of("self") - base,
    );
}

/// Ask and tell (or report up to 81) through a pipe; decisions per CPU second of the contender.
fn through_a_pipe(name: &str, mut contender: Command, trials: usize) -> f64 {
    let mut child = contender.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut say = |child: &mut Child, request: String| -> Value {
        let input = child.stdin.as_mut().unwrap();
        input.write_all((request + "\n").as_bytes()).unwrap();
        input.flush().unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let is_single = name != "asha";
    let mode = if is_single { json!("single") } else { json!("mf") };
    let init = json!({"op": "init", "space": space(), "seed": 0, "budget": trials, "workers": 1, "mode": mode, "max_resource": 81, "min_resource": 1, "eta": 3});
    assert_eq!(say(&mut child, init.to_string()), json!({"ok": true}));
    let pid = child.id().to_string();
    let (base, begin) = (resident_mib_of(&pid), cpu_s(&pid));
    let (mut started, mut decisions) = (0, 0_u64);
    while started < trials {
        let asked = say(&mut child, r#"{"op":"ask"}"#.to_owned());
        decisions += 1;
        let id = &asked["id"];
        let value = asked["config"]["a"].as_f64().unwrap();
        started += usize::from(is_single || asked["from"] == 0);
        if is_single {
            say(&mut child, format!(r#"{{"op":"tell","id":{id},"value":{value}}}"#));
            continue;
        }
        for resource in asked["from"].as_u64().unwrap() + 1..=asked["to"].as_u64().unwrap_or(81) {
            let report = format!(r#"{{"op":"report","id":{id},"resource":{resource},"value":{value}}}"#);
            decisions += 1;
            if say(&mut child, report)["decision"] != "continue" {
                break;
            }
            if asked["to"] == resource {
                say(&mut child, format!(r#"{{"op":"done","id":{id},"resource":{resource}}}"#));
            }
        }
    }
    let cpu = cpu_s(&pid) - begin;
    row(&format!("{name}, through a pipe"), trials, decisions, cpu, None, resident_mib_of(&pid) - base);
    writeln!(child.stdin.as_mut().unwrap(), r#"{{"op":"quit"}}"#).unwrap();
    child.wait().unwrap();
    decisions as f64 / cpu
}

fn row(what: &str, trials: usize, decisions: u64, cpu: f64, each_us: Option<f64>, mib: f64) {
    let each = each_us.map_or_else(|| "-".to_owned(), |each| format!("{each:.2}"));
    println!("| {what} | {trials} | {decisions} | {cpu:.3} | {:.0} | {each} | {mib:.1} |", decisions as f64 / cpu);
}

/// The contender of the pipe: this binary once more.
fn serve(strategy: &str) {
    let mut session = Session::new(strategy, Usage::default);
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = String::new();
    while input.read_line(&mut line).unwrap() > 0 {
        let Some(mut reply) = session.handle(line.trim_end()) else { break };
        reply.push('\n');
        output.write_all(reply.as_bytes()).unwrap();
        output.flush().unwrap();
        line.clear();
    }
}

/// Of all threads.
fn cpu_s(pid: &str) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let times = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("schedstat")).ok());
    times.filter_map(|text| text.split_whitespace().next()?.parse::<f64>().ok()).sum::<f64>() * 1e-9
}

fn resident_mib_of(pid: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
}
