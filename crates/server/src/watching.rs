//! Watching agents: whether they run, and whether their launch is queued.

mod unreached;

use std::{
    collections::{HashMap, HashSet},
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use shoal_launch::{AllocationSpec, AllocationStatus, Ending, HostEnd, LaunchError, Launcher, Watch};
use shoal_plane::{AttemptId, Command, Host, InstanceReport, JobName, StopCause};
use shoal_runtime::{Loss, losses};
use tokio::{
    sync::mpsc,
    time::{sleep, sleep_until},
};

use self::unreached::Unreached;
use crate::{
    attempts::{Attempt, Attempts},
    core::Core,
    error_chain::describe,
    memory::{Memory, Ranked},
};

/// Between two looks at all attempts. Ends of agents are events; a look finds silence, launches
/// that are queued, and ends that no event reported.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// The end of an agent is handled after what it had sent: its connection is read to the end
/// meanwhile.
const LAST_READ: Duration = Duration::from_millis(20);

/// What is known of the agents of attempts.
struct Agents {
    /// By allocation.
    watches: HashMap<String, Watch>,
    /// Where ends of agents go: the allocation's id.
    ended: mpsc::UnboundedSender<String>,
    /// What the core knows of launches that are queued, by attempt.
    queued: HashMap<AttemptId, String>,
    /// A server before this one may have reported launches as queued.
    is_first_look: bool,
    unreached: Unreached,
    ranked: Ranked,
}

/// What watches agents.
pub(crate) struct Watcher {
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) core: Core,
    pub(crate) memory: Memory,
    /// Where it ends an agent's instance, and where a scheduler finds lost machines by itself.
    pub(crate) silence: Duration,
    pub(crate) target_silence: Duration,
    /// Where agents on other machines connect.
    pub(crate) agents_address: Option<String>,
}

impl Watcher {
    /// Reports agents that end or fall silent, for as long as the server runs.
    pub(crate) async fn watch(self: Arc<Self>) {
        let (ended, mut ends) = mpsc::unbounded_channel();
        let mut agents = Agents::unknown(ended);
        let mut before = Instant::now();
        let mut next = tokio::time::Instant::now() + LOOK_INTERVAL;
        loop {
            let watcher = self.clone();
            let looked = tokio::select! {
                () = sleep_until(next) => {
                    // A server that was stopped meanwhile has not listened meanwhile.
                    let passed = before.elapsed().min(2 * LOOK_INTERVAL);
                    before = Instant::now();
                    let looked = tokio::task::spawn_blocking(move || {
                        watcher.look_at_all(&mut agents, passed);
                        watcher.memory.weigh(&mut agents.ranked);
                        agents
                    })
                    .await;
                    next = tokio::time::Instant::now() + LOOK_INTERVAL;
                    looked
                }
                Some(first) = ends.recv() => {
                    sleep(LAST_READ).await;
                    let mut allocations = HashSet::from([first]);
                    while let Ok(another) = ends.try_recv() {
                        allocations.insert(another);
                    }
                    tokio::task::spawn_blocking(move || {
                        watcher.agents_ended(&allocations);
                        agents
                    })
                    .await
                }
            };
            agents = match looked {
                Ok(agents) => agents,
                Err(error) => {
                    tracing::error!("the watch panicked: {error}");
                    let (ended, new_ends) = mpsc::unbounded_channel();
                    ends = new_ends;
                    Agents::unknown(ended)
                }
            };
        }
    }

    fn look_at_all(&self, agents: &mut Agents, passed: Duration) {
        let attempts: Vec<Arc<Attempt>> =
            self.attempts.all().into_iter().filter(|attempt| attempt.is_watched()).collect();
        agents.forget_all_but(&attempts);
        let specs: Vec<&AllocationSpec> = attempts.iter().map(|attempt| &attempt.allocation).collect();
        let mut is_complete = true;
        for (attempt, status) in attempts.iter().zip(self.launcher.status(&specs)) {
            match status {
                Ok(status) => {
                    if let Some(reason) = agents.queue_changed(&attempt.plan.attempt, &status) {
                        is_complete &= self.report_queue(agents, &attempt.plan.attempt, reason);
                    }
                    // What is not started yet has no process to watch.
                    if matches!(status, AllocationStatus::Running { .. })
                        && let Err(error) = agents.watch(&*self.launcher, &attempt.allocation)
                    {
                        tracing::warn!("{}", describe(&error));
                    }
                    self.look_for_unreached(agents, attempt, &status, passed);
                    self.look(attempt, &status, passed);
                }
                Err(error) => {
                    is_complete = false;
                    tracing::warn!("{}", describe(&error));
                }
            }
        }
        agents.is_first_look &= !is_complete;
    }

