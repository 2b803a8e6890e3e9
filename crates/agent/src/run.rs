//! The life of an agent: one loop over [`Event`]s, from the assignment to the release.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use shoal_contract::{Definition, MAX_CHARACTERS, SUCCESS, Scraper, escape_line, failure_text};
use shoal_link::{Assignment, Checkpoint, LogLine, Order, Phase, RankEnd, RankOutcome, ReportBody};
use shoal_sandbox::{Control, Exit, Network, Sandbox, SandboxError, Support};

use crate::causes::with_causes;
use crate::clock::now_ms;
use crate::events::Event;
use crate::instance::{self, Home, InstanceError};
use crate::mirror::{self, Mirror};
use crate::outbox::{Closed, Outbox};
use crate::output::{self, Said};
use crate::own_log::say;
use crate::pack::PackError;
use crate::support::support;
use crate::{Options, artifacts, connection, forward, inside};

/// Bytes of reports and artifact parts that may wait for the server.
const SPOOL_BYTES: u64 = 64 << 20;

/// How often to look whether the first instance has made the network.
const NETWORK_POLL: Duration = Duration::from_millis(3);

/// How long the end of a failed program waits for its last checkpoints, so that whoever hears of it finds them.
const LAST_CHECKPOINTS: Duration = Duration::from_secs(1);

/// Exit codes of the agent's own process.
const RELEASED: i32 = 0;
const ABANDONED: i32 = 1;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Serves one instance from hello to release; gives the process's exit code.
pub(crate) fn run(options: &Arc<Options>) -> i32 {
    let home = match Home::create(&options.run_dir, options.host) {
        Ok(home) => home,
        Err(error) => {
            say(with_causes(&error));
            return ABANDONED;
        }
    };
    let code = match Outbox::create(&home.spool(), SPOOL_BYTES) {
        Ok(outbox) => serve(options, &home, &Arc::new(outbox)),
        Err(error) => {
            say(format_args!("cannot make {}: {error}", home.spool().display()));
            ABANDONED
        }
    };
    if let Err(error) = home.remove() {
        say(format_args!("something is left in {}: {error}", options.run_dir.display()));
    }
    code
}

fn serve(options: &Arc<Options>, home: &Home, outbox: &Arc<Outbox>) -> i32 {
    let (events, arriving) = channel();
    // What the machine allows is found out while the server is asked what to do.
    let probe = thread::spawn(support);
    let connection = {
        let (options, outbox, events) = (options.clone(), outbox.clone(), events.clone());
        thread::Builder::new().name("connection".into()).spawn(move || connection::keep(&options, &outbox, &events))
    };
    if let Err(error) = connection {
        say(format_args!("no thread for the connection: {error}"));
        return ABANDONED;
    }
    let mut agent =
        Agent { options, home, outbox, events, wishes: Wishes::default(), arriving, has_uploaded: false, network: None, mirror: None };
    let (assignment, acked) = loop {
        match agent.arriving.recv() {
            Ok(Event::Assigned { assignment, acked }) => break (*assignment, acked),
            Ok(other) => agent.wishes.note(other),
            Err(_) => return ABANDONED,
        }
        if agent.wishes.abandoned {
            return ABANDONED;
        }
    };
    let served = if acked > 0 { Err(Trouble::Successor) } else { agent.instance(&assignment, probe) };
    agent.finish(served)
}

