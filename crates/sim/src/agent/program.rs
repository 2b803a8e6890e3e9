//! The program of an agent's attempt: its steps, its end, its model.

use shoal_link::{Artifact, Frame, LogLine, MetricPoint, Phase, RankEnd, RankOutcome, ReportBody, RuleVerdict};
use shoal_plane::Time;

use crate::{
    marks::{numbered, part_of},
    scenario::{End, Kind},
    state::{agent::Doing, events::SimEvent, processes::Process},
    world::{Simulation, Step},
};

/// From SIGTERM to SIGKILL.
const GRACE_MS: u64 = 20_000;
/// A program that never ends falls silent after so many lines.
const MAX_LINES: u32 = 40;

impl Simulation {
    /// The next step of what an agent does.
    pub(crate) fn step_agent(&mut self, process: &Process, step: u64) -> Step {
        let wall = self.wall();
        let Some(doing) = self.agent(process).filter(|agent| agent.step == step).map(|agent| agent.doing) else {
            return Ok(());
        };
        let has_trouble = doing == Doing::Downloading && self.faults.lethal_one_in(30);
        if has_trouble {
            self.touch_agent(process);
        }
        // The action of a rule stops a job that may be stopped or not.
        let attempt = self.agent(process).and_then(|agent| agent.attempt.clone());
        let owner = attempt.and_then(|attempt| self.owner(&attempt).cloned());
        let stops = self.jobs.iter().any(|job| job.kind == Kind::Races && Some(&job.name) == owner.as_ref());
        let Some(agent) = self.agent(process) else { return Ok(()) };
        let program = agent.program.clone();
        match doing {
            Doing::Leaving { parks } => return self.clears(process, parks),
            Doing::Downloading if has_trouble => {
                agent.report(wall, ReportBody::InstanceFailed { reason: "the sandbox could not be made".to_owned() });
                agent.has_uploaded = true;
                agent.next_step(Doing::Waiting);
            }
            Doing::Downloading => {
                agent.report(wall, ReportBody::Phase { phase: Phase::Training });
                let step = agent.next_step(Doing::Training(0));
                self.after(program.step_ms, SimEvent::AgentStep { process: process.clone(), step });
            }
            Doing::Training(done) if agent.units.as_ref().is_some_and(|units| !units.may_step(done)) => {
                agent.stands = true;
            }
            // Some programs have a fault that a rule finds.
            Doing::Training(1) if agent.evaluates() => {
                agent.report(
                    wall,
                    ReportBody::RuleEvaluated {
                        rule: "loss".to_owned(),
                        verdict: RuleVerdict::IssuesFound,
                        details: String::new(),
                        stops,
                    },
                );
                let step = agent.next_step(Doing::Training(2));
                self.after(program.step_ms, SimEvent::AgentStep { process: process.clone(), step });
            }
            Doing::Training(done) if done < program.steps || program.end == End::Never => {
                if done < MAX_LINES {
                    agent.lines += 1;
                    let line = agent.lines;
                    agent.report(
                        wall,
                        ReportBody::Logs {
                            lines: vec![LogLine { at_ms: wall.0, text: numbered(agent.life, line).to_string() }],
                        },
                    );
                    if let Some(value) = agent.units.as_ref().map(|units| units.value_after(line)) {
                        agent.report(wall, ReportBody::Objective { ordinal: line, value });
                    }
                    let step = agent.next_step(Doing::Training(done + 1));
                    self.after(program.step_ms, SimEvent::AgentStep { process: process.clone(), step });
                    if line % program.saves_every == 0 {
                        self.saves(process, format!("step-{line}"));
                    }
                }
            }
            Doing::Training(_) => self.program_ends(process, program.end, wall),
            Doing::Ending => self.program_ends(process, End::Signal(15), wall),
            Doing::Uploading(sent) if sent < program.parts => {
                let part =
                    Frame::Part { seq: agent.next, artifact: Artifact::Model, bytes: vec![part_of(agent.life, sent)] };
                agent.spool.push_back((agent.next, part));
                agent.next += 1;
                let step = agent.next_step(Doing::Uploading(sent + 1));
                self.after(30, SimEvent::AgentStep { process: process.clone(), step });
            }
            Doing::Uploading(_) => {
                agent.report(wall, ReportBody::Uploaded);
                agent.next_step(Doing::Waiting);
            }
            Doing::Nothing | Doing::Waiting | Doing::Idle | Doing::Gone => {}
        }
        self.flush(process);
        self.settle_files(process)
    }

    fn program_ends(&mut self, process: &Process, end: End, wall: Time) {
        let Some(agent) = self.agent(process) else { return };
        let outcome = match end {
            End::Exit(code) => RankOutcome::Exited(code),
            End::Signal(signal) => RankOutcome::Signaled(signal),
            End::OutOfMemory | End::Never => RankOutcome::Signaled(9),
        };
        let before = agent.units.as_ref().map_or(0, |units| units.from);
        let value = f64::from(before + agent.lines);
        let metrics =
            (agent.lines > 0).then(|| MetricPoint { name: format!("loss-{}", process.1), value, at_ms: wall.0 });
        let end = RankEnd {
            outcome,
            out_of_memory: end == End::OutOfMemory,
            crowded_out: None,
            failure_file: None,
            stderr_tail: format!("last words of host {}", process.1),
        };
        agent.report(wall, ReportBody::RankEnded { end, final_metrics: metrics.into_iter().collect() });
        if outcome == RankOutcome::Exited(0) || agent.stop {
            self.uploads(process);
        } else {
            agent.next_step(Doing::Waiting);
        }
    }

    fn uploads(&mut self, process: &Process) {
        let wall = self.wall();
        let Some(agent) = self.agent(process) else { return };
        agent.has_uploaded = true;
        agent.report(wall, ReportBody::Phase { phase: Phase::Uploading });
        let step = agent.next_step(Doing::Uploading(0));
        self.after(30, SimEvent::AgentStep { process: process.clone(), step });
    }

    pub(super) fn receive_resume(&mut self, process: &Process, to: Option<u32>) {
        let Some(agent) = self.agent(process) else { return };
        let Some(units) = &mut agent.units else { return };
        units.to = to;
        units.frozen = false;
        if let (Doing::Training(done), true) = (agent.doing, agent.stands)
            && units.may_step(done)
        {
            agent.stands = false;
            let (ms, step) = (agent.program.step_ms, agent.next_step(Doing::Training(done)));
            self.after(ms, SimEvent::AgentStep { process: process.clone(), step });
        }
    }

    pub(super) fn receive_stop(&mut self, process: &Process) {
        let Some(agent) = self.agent(process) else { return };
        let is_first = !std::mem::replace(&mut agent.stop, true);
        match agent.doing {
            Doing::Downloading | Doing::Training(_) => {
                let is_started = matches!(agent.doing, Doing::Training(_));
                let ms = if is_started { agent.program.term_ms.min(GRACE_MS) } else { 1 };
                let step = agent.next_step(Doing::Ending);
                self.after(ms, SimEvent::AgentStep { process: process.clone(), step });
            }
            // The order crossed the report of a failure; who gave it waits for what there is.
            Doing::Waiting if is_first && !agent.has_uploaded => {
                self.uploads(process);
                self.flush(process);
            }
            _ => {}
        }
    }
}
