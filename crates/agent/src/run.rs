//! The life of an agent: one loop over [`Event`]s, from the assignment to the release.

mod elsewhere;
mod ending;
mod evaluating;
mod joining;
mod mirrors;
mod pacing;
mod packing;
mod supervising;
mod surroundings;

use std::error::Error;
use std::mem;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use shoal_contract::{Expressions, FAILURE, Paths, Resource, SUCCESS};
use shoal_environments::{EnvironmentError, Prepared};
use shoal_link::{Assignment, Limits, Order, OutputCompression, Phase, RankOutcome, ReportBody};
use shoal_sandbox::{Isolation, Network, SandboxError, SandboxSpec, Support, Zygote};

use crate::attempt_error::AttemptError;
use crate::causes::{self, with_causes};
use crate::events::Event;
use crate::fetched::Fetched;
use crate::hints::Hints;
use crate::image::Tree;
use crate::inputs::InputError;
use crate::instance::{self, Home, InstanceError};
use crate::judging::Judging;
use crate::mirror::Mirror;
use crate::objects::Keeps;
use crate::outbox::{Closed, Outbox};
use crate::outcome::outcome;
use crate::output::Said;
use crate::own_log::say;
use crate::own_rules::OwnRules;
use crate::passing::Passing;
use crate::pipes::Pipes;
use crate::relay::Relay;
use crate::rules::Rules;
use crate::shared_objects::SharedObjects;
use crate::support::support;
use crate::warm::{self, Kept};
use crate::wishes::Wishes;
use crate::{Options, connection, gpus, package, script, shared_disk, volume};

/// Bytes of reports and artifact parts that may wait for the server.
const SPOOL_BYTES: u64 = 64 << 20;

/// Exit codes of the agent's own process.
const RELEASED: i32 = 0;
const ABANDONED: i32 = 1;

