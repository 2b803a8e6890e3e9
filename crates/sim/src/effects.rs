//! Performs the core's actions, one after another for each attempt, as the server does.

use shoal_launch::{AllocationStatus, Launcher, LauncherExt};
use shoal_plane::{Action, Command, InstanceReport, JobStatus, SecondaryStatus, TunerRequest};

use crate::{
    Bug,
    agent::{Agent, Order},
    coverage::Point,
    launcher::allocation,
    links::Running,
    shell::{Refusal, WATCH_MS},
    world::{SimEvent, Simulation, Step, broken},
};

/// How long released agents have to exit by themselves.
const LEAVE_MS: u64 = 3000;
const POLL_MS: u64 = 50;
/// Delay before an outcome is submitted to the core again.
const COMMIT_RETRY_MS: u64 = 1000;

/// What is to be done next for an attempt or a tuning job.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    Do(Action),
    /// The tuner is asked.
    Answer(TunerRequest),
    /// The hosts' models are here; join and store them.
    Store {
        job: String,
        attempt: String,
        hosts: Vec<u32>,
    },
    /// Agents leave until then; what is left is ended.
    Leave {
        attempt: String,
        until: u64,
    },
    /// The core has to know.
    Execute(Command),
}

impl Simulation {
    /// Takes the next task of an attempt.
    pub(crate) fn run_task(&mut self, attempt: &str) -> Step {
        let Some(task) = self.server().queues.get_mut(attempt).and_then(|queue| queue.pop_front()) else { return Ok(()) };
        let next = self.perform(task)?;
        let pause = match &next {
            Some((pause, _)) => *pause,
            None => self.faults.latency(),
        };
        let Some(queue) = self.server().queues.get_mut(attempt) else { return Ok(()) };
        if let Some((_, task)) = next {
            queue.push_front(task);
        }
        if queue.is_empty() {
            self.server().queues.remove(attempt);
        } else {
            self.after(pause, SimEvent::NextTask { epoch: self.epoch, attempt: attempt.to_owned() });
        }
        Ok(())
    }

    /// Does a task; gives the one that follows from it at once, and after how long.
    fn perform(&mut self, task: Task) -> Step<Option<(u64, Task)>> {
        match task {
            Task::Do(Action::Launch { attempt, instances, .. }) => self.launch(attempt, instances),
            Task::Do(Action::StopInstances { attempt, hosts, .. }) => {
                let cause = self.stop_kind(&attempt);
                for (index, host) in hosts.iter().enumerate() {
                    self.order(&attempt, *host, Order::Stop);
                    if index + 1 < hosts.len() {
                        self.passes(&[cause], Point::MidAction)?;
                    }
                }
                self.passes(&[cause], Point::AfterAction)?;
                Ok(None)
            }
            Task::Do(Action::StoreArtifacts { job, attempt, hosts, .. }) => {
                let ms = self.faults.random.between(1, 500);
                Ok(Some((ms, Task::Store { job, attempt, hosts })))
            }
            Task::Store { job, attempt, hosts } => self.store(job, attempt, hosts).map(Some),
            Task::Do(Action::Release { attempt, .. }) => {
                for host in 1..=self.server().attempts.get(&attempt).map_or(0, Running::instances) {
                    self.order(&attempt, host, Order::Release);
                }
                self.passes(&["release_ordered"], Point::MidAction)?;
                if self.bug == Some(Bug::EarlyRelease) {
                    self.execute(&Command::Released { attempt: attempt.clone() }, false)?;
                }
                Ok(Some((1, Task::Leave { attempt, until: self.now + LEAVE_MS })))
            }
            Task::Leave { attempt, until } => {
                if self.now < until && self.launcher.alive().iter().any(|(of, _)| *of == attempt) {
                    return Ok(Some((POLL_MS, Task::Leave { attempt, until })));
                }
                self.clear(&attempt);
                self.passes(&["release_ordered"], Point::AfterAction)?;
                if self.bug == Some(Bug::CapacityKept) && self.now.is_multiple_of(7) {
                    return Ok(None);
                }
                Ok(Some((0, Task::Execute(Command::Released { attempt }))))
            }
            Task::Do(Action::Freeze { attempt }) => {
                self.passes(&["trial_paused"], Point::MidAction)?;
                self.order(&attempt, 1, Order::Freeze);
                self.passes(&["trial_paused"], Point::AfterAction)?;
                Ok(None)
            }
            Task::Do(Action::Resume { attempt, until }) => {
                let kinds = ["trial_raised", "attempt_thawed"];
                self.passes(&kinds, Point::MidAction)?;
                self.order(&attempt, 1, Order::Resume(until));
                self.passes(&kinds, Point::AfterAction)?;
                Ok(None)
            }
            Task::Answer(request) => self.run_tuner(request).map(|task| Some((1, task))),
            Task::Execute(command) => {
                let result = self.execute(&command, true)?;
                if result.answer.is_ok() {
                    self.check_study(&command)?;
                }
                let insists = matches!(result.answer, Err(Refusal::Journal)) && self.bug != Some(Bug::OutcomeToldOnce);
                Ok(insists.then_some((COMMIT_RETRY_MS, Task::Execute(command))))
            }
        }
    }

