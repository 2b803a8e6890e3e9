//! The life of an agent: one loop over [`Event`]s, from the assignment to the release.

mod elsewhere;
mod joining;
mod mirrors;
mod pacing;
mod packing;
mod surroundings;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use shoal_contract::{
    Definition, Expressions, FAILURE, MAX_CHARACTERS, Resource, SUCCESS, Scraper, escape_line, failure_text,
};
use shoal_environments::{EnvironmentError, Prepared};
use shoal_link::{Assignment, LogLine, Order, OutputCompression, Phase, RankEnd, RankOutcome, ReportBody};
use shoal_sandbox::{Control, Isolation, Network, OutOfMemory, SandboxError, SandboxSpec, Support, Zygote, give};

use crate::causes::{self, with_causes};
use crate::clock::now_ms;
use crate::events::{Event, next_event};
use crate::hints::Hints;
use crate::image::Tree;
use crate::inputs::InputError;
use crate::instance::{self, Home, InstanceError};
use crate::mirror::Mirror;
use crate::outbox::{Closed, Outbox};
use crate::outcome::{SIGTERM, outcome, was_killed};
use crate::output::{self, Said};
use crate::own_log::say;
use crate::program::{Ended, Program};
use crate::relay::Relay;
use crate::support::support;
use crate::trouble::Trouble;
use crate::warm::{self, Kept};
use crate::wishes::Wishes;
use crate::{
    Options, artifacts, connection, forward, gpus, inside, package, proxy, script, shared_disk, visit, volume,
};

/// Bytes of reports and artifact parts that may wait for the server.
const SPOOL_BYTES: u64 = 64 << 20;

/// How long the end of a failed program waits for its last checkpoints and other files, so that
/// whoever hears of it finds them.
const LAST_FILES: Duration = Duration::from_secs(1);

/// Exit codes of the agent's own process.
const RELEASED: i32 = 0;
const ABANDONED: i32 = 1;

/// Serves one instance from hello to release, and one attempt after the other as long as the server
/// wants that; gives the process's exit code.
pub(crate) fn run(first: &Arc<Options>) -> i32 {
    let home = match Home::create(first) {
        Ok(home) => home,
        Err(error) => {
            say(with_causes(&error));
            return ABANDONED;
        }
    };
    let (mut options, mut kept) = (first.clone(), None);
    let code = loop {
        let outbox = match Outbox::create(&home.spool(), SPOOL_BYTES) {
            Ok(outbox) => Arc::new(outbox),
            Err(error) => {
                say(format_args!("cannot make {}: {error}", home.spool().display()));
                break ABANDONED;
            }
        };
        match serve(&options, &home, &outbox, kept.take()) {
            End::Exit(code) => break code,
            End::Parked(instance) => kept = Some(*instance),
        }
        // The connection goes with it.
        outbox.close();
        let Some((attempt, token)) = warm::next(first) else { break RELEASED };
        options = Arc::new(Options { attempt, token, ..Options::clone(first) });
    };
    drop(kept);
    if let Err(error) = home.remove() {
        say(format_args!("something is left in {}: {error}", first.run_dir.display()));
    }
    code
}

/// How serving an attempt ended.
enum End {
    /// The process ends, with this code.
    Exit(i32),
    /// The instance is free for another attempt.
    Parked(Box<Kept>),
}