/// Why an instance does not go its way to the end.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    /// It could not be made.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// What was saved before cannot be put into its checkpoint directory, or what it saves cannot be mirrored.
    #[error("could not {what}")]
    Checkpoints {
        /// What was tried.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// There are no threads to read its output or to wait for it.
    #[error("could not watch the program")]
    Watch(#[source] std::io::Error),
    /// The machine does not tell how the program ended.
    #[error("could not learn how the program ended")]
    Wait(#[source] SandboxError),
    /// What it left behind cannot be sent.
    #[error(transparent)]
    Pack(PackError),
    /// Another agent served this instance before, and has died with it.
    #[error("the agent of this instance was started again after an earlier one had died")]
    Successor,
    /// Nobody is there to hear of it.
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl From<PackError> for Trouble {
    fn from(error: PackError) -> Self {
        match error {
            PackError::Closed(closed) => Self::Closed(closed),
            PackError::Unreadable { .. } => Self::Pack(error),
        }
    }
}

/// What others want of the agent, gathered from events.
#[derive(Debug, Default)]
struct Wishes {
    /// The program is to end: SIGTERM, and SIGKILL after so long.
    stop: Option<Duration>,
    /// The server has all that it wants.
    released: bool,
    /// The server does not want this agent, or is gone for good.
    abandoned: bool,
    /// No checkpoint is under way any more.
    mirrored: bool,
}

impl Wishes {
    fn note(&mut self, event: Event) {
        match event {
            Event::Order(Order::Stop { grace_s, reason }) => {
                if self.stop.is_none() {
                    say(format_args!("the program is to end within {grace_s} s: {reason}"));
                }
                self.stop_within(Duration::from_secs(grace_s.into()));
            }
            Event::Order(Order::Release) => {
                self.released = true;
                self.stop_within(Duration::ZERO);
            }
            Event::Refused { reason } => {
                say(format_args!("the server refuses this agent: {reason}"));
                self.abandoned = true;
                self.stop_within(Duration::ZERO);
            }
            Event::LeaseOver { lease, grace } => {
                say(format_args!("no server for {} s: the lease is over", lease.as_secs()));
                self.abandoned = true;
                self.stop_within(grace);
            }
            Event::Mirrored => self.mirrored = true,
            Event::Assigned { .. } | Event::Exited(_) | Event::Said(_) => {}
        }
    }

    /// Orders are repeated; they change something only when they are more urgent.
    fn stop_within(&mut self, grace: Duration) {
        self.stop = Some(self.stop.map_or(grace, |before| before.min(grace)));
    }
}

struct Agent<'a> {
    options: &'a Arc<Options>,
    home: &'a Home,
    outbox: &'a Arc<Outbox>,
    events: Sender<Event>,
    arriving: Receiver<Event>,
    wishes: Wishes,
    /// Artifacts were sent, or cannot be.
    has_uploaded: bool,
    /// Kept to the end: the first instance's agent holds the network for all.
    network: Option<Network>,
    mirror: Option<Mirror>,
}

impl Agent<'_> {
    /// One instance, up to the last thing that there is to say about it.
    fn instance(&mut self, assignment: &Assignment, probe: JoinHandle<Support>) -> Result<(), Trouble> {
        self.outbox.report(ReportBody::Phase { phase: Phase::Downloading })?;
        let support = &probe.join().unwrap_or_else(|_| Support::processes_only());
        if assignment.host == 1 {
            self.tell(&support.notes)?;
        }
        while self.network.is_none() {
            if self.is_to_stop() {
                return self.never_started();
            }
            self.network = instance::network(self.options, assignment, self.home, support)?;
            if self.network.is_none() {
                thread::sleep(NETWORK_POLL);
            }
        }
        let network = self.network.as_ref().expect("the loop ends with one");
        let spec = instance::prepare(self.options, assignment, self.home, network, support)?;
        if let Some(checkpoint) = &assignment.checkpoint {
            self.mirror(checkpoint)?;
            if self.is_to_stop() {
                return self.never_started();
            }
        }
        let network = self.network.as_ref().expect("the loop ends with one");
        let mut sandbox = match Sandbox::start(&spec, network, support) {
            Err(SandboxError::Program { message, code }) => return self.not_startable(&message, code),
            started => started.map_err(InstanceError::from)?,
        };
        // If nobody takes these reports any more, a wish to stop is on its way, and the program's end is waited for all the same.
        let told = self.tell(sandbox.notes()).and_then(|()| self.outbox.report(ReportBody::Phase { phase: Phase::Training }));
        let control = sandbox.control();
        self.attach(assignment, &mut sandbox).map_err(Trouble::Watch)?;
        self.watch(sandbox).map_err(Trouble::Watch)?;
        let (exit, said) = self.supervise(&control)?;
        told?;
        self.ended(outcome(exit), exit.out_of_memory, said)
    }

    /// Restores what was saved before, and begins to mirror.
    fn mirror(&mut self, checkpoint: &Checkpoint) -> Result<(), Trouble> {
        let place = self.home.checkpoints(&checkpoint.local_path);
        if let Some(tree) = &checkpoint.tree {
            let failed = |source| Trouble::Checkpoints { what: format!("restore the checkpoints of {}", checkpoint.uri), source };
            let files = mirror::restore(tree.as_ref(), &place.directory(), &mut || self.is_to_stop()).map_err(failed)?;
            self.tell(&[format!("{files} checkpoint files from {} are in {}", checkpoint.uri, checkpoint.local_path)])?;
        }
        let mirror = Mirror::start(self.options, &checkpoint.uri, &place, self.outbox, &self.events);
        let failed = |source| Trouble::Checkpoints { what: format!("mirror {}", checkpoint.local_path), source };
        self.mirror = Some(mirror.map_err(failed)?);
        Ok(())
    }

    fn tell(&self, notes: &[String]) -> Result<(), Closed> {
        notes.iter().try_for_each(|note| self.outbox.report(ReportBody::Note { text: note.clone() }))
    }

    /// Takes in what has happened, and says whether to go on.
    fn is_to_stop(&mut self) -> bool {
        while let Ok(event) = self.arriving.try_recv() {
            self.wishes.note(event);
        }
        self.wishes.stop.is_some()
    }

    /// Connects the program's output with the outbox, and its endpoint with the server.
    fn attach(&self, assignment: &Assignment, sandbox: &mut Sandbox) -> std::io::Result<()> {
        let definitions = assignment.metric_definitions.iter();
        let definitions = definitions.map(|it| Definition { name: it.name.clone(), regex: it.regex.clone() });
        let scraper = Scraper::new(&Vec::from_iter(definitions));
        let events = self.events.clone();
        // If nobody listens the agent has ended, and with it the program.
        let at_end = move |said| drop(events.send(Event::Said(said)));
        output::start(sandbox.stdout(), sandbox.stderr(), scraper, assignment.objective.clone(), self.outbox.clone(), at_end)?;
        match (sandbox.listener(), &assignment.endpoint) {
            (Some(listener), Some(endpoint)) => forward::start(listener, endpoint.server_address.clone()),
            _ => Ok(()),
        }
    }

    /// Waits for the program's end in a thread.
    fn watch(&self, mut sandbox: Sandbox) -> std::io::Result<()> {
        let events = self.events.clone();
        let waiter = thread::Builder::new().name("wait".into());
        let wait = move || {
            let exit = sandbox.wait();
            // Also if it could not be waited for, nothing of it is left when this is heard.
            drop(sandbox);
            drop(events.send(Event::Exited(exit)));
        };
        waiter.spawn(wait).map(drop)
    }

    /// Passes on wishes until the program has ended and all that it said is on its way.
    fn supervise(&mut self, control: &Control) -> Result<(Exit, Said), Trouble> {
        let (mut exit, mut said) = (None, None);
        let (mut terminated, mut killed) = (None, false);
        loop {
            if let (Some(exit), Some(said)) = (exit, said.take_if(|_| exit.is_some())) {
                return Ok((exit, said));
            }
            let kill_at = self.wishes.stop.map(|grace| *terminated.get_or_insert_with(|| terminate(control)) + grace);
            match next_event(&self.arriving, kill_at.filter(|_| !killed)) {
                Some(Event::Exited(how)) => exit = Some(how.map_err(Trouble::Wait)?),
                Some(Event::Said(all)) => said = Some(all),
                Some(other) => self.wishes.note(other),
                None => {
                    control.kill();
                    killed = true;
                }
            }
        }
    }

    /// The program is over (or never was): says how, and sends what it left if that is wanted.
    fn ended(&mut self, outcome: RankOutcome, out_of_memory: bool, said: Said) -> Result<(), Trouble> {
        let file = inside::read_start(&self.home.ml(), Path::new("output/failure"), 4 * MAX_CHARACTERS as u64);
        // A failure file that is not one is the program's own affair; its exit code says enough.
        let failure_file = file.ok().flatten().and_then(|bytes| failure_text(&bytes));
        let end = RankEnd { outcome, out_of_memory, failure_file, stderr_tail: said.stderr_tail };
        let at_ms = now_ms();
        if let Some(mirror) = &self.mirror {
            mirror.finish(was_killed(outcome, out_of_memory));
        }
        // Asked first: the server may answer this report with a release, which is no wish for artifacts.
        let is_wanted = outcome == RankOutcome::Exited(SUCCESS) || self.is_to_stop();
        if !is_wanted {
            self.await_mirror(Some(Instant::now() + LAST_CHECKPOINTS));
        }
        self.outbox.report_at(at_ms, ReportBody::RankEnded { end, final_metrics: said.final_metrics })?;
        if is_wanted { self.upload() } else { Ok(()) }
    }

    /// Until the checkpoints are saved, nobody wants them any more, or the time has come.
    fn await_mirror(&mut self, until: Option<Instant>) {
        while self.is_mirroring() && !self.wishes.released && !self.wishes.abandoned {
            match next_event(&self.arriving, until) {
                Some(event) => self.wishes.note(event),
                None => return,
            }
        }
    }

    fn is_mirroring(&self) -> bool {
        self.mirror.is_some() && !self.wishes.mirrored
    }

    fn upload(&mut self) -> Result<(), Trouble> {
        self.has_uploaded = true;
        self.outbox.report(ReportBody::Phase { phase: Phase::Uploading })?;
        self.await_mirror(None);
        artifacts::send(&self.home.ml(), self.outbox)?;
        Ok(self.outbox.report(ReportBody::Uploaded)?)
    }

    fn never_started(&mut self) -> Result<(), Trouble> {
        self.ended(RankOutcome::Signaled(SIGTERM), false, Said::default())
    }

    /// The user's mistake, told as a shell would: on stderr and by the exit code.
    fn not_startable(&mut self, message: &str, code: i32) -> Result<(), Trouble> {
        let line = LogLine { at_ms: now_ms(), text: escape_line(message.as_bytes()) };
        self.outbox.report(ReportBody::Logs { lines: vec![line] })?;
        self.ended(RankOutcome::Exited(code), false, Said { final_metrics: Vec::new(), stderr_tail: message.to_owned() })
    }

    /// Says what went wrong if something did, and waits to be let go.
    fn finish(mut self, mut served: Result<(), Trouble>) -> i32 {
        loop {
            if let Err(trouble) = std::mem::replace(&mut served, Ok(())) {
                let reason = with_causes(&trouble);
                say(&reason);
                self.has_uploaded = true;
                // If nobody takes it, that is the next event.
                let _ = self.outbox.report(ReportBody::InstanceFailed { reason });
            }
            if let Some(mirror) = &self.mirror {
                // If it has not been told, there is no program any more all the same.
                mirror.finish(true);
                if self.wishes.abandoned {
                    mirror.give_up();
                }
            }
            if self.wishes.abandoned {
                return ABANDONED;
            }
            // The last checkpoints of a failed program are worth as much as any.
            if self.wishes.released && !self.is_mirroring() {
                return RELEASED;
            }
            let Ok(event) = self.arriving.recv() else { return ABANDONED };
            let is_stop = matches!(event, Event::Order(Order::Stop { .. }));
            self.wishes.note(event);
            // The order crossed the report of a failure; who gave it waits for what there is.
            if is_stop && !self.has_uploaded {
                served = self.upload();
            }
        }
    }
}

/// When the program was told to end.
fn terminate(control: &Control) -> Instant {
    if let Err(error) = control.terminate() {
        // The kill after the grace needs no cooperation.
        say(with_causes(&error));
    }
    Instant::now()
}

/// `None` when the time has come.
fn next_event(arriving: &Receiver<Event>, until: Option<Instant>) -> Option<Event> {
    let Some(until) = until else { return arriving.recv().ok() };
    arriving.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
}

/// Whether the program, or one that it waited for, was killed in the middle of something, as far as its end tells. SIGTERM is what a program is
/// told to end by: who gives 143 as its own exit code has heard it, and has saved what it wanted to.
fn was_killed(outcome: RankOutcome, out_of_memory: bool) -> bool {
    const OF_SIGNALS: i32 = 128;
    match outcome {
        RankOutcome::Signaled(_) => true,
        RankOutcome::Exited(SUCCESS) => false,
        RankOutcome::Exited(code) => out_of_memory || (OF_SIGNALS + 1..=OF_SIGNALS + 64).contains(&code) && code != OF_SIGNALS + SIGTERM,
    }
}

fn outcome(exit: Exit) -> RankOutcome {
    match (exit.code, exit.signal) {
        (Some(code), _) => RankOutcome::Exited(code),
        (None, signal) => RankOutcome::Signaled(signal.unwrap_or(SIGKILL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_tells_that_its_program_was_killed() {
        use RankOutcome::{Exited, Signaled};
        for (outcome, out_of_memory, expected) in [
            (Signaled(SIGKILL), false, true),
            (Exited(1), true, true),
            (Exited(128 + SIGKILL), false, true),
            (Exited(128 + SIGTERM), false, false),
            (Exited(1), false, false),
            (Exited(255), false, false),
            (Exited(SUCCESS), true, false),
        ] {
            assert_eq!(was_killed(outcome, out_of_memory), expected, "{outcome:?} {out_of_memory}");
        }
    }
}