    /// Instances of these allocations have ended, perhaps as they were ordered to.
    fn agents_ended(&self, allocations: &HashSet<String>) {
        let is_meant = |attempt: &Arc<Attempt>| allocations.contains(&attempt.allocation.id) && attempt.is_watched();
        let attempts: Vec<Arc<Attempt>> = self.attempts.all().into_iter().filter(is_meant).collect();
        let specs: Vec<&AllocationSpec> = attempts.iter().map(|attempt| &attempt.allocation).collect();
        for (attempt, status) in attempts.iter().zip(self.launcher.status(&specs)) {
            let Ok(status) = status else { continue };
            for host in lost(attempt, &status) {
                if attempt.is_end_news(host) {
                    self.lose_ended(attempt, host);
                }
            }
        }
    }

    /// Reports the instances of an attempt whose agent is gone, or has been silent for too long.
    fn look(&self, attempt: &Attempt, status: &AllocationStatus, passed: Duration) {
        if matches!(status, AllocationStatus::Unknown | AllocationStatus::Queued { .. } | AllocationStatus::Paused) {
            return;
        }
        let has_scheduler = self.launcher.finds_lost_machines(&attempt.allocation);
        let silence = if has_scheduler { self.target_silence } else { self.silence };
        for (host, loss) in losses(&attempt.elapse(passed), &lost(attempt, status), silence) {
            match loss {
                Loss::Ended => self.lose_ended(attempt, host),
                Loss::Silent(silence) => self.lose_silent(attempt, host, silence),
            }
        }
    }

    fn lose_silent(&self, attempt: &Attempt, host: Host, silence: Duration) {
        let machine = self.launcher.machine_of(&attempt.allocation, host.0);
        let reason = match &self.agents_address {
            Some(address) if machine.is_some() && attempt.unconnected().contains(&host) => {
                unreached::lost(host, machine.as_deref(), address, silence)
            }
            _ => silent(host, machine.as_slice(), silence),
        };
        self.lose(attempt, host, reason);
    }

    /// Reports a launch whose agents do not connect, once.
    fn look_for_unreached(&self, agents: &mut Agents, attempt: &Attempt, status: &AllocationStatus, passed: Duration) {
        let AllocationStatus::Running { lost } = status else { return };
        let Some(address) = &self.agents_address else { return };
        if !self.launcher.finds_lost_machines(&attempt.allocation) {
            return;
        }
        let hosts = Vec::from_iter(attempt.unconnected().into_iter().filter(|host| !lost.contains(&host.0)));
        if hosts.is_empty() || !agents.unreached.elapse(&attempt.plan.attempt, passed) {
            return;
        }
        let machines = hosts.iter().filter_map(|host| self.launcher.machine_of(&attempt.allocation, host.0)).collect();
        let machines: Vec<String> = machines;
        let reason = unreached::reason(&hosts, &machines, address);
        tracing::warn!("{}: {reason}", attempt.plan.job);
        let command = Command::LaunchDelayed { attempt: attempt.plan.attempt.clone(), reason };
        if let Err(refusal) = self.core.tell(command) {
            tracing::warn!("{refusal}");
        }
    }

    fn lose_ended(&self, attempt: &Attempt, host: Host) {
        let Some(HostEnd { ending, text }) = self.launcher.end_of(&attempt.allocation, host.0) else {
            let log = attempt.allocation.dir.join(format!("agent-{}.log", host.0));
            let output = fs::read(log).unwrap_or_default();
            return self.lose(attempt, host, ended_without_report(host, last_line(&output).as_deref()));
        };
        let reason = match ending {
            Ending::Itself => ended_without_report(host, Some(&*text).filter(|text| !text.is_empty())),
            _ => text,
        };
        self.end_by_scheduler(attempt, ending);
        self.lose(attempt, host, reason);
    }