fn serve(options: &Arc<Options>, home: &Home, outbox: &Arc<Outbox>, kept: Option<Kept>) -> End {
    let (events, arriving) = channel();
    // What the machine allows is found out while the server is asked what to do.
    let probe = if kept.is_none() { Some(thread::spawn(support)) } else { None };
    let connection = {
        let (options, outbox, events) = (options.clone(), outbox.clone(), events.clone());
        thread::Builder::new().name("connection".into()).spawn(move || connection::keep(&options, &outbox, &events))
    };
    if let Err(error) = connection {
        say(format_args!("no thread for the connection: {error}"));
        return End::Exit(ABANDONED);
    }
    let (network, zygote, support, expressions) = match kept {
        Some(kept) => (Some(kept.network), kept.zygote, Some(kept.support), kept.expressions),
        None => (None, None, None, Expressions::default()),
    };
    let mut agent = Agent {
        options,
        home,
        outbox,
        events,
        wishes: Wishes::default(),
        arriving,
        has_uploaded: false,
        support,
        network,
        zygote,
        expressions,
        mirrors: Vec::new(),
        python: None,
        image: None,
        frozen: false,
        most_stored: None,
        spec: None,
        relay: None,
        resource: None,
        processes: 1,
    };
    let (assignment, acked) = loop {
        match agent.arriving.recv() {
            Ok(Event::Assigned { assignment, acked }) => break (*assignment, acked),
            Ok(other) => agent.wishes.note(other),
            Err(_) => return End::Exit(ABANDONED),
        }
        if agent.wishes.abandoned {
            return End::Exit(ABANDONED);
        }
    };
    let served = if acked > 0 { Err(Trouble::Successor) } else { agent.instance(&assignment, probe) };
    agent.finish(&assignment, served)
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
    /// Known once it was found out.
    support: Option<Support>,
    /// Kept to the end: the first instance's agent holds the network for all.
    network: Option<Network>,
    /// What the program can be a run of.
    zygote: Option<Zygote>,
    /// Of the metric definitions.
    expressions: Expressions,
    /// Of the checkpoint directory and the intermediate output, where they go to S3.
    mirrors: Vec<Mirror>,
    /// Held while the program may run.
    python: Option<Prepared>,
    /// Likewise.
    image: Option<Tree>,
    frozen: bool,
    /// Bytes that its files may have where they are stored with their holes.
    most_stored: Option<u64>,
    /// What the instance is made of, once that is known.
    spec: Option<SandboxSpec>,
    /// The program's way to a server on another machine.
    relay: Option<Relay>,
    /// What the program was told of its resource.
    resource: Option<Resource>,
    /// That its distribution starts.
    processes: u32,
}

