//! The user's own rules at work: Python classes that read the tensors of this host as they are
//! saved.
//!
//! Each has a sandbox and a network of its own, with a memory limit of its own and the lowest share
//! of processors, so that it cannot hold up the training, which it sees read-only. It outlives the
//! program by [`LAST_STEPS`], in which it evaluates what was saved last, and ends with the agent.

mod place;
mod process;

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use shoal_link::{Rule, RuleVerdict};
use shoal_rules::Status;
use shoal_sandbox::Control;

use crate::events::Event;
use crate::outbox::Outbox;
use crate::verdicts::{concluded, evaluated};
use place::Place;
pub(crate) use process::Surroundings;
use process::{Evaluated, Process};

/// How long evaluations continue after the program's end.
pub(crate) const LAST_STEPS: Duration = Duration::from_secs(30);
/// The thread waits and passes lines on.
const STACK: usize = 1 << 20;

/// The user's own rules of an attempt.
#[derive(Debug)]
pub(crate) struct OwnRules {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    outbox: Arc<Outbox>,
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Of each rule that has no verdict yet.
    running: BTreeMap<String, Running>,
    /// The program has ended: nothing more is saved.
    has_ended: bool,
    /// No verdict is needed any more.
    is_given_up: bool,
}

/// An evaluation on its way.
#[derive(Debug)]
struct Running {
    rule: Rule,
    place: Place,
    /// Once its process runs.
    control: Option<Control>,
    /// At which it is.
    step: Option<u64>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnRules {
    /// Begins to evaluate these rules, each in a thread of its own. [`Event::OwnEvaluated`] comes
    /// when the last of them has ended.
    pub(crate) fn start(
        rules: Vec<Rule>,
        surroundings: Surroundings,
        outbox: &Arc<Outbox>,
        events: &Sender<Event>,
    ) -> io::Result<Self> {
        let (shared, surroundings) = (Arc::new(Shared::default()), Arc::new(surroundings));
        for (number, rule) in rules.iter().enumerate() {
            let place = Place::new(surroundings.directory(number));
            let running = Running { rule: rule.clone(), place, control: None, step: None };
            shared.lock().running.insert(rule.name.clone(), running);
        }
        let mut own = Self { shared: shared.clone(), threads: Vec::new(), outbox: outbox.clone() };
        for (number, rule) in rules.into_iter().enumerate() {
            let (shared, outbox, events) = (shared.clone(), outbox.clone(), events.clone());
            let surroundings = surroundings.clone();
            let evaluate = move || {
                let conclusion = Process { rule: &rule, number, shared: &shared, outbox: &outbox }.run(&surroundings);
                conclude(&shared, &rule, conclusion, &outbox, &events);
            };
            own.threads.push(thread::Builder::new().name("own rule".into()).stack_size(STACK).spawn(evaluate)?);
        }
        Ok(own)
    }

    /// The program has ended: what it saved is evaluated to its end.
    pub(crate) fn finish(&self) {
        let mut state = self.shared.lock();
        state.has_ended = true;
        // Where there is no place yet, its thread sees that the program has ended.
        state.running.values().for_each(|running| running.place.mark_end());
    }

    /// Ends what has not ended by itself, and reports that.
    pub(crate) fn end_unfinished(&mut self) {
        let unfinished = self.kill();
        for Running { rule, step, .. } in unfinished {
            let at = step.map_or_else(|| "at no step yet".to_owned(), |step| format!("at step {step}"));
            let details = format!(
                "The rule {} was not evaluated to its end: {} s after the end of the training it was {at}.",
                rule.rule,
                LAST_STEPS.as_secs()
            );
            // If it cannot be sent, the agent has ended.
            let _ = self.outbox.report(evaluated(&rule, RuleVerdict::Error, &details, false));
        }
    }

    /// Ends them; returns those that had not ended.
    fn kill(&mut self) -> Vec<Running> {
        let running = {
            let mut state = self.shared.lock();
            state.is_given_up = true;
            std::mem::take(&mut state.running)
        };
        running.values().filter_map(|running| running.control.as_ref()).for_each(Control::kill);
        for thread in self.threads.drain(..) {
            // One that has panicked has ended, too.
            let _ = thread.join();
        }
        running.into_values().collect()
    }
}

impl Drop for OwnRules {
    /// Nothing of them is left in an instance that is kept.
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reports a verdict, unless it is not needed any more.
fn conclude(shared: &Shared, rule: &Rule, evaluated: Evaluated, outbox: &Outbox, events: &Sender<Event>) {
    let is_last = {
        let mut state = shared.lock();
        if state.is_given_up {
            return;
        }
        state.running.remove(&rule.name);
        state.running.is_empty()
    };
    let conclusion = evaluated.conclusion();
    let is_error = conclusion.status == Status::Error;
    for report in concluded(rule, &conclusion, RuleVerdict::Error, false) {
        // If it cannot be sent, the program is about to be stopped.
        let _ = outbox.report(report);
    }
    if is_error {
        let _ = outbox.report(process::note(rule, &conclusion.details));
    }
    if is_last {
        // Without a listener the agent has ended.
        let _ = events.send(Event::OwnEvaluated);
    }
}
