//! Clients: they ask until they are answered, as SDKs do.

use shoal_plane::{Command, Form, GangSpec, JobName, Rejection, StopCause};

use crate::{
    Bug,
    scenario::{Job, Kind},
    server::Refusal,
    state::events::SimEvent,
    world::{Simulation, Step, broken},
};

impl Simulation {
    fn again(&mut self, event: SimEvent) {
        let pause = self.faults.random.between(50, 800);
        self.after(pause, event);
    }

    pub(crate) fn create_job(&mut self, index: usize) -> Step {
        if self.clients[index].created {
            return Ok(());
        }
        // It asks again unless an answer comes: a crash leaves no time to say so.
        self.again(SimEvent::Create(index));
        if self.server.is_none() {
            return Ok(());
        }
        let Job { name, uid, spec, kind, .. } = self.jobs[index].clone();
        self.say(|| format!("client: create {name}"));
        let had_asked = std::mem::replace(&mut self.clients[index].asked, true);
        if self.bug == Some(Bug::EarlyAnswer) {
            self.clients[index].created = true;
        }
        let name_taken = self.disk.rows.contains_key(&name);
        let spec = if kind == Kind::Serves { GangSpec { form: Form::Serves, ..spec } } else { spec };
        let create = Command::CreateTrainingJob { name: name.clone(), uid, spec, name_taken };
        let result = self.execute(&create, true)?;
        match result.answer {
            Ok(()) => {}
            Err(Refusal::Rejected(Rejection::NameTaken(_))) if had_asked => {}
            Err(Refusal::Journal) => return Ok(()),
            Err(Refusal::Rejected(rejection)) => return broken(format!("{name} was refused: {rejection}")),
        }
        self.clients[index].created = true;
        if let Some(ms) = self.jobs[index].stop_after_ms {
            self.after(ms, SimEvent::Stop(index));
        }
        if let Some(next) = self.jobs.iter().position(|job| job.follows == Some(index)) {
            self.after(1, SimEvent::Create(next));
        }
        Ok(())
    }

    /// Somebody takes instances away, and asks for it once.
    pub(crate) fn interrupt_job(&mut self, elastic: bool) -> Step {
        let live: Vec<JobName> = self.mirror.jobs().filter(|job| !elastic || self.is_elastic(job)).cloned().collect();
        if live.is_empty() || self.server.is_none() {
            return Ok(());
        }
        let place = self.faults.random.below(live.len() as u64);
        let name = live[usize::try_from(place).expect("an index")].clone();
        let is_some = self.is_elastic(&name) && self.faults.random.one_in(2);
        let instances = is_some.then(|| u32::try_from(self.faults.random.between(1, 2)).expect("few"));
        let result =
            self.execute(&Command::InterruptTrainingJob { name: name.clone(), instances, ended: None }, true)?;
        self.say(|| format!("interrupt {name}: {:?}", result.answer));
        match result.answer {
            Err(Refusal::Rejected(Rejection::NotFound)) => broken(format!("{name} lives, and is not found")),
            _ => Ok(()),
        }
    }

    pub(crate) fn stop_job(&mut self, index: usize) -> Step {
        if self.clients[index].stopped {
            return Ok(());
        }
        self.again(SimEvent::Stop(index));
        if self.server.is_none() {
            return Ok(());
        }
        let name = self.jobs[index].name.clone();
        self.say(|| format!("client: stop {name}"));
        let ended = self.disk.rows.get(&name).filter(|row| row.ended).map(|row| row.status);
        let result =
            self.execute(&Command::StopTrainingJob { name: name.clone(), cause: StopCause::User, ended }, true)?;
        match result.answer {
            Ok(()) | Err(Refusal::Rejected(Rejection::AlreadyEnded(_))) => self.clients[index].stopped = true,
            Err(Refusal::Journal) => {}
            Err(Refusal::Rejected(rejection)) => return broken(format!("the stop of {name} was refused: {rejection}")),
        }
        Ok(())
    }
}