impl Agent<'_> {
    /// One instance, up to the last thing that there is to say about it.
    fn instance(&mut self, assignment: &Assignment, probe: Option<JoinHandle<Support>>) -> Result<(), Trouble> {
        self.outbox.report(ReportBody::Phase { phase: Phase::Downloading })?;
        if let Some(probe) = probe {
            let notes = self.support.insert(probe.join().unwrap_or_else(|_| Support::processes_only())).notes.clone();
            if assignment.host == 1 {
                self.tell(&notes)?;
            }
        }
        let here = match elsewhere::bring(self, assignment) {
            Err(InstanceError::Input(InputError::Stopped)) => return self.never_started(),
            brought => brought?,
        };
        let assignment = here.as_ref().unwrap_or(assignment);
        let support = &self.support.clone().unwrap_or_else(Support::processes_only);
        if !self.join_network(assignment, support)? {
            return self.never_started();
        }
        self.most_stored =
            assignment.limits.disk_bytes.filter(|_| assignment.output_compression == OutputCompression::None);
        self.resource = assignment.resource.map(|it| Resource { from: it.from, until: it.until, max: it.max });
        let network = self.network.as_ref().expect("the loop ends with one");
        let (mut spec, notes, processes) =
            match instance::prepare(self.options, assignment, self.home, network, support) {
                Err(InstanceError::Script(error)) => return self.not_startable(&with_causes(&error), FAILURE),
                prepared => prepared?,
            };
        let gpus =
            gpus::of(&assignment.limits.gpus, Path::new("/dev"), matches!(support.isolation, Isolation::Full { .. }));
        self.tell(&Vec::from_iter(gpus.note.clone().into_iter().chain(notes)))?;
        gpus::show(gpus, &mut spec);
        self.processes = processes;
        self.spec = Some(spec.clone());
        self.mirror(assignment)?;
        let is_package = package::is_of(assignment, &self.home.ml());
        // What the package was found to require, once it was asked.
        let mut found: Option<String> = None;
        let bare = spec;
        loop {
            let mut spec = bare.clone();
            match self.surround(assignment, found.as_deref().unwrap_or_default(), &mut spec, support) {
                Ok(()) if self.is_to_stop() => return self.never_started(),
                Ok(()) => {}
                Err(EnvironmentError::Stopped(_)) => return self.never_started(),
                Err(error) if error.is_the_jobs() => return self.not_startable(&with_causes(&error), FAILURE),
                Err(error) => return Err(error.into()),
            }
            if is_package {
                self.tell(&[
                    "setup.py is beside the script: the package is installed in the instance first".to_owned()
                ])?;
                package::install_first(&mut spec, support, found.is_none() && assignment.python.is_some());
            }
            if matches!(assignment.program, shoal_link::Program::Script { .. }) {
                self.tell(&[format!("Invoking script with the following command: {}", bare.command.join(" "))])?;
            }
            let kept = self.zygote.is_some();
            let program = match self.start(assignment, &spec, support) {
                Err(SandboxError::Program { message, code }) => return self.not_startable(&message, code),
                started => started.map_err(InstanceError::from)?,
            };
            // If nobody takes these reports any more, a wish to stop is on its way, and the
            // program's end is waited for all the same.
            let told = self
                .tell(&program.notes)
                .and_then(|()| self.outbox.report(ReportBody::Phase { phase: Phase::Training }));
            let control = program.control.clone();
            self.attach(assignment, program).map_err(Trouble::Watch)?;
            let running = Arc::new(());
            if let Some(limit) = assignment.limits.disk_bytes {
                let watched = volume::watch(
                    self.home.written(),
                    Some(control.first_process()),
                    limit,
                    Arc::downgrade(&running),
                    self.events.clone(),
                );
                watched.map_err(Trouble::Watch)?;
            }
            let (ended, said) = self.supervise(assignment, &control, &spec)?;
            drop(running);
            self.zygote = ended.zygote;
            let exit = ended.exit.map_err(Trouble::Wait)?;
            if ended.unborn && kept && !self.is_to_stop() {
                // What an earlier attempt had left was of no use: this one has an instance of its
                // own then.
                say("the kept instance has ended before the program began, and a new one is made");
                continue;
            }
            told?;
            let outcome = outcome(exit);
            if is_package && found.is_none() && !self.is_to_stop() {
                found = package::lacks(outcome, &self.home.ml());
                if let Some(lacks) = &found {
                    let more = Vec::from_iter(lacks.lines()).join(", ");
                    self.tell(&[format!(
                        "setup.py requires more than the environment has, which is laid over it: {more}"
                    )])?;
                    continue;
                }
            }
            if outcome != RankOutcome::Exited(SUCCESS)
                && exit.out_of_memory.is_none()
                && !self.is_to_stop()
                && self.wishes.overfull.is_none()
                && let Some(reason) = shared_disk::failure(&said.stderr_tail, &self.home.ml())
            {
                return Err(Trouble::NoSpace(reason));
            }
            let stderr_tail = match outcome {
                RankOutcome::Exited(code) if code != SUCCESS && exit.out_of_memory.is_none() => {
                    let hints = Hints::new(assignment, matches!(support.isolation, Isolation::Full { .. }));
                    let words = if said.stdout_tail.is_empty() { &said.stderr_tail } else { &said.stdout_tail };
                    script::failure(assignment, code, &bare.command, words, &hints)
                }
                _ => said.stderr_tail.clone(),
            };
            return self.ended(outcome, exit.out_of_memory, Said { stderr_tail, ..said });
        }
    }

    fn start(
        &mut self,
        assignment: &Assignment,
        spec: &SandboxSpec,
        support: &Support,
    ) -> Result<Program, SandboxError> {
        let network = self.network.as_ref().expect("there is one before anything starts");
        if let Some(zygote) = self.zygote.take() {
            give(&self.home.ml(), support)
                .map_err(|source| SandboxError::Io { what: "give the program its files".to_owned(), source })?;
            if let Some(program) = Program::run(zygote, spec) {
                return Ok(program);
            }
        }
        let is_ours = matches!(assignment.program, shoal_link::Program::Builtin { .. });
        match support.isolation {
            Isolation::Full { .. } if is_ours && assignment.warm => Program::start_zygote(spec, network, support),
            _ => Program::start(spec, network, support),
        }
    }

    fn tell(&self, notes: &[String]) -> Result<(), Closed> {
        // What a tool says has several lines, and so has the log then.
        let mut lines = notes.iter().flat_map(|note| note.lines());
        lines.try_for_each(|line| self.outbox.report(ReportBody::Note { text: line.to_owned() }))
    }

    /// Takes in what has happened, and says whether to go on.
    fn is_to_stop(&mut self) -> bool {
        while let Ok(event) = self.arriving.try_recv() {
            self.wishes.note(event);
        }
        self.wishes.is_to_stop()
    }

    /// Connects the program's output with the outbox, and its endpoint with the server, and waits
    /// for its end.
    fn attach(&mut self, assignment: &Assignment, mut program: Program) -> std::io::Result<()> {
        let definitions = assignment.metric_definitions.iter();
        let definitions = definitions.map(|it| Definition { name: it.name.clone(), regex: it.regex.clone() });
        let scraper = Scraper::new(&Vec::from_iter(definitions), &mut self.expressions);
        let events = self.events.clone();
        // If nobody listens the agent has ended, and with it the program.
        let at_end = move |said| drop(events.send(Event::Said(said)));
        let is_isolated =
            self.support.as_ref().is_some_and(|support| matches!(support.isolation, Isolation::Full { .. }));
        let hints = Hints::new(assignment, is_isolated);
        let (stdout, stderr) = (program.stdout.take(), program.stderr.take());
        output::start(stdout, stderr, scraper, assignment.objective.clone(), hints, self.outbox.clone(), at_end)?;
        if let (Some(listener), Some(endpoint)) = (program.listener.take(), &assignment.endpoint) {
            forward::start(listener, endpoint.server_address.clone().unwrap_or_default())?;
        }
        if let (Some(listener), Some(egress)) = (program.proxy_listener.take(), &assignment.egress) {
            let server = assignment.endpoint.as_ref().and_then(|endpoint| endpoint.server_address.as_deref());
            proxy::start(listener, egress, server, self.outbox.clone())?;
        }
        program.watch(self.events.clone())
    }

    /// Passes on wishes until the program has ended and all that it said is on its way.
    fn supervise(
        &mut self,
        assignment: &Assignment,
        control: &Control,
        spec: &SandboxSpec,
    ) -> Result<(Ended, Said), Trouble> {
        let (mut ended, mut said) = (None, None);
        let (mut terminated, mut killed) = (None, false);
        self.frozen = false;
        loop {
            match (ended, said) {
                (Some(ended), Some(said)) => return Ok((ended, said)),
                other => (ended, said) = other,
            }
            if let Some(pause) = self.wishes.pause.take().filter(|_| self.wishes.stop.is_none()) {
                self.pause(&pause, control);
            }
            if let Some(members) = self.wishes.members.take()
                && let Err(error) = self.home.write_members(&assignment.hosts, &members, self.processes)
            {
                say(format_args!("the program's list of hosts cannot be written: {error}"));
            }
            self.wishes.leave_by(Instant::now());
            for (id, visit) in std::mem::take(&mut self.wishes.visits) {
                visit::start(self.options.clone(), id, visit, control.clone(), spec);
            }
            if self.wishes.overfull.is_some() && !killed {
                // What it writes until it would have ended by itself is what others need.
                control.kill();
                killed = true;
            }
            if let (Some(_), None) = (self.wishes.stop, terminated) {
                terminated = Some(terminate(control));
                if std::mem::take(&mut self.frozen) {
                    tell(control.thaw());
                }
            }
            let kill_at = self.wishes.stop.and_then(|grace| Some(terminated? + grace));
            // Without an order to stop, the next moment is the end of a notice.
            let notice = self.wishes.leave.filter(|_| self.wishes.stop.is_none()).map(|(at, _)| at);
            match next_event(&self.arriving, kill_at.filter(|_| !killed).or(notice)) {
                Some(Event::Exited(how)) => ended = Some(how),
                Some(Event::Said(all)) => said = Some(all),
                Some(other) => self.wishes.note(other),
                None if notice.is_some() => {}
                None => {
                    control.kill();
                    killed = true;
                }
            }
        }
    }

    /// The program is over (or never was): says how, and sends what it left if that is wanted.
    fn ended(&mut self, outcome: RankOutcome, out_of_memory: Option<OutOfMemory>, said: Said) -> Result<(), Trouble> {
        let file = inside::read_start(&self.home.ml(), Path::new("output/failure"), 4 * MAX_CHARACTERS as u64);
        // A failure file that is not one is the program's own affair; its exit code says enough.
        let failure_file = file.ok().flatten().and_then(|bytes| failure_text(&bytes));
        let failure_file = self.wishes.overfull.take().map(volume::too_much).or(failure_file);
        let crowded_out = out_of_memory.and_then(|why| match why {
            OutOfMemory::Own => None,
            OutOfMemory::Together { used_bytes } => Some(used_bytes),
        });
        let is_own = out_of_memory == Some(OutOfMemory::Own);
        let end = RankEnd { outcome, out_of_memory: is_own, crowded_out, failure_file, stderr_tail: said.stderr_tail };
        let at_ms = now_ms();
        self.mirrors.iter().for_each(|mirror| mirror.finish(was_killed(outcome, out_of_memory.is_some())));
        // Asked first: the server may answer this report with a release, which is no wish for
        // artifacts.
        let is_wanted = outcome == RankOutcome::Exited(SUCCESS) || self.is_to_stop();
        if !is_wanted {
            self.await_mirrors(Some(Instant::now() + LAST_FILES));
        }
        let ended = ReportBody::RankEnded { end, final_metrics: said.final_metrics };
        if is_wanted && self.mirrors.is_empty() && artifacts::are_small(&self.home.ml()) {
            // Sent in no time, so that one report of the end and all that follows are one thing for
            // the server.
            self.has_uploaded = true;
            let sent = artifacts::send(&self.home.ml(), self.most_stored, &AtomicBool::new(false), &|item| {
                item.post(self.outbox)
            });
            let is_sent = sent.is_ok();
            let mut last = vec![ended];
            if is_sent {
                last.extend([ReportBody::Phase { phase: Phase::Uploading }, ReportBody::Uploaded]);
            }
            self.outbox.report_together(at_ms, last)?;
            return Ok(sent?);
        }
        self.outbox.report_at(at_ms, ended)?;
        if is_wanted { self.upload() } else { Ok(()) }
    }

    fn never_started(&mut self) -> Result<(), Trouble> {
        self.ended(RankOutcome::Signaled(SIGTERM), None, Said::default())
    }

    /// The user's mistake, told as a shell would: on stderr and by the exit code.
    fn not_startable(&mut self, message: &str, code: i32) -> Result<(), Trouble> {
        let line = LogLine { at_ms: now_ms(), text: escape_line(message.as_bytes()) };
        self.outbox.report(ReportBody::Logs { lines: vec![line] })?;
        self.ended(RankOutcome::Exited(code), None, Said { stderr_tail: causes::reason(message), ..Said::default() })
    }

    /// Says what went wrong if something did, and waits to be let go.
    fn finish(mut self, assignment: &Assignment, mut served: Result<(), Trouble>) -> End {
        let is_well = served.is_ok();
        loop {
            if let Err(trouble) = std::mem::replace(&mut served, Ok(())) {
                let reason = with_causes(&trouble);
                say(&reason);
                self.has_uploaded = true;
                // If nobody takes it, that is the next event.
                let _ = self.outbox.report(ReportBody::InstanceFailed { reason: causes::reason(&reason) });
            }
            for mirror in &self.mirrors {
                // If it has not been told, there is no program any more all the same.
                mirror.finish(true);
                if self.wishes.abandoned {
                    mirror.give_up();
                }
            }
            if self.wishes.abandoned {
                return End::Exit(ABANDONED);
            }
            // The last files of a failed program are worth as much as any.
            if self.wishes.released && !self.is_mirroring() {
                return if is_well && self.wishes.parked { self.park(assignment) } else { End::Exit(RELEASED) };
            }
            let Ok(event) = self.arriving.recv() else { return End::Exit(ABANDONED) };
            let is_stop = matches!(event, Event::Order(Order::Stop { .. }));
            self.wishes.note(event);
            // The server sent the order before it received the report of a failure: it waits for
            // artifacts.
            if is_stop && !self.has_uploaded {
                served = self.upload();
            }
        }
    }
}

impl Agent<'_> {
    /// Keeps the instance, without anything of this attempt.
    fn park(self, assignment: &Assignment) -> End {
        let (Some(support), Some(network)) = (self.support, self.network) else { return End::Exit(RELEASED) };
        match self.home.clear(self.zygote.is_some().then_some(&*assignment.channels)) {
            Ok(()) => {
                End::Parked(Box::new(Kept { support, network, zygote: self.zygote, expressions: self.expressions }))
            }
            Err(error) => {
                say(format_args!("the instance is not kept, as something of its attempt would be left: {error}"));
                End::Exit(RELEASED)
            }
        }
    }
}

/// What a program cannot be told, its end tells.
fn tell(told: Result<(), SandboxError>) {
    if let Err(error) = told {
        say(with_causes(&error));
    }
}

/// When the program was told to end.
fn terminate(control: &Control) -> Instant {
    // The kill after the grace needs no cooperation.
    tell(control.terminate());
    Instant::now()
}
