//! The JSON-lines protocol: a study for a program in any language, one request a line, one reply a
//! line.
//!
//! | request | reply |
//! |---|---|
//! | `{"op":"init","space":[...],"seed":7}` | `{"ok":true}` |
//! | `{"op":"init",...,"mode":"mf","max_resource":81,"min_resource":1,"eta":3}` | `{"ok":true}` |
//! | `{"op":"ask"}` | `{"id":"t0","config":{...}}`; mf: also `"from":0` (resource already done) and `"to":9` or null; `{"wait":true}`; `{"end":true}` |
//! | `{"op":"tell","id":"t0","value":1.25}` | `{"ok":true}`; null is a failed trial |
//! | `{"op":"report","id":"t0","resource":3,"value":0.31}` (mf) | `{"decision":"continue"}` or `"stop"` or `"pause"` |
//! | `{"op":"done","id":"t0","resource":9}` (mf: reached `to`, or its end) | `{"ok":true}` |
//! | `{"op":"inject","config":{...},"value":0.4}` | `{"ok":true}` |
//! | `{"op":"stat"}` | `{"rss_mib":12.3,"cpu_s":0.2}` |
//! | `{"op":"quit"}` | none |
//!
//! Beyond that, `init` takes `"searcher"` and `"scheduler"` (a name or a specification),
//! `"objectives"` (`["minimize","maximize"]`; then `"values"` is told in place of `"value"`) and
//! `"max_trials"`. A trial is told its result once, and a space has a parameter. A report's reply
//! may carry `"to"` (a further resource to run to) and `"others"` (decisions on other trials); an
//! ask's may carry `"origin"`, whose checkpoint to begin with. Without `"objectives"` values are
//! minimised. What cannot be done is answered by `{"error":"..."}`, and changes nothing.

mod json_space;
mod request;

use std::{collections::VecDeque, fmt, fmt::Write as _};

use serde_json::{Value as Json, json};

use crate::{
    Ask, Direction, Outcome, SchedulerSpec, SpecError, Study, StudySpec, Trial, TrialId, TrialState, Verdict,
    named::{self, Resources, Strategy},
};
pub use json_space::JsonSpace;
use request::{Init, Mode, Request};

/// What a process has used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Resident memory, in MiB.
    pub rss_mib: f64,
    /// CPU seconds since it began.
    pub cpu_s: f64,
}

/// One client's conversation.
pub struct Session {
    strategy: String,
    usage: Box<dyn FnMut() -> Usage + Send>,
    cpu_at_init: f64,
    live: Option<Live>,
    is_over: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("strategy", &self.strategy).field("live", &self.live).finish_non_exhaustive()
    }
}

/// What `init` makes.
#[derive(Debug)]
struct Live {
    study: Study,
    space: JsonSpace,
    mode: Mode,
    max_resource: Option<u32>,
    /// Trials that the client let go at their old `to` though they may go on: they are handed out
    /// again before the study is asked.
    let_go: VecDeque<TrialId>,
}

/// What the client did wrong.
type Refusal = String;

impl Session {
    /// A conversation that has not begun. `strategy` is a name ([`Strategy::named`]) for what
    /// `init` does not say; `usage` is called at `init` and at `stat`.
    pub fn new(strategy: impl Into<String>, usage: impl FnMut() -> Usage + Send + 'static) -> Self {
        Self { strategy: strategy.into(), usage: Box::new(usage), cpu_at_init: 0.0, live: None, is_over: false }
    }

    /// The reply to a line, without a line's end; none after `quit`, which ends the conversation.
    pub fn handle(&mut self, line: &str) -> Option<String> {
        let reply = self.answer(line);
        if self.is_over {
            return None;
        }
        Some(reply.unwrap_or_else(|refusal| json!({ "error": refusal }).to_string()))
    }

    /// Whether the client has said `quit`.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The study, after `init`.
    pub fn study(&self) -> Option<&Study> {
        self.live.as_ref().map(|live| &live.study)
    }

    fn answer(&mut self, line: &str) -> Result<String, Refusal> {
        let fixed;
        let (line, request) = match serde_json::from_str::<Request<'_>>(line) {
            Ok(request) => (line, request),
            Err(error) => {
                fixed = request::without_nan(line).ok_or_else(|| malformed(&error))?;
                (fixed.as_str(), serde_json::from_str(&fixed).map_err(|error| malformed(&error))?)
            }
        };
        let op = request.op.as_deref().ok_or("a request needs \"op\", the operation")?;
        match op {
            "init" => self.init(line).map_err(|problem| format!("init: {problem}"))?,
            "quit" => self.is_over = true,
            "stat" => {
                let usage = (self.usage)();
                return Ok(json!({"rss_mib": usage.rss_mib, "cpu_s": usage.cpu_s - self.cpu_at_init}).to_string());
            }
            "ask" | "tell" | "report" | "done" | "inject" => {
                let live = self.live.as_mut().ok_or_else(|| format!("{op}: there is no study yet: send init first"))?;
                return live.answer(op, &request).map_err(|problem| format!("{op}: {problem}"));
            }
            other => {
                return Err(format!(
                    "there is no operation {other:?}; there are: init, ask, tell, report, done, inject, stat, quit"
                ));
            }
        }
        Ok(r#"{"ok":true}"#.to_owned())
    }