    /// Reports what a scheduler has done. A job that is in no state for that fails, as its
    /// instances are lost.
    fn end_by_scheduler(&self, attempt: &Attempt, ending: Ending) {
        let is_kept = attempt.plan.reuse.is_some();
        if let Some(command) = of_scheduler(&attempt.plan.job, is_kept, ending)
            && let Err(refusal) = self.core.tell(command)
        {
            tracing::debug!("{refusal}");
        }
    }

    /// Returns whether the core took it; if not, the next look reports it.
    fn report_queue(&self, agents: &mut Agents, attempt: &AttemptId, reason: Option<String>) -> bool {
        let command = Command::LaunchQueued { attempt: attempt.clone(), reason: reason.clone() };
        if let Err(refusal) = self.core.tell(command) {
            tracing::warn!("{refusal}");
            return false;
        }
        match reason {
            Some(reason) => drop(agents.queued.insert(attempt.clone(), reason)),
            None => drop(agents.queued.remove(attempt)),
        }
        true
    }

    fn lose(&self, attempt: &Attempt, host: Host, reason: String) {
        let report = InstanceReport::Lost { reason };
        let command = Command::InstanceReported { attempt: attempt.plan.attempt.clone(), host, report };
        if let Err(refusal) = self.core.tell(command) {
            tracing::warn!("{refusal}");
        }
    }
}

/// What a scheduler has done with a job, as AWS calls it.
fn of_scheduler(job: &JobName, is_kept: bool, ending: Ending) -> Option<Command> {
    let name = job.clone();
    match ending {
        Ending::Preempted => Some(Command::InterruptTrainingJob { name, instances: None, ended: None }),
        // Of an allocation that serves one attempt after another it is no attempt's own limit.
        Ending::TimeLimit if is_kept => None,
        Ending::TimeLimit => Some(Command::StopTrainingJob { name, cause: StopCause::MaxRuntime, ended: None }),
        Ending::Itself | Ending::NodeFailed | Ending::OutOfMemory | Ending::Cancelled | Ending::NeverStarted => None,
    }
}

fn silent(host: Host, machine: &[String], silence: Duration) -> String {
    let (machine, seconds) = (unreached::on(machine), silence.as_secs());
    let what = "it was stopped, or its machine hangs, and what runs there is ended";
    format!("the agent of {host}{machine} was silent for {seconds} s: {what}")
}

fn ended_without_report(host: Host, last: Option<&str>) -> String {
    let last = last.map_or_else(String::new, |line| format!(": {line}"));
    format!("the agent of {host} ended without a report{last}")
}

/// What an agent has printed last, if anything.
fn last_line(output: &[u8]) -> Option<String> {
    let lines = output.rsplit(|byte| *byte == b'\n').map(|line| line.trim_ascii());
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"note: run with `RUST_BACKTRACE"));
    lines.next().map(|line| String::from_utf8_lossy(line).into_owned())
}

/// Hosts of an attempt whose process has ended.
fn lost(attempt: &Attempt, status: &AllocationStatus) -> Vec<Host> {
    match status {
        AllocationStatus::Running { lost } => lost.iter().copied().map(Host).collect(),
        AllocationStatus::Ended => Host::all(attempt.allocation.instances).collect(),
        AllocationStatus::Unknown | AllocationStatus::Queued { .. } | AllocationStatus::Paused => Vec::new(),
    }
}

impl Agents {
    fn unknown(ended: mpsc::UnboundedSender<String>) -> Self {
        Self {
            watches: HashMap::new(),
            ended,
            queued: HashMap::new(),
            is_first_look: true,
            unreached: Unreached::default(),
            ranked: Ranked::default(),
        }
    }

    fn forget_all_but(&mut self, attempts: &[Arc<Attempt>]) {
        self.watches.retain(|id, _| attempts.iter().any(|attempt| attempt.allocation.id == *id));
        self.queued.retain(|id, _| attempts.iter().any(|attempt| attempt.plan.attempt == *id));
        self.unreached.forget_all_but(|id| attempts.iter().any(|attempt| attempt.plan.attempt == *id));
    }

