//! The process that evaluates a user's own rule: its sandbox, what it prints, how it ends.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};
use shoal_contract::escape_line;
use shoal_link::{ReportBody, Rule};
use shoal_rules::{Conclusion, Status};
use shoal_sandbox::{Exit, Mount, Network, Sandbox, SandboxSpec, Support};

use super::place::Place;
use super::{STACK, Shared};
use crate::causes::with_causes;
use crate::lines::Splitter;
use crate::outbox::Outbox;

/// Memory of one evaluation.
const MEMORY_BYTES: u64 = 2 << 30;
/// Processes and threads of one evaluation.
const PIDS: u32 = 256;
/// Where its files are seen.
const INSIDE: &str = "/opt/shoal/rule";
/// Lines of a rule that go to the training job's log.
const MAX_LINES: usize = 200;
/// Bytes of a line of the program that evaluates it.
const MAX_LINE_BYTES: u64 = 64 << 10;
/// `StatusDetails`, in characters.
const MAX_DETAILS: usize = 1024;
/// Variables of the training program that would give a rule more than one processor, a GPU, keys of
/// the job or a hook.
const UNSET: [&str; 2] = ["AWS_", "CUDA_VISIBLE_DEVICES"];
const SET: [(&str, &str); 6] = [
    ("CUDA_VISIBLE_DEVICES", ""),
    ("MKL_NUM_THREADS", "1"),
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("USE_SMDEBUG", "0"),
];
/// Workers whose tensors are on this host.
const WORKERS: &str = "SHOAL_TRIAL_WORKERS";

/// What evaluations have around them.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// Of the training program, its Python environment included.
    pub(crate) spec: SandboxSpec,
    pub(crate) support: Support,
    /// Where the program saves tensors, as it knows the directory.
    pub(crate) tensors: String,
    /// Workers of this host.
    pub(crate) workers: u32,
    /// Directories of the agent's own, one for each rule.
    pub(crate) directories: Vec<PathBuf>,
}

impl Surroundings {
    pub(super) fn directory(&self, number: usize) -> PathBuf {
        self.directories[number].clone()
    }

    /// The sandbox of the rule with this number, whose files are in `place`.
    fn sandbox(&self, number: usize, place: &Place, other_runs: &[PathBuf]) -> SandboxSpec {
        let program = &self.spec;
        let mut mounts = Vec::from_iter(program.mounts.iter().filter_map(read_only));
        mounts.push(Mount::ReadOnly { source: place.directory().to_owned(), target: INSIDE.into() });
        for (number, run) in other_runs.iter().enumerate() {
            mounts.push(Mount::ReadOnly { source: run.clone(), target: other_run(number) });
        }
        let inside = self.support.path_of(&mounts, Path::new(INSIDE));
        let is_kept =
            |name: &str| !UNSET.iter().any(|unset| name.starts_with(unset)) && SET.iter().all(|it| it.0 != name);
        let mut env = program.env.clone();
        env.retain(|(name, _)| is_kept(name));
        env.extend(SET.map(|(name, value)| (name.to_owned(), value.to_owned())));
        env.push((WORKERS.to_owned(), self.workers.to_string()));
        SandboxSpec {
            id: format!("{}-rule-{number}", program.id),
            hostname: program.hostname.clone(),
            host: 1,
            hosts: vec![program.hostname.clone()],
            command: ["python3".into(), Place::program(&inside), Place::description(&inside)]
                .map(|part| part.to_string_lossy().into_owned())
                .into(),
            mounts,
            env,
            cwd: INSIDE.into(),
            memory_bytes: MEMORY_BYTES,
            together: program.together.clone(),
            cpu_weight: 1,
            pids: PIDS,
            addresses: Vec::new(),
            has_proxy: false,
        }
    }
}

/// Where the rule's process sees the tensors of another training job.
fn other_run(number: usize) -> PathBuf {
    format!("/opt/shoal/run-{number}").into()
}