    fn init(&mut self, line: &str) -> Result<(), Refusal> {
        let (study, space) = open(line, &self.strategy)?;
        let init: Init = serde_json::from_str(line).map_err(|error| error.to_string())?;
        self.live =
            Some(Live { study, space, mode: init.mode, max_resource: init.max_resource, let_go: VecDeque::new() });
        self.cpu_at_init = (self.usage)().cpu_s;
        Ok(())
    }
}

/// The study that an `init` request asks for, and its space as JSON. `strategy`: the name of what
/// it does not say.
///
/// # Errors
/// What is wrong with it, for a person.
pub fn open(init: &str, strategy: &str) -> Result<(Study, JsonSpace), String> {
    let init: Init = serde_json::from_str(init).map_err(|error| error.to_string())?;
    let space = JsonSpace::new(&init.space).map_err(|error| error.to_string())?;
    let resources = Resources { min: init.min_resource, max: init.max_resource, eta: init.eta };
    if init.mode == Mode::Mf && init.max_resource.is_none_or(|max| max == 0) {
        return Err("mode mf needs \"max_resource\", a whole number above 0".to_owned());
    }
    let wrong = |error: SpecError| error.to_string();
    let mut strategy = match &init.searcher {
        Some(searcher) => {
            Strategy { searcher: named::searcher(searcher).map_err(wrong)?, scheduler: SchedulerSpec::None }
        }
        None => Strategy::named(strategy, resources).map_err(wrong)?,
    };
    if let Some(scheduler) = &init.scheduler {
        strategy.scheduler = named::scheduler(scheduler, resources).map_err(wrong)?;
    }
    let objectives = match init.objectives {
        None => vec![Direction::Minimize],
        Some(names) => names.iter().map(|name| direction(name)).collect::<Result<_, _>>()?,
    };
    let seed = seed(&init.seed).ok_or("\"seed\" must be a whole number")?;
    if space.space().parameters().is_empty() {
        return Err(r#"the space is empty, so there is nothing to search; give it a parameter, such as {"name":"lr","type":"continuous","min":0,"max":1}"#.to_owned());
    }
    let Strategy { searcher, scheduler } = strategy;
    let spec =
        StudySpec { space: space.space().clone(), objectives, searcher, scheduler, seed, max_trials: init.max_trials };
    Ok((Study::new(spec).map_err(wrong)?, space))
}

impl Live {
    fn answer(&mut self, op: &str, request: &Request<'_>) -> Result<String, Refusal> {
        match op {
            "ask" => return Ok(self.ask()),
            "report" => return self.report(request),
            "tell" => {
                let trial = self.trial(request)?;
                let values = self.result(request)?;
                let state = self.study.history().trial(trial).map(|known| known.state);
                if matches!(state, Some(TrialState::Completed | TrialState::Failed)) {
                    return Err(format!(
                        "trial \"t{trial}\" has been told its result already, and keeps it; ask for another trial"
                    ));
                }
                self.end(trial, values);
            }
            "done" => self.done(request)?,
            _ => {
                let values = request.config.as_ref().ok_or("needs \"config\", an object of all active parameters")?;
                let config = self.space.read(values).map_err(|error| error.to_string())?;
                let values = self.result(request)?;
                self.study.inject(config, Outcome::Completed { values }).map_err(|error| error.to_string())?;
            }
        }
        Ok(r#"{"ok":true}"#.to_owned())
    }

    /// A value of each objective; one null is a failure, whatever the objectives.
    fn result(&self, request: &Request<'_>) -> Result<Vec<f64>, Refusal> {
        let values = request.numbers().ok_or("needs \"value\" (null: the trial failed)")?;
        let wanted = self.study.spec().objectives.len();
        let is_failure = request.values.is_none() && request.value == Some(None);
        if values.len() != wanted && !is_failure {
            let field = if wanted == 1 { "\"value\", a number" } else { "\"values\", a list" };
            return Err(format!("{} values for {wanted} objectives: give {field}", values.len()));
        }
        Ok(values)
    }

    fn ask(&mut self) -> String {
        while let Some(trial) = self.let_go.pop_front() {
            if let Some(known) = self.study.history().trial(trial).filter(|known| known.state == TrialState::Running) {
                return self.offer(trial, known.resource(), known.to, None);
            }
        }
        match self.study.ask() {
            Ask::Start(start) => {
                self.offer(start.trial, start.origin.map_or(0, |it| it.resource), start.to, start.origin)
            }
            Ask::Resume { trial, from, to } => self.offer(trial, from, to, None),
            Ask::Wait => r#"{"wait":true}"#.to_owned(),
            Ask::End => r#"{"end":true}"#.to_owned(),
        }
    }

    fn offer(&self, trial: TrialId, from: u32, to: Option<u32>, origin: Option<crate::Origin>) -> String {
        let mut reply = String::with_capacity(256);
        write!(reply, "{{\"id\":\"t{trial}\",\"config\":").expect("strings take all");
        if let Some(known) = self.study.history().trial(trial) {
            self.space.write(&known.config, &mut reply);
        }
        if self.mode == Mode::Mf {
            write!(reply, ",\"from\":{from},\"to\":").expect("strings take all");
            match to {
                Some(to) => write!(reply, "{to}").expect("strings take all"),
                None => reply.push_str("null"),
            }
        }
        if let Some(origin) = origin {
            write!(reply, ",\"origin\":{{\"id\":\"t{}\",\"resource\":{}}}", origin.trial, origin.resource)
                .expect("strings take all");
        }
        reply.push('}');
        reply
    }

    fn report(&mut self, request: &Request<'_>) -> Result<String, Refusal> {
        let trial = self.trial(request)?;
        let resource =
            request.resource.filter(|resource| *resource > 0).ok_or("needs \"resource\", a whole number from 1")?;
        let values = request.numbers().ok_or("needs \"value\" (null: not a number)")?;
        let verdicts = self.study.report(trial, resource, &values);
        let own = verdicts.iter().find(|(whom, _)| *whom == trial).map(|(_, verdict)| *verdict);
        // A late report of a trial that is over, or that is paused, hears that again.
        let state = self.study.history().trial(trial).map(|known| known.state);
        let mut reply = String::with_capacity(64);
        reply.push_str("{\"decision\":");
        reply.push_str(match (own, state) {
            (Some(verdict), _) => word(verdict),
            (None, Some(TrialState::Running)) => "\"continue\"",
            (None, Some(TrialState::Paused)) => "\"pause\"",
            (None, _) => "\"stop\"",
        });
        if let Some(Verdict::Continue { to: Some(to) }) = own {
            write!(reply, ",\"to\":{to}").expect("strings take all");
        }
        let mut others = verdicts.iter().filter(|(whom, _)| *whom != trial).peekable();
        if others.peek().is_some() {
            reply.push_str(",\"others\":[");
            for (index, (whom, verdict)) in others.enumerate() {
                let comma = if index > 0 { "," } else { "" };
                write!(reply, "{comma}{{\"id\":\"t{whom}\",\"decision\":{}}}", word(*verdict))
                    .expect("strings take all");
            }
            reply.push(']');
        }
        reply.push('}');
        Ok(reply)
    }

    /// A trial reached its `to`, or its end: its last report is its result, unless it may go on.
    fn done(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let trial = self.trial(request)?;
        let Some(known) = self.study.history().trial(trial).filter(|known| known.state == TrialState::Running) else {
            return Ok(());
        };
        let reached = request.resource.unwrap_or_else(|| known.resource()).max(known.resource());
        let is_at_end = self.max_resource.is_some_and(|max| reached >= max);
        if !is_at_end && known.to.is_some_and(|to| to > reached) {
            if !self.let_go.contains(&trial) {
                self.let_go.push_back(trial);
            }
            return Ok(());
        }
        // Reports are kept as they are minimised; ends are told as the client sees them.
        let first = self.study.spec().objectives[0];
        let values = known.last().map(|report| first.minimised(report.value)).into_iter().collect();
        self.end(trial, values);
        Ok(())
    }

    fn end(&mut self, trial: TrialId, values: Vec<f64>) {
        self.study.end(trial, Outcome::Completed { values });
    }

    fn trial(&self, request: &Request<'_>) -> Result<TrialId, Refusal> {
        let id = request.id.as_deref().ok_or("needs \"id\", the trial")?;
        let trial = id.strip_prefix('t').and_then(|number| number.parse().ok());
        let known = |trial: &TrialId| self.study.history().trial(*trial).is_some_and(|it: &Trial| !it.injected);
        trial.filter(known).ok_or_else(|| format!("there is no trial {id:?}"))
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Continue { .. } => "\"continue\"",
        Verdict::Stop => "\"stop\"",
        Verdict::Pause => "\"pause\"",
    }
}

fn malformed(error: &serde_json::Error) -> Refusal {
    format!("not a request, one JSON object a line: {error}")
}

fn direction(name: &str) -> Result<Direction, Refusal> {
    match name.to_lowercase().as_str() {
        "minimize" => Ok(Direction::Minimize),
        "maximize" => Ok(Direction::Maximize),
        _ => Err(format!("objectives: {name:?} is neither \"minimize\" nor \"maximize\"")),
    }
}

fn seed(value: &Json) -> Option<u64> {
    value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned))
}

#[cfg(test)]
mod tests;
