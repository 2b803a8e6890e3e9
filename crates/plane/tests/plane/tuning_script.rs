//! Tuning jobs in scripts: their commands, and how their facts and actions are shown.

use shoal_plane::{
    Child, Claim, Command, DefinitionSpec, Fact, Form, GangSpec, Objective, Observation, Pause, StudyRecord,
    TunerRequest, TuningSpec,
};
use shoal_tuner::{Ask, Config, Direction, Record, Start, Verdict};

pub(crate) fn show_fact(fact: &Fact) -> String {
    match fact {
        Fact::ObjectiveReported { resource, value, .. } => format!("reported {} after {resource}", show(*value)),
        Fact::TrialPaused { frozen, unseen, message, .. } => {
            let how = if *frozen { " frozen" } else { "" };
            format!("paused{how}{}: {message}", if *unseen { " unseen" } else { "" })
        }
        Fact::TrialParked { message, .. } => format!("parked: {message}"),
        Fact::TrialResumed { to, message } => format!("resumed{}: {message}", up_to(*to)),
        Fact::TrialRaised { to } => format!("raised{}", up_to(*to)),
        Fact::AttemptThawed { message, .. } => format!("thawed: {message}"),
        Fact::TuningCreated { spec, .. } => format!("tuning created: {} in parallel", spec.max_parallel),
        Fact::SuggestionsWanted { seq, wanted, starts } => format!("wish {seq}: {wanted} trials, {starts} new"),
        Fact::Suggested { seq, records, exhausted, waits } => {
            let rest = if *waits { ", waits" } else { "" };
            let end = if exhausted.is_empty() { "" } else { ", exhausted" };
            format!("wish {seq} answered: {} records{end}{rest}", records.len())
        }
        Fact::Judged { seq, records, converged } => {
            format!("wish {seq} judged: {} records{}", records.len(), if *converged { ", converged" } else { "" })
        }
        Fact::TrialEnded { trial, end, value, is_best, not_improving, .. } => {
            let best = if *is_best { ", the best" } else { "" };
            format!("trial {trial} ended {end:?} with {}{best}; {not_improving} not improving", show(*value))
        }
        Fact::ParallelChanged { max_parallel } => format!("{max_parallel} in parallel"),
        Fact::TuningStopping { end, failure_reason } => {
            format!("stopping: {end:?}{}", because(failure_reason.as_deref()))
        }
        Fact::TuningEnded { status, end, failure_reason } => {
            format!("tuning ended {}: {end:?}{}", status.name(), because(failure_reason.as_deref()))
        }
        Fact::TuningReleased => "tuning released".to_owned(),
        other => panic!("shown elsewhere: {other:?}"),
    }
}

pub(crate) fn show_request(request: &TunerRequest) -> String {
    match request {
        TunerRequest::Ask { tuning, seq, wanted, starts } => {
            format!("-> {tuning} suggest {seq}: {wanted}, {starts} new")
        }
        TunerRequest::Tell { tuning, seq, trial, what, .. } => match what {
            Observation::Reported { resource, value } => {
                format!("-> {tuning} observe {seq}: {trial} reported {} after {resource}", show(*value))
            }
            Observation::Ended { outcome } => format!("-> {tuning} observe {seq}: {trial} ended {outcome:?}"),
        },
    }
}

fn show(value: Option<f64>) -> String {
    value.map_or("no number".to_owned(), |value| value.to_string())
}

pub(crate) fn up_to(to: Option<u32>) -> String {
    to.map_or_else(String::new, |to| format!(" up to {to}"))
}