/// What the rule's process sees of what the program does. Channels are not for it.
fn read_only(mount: &Mount) -> Option<Mount> {
    match mount {
        Mount::Bind { target, .. } if target.starts_with("/dev") => None,
        Mount::Shared { .. } => None,
        Mount::Bind { source, target } => Some(Mount::ReadOnly { source: source.clone(), target: target.clone() }),
        Mount::ReadOnly { target, .. } if target.starts_with("/opt/ml") => None,
        Mount::ReadOnly { .. } => Some(mount.clone()),
        Mount::Overlay { .. } => None,
    }
}

/// How an evaluation has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Evaluated {
    status: Status,
    details: String,
}

impl Evaluated {
    fn error(rule: &Rule, reason: impl std::fmt::Display) -> Self {
        Self { status: Status::Error, details: format!("The rule {} was not evaluated: {reason}", rule.rule) }
    }

    pub(super) fn conclusion(self) -> Conclusion {
        let details = match self.details.char_indices().nth(MAX_DETAILS) {
            None => self.details,
            Some(_) => self.details.chars().take(MAX_DETAILS - 3).chain("...".chars()).collect(),
        };
        Conclusion { status: self.status, details, finding: None, report: None }
    }
}

/// The verdict, if a line of the program that evaluates a rule has it; a step goes to `at`.
fn read_line(text: &str, at: &mut dyn FnMut(u64)) -> Option<Evaluated> {
    let line: Value = serde_json::from_str(text).ok()?;
    if let Some(step) = line["step"].as_u64() {
        at(step);
    }
    let statuses = [Status::IssuesFound, Status::NoIssuesFound, Status::Error];
    let status = statuses.into_iter().find(|status| line["status"] == status.name())?;
    Some(Evaluated { status, details: line["details"].as_str().unwrap_or_default().to_owned() })
}

/// A line about a rule in the training job's log.
pub(super) fn note(rule: &Rule, text: &str) -> ReportBody {
    ReportBody::Note { text: format!("rule {}: {text}", rule.name) }
}

/// One evaluation.
pub(super) struct Process<'a> {
    pub(super) rule: &'a Rule,
    pub(super) number: usize,
    pub(super) shared: &'a Shared,
    pub(super) outbox: &'a Arc<Outbox>,
}