    fn watch(&mut self, launcher: &dyn Launcher, spec: &AllocationSpec) -> Result<(), LaunchError> {
        if !self.watches.contains_key(&spec.id) {
            let (ended, id) = (self.ended.clone(), spec.id.clone());
            // The server is stopping if nobody receives it.
            let watch = launcher.watch(spec, Box::new(move |_| drop(ended.send(id.clone()))))?;
            self.watches.insert(spec.id.clone(), watch);
        }
        Ok(())
    }

    /// Why an attempt is queued elsewhere, or that it no longer is, unless the core knows.
    fn queue_changed(&self, attempt: &AttemptId, status: &AllocationStatus) -> Option<Option<String>> {
        let known = self.queued.get(attempt);
        match status {
            AllocationStatus::Queued { reason } if known != Some(reason) => Some(Some(reason.clone())),
            AllocationStatus::Running { .. } | AllocationStatus::Paused if known.is_some() || self.is_first_look => {
                Some(None)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_an_agent_is_its_reason_in_any_encoding() {
        let panic = "thread 'main' panicked:\nno room\nnote: run with `RUST_BACKTRACE=1` environment variable\n\n";
        for (output, expected) in [
            (&b""[..], None),
            (b"\n  \n\r\n", None),
            (b"one\ntwo", Some("two")),
            (b"one\r\n  two \r\n\n", Some("two")),
            (panic.as_bytes(), Some("no room")),
            (b"caf\xe9: no such file\n", Some("caf\u{fffd}: no such file")),
        ] {
            assert_eq!(last_line(output).as_deref(), expected, "{output:?}");
        }
    }

    #[test]
    fn schedulers_interrupt_and_stop_as_aws_does() {
        let job = JobName::from("job".to_owned());
        let of = |is_kept, ending| of_scheduler(&job, is_kept, ending);
        assert!(matches!(of(false, Ending::Preempted), Some(Command::InterruptTrainingJob { instances: None, .. })));
        assert!(matches!(
            of(false, Ending::TimeLimit),
            Some(Command::StopTrainingJob { cause: StopCause::MaxRuntime, .. })
        ));
        assert_eq!(of(true, Ending::TimeLimit), None, "the allocation's limit, not the attempt's");
        for ending in [Ending::Itself, Ending::NodeFailed, Ending::OutOfMemory, Ending::Cancelled] {
            assert_eq!(of(false, ending), None, "{ending:?}: its instances are lost");
        }
    }

    #[test]
    fn the_core_is_informed_of_what_changes_in_a_queue_and_once() {
        let mut agents = Agents::unknown(mpsc::unbounded_channel().0);
        let attempt = AttemptId::from("a");
        let queued = |reason: &str| AllocationStatus::Queued { reason: reason.to_owned() };
        let running = AllocationStatus::Running { lost: Vec::new() };
        let news = |reason: Option<&str>| Some(reason.map(str::to_owned));
        // A previous server may have reported it as queued.
        assert_eq!(agents.queue_changed(&attempt, &running), news(None));
        agents.is_first_look = false;
        assert_eq!(agents.queue_changed(&attempt, &running), None);
        assert_eq!(agents.queue_changed(&attempt, &queued("Priority")), news(Some("Priority")));
        agents.queued.insert(attempt.clone(), "Priority".to_owned());
        assert_eq!(agents.queue_changed(&attempt, &queued("Priority")), None);
        assert_eq!(agents.queue_changed(&attempt, &queued("Resources")), news(Some("Resources")));
        for status in [AllocationStatus::Unknown, AllocationStatus::Ended] {
            assert_eq!(agents.queue_changed(&attempt, &status), None, "{status:?}: its end is reported otherwise");
        }
        assert_eq!(agents.queue_changed(&attempt, &running), news(None));
        assert_eq!(agents.queue_changed(&attempt, &AllocationStatus::Paused), news(None), "it has its nodes");
        agents.forget_all_but(&[]);
        assert_eq!(agents.queue_changed(&attempt, &running), None, "an attempt that is over is forgotten");
    }
}
