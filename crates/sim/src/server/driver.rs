//! Drives the machines of `shoal_runtime`: carries values between them, and has what they request
//! performed in the history's own time.

use std::{collections::VecDeque, time::Duration};

use shoal_plane::{Action, Effects};
use shoal_runtime::{Mono, Now, lanes, warm_pool};

use crate::{
    Bug,
    state::{
        events::SimEvent,
        server::{MachineEvent, MachineIo},
    },
    world::{Simulation, Step},
};

impl Simulation {
    pub(crate) fn clocks(&self) -> Now {
        Now { mono: Mono(Duration::from_millis(self.now)), wall: self.wall() }
    }

    pub(crate) fn dispatch(&mut self, effects: Effects) {
        for action in effects.actions {
            if let Action::Launch { attempt, trial: Some(trial), .. } = &action {
                self.launches.entry(attempt.clone()).or_insert((trial.from, trial.to));
            }
            self.happens(lanes::Event::Requested(action));
        }
        for request in effects.requests {
            self.queue_request(request);
        }
    }

    /// An event of the machines; what follows from it is performed later, in any order.
    pub(crate) fn happens(&mut self, event: impl Into<MachineEvent>) {
        let now = self.clocks();
        let mut events = VecDeque::from([event.into()]);
        let mut requested = Vec::new();
        while let Some(event) = events.pop_front() {
            self.say(|| format!("  => {event:?}"));
            let server = self.server();
            match event {
                MachineEvent::Lane(event) => {
                    for io in server.lanes.handle(event, now) {
                        match io {
                            lanes::Io::Pool(event) => events.push_back(event.into()),
                            // A preparation takes no time here.
                            lanes::Io::Cancel { .. } | lanes::Io::LogDelay { .. } => {}
                            io => requested.push(MachineIo::Lane(io)),
                        }
                    }
                }
                MachineEvent::Pool(event) => {
                    for io in server.pool.handle(event, now) {
                        match io {
                            warm_pool::Io::Lane(event) => events.push_back(event.into()),
                            io => requested.push(MachineIo::Pool(io)),
                        }
                    }
                }
            }
        }
        let server = self.server();
        server.lanes.check();
        server.pool.check();
        if self.bug == Some(Bug::EarlyRetained)
            && let Some(MachineIo::Pool(warm_pool::Io::Park { attempt })) = requested.first()
        {
            let attempt = attempt.clone();
            self.happens(lanes::Event::Retained { attempt });
        }
        for io in requested {
            let (pause, epoch) = (self.faults.latency(), self.epoch);
            self.after(pause, SimEvent::Perform { epoch, io });
        }
        self.set_machines_timer();
    }

    /// The completion of something that was requested: it arrives a moment later.
    pub(crate) fn completes(&mut self, event: impl Into<MachineEvent>) {
        let event = event.into();
        if self.faults.one_in(4) {
            let (pause, epoch) = (self.faults.latency(), self.epoch);
            self.after(pause, SimEvent::Completed { epoch, event });
        } else {
            self.happens(event);
        }
    }

    fn set_machines_timer(&mut self) {
        let (now, epoch) = (self.now, self.epoch);
        let server = self.server();
        let deadline = [server.lanes.deadline(), server.pool.deadline()].into_iter().flatten().min();
        let Some(at) = deadline.map(|Mono(at)| u64::try_from(at.as_millis()).expect("a short history").max(now)) else {
            return;
        };
        if server.machines_wake.is_none_or(|(before, _)| at < before) {
            let number = server.machines_wake.map_or(0, |(_, number)| number) + 1;
            server.machines_wake = Some((at, number));
            self.at(at, SimEvent::MachinesDue { epoch, at, number });
        }
    }

    pub(crate) fn machines_due(&mut self, at: u64, number: u64) {
        if self.server().machines_wake == Some((at, number)) {
            self.server().machines_wake = None;
            self.happens(lanes::Event::Timeout);
            self.happens(warm_pool::Event::Timeout);
        }
    }

    pub(crate) fn perform(&mut self, io: MachineIo) -> Step {
        self.say(|| format!("  -> {io:?}"));
        match io {
            MachineIo::Lane(io) => self.perform_for_lane(io),
            MachineIo::Pool(io) => self.perform_for_pool(io),
        }
    }
}