impl Process<'_> {
    /// Evaluates the rule, to its end.
    pub(super) fn run(&self, surroundings: &Surroundings) -> Evaluated {
        let other_runs = Vec::from_iter(self.rule.other_runs.iter().map(|run| PathBuf::from(run.directory())));
        let place = Place::new(surroundings.directory(self.number));
        let spec = surroundings.sandbox(self.number, &place, &other_runs);
        if let Err(problem) = self.prepare(surroundings, &place, &spec, other_runs.len()) {
            return Evaluated::error(self.rule, problem);
        }
        let network = Network::create(&format!("{}-network", spec.id), 1, &surroundings.support);
        let started = network.and_then(|network| {
            let sandbox = Sandbox::start(&spec, &network, &surroundings.support)?;
            Ok((sandbox, network))
        });
        match started {
            // The network goes when the sandbox has gone.
            Ok((sandbox, _network)) => self.follow(sandbox),
            Err(error) => Evaluated::error(self.rule, with_causes(&error)),
        }
    }

    /// Its files.
    fn prepare(
        &self,
        surroundings: &Surroundings,
        place: &Place,
        spec: &SandboxSpec,
        other_runs: usize,
    ) -> Result<(), String> {
        let inside = surroundings.support.path_of(&spec.mounts, Path::new(INSIDE));
        let others = Vec::from_iter((0..other_runs).map(|run| Place::other_run(&inside, run)));
        let description = json!({
            "rule": self.rule.rule,
            "source": Place::source(&inside),
            "trial": Place::tensors(&inside),
            "other_trials": others,
            "parameters": self.rule.parameters,
            "memory_bytes": MEMORY_BYTES,
        });
        let tree = self.rule.source.as_ref().map(|source| PathBuf::from(source.directory()));
        let tree = tree.ok_or("this server does not send its source; it is older than the agent")?;
        let uri = self.rule.parameters.get("source_s3_uri").map_or("", String::as_str);
        place.fill(&tree, uri, &description).map_err(|error| with_causes(&error))?;
        let failed = |error: std::io::Error| format!("its directory cannot be made: {error}");
        for run in 0..other_runs {
            let view = Place::other_run(place.directory(), run);
            Place::view(&view, &surroundings.support.path_of(&spec.mounts, &other_run(run))).map_err(failed)?;
            Place::mark(&view).map_err(failed)?;
        }
        let tensors = surroundings.support.path_of(&spec.mounts, Path::new(&surroundings.tensors));
        Place::view(&Place::tensors(place.directory()), &tensors).map_err(failed)?;
        if self.shared.lock().has_ended {
            place.mark_end();
        }
        Ok(())
    }

    /// Reads what it prints, and waits for its end.
    fn follow(&self, mut sandbox: Sandbox) -> Evaluated {
        {
            let mut state = self.shared.lock();
            match state.running.get_mut(&self.rule.name) {
                Some(running) => running.control = Some(sandbox.control()),
                // Given up meanwhile: it is killed where it is dropped.
                None => return Evaluated::error(self.rule, "it is not needed any more"),
            }
        }
        let (outbox, rule, stderr) = (self.outbox.clone(), self.rule.clone(), sandbox.stderr());
        let printed = stderr.map(|stderr| {
            let pass_on = move || pass_on(stderr, &rule, &outbox);
            thread::Builder::new().name("own rule output".into()).stack_size(STACK).spawn(pass_on)
        });
        let verdict = sandbox.stdout().and_then(|stdout| self.verdict(stdout));
        if verdict.is_some() {
            // Whatever it has started ends with it.
            sandbox.kill();
        }
        let exit = sandbox.wait();
        drop(sandbox);
        let last = printed.and_then(Result::ok).and_then(|thread| thread.join().ok()).flatten();
        verdict.unwrap_or_else(|| match exit {
            Ok(exit) => Evaluated::error(self.rule, without_verdict(exit, last.as_deref())),
            Err(error) => Evaluated::error(self.rule, with_causes(&error)),
        })
    }

    fn verdict(&self, stdout: File) -> Option<Evaluated> {
        let mut at = |step| {
            if let Some(running) = self.shared.lock().running.get_mut(&self.rule.name) {
                running.step = Some(step);
            }
        };
        let mut lines = BufReader::new(stdout);
        loop {
            let mut line = Vec::new();
            match lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
            let verdict = read_line(&String::from_utf8_lossy(&line), &mut at);
            if verdict.is_some() {
                return verdict;
            }
        }
    }
}

/// Why there is no verdict.
fn without_verdict(exit: Exit, last_line: Option<&str>) -> String {
    let why = match exit {
        Exit { out_of_memory: Some(_), .. } => format!("it needs more than {} GiB of memory", MEMORY_BYTES >> 30),
        Exit { code: Some(code), .. } => format!("its process has ended with exit code {code}"),
        Exit { signal, .. } => format!("its process was ended by signal {}", signal.unwrap_or_default()),
    };
    last_line.map_or_else(|| why.clone(), |line| format!("{why}; its last line is: {line}"))
}

