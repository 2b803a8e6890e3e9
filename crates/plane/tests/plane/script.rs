//! Scenarios as text: commands, and what is expected to follow from each.
//!
//! ```text
//! 0 create a m5.xlarge 1                a command, at so many milliseconds
//!   a launched ua-1: 1 x 4 CPUs, ..     its events,
//!   -> launch ua-1 on 1                 the actions of applying them,
//!   refused: ...                        or why nothing happened
//! ```
//!
//! What others' scenarios show already is given: of the commands before a line `then`, nothing that
//! follows is compared.
//!
//! A job's uid is `u` and its name. `#` starts a comment. After each event the state is checked,
//! and at the end a replay of the encoded events must give the same state.

use shoal_plane::{
    Action, AttemptId, Capacity, Catalog, Claim, Command, Effects, Event, Fact, Form, GangSpec, Host, InstanceReport,
    MetricValue, Node, Packing, RankEnd, RuleVerdict, State, StopCause, Time, apply,
};

/// Ends what is given.
const THEN: &str = "then";

pub(crate) const GIB: u64 = 1 << 30;

/// 8 CPUs, 24 GiB, no GPU, 16 instances.
pub(crate) fn laptop() -> Capacity {
    Capacity::of(Node { cpus: 8, memory_bytes: 24 * GIB, gpus: 0, instances: 16, ..Node::local() }, Packing::Promise)
}

/// The same, where instances hold what they use.
pub(crate) fn packed() -> Capacity {
    Capacity { packing: Packing::Use, ..laptop() }
}