    fn stop_kind(&mut self, attempt: &str) -> &'static str {
        let state = &self.server().state;
        let view = state.job_of(attempt).and_then(|job| state.view(job));
        match view.map(|view| (view.status, view.secondary)) {
            Some((JobStatus::Stopping, _)) => "stop_requested",
            Some((JobStatus::InProgress, SecondaryStatus::Interrupted)) if self.memory.evicted.iter().any(|of| of == attempt) => {
                "attempt_evicted"
            }
            Some((JobStatus::InProgress, SecondaryStatus::Interrupted)) => "attempt_interrupted",
            Some((JobStatus::InProgress, _)) => "attempt_failed",
            _ => "job_ended",
        }
    }

    fn launch(&mut self, attempt: String, instances: u32) -> Step<Option<(u64, Task)>> {
        let is_planned = self.disk.plans.contains_key(&attempt);
        if !is_planned {
            if self.faults.lethal_one_in(9) {
                self.touch(&attempt);
                return Ok(Some((0, Task::Execute(Command::LaunchFailed { attempt, reason: "no space left on device".to_owned() }))));
            }
            self.disk.plans.insert(attempt.clone(), instances);
        } else if self.bug == Some(Bug::DoubleLaunch) {
            self.launcher.forget(&attempt);
        }
        self.server().attempts.entry(attempt.clone()).or_insert_with(|| Running::new(instances));
        if self.strikes(&["attempt_launched"], Point::MidAction) {
            self.submit(&attempt, instances / 2);
            return Err(crate::world::Halt::Crash);
        }
        self.submit(&attempt, instances);
        self.passes(&["attempt_launched"], Point::AfterAction)?;
        Ok(None)
    }

    /// Starts what was not started yet.
    fn submit(&mut self, attempt: &str, instances: u32) {
        let before = self.launcher.alive();
        let submitted = self.launcher.submit(&allocation(attempt, instances));
        debug_assert!(submitted.is_ok(), "a launcher in memory does not fail");
        for key in self.launcher.alive() {
            if before.contains(&key) {
                continue;
            }
            if let Some(twin) = self.agents.get_mut(&key).filter(|agent| !agent.is_gone()) {
                twin.twins += 1;
                continue;
            }
            let trial = self.trial_program(&key.0);
            let units = trial.as_ref().map(|(_, units)| units.clone());
            let program = self.jobs.iter().find(|job| self.owner(&key.0) == Some(&job.name)).and_then(|job| {
                let index = (key.1 as usize).checked_sub(1)?;
                job.hosts.get(index).cloned()
            });
            if let Some(program) = program.or(trial.map(|(program, _)| program)) {
                self.agents.insert(key.clone(), Agent::new(program, units, self.now));
                let ms = self.faults.random.between(1, 60);
                self.after(ms, SimEvent::Connect(key));
            }
        }
    }

    fn store(&mut self, job: String, attempt: String, hosts: Vec<u32>) -> Step<(u64, Task)> {
        for host in &hosts {
            let key = (attempt.clone(), *host);
            let has = self.disk.parts.get(&key).map_or(0, |parts| parts.len());
            let sent = self.agents.get(&key).map_or(0, |agent| agent.program.parts as usize);
            if has != sent {
                return broken(format!("host {host} of {attempt} has sent {sent} parts, and {has} are here"));
            }
        }
        if self.faults.lethal_one_in(15) {
            self.touch(&attempt);
            return Ok((0, Task::Execute(Command::ArtifactsFailed { attempt, reason: "no space left on device".to_owned() })));
        }
        self.passes(&["uploads_ended"], Point::MidAction)?;
        self.disk.models.insert(job, (attempt.clone(), hosts));
        self.passes(&["uploads_ended"], Point::AfterAction)?;
        Ok((0, Task::Execute(Command::ArtifactsStored { attempt })))
    }

    /// Ends and removes what there is of an attempt.
    pub(crate) fn clear(&mut self, attempt: &str) {
        let left: Vec<_> = self.launcher.alive().into_iter().filter(|(of, _)| of == attempt).collect();
        left.iter().for_each(|key| self.agent_ends(key));
        self.launcher.forget(attempt);
        self.server().attempts.remove(attempt);
        self.disk.remove_run(attempt);
    }

    /// Reports the instances whose agent is gone.
    pub(crate) fn watch_agents(&mut self) -> Step {
        self.after(WATCH_MS, SimEvent::CheckAgents { epoch: self.epoch });
        let running: Vec<_> = self.server().attempts.iter().map(|(attempt, running)| (attempt.clone(), running.instances())).collect();
        for (attempt, instances) in running {
            let lost = match self.launcher.status_of(&allocation(&attempt, instances)) {
                Ok(AllocationStatus::Running { lost }) => lost,
                Ok(AllocationStatus::Ended) => (1..=instances).collect(),
                Ok(AllocationStatus::Queued { reason }) => {
                    self.execute(&Command::LaunchQueued { attempt: attempt.clone(), reason: Some(reason) }, true)?;
                    continue;
                }
                Ok(AllocationStatus::Unknown) | Err(_) => continue,
            };
            for host in lost {
                let report = InstanceReport::Lost { reason: format!("the agent of algo-{host} ended without a report") };
                self.execute(&Command::InstanceReported { attempt: attempt.clone(), host, report }, true)?;
            }
        }
        self.measure_memory(WATCH_MS)
    }
}