/// What a rule prints goes to the training job's log; gives the last line.
fn pass_on(mut stderr: File, rule: &Rule, outbox: &Outbox) -> Option<String> {
    let (mut splitter, mut buffer) = (Splitter::default(), [0; 8 << 10]);
    let (mut count, mut last) = (0, None);
    let mut pass = |line: Vec<u8>| {
        let text = escape_line(&line);
        // A log that is closed has ended the attempt.
        if count < MAX_LINES {
            let _ = outbox.report(note(rule, &text));
        } else if count == MAX_LINES {
            let _ = outbox.report(note(rule, "it prints more, which is left out"));
        }
        count += 1;
        last = Some(text);
    };
    loop {
        match stderr.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
            Ok(read) => splitter.push(&buffer[..read], &mut pass),
        }
    }
    splitter.finish().into_iter().for_each(&mut pass);
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_and_steps_are_read_and_other_lines_are_not() {
        let mut steps = Vec::new();
        let mut read = |text: &str| read_line(text, &mut |step| steps.push(step));
        assert_eq!(read(r#"{"step": 7}"#), None);
        assert_eq!(read("a line"), None);
        assert_eq!(read(r#"{"status": "Stopped", "details": ""}"#), None);
        let found = read(r#"{"status": "IssuesFound", "details": "d"}"#);
        assert_eq!(found, Some(Evaluated { status: Status::IssuesFound, details: "d".to_owned() }));
        assert_eq!(steps, [7]);
        let long = Evaluated { status: Status::Error, details: "ä".repeat(2000) }.conclusion();
        assert!(long.details.chars().count() == MAX_DETAILS && long.details.ends_with("..."), "{}", long.details);
    }

    #[test]
    fn the_end_of_a_process_without_a_verdict_is_the_reason() {
        let exit = |code, signal| Exit { code, signal, out_of_memory: None };
        assert_eq!(without_verdict(exit(Some(3), None), None), "its process has ended with exit code 3");
        let killed = without_verdict(exit(None, Some(9)), Some("Killed"));
        assert_eq!(killed, "its process was ended by signal 9; its last line is: Killed");
        let full = Exit { out_of_memory: Some(shoal_sandbox::OutOfMemory::Own), ..exit(None, Some(9)) };
        assert_eq!(without_verdict(full, None), "it needs more than 2 GiB of memory");
    }

    #[test]
    fn it_sees_what_the_program_does_read_only_and_has_limits_of_its_own() {
        let bind = |source: &str, target: &str| Mount::Bind { source: source.into(), target: target.into() };
        let environment = Mount::ReadOnly { source: "/cache/torch".into(), target: "/cache/torch".into() };
        let channel = Mount::Overlay {
            lower: "/data/tree".into(),
            scratch: "/data/s".into(),
            target: "/opt/ml/input/data/train".into(),
        };
        let variables = [("PATH", "/cache/torch/bin"), ("AWS_SESSION_TOKEN", "x"), ("OMP_NUM_THREADS", "8")];
        let spec = SandboxSpec {
            id: "d-a-1".to_owned(),
            hostname: "algo-1".to_owned(),
            host: 1,
            hosts: vec!["algo-1".to_owned(), "algo-2".to_owned()],
            mounts: vec![bind("/run/ml", "/opt/ml"), channel, environment.clone(), bind("/dev/x", "/dev/nvidia0")],
            command: vec!["train".to_owned()],
            env: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            cwd: "/opt/ml/code".into(),
            memory_bytes: 64 << 30,
            together: None,
            cpu_weight: 400,
            pids: 4096,
            addresses: Vec::new(),
            has_proxy: true,
        };
        let surroundings = Surroundings {
            spec,
            support: Support::processes_only(),
            tensors: "/opt/ml/output/tensors".to_owned(),
            workers: 2,
            directories: vec!["/run/rules/0".into()],
        };
        let place = Place::new(surroundings.directory(0));
        let made = surroundings.sandbox(0, &place, &["/data/other".into()]);
        let read_only = |source: &str, target: &str| Mount::ReadOnly { source: source.into(), target: target.into() };
        let expected = [
            read_only("/run/ml", "/opt/ml"),
            environment,
            read_only("/run/rules/0", INSIDE),
            read_only("/data/other", "/opt/shoal/run-0"),
        ];
        assert_eq!(made.mounts, expected);
        assert_eq!((made.memory_bytes, made.cpu_weight, made.has_proxy), (MEMORY_BYTES, 1, false));
        // A plain process finds its files where they are on this machine.
        assert_eq!(made.command, ["python3", "/run/rules/0/own_rule.py", "/run/rules/0/rule.json"]);
        let value = |name: &str| made.env.iter().filter(|it| it.0 == name).map(|it| &*it.1).collect::<Vec<_>>();
        assert_eq!((value("AWS_SESSION_TOKEN"), value("OMP_NUM_THREADS")), (vec![], vec!["1"]));
        assert_eq!((value("PATH"), value(WORKERS)), (vec!["/cache/torch/bin"], vec!["2"]));
    }
}