/// Runs the script's commands and compares all that happens with what the script says.
#[track_caller]
pub(crate) fn check(capacity: Capacity, script: &str) {
    let mut state = State::new(capacity.clone(), Catalog::default());
    let mut journal = Vec::new();
    let mut actual = Vec::new();
    let given = lines(script).position(|line| line == THEN).map_or(0, |place| place + 1);
    for line in commands(script) {
        if line == THEN {
            actual.clear();
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        actual.push(line.to_owned());
        match words[..] {
            ["view", job] => actual.extend(view(&state, job)),
            ["pending"] => actual.extend(show_effects(&state.pending())),
            ["deadline"] => actual.push(state.next_deadline().map_or("none".to_owned(), |at| at.0.to_string())),
            ["capacity", gib] => {
                let memory_bytes = gib.parse::<u64>().expect("GiB") * GIB;
                let of = |node: &Node| Node { memory_bytes, ..node.clone() };
                state.set_capacity(Capacity { nodes: capacity.nodes.iter().map(of).collect(), ..capacity.clone() });
            }
            _ => {
                let at = Time(words[0].parse().unwrap_or_else(|_| panic!("not a command: {line}")));
                step(&mut state, &command(&words[1..]), at, &mut journal, &mut actual);
            }
        }
    }
    let mut replayed = State::new(capacity, Catalog::default());
    for bytes in &journal {
        apply(&mut replayed, &Event::decode(bytes).expect("just encoded"));
    }
    assert_eq!(replayed.snapshot(), state.snapshot(), "a replay gives another state");

    let expected: Vec<&str> = lines(script).skip(given).collect();
    assert!(expected == actual, "expected\n{}\nbut this happens\n{}", expected.join("\n"), actual.join("\n"));
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(|line| line.split(" # ").next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Commands begin where others' lines are indented deeper: with a time, or with a question's word.
fn commands(script: &str) -> impl Iterator<Item = &str> {
    lines(script).filter(|line| {
        let first = line.split_whitespace().next().unwrap_or_default();
        (first.parse::<u64>().is_ok() && line.split_whitespace().count() > 1)
            || matches!(first, "view" | "pending" | "deadline" | "capacity" | THEN)
    })
}

fn step(state: &mut State, command: &Command, at: Time, journal: &mut Vec<Vec<u8>>, out: &mut Vec<String>) {
    let done = shoal_plane::step(state, command, at, &mut |state, event, effects| {
        out.push(show_event(&event));
        out.extend(show_effects(&effects));
        if let Err(broken) = state.sanity_check() {
            panic!("{broken}, after\n{}", out.join("\n"));
        }
        journal.push(event.encode());
    });
    if let Err(rejection) = done {
        out.push(format!("refused: {rejection}"));
    }
}

/// `create NAME TYPE COUNT [max_runtime=S] [max_pending=S] [max_wait=S] [retries=N] [min=N] [on=TARGET]
/// [user=NAME] [tag=KEY=VALUE] [priority=N] [taken]`,
/// `serve` likewise without `max_runtime`, `stop NAME [ended]`,
/// `interrupt NAME [INSTANCES] [ended]`, `cleared ATTEMPT HOST ..`, `tick`,
/// `measured GIB-LACKING ATTEMPT=GIB ..`, `stored ATTEMPT`, `unstored ATTEMPT REASON`,
/// `released ATTEMPT`, `unlaunched ATTEMPT REASON`, `delayed ATTEMPT REASON`,
/// `queued ATTEMPT [REASON]`, `ATTEMPT/HOST REPORT`.
fn command(words: &[&str]) -> Command {
    let attempt = AttemptId::from(words.get(1).copied().unwrap_or_default());
    if let Some(command) = crate::tuning_script::command(words) {
        return command;
    }
    match words {
        [verb @ ("create" | "serve"), name, instance_type, instances, options @ ..] => {
            let option = |key: &str| options.iter().find_map(|option| option.strip_prefix(key)?.parse().ok());
            let text = |key: &str| options.iter().find_map(|option| option.strip_prefix(key)).map(str::to_owned);
            let spec = GangSpec {
                instance_type: format!("ml.{instance_type}"),
                instances: instances.parse().expect("a number of instances"),
                other_groups: Vec::new(),
                form: match *verb {
                    "serve" => Form::Serves,
                    _ => Form::Ends { max_runtime_s: option("max_runtime=").unwrap_or(86_400) },
                },
                max_pending_s: option("max_pending="),
                max_wait_s: option("max_wait="),
                grace_s: 120,
                retries: option("retries=").map_or(0, |retries| u32::try_from(retries).expect("few")),
                min_instances: option("min=").map(|min| u32::try_from(min).expect("few")),
                target: text("on="),
                claim: Claim {
                    priority: text("priority=").map_or(0, |it| it.parse().expect("a number")),
                    user: text("user="),
                    tags: Vec::from_iter(text("tag=")),
                },
            };
            let (name, uid, name_taken) = ((*name).to_owned(), format!("u{name}"), options.contains(&"taken"));
            Command::CreateTrainingJob { name: name.into(), uid, spec, name_taken }
        }
        ["stop", name, how @ ..] => Command::StopTrainingJob {
            name: (*name).into(),
            cause: if how == ["budget"] { StopCause::Budget } else { StopCause::User },
            ended: (how == ["ended"]).then_some(shoal_plane::JobStatus::Completed),
        },
        ["interrupt", name, ended @ ..] => Command::InterruptTrainingJob {
            name: (*name).into(),
            instances: ended.first().and_then(|instances| instances.parse().ok()),
            ended: (ended == ["ended"]).then_some(shoal_plane::JobStatus::Completed),
        },
        ["tick"] => Command::Tick,
        ["measured", lacking, used @ ..] => {
            let gib = |text: &str| text.parse::<u64>().expect("GiB") * GIB;
            let of_attempt = |word: &&str| {
                word.split_once('=').map(|(attempt, used)| (attempt.into(), gib(used))).expect("ATTEMPT=GIB")
            };
            // `GIB` on the only node, or `NODE:GIB`.
            let (node, lacking) = lacking.split_once(':').unwrap_or((Node::LOCAL, lacking));
            let lacking = [(node.to_owned(), gib(lacking))].into();
            Command::MemoryMeasured { used: used.iter().map(of_attempt).collect(), lacking }
        }
        ["cleared", _, hosts @ ..] => Command::InstancesCleared {
            attempt,
            hosts: hosts.iter().map(|host| Host(host.parse().expect("a host number"))).collect(),
        },
        ["stored", _] => Command::ArtifactsStored { attempt },
        ["unstored", _, reason @ ..] => Command::ArtifactsFailed { attempt, reason: reason.join(" ") },
        ["unlaunched", _, reason @ ..] => Command::LaunchFailed { attempt, reason: reason.join(" ") },
        ["delayed", _, reason @ ..] => Command::LaunchDelayed { attempt, reason: reason.join(" ") },
        ["queued", _, reason @ ..] => {
            Command::LaunchQueued { attempt, reason: Some(reason.join(" ")).filter(|reason| !reason.is_empty()) }
        }
        ["released", _] => Command::Released { attempt },
        [instance, said @ ..] => {
            let (attempt, host) = instance.split_once('/').unwrap_or_else(|| panic!("not a command: {words:?}"));
            let host = Host(host.parse().expect("a host number"));
            Command::InstanceReported { attempt: attempt.into(), host, report: report(said) }
        }
        [] => panic!("an empty command"),
    }
}

/// `downloading`, `training`, `uploaded`, `rule NAME VERDICT [stops] DETAILS`, `lost REASON`, or
/// `exit N | signal N | oom`, then `used=GIB` where all instances together ran out of memory,
/// `at=MS`, `file=TEXT`, `stderr=TEXT` (with `_` for blanks) and `NAME:VALUE@MS` for metrics.
fn report(words: &[&str]) -> InstanceReport {
    match words {
        ["downloading"] => InstanceReport::Downloading,
        ["training"] => InstanceReport::Training,
        ["uploaded"] => InstanceReport::Uploaded,
        ["objective", ordinal, value] => InstanceReport::Objective {
            ordinal: ordinal.parse().expect("a number"),
            value: value.parse().expect("a number"),
        },
        ["rule", rule, verdict, rest @ ..] => InstanceReport::RuleEvaluated {
            rule: (*rule).to_owned(),
            verdict: match *verdict {
                "issues" => RuleVerdict::IssuesFound,
                "none" => RuleVerdict::NoIssuesFound,
                "unobserved" => RuleVerdict::Unobserved,
                _ => RuleVerdict::Error,
            },
            details: rest.iter().filter(|word| **word != "stops").copied().collect::<Vec<_>>().join(" "),
            stops: rest.contains(&"stops"),
        },
        ["lost", reason @ ..] => InstanceReport::Lost { reason: reason.join(" ") },
        [how, rest @ ..] => {
            let text =
                |key: &str| rest.iter().find_map(|word| word.strip_prefix(key)).map(|text| text.replace('_', " "));
            let number = || Some(rest[0].parse().expect("a number"));
            let end = RankEnd {
                code: if *how == "exit" { number() } else { None },
                signal: if *how == "signal" { number() } else { None },
                out_of_memory: *how == "oom",
                crowded_out: text("used=").map(|gib| gib.parse::<u64>().expect("a number") * GIB),
                failure_file: text("file="),
                stderr_tail: text("stderr=").unwrap_or_default(),
                at: Time(text("at=").map_or(0, |at| at.parse().expect("milliseconds"))),
            };
            InstanceReport::RankEnded { end, final_metrics: rest.iter().filter_map(|word| metric(word)).collect() }
        }
        [] => panic!("an empty report"),
    }
}

fn metric(word: &str) -> Option<MetricValue> {
    let (name, value) = word.split_once(':').filter(|_| !word.contains('='))?;
    let (value, at) = value.split_once('@')?;
    Some(MetricValue { name: name.to_owned(), value: value.parse().ok()?, at: Time(at.parse().ok()?) })
}

fn show_event(event: &Event) -> String {
    let what = match &event.fact {
        Fact::JobCreated { message, .. } => format!("created: {message}"),
        Fact::AttemptLaunched { attempt, placement, lease_s, message } => format!(
            "launched {attempt}: {} x {} CPUs, {:.1} GiB, GPUs {:?}{}, lease {lease_s} s: {message}",
            placement.gpus.len(),
            placement.cpus,
            placement.memory_bytes as f64 / GIB as f64,
            placement.gpus.concat(),
            if placement.nodes.is_empty() { String::new() } else { format!(", on {}", placement.nodes.join(" ")) },
        ),
        Fact::JobMoved { secondary, message } => format!("{}: {message}", secondary.name()),
        Fact::InstanceMoved { host, phase, .. } => format!("{host} {phase:?}"),
        Fact::RankEnded { host, end, final_metrics, .. } => {
            let how = match (end.code, end.signal) {
                (Some(code), _) => format!("exit {code}"),
                (_, Some(signal)) => format!("signal {signal}"),
                _ => "killed".to_owned(),
            };
            let metrics: String =
                final_metrics.iter().map(|metric| format!(" {}={}", metric.name, metric.value)).collect();
            format!("{host} ended: {how}{metrics}")
        }
        Fact::InstanceUploaded { host, .. } => format!("{host} uploaded"),
        Fact::InstanceLost { host, reason, .. } => format!("{host} lost: {reason}"),
        Fact::StopRequested { cause, message } => format!("stop by {cause:?}: {message}"),
        Fact::UploadsEnded { .. } => "uploads ended".to_owned(),
        Fact::JobEnded { status, secondary, message, .. } => {
            format!("ended {}/{}: {message}", status.name(), secondary.name())
        }
        Fact::AttemptFailed { message, replaced: false, .. } => format!("attempt failed: {message}"),
        Fact::AttemptFailed { message, .. } => format!("attempt replaced: {message}"),
        Fact::AttemptInterrupted { message, .. } => format!("interrupted: {message}"),
        Fact::AttemptEvicted { used_bytes, .. } => format!("evicted, using {} GiB", used_bytes / GIB),
        Fact::ReleaseOrdered { .. } => "release".to_owned(),
        Fact::InstancesInterrupted { hosts, message, .. } => {
            format!("interrupted {hosts:?}: {message}", hosts = numbers(hosts))
        }
        Fact::InstancesVacated { hosts, message, .. } => {
            format!("vacated {hosts:?}: {}", message.as_deref().unwrap_or("left"), hosts = numbers(hosts))
        }
        Fact::InstancesCleared { hosts, until, .. } => {
            format!("cleared {hosts:?}, until {:?}", until.map(|until| until.0), hosts = numbers(hosts))
        }
        Fact::ReplacementAllowed { hosts, .. } => format!("replacement of {hosts:?}", hosts = numbers(hosts)),
        Fact::InstancesAdded { hosts, gpus, nodes, message, .. } if nodes.is_empty() => {
            format!("added {hosts:?}, GPUs {gpus:?}: {message}", hosts = numbers(hosts))
        }
        Fact::InstancesAdded { hosts, gpus, nodes, message, .. } => {
            format!("added {hosts:?} on {}, GPUs {gpus:?}: {message}", nodes.join(" "), hosts = numbers(hosts))
        }
        Fact::Released { .. } => "released".to_owned(),
        Fact::RuleEvaluated { host, rule, verdict, details, .. } => {
            format!("{host} evaluated {rule}: {verdict:?}: {details}")
        }
        Fact::CheckpointSaved { host, path, .. } => format!("{host} saved {path}"),
        other => crate::tuning_script::show_fact(other),
    };
    format!("{} {what}", event.name)
}

fn show_effects(effects: &Effects) -> impl Iterator<Item = String> {
    effects.actions.iter().map(show_action).chain(effects.requests.iter().map(crate::tuning_script::show_request))
}

fn show_action(action: &Action) -> String {
    match action {
        Action::Launch { attempt, instances, hosts, .. } if hosts.len() == *instances as usize => {
            format!("-> launch {attempt} on {instances}")
        }
        Action::Launch { attempt, hosts, joins, .. } => {
            format!("-> launch {attempt} {hosts:?}{}", if *joins { " to join" } else { "" }, hosts = numbers(hosts))
        }
        Action::InterruptInstances { attempt, hosts, notice_s, grace_s, .. } => {
            format!("-> interrupt {attempt} {hosts:?} after {notice_s} s within {grace_s} s", hosts = numbers(hosts))
        }
        Action::ClearInstances { attempt, hosts } => format!("-> clear {attempt} {hosts:?}", hosts = numbers(hosts)),
        Action::SetMembers { attempt, hosts } => {
            format!("-> members of {attempt} are {hosts:?}", hosts = numbers(hosts))
        }
        Action::StopInstances { attempt, hosts, grace_s, reason } => {
            format!("-> stop {attempt} {hosts:?} within {grace_s} s: {reason}", hosts = numbers(hosts))
        }
        Action::StoreArtifacts { attempt, hosts, .. } => {
            format!("-> store {attempt} of {hosts:?}", hosts = numbers(hosts))
        }
        Action::Release { attempt, .. } => format!("-> release {attempt}"),
        Action::Freeze { attempt } => format!("-> freeze {attempt}"),
        Action::Resume { attempt, until } => format!("-> resume {attempt}{}", crate::tuning_script::up_to(*until)),
    }
}

fn view(state: &State, job: &str) -> Vec<String> {
    let Some(view) = state.view(job) else { return vec!["gone".to_owned()] };
    let time = |time: Option<Time>| time.map_or("-".to_owned(), |time| time.0.to_string());
    let seconds = |s: Option<u64>| s.map_or("-".to_owned(), |s| s.to_string());
    let (status, secondary) = (view.status.name(), view.secondary.name());
    let mut lines = vec![format!(
        "{status} {secondary} ended={} created={} modified={}",
        view.ended, view.created.0, view.modified.0
    )];
    for entry in &view.transitions {
        lines.push(format!("| {} {}..{} {}", entry.status.name(), entry.start.0, time(entry.end), entry.message));
    }
    let (start, end) = (time(view.training_start), time(view.training_end));
    lines.push(format!(
        "trained {start}..{end} = {} s, billed {} s",
        seconds(view.training_s),
        seconds(view.billable_s)
    ));
    lines.extend(view.failure_reason.map(|reason| format!("because {reason}")));
    lines.extend(
        view.rules.iter().map(|it| format!("rule {}: {:?} at {}: {}", it.rule, it.verdict, it.at.0, it.details)),
    );
    let metrics: Vec<String> =
        view.final_metrics.iter().map(|metric| format!("{}={}@{}", metric.name, metric.value, metric.at.0)).collect();
    lines.extend((!metrics.is_empty()).then(|| metrics.join(" ")));
    lines
}

fn numbers(hosts: &[Host]) -> Vec<u32> {
    hosts.iter().map(|host| host.0).collect()
}