fn because(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

/// `tune NAME [jobs=N] [parallel=N] [runtime=S] [target=V] [not_improving=N] [definitions=N] [type=T] [checkpoints] [maximize] [converge]`,
/// `untune NAME`, `parallel NAME N`,
/// `suggest NAME SEQ [wait] [end] [TRIAL[:TO] | resume:TRIAL[:TO]]..`,
/// `judge NAME SEQ [converged] [TRIAL:stop | TRIAL:pause | TRIAL:go[:TO]]..`, `unable NAME SEQ`.
/// Trials are of the first definition; the job of a trial is `<NAME>-<TRIAL>`.
pub(crate) fn command(words: &[&str]) -> Option<Command> {
    let tuning = (*words.get(1)?).to_owned();
    Some(match words {
        ["tune", name, options @ ..] => Command::CreateTuningJob {
            name: tuning.into(),
            uid: format!("u{name}"),
            spec: Box::new(spec(options)),
            name_taken: false,
        },
        ["untune", _] => Command::StopTuningJob { name: tuning.into(), ended: None },
        ["parallel", _, most] => {
            Command::ChangeParallel { name: tuning.into(), max_parallel: most.parse().expect("a number"), ended: None }
        }
        ["suggest", name, seq, answers @ ..] => {
            let mut records = Vec::new();
            let mut children = Vec::new();
            for answer in answers.iter().filter(|answer| **answer != "wait") {
                let mut numbers = answer.trim_start_matches("resume:").split(':');
                let trial: u32 = numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
                let to = numbers.next().map(|to| to.parse().expect("a number"));
                let ask = match *answer {
                    "end" => Ask::End,
                    answer if answer.starts_with("resume:") => Ask::Resume { trial, from: 0, to },
                    _ => {
                        let (child, uid) = (format!("{name}-{trial}"), format!("u{name}-{trial}"));
                        children.push(Child { definition: 0, trial, name: child.into(), uid, origin: None });
                        Ask::Start(Start { trial, config: Config::default(), to, origin: None, bracket: 0 })
                    }
                };
                let record = Record::Asked { answer: ask, memo: None, exhausted: false };
                records.push(StudyRecord { definition: 0, record });
            }
            let waits = answers.contains(&"wait");
            Command::Suggested { tuning: tuning.into(), seq: seq.parse().expect("a number"), records, children, waits }
        }
        ["judge", _, seq, verdicts @ ..] => {
            let verdict = |word: &&str| {
                let mut parts = word.split(':');
                let trial = parts.next().and_then(|trial| trial.parse().ok()).expect("a trial");
                let verdict = match parts.next() {
                    Some("stop") => Verdict::Stop,
                    Some("pause") => Verdict::Pause,
                    _ => Verdict::Continue { to: parts.next().map(|to| to.parse().expect("a number")) },
                };
                (trial, verdict)
            };
            let converged = verdicts.contains(&"converged");
            let verdicts = verdicts.iter().filter(|word| **word != "converged").map(verdict).collect();
            let record = Record::Reported { trial: 0, resource: 1, values: vec![1.0], verdicts };
            let records = vec![StudyRecord { definition: 0, record }];
            Command::Judged { tuning: tuning.into(), seq: seq.parse().expect("a number"), records, converged }
        }
        ["unable", _, seq] => Command::SearchFailed {
            tuning: tuning.into(),
            seq: seq.parse().expect("a number"),
            reason: "no training job can be made.".to_owned(),
        },
        _ => return None,
    })
}

pub(crate) fn spec(options: &[&str]) -> TuningSpec {
    let option = |key: &str| options.iter().find_map(|option| option.strip_prefix(key)?.parse::<u32>().ok());
    let kind = options.iter().find_map(|option| option.strip_prefix("type=")).unwrap_or("m5.large");
    let definition = DefinitionSpec {
        objectives: vec![Objective {
            metric: "loss".to_owned(),
            direction: if options.contains(&"maximize") { Direction::Maximize } else { Direction::Minimize },
        }],
        training: GangSpec {
            instance_type: format!("ml.{kind}"),
            instances: 1,
            other_groups: Vec::new(),
            form: Form::Ends { max_runtime_s: 600 },
            max_pending_s: None,
            max_wait_s: None,
            grace_s: 120,
            retries: 1,
            min_instances: None,
            target: None,
            claim: Claim::default(),
        },
        checkpoints: options.contains(&"checkpoints"),
        pause: if options.contains(&"parks") { Pause::Park } else { Pause::Freeze },
        max_resource: option("max-resource="),
    };
    TuningSpec {
        max_jobs: option("jobs="),
        max_parallel: option("parallel=").unwrap_or(1),
        max_runtime_s: option("runtime=").map(u64::from),
        target: option("target=").map(f64::from),
        not_improving: option("not_improving="),
        complete_on_convergence: options.contains(&"converge"),
        definitions: vec![definition; option("definitions=").unwrap_or(1) as usize],
    }
}