/// Serves one instance from hello to release, and one attempt after the other as long as the server
/// wants that; gives the process's exit code.
pub(crate) fn run(first: &Arc<Options>) -> i32 {
    let home = match with_room(first, || Home::create(first)) {
        Ok(home) => home,
        Err(error) => {
            say(with_causes(&error));
            return ABANDONED;
        }
    };
    let (mut options, mut kept) = (first.clone(), None);
    let code = loop {
        let outbox = match with_room(first, || Outbox::create(&home.spool(), SPOOL_BYTES)) {
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
    // What the server has encrypted stays no longer than the job.
    if first.server.is_remote()
        && let Err(error) = first.objects.trim()
    {
        say(format_args!("something is left in the cache of inputs: {error}"));
    }
    code
}

/// Makes what an agent needs; on a full disk of a node once more, when what other jobs have left of
/// inputs is removed.
fn with_room<T, E: Error + 'static>(options: &Options, make: impl Fn() -> Result<T, E>) -> Result<T, E> {
    make().or_else(|error| match options.server.is_remote() && causes::is_of_full_disk(&error) {
        true if options.objects.make_room().is_ok() => make(),
        _ => Err(error),
    })
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
    let (network, zygote, support, expressions, shared) = match kept {
        Some(kept) => (Some(kept.network), kept.zygote, Some(kept.support), kept.expressions, kept.shared),
        None => (None, None, None, Expressions::default(), None),
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
        rules: None,
        own_rules: None,
        profiler_rules: None,
        python: None,
        image: None,
        frozen: false,
        most_stored: None,
        spec: None,
        relay: None,
        fetched: Fetched::default(),
        passing: None,
        shared,
        has_place: false,
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
    let assignment = {
        let gpus = gpus::numbers(&assignment.limits.gpus, &|name| std::env::var(name).ok());
        Assignment { limits: Limits { gpus, ..assignment.limits }, ..assignment }
    };
    let served = if acked > 0 { Err(AttemptError::Successor) } else { agent.instance(&assignment, probe) };
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
    /// At work over the tensors that the program saves.
    rules: Option<Rules>,
    /// The user's own, at work likewise.
    own_rules: Option<OwnRules>,
    /// At work over the samples of the instance.
    profiler_rules: Option<Arc<Mutex<Judging>>>,
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
    /// Channels that come from there while it runs.
    fetched: Fetched,
    /// What other hosts get of them here.
    passing: Option<Passing>,
    /// Where inputs are that all nodes share.
    shared: Option<SharedObjects>,
    /// The server knows where this host is.
    has_place: bool,
    /// What the program was told of its resource.
    resource: Option<Resource>,
    /// That its distribution starts.
    processes: u32,
}

impl Agent<'_> {
    /// One instance, up to the last thing that there is to say about it.
    fn instance(&mut self, assignment: &Assignment, probe: Option<JoinHandle<Support>>) -> Result<(), AttemptError> {
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
        let gpus = match support.isolation {
            // Those that its runtime has given it are all that it has.
            Isolation::Container => gpus::Gpus::default(),
            isolation => {
                gpus::of(&assignment.limits.gpus, Path::new("/dev"), matches!(isolation, Isolation::Full { .. }))
            }
        };
        self.tell(&Vec::from_iter(gpus.note.clone().into_iter().chain(notes)))?;
        gpus::show(gpus, &mut spec);
        self.processes = processes;
        self.spec = Some(spec.clone());
        self.mirror(assignment)?;
        self.evaluate(assignment)?;
        let is_package = package::is_of(assignment, &self.home.ml());
        // What the package was found to require, once it was asked.
        let mut found: Option<String> = None;
        let mut has_made_room = false;
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
                if !has_made_room {
                    self.tell(&[
                        "setup.py is beside the script: the package is installed in the instance first".to_owned()
                    ])?;
                }
                package::install_first(&mut spec, support, found.is_none() && assignment.python.is_some());
            }
            if !has_made_room && matches!(assignment.program, shoal_link::Program::Script { .. }) {
                self.tell(&[format!("Invoking script with the following command: {}", bare.command.join(" "))])?;
            }
            self.evaluate_own(assignment, &spec, support)?;
            let pipes =
                Pipes::start(&Paths::new(self.home.ml()).data(), &assignment.channels, &self.fetched, &self.events)
                    .map_err(AttemptError::Pipes)?;
            let kept = self.zygote.is_some();
            let program = match self.start(assignment, &spec, support) {
                Err(SandboxError::Program { message, code }) => return self.not_startable(&message, code),
                Err(error) if error.is_of_full_disk() && self.options.server.is_remote() => {
                    if mem::replace(&mut has_made_room, true) || self.options.objects.make_room().is_err() {
                        return Err(elsewhere::full(self.options, &error).into());
                    }
                    say("the disk was full: what no job has of the cache is removed");
                    pipes.finish();
                    continue;
                }
                started => started.map_err(InstanceError::from)?,
            };
            // If nobody takes these reports any more, a wish to stop is on its way, and the
            // program's end is waited for all the same.
            let told = self
                .tell(&program.notes)
                .and_then(|()| self.outbox.report(ReportBody::Phase { phase: Phase::Training }));
            let control = program.control.clone();
            self.attach(assignment, program).map_err(AttemptError::Watch)?;
            let (running, volume_bytes) = (Arc::new(()), Arc::<AtomicU64>::default());
            if let Some(limit) = assignment.limits.disk_bytes {
                let watched = volume::watch(
                    self.home.written(),
                    Some(control.first_process()),
                    limit,
                    volume_bytes.clone(),
                    Arc::downgrade(&running),
                    self.events.clone(),
                );
                watched.map_err(AttemptError::Watch)?;
            }
            let sampler = self.sample(assignment, &control, volume_bytes).map_err(AttemptError::Watch)?;
            let (ended, said) = self.supervise(assignment, &control, &spec, sampler.as_ref())?;
            // Its last samples are reported before the end.
            drop(sampler);
            let read = [pipes.finish(), self.fetched.notes()].concat();
            drop(running);
            self.zygote = ended.zygote;
            let exit = ended.exit.map_err(AttemptError::Wait)?;
            if ended.unborn && kept && !self.is_to_stop() {
                // What an earlier attempt had left was of no use: this one has an instance of its
                // own then.
                say("the kept instance has ended before the program began, and a new one is made");
                continue;
            }
            told?;
            self.tell(&read)?;
            let outcome = outcome(exit);
            if let Some(reason) = self.wishes.unfed.take() {
                let host = assignment.hosts.get(assignment.host as usize - 1).cloned().unwrap_or_default();
                return Err(AttemptError::Unfed { host, reason });
            }
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
                return Err(AttemptError::NoSpace(reason));
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

    /// Says what went wrong if something did, and waits to be let go.
    fn finish(mut self, assignment: &Assignment, mut served: Result<(), AttemptError>) -> End {
        let is_well = served.is_ok();
        loop {
            if let Err(error) = mem::replace(&mut served, Ok(())) {
                let reason = with_causes(&error);
                say(&reason);
                self.has_uploaded = true;
                // If nobody takes it, that is the next event.
                let _ = self.outbox.report(ReportBody::InstanceFailed { reason: causes::reason(&reason) });
            }
            if let Some(rules) = &self.rules {
                rules.give_up();
            }
            self.own_rules = None;
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
        // Their mounts are in the directory that is cleared.
        drop(self.fetched);
        let (Some(support), Some(network)) = (self.support, self.network) else { return End::Exit(RELEASED) };
        match self.home.clear(self.zygote.is_some().then_some(&*assignment.channels)) {
            Ok(()) => {
                let (zygote, expressions, shared) = (self.zygote, self.expressions, self.shared);
                End::Parked(Box::new(Kept { support, network, zygote, expressions, shared }))
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
