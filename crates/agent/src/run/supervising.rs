//! The program while it runs: its start, its output, and the wishes that are passed on until its
//! end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use shoal_contract::{Definition, Scraper};
use shoal_link::{Assignment, Program as Kind};
use shoal_sandbox::{Control, Isolation, SandboxError, SandboxSpec, Support, give};

use super::{Agent, tell};
use crate::attempt_error::AttemptError;
use crate::events::{Event, next_event};
use crate::hints::Hints;
use crate::output::{self, Said};
use crate::own_log::say;
use crate::program::{Ended, Program};
use crate::sampling::{Sampled, Sampler};
use crate::{forward, proxy, visit};

impl Agent<'_> {
    pub(super) fn start(
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
        let is_ours = matches!(assignment.program, Kind::Builtin { .. });
        match support.isolation {
            Isolation::Full { .. } if is_ours && assignment.warm => Program::start_zygote(spec, network, support),
            _ => Program::start(spec, network, support),
        }
    }

    /// Connects the program's output with the outbox, and its endpoint with the server, and waits
    /// for its end.
    pub(super) fn attach(&mut self, assignment: &Assignment, mut program: Program) -> io::Result<()> {
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

    /// Samples the instance, where the server requests that.
    pub(super) fn sample(
        &mut self,
        assignment: &Assignment,
        control: &Control,
        volume_bytes: Arc<AtomicU64>,
    ) -> io::Result<Option<Sampler>> {
        let Some(requested) = assignment.sampling else { return Ok(None) };
        let sampling = self.wishes.sampling.unwrap_or(requested);
        let rules = self.judge_samples(assignment);
        let limits = assignment.limits.clone();
        let sampled = Sampled { first: control.first_process(), limits, volume_bytes, rules };
        Sampler::start(sampled, sampling, self.outbox.clone()).map(Some)
    }

    /// Passes on wishes until the program has ended and all that it said is on its way.
    pub(super) fn supervise(
        &mut self,
        assignment: &Assignment,
        control: &Control,
        spec: &SandboxSpec,
        sampler: Option<&Sampler>,
    ) -> Result<(Ended, Said), AttemptError> {
        let (mut ended, mut said) = (None, None);
        let (mut terminated, mut killed) = (None, false);
        let mut sampling = None;
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
            if self.wishes.sampling != sampling {
                sampling = self.wishes.sampling;
                sampling.iter().zip(sampler).for_each(|(sampling, sampler)| sampler.set(*sampling));
            }
            if let Some(rules) = self.wishes.profiler_rules.take() {
                self.replace_profiler_rules(&rules);
            }
            self.wishes.leave_by(Instant::now());
            for (id, visit) in std::mem::take(&mut self.wishes.visits) {
                visit::start(self.options.clone(), id, visit, control.clone(), spec);
            }
            if (self.wishes.overfull.is_some() || self.wishes.unfed.is_some()) && !killed {
                // What it writes until it would have ended by itself is what others need; and what
                // it makes of half of its data is nothing.
                self.fetched.give_up();
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
                    self.fetched.give_up();
                    control.kill();
                    killed = true;
                }
            }
        }
    }
}

/// When the program was told to end.
fn terminate(control: &Control) -> Instant {
    // The kill after the grace needs no cooperation.
    tell(control.terminate());
    Instant::now()
}
