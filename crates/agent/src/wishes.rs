//! What others want of an agent: gathered from events, and looked at when there is time.

use std::time::{Duration, Instant};

use shoal_link::{Order, Rule, Sampling, Visit};

use crate::events::Event;
use crate::own_log::say;

/// What others want of the agent, gathered from events.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// The program is to end: SIGTERM, and SIGKILL after so long.
    pub(crate) stop: Option<Duration>,
    /// The instance is taken away: the program is to end from then on, within the grace.
    pub(crate) leave: Option<(Instant, Duration)>,
    /// Hosts that make up the attempt now, by number.
    pub(crate) members: Option<Vec<u32>>,
    /// The server has all that it wants.
    pub(crate) released: bool,
    /// The server does not want this agent, or is gone for good.
    pub(crate) abandoned: bool,
    /// Instead of that: it wants the instance kept.
    pub(crate) parked: bool,
    /// Of so many directories that are mirrored nothing is under way any more.
    pub(crate) mirrored: usize,
    /// All rules have come to their conclusions.
    pub(crate) evaluated: bool,
    /// The same of the user's own rules.
    pub(crate) own_evaluated: bool,
    /// How the instance is to be sampled from now on.
    pub(crate) sampling: Option<Sampling>,
    /// By which rules its samples are to be judged from now on.
    pub(crate) profiler_rules: Option<Vec<Rule>>,
    /// The program is to stand still, or to go on up to somewhere.
    pub(crate) pause: Option<Pause>,
    /// Somebody wants to look after the instance: for what, by the visits' names. They wait until
    /// the program runs.
    pub(crate) visits: Vec<(String, Visit)>,
    /// What the job's network is joined by, once its first host has made it.
    pub(crate) network: Option<String>,
    /// The program has written so many bytes, and must not.
    pub(crate) overfull: Option<u64>,
    /// A pipe of the program cannot be fed: why.
    pub(crate) unfed: Option<String>,
}

/// How a trial's program is to take its turns.
#[derive(Debug)]
pub(crate) enum Pause {
    /// It stands still.
    Freeze,
    /// It goes on.
    Thaw {
        /// So far; `None`: to its end.
        until: Option<u64>,
    },
}

impl Wishes {
    pub(crate) fn note(&mut self, event: Event) {
        match event {
            Event::Order(Order::Stop { grace_s, reason }) => {
                if self.stop.is_none() {
                    say(format_args!("the program is to end within {grace_s} s: {reason}"));
                }
                self.stop_within(Duration::from_secs(grace_s.into()));
            }
            Event::Order(Order::Leave { notice_s, grace_s, reason }) => {
                if self.leave.is_none() {
                    say(format_args!("the program is to end in {notice_s} s, within {grace_s} s then: {reason}"));
                    let seconds = |number: u32| Duration::from_secs(number.into());
                    self.leave = Some((Instant::now() + seconds(notice_s), seconds(grace_s)));
                }
            }
            Event::Order(Order::Members { hosts }) => self.members = Some(hosts),
            Event::Order(order @ (Order::Release | Order::Park)) => {
                self.released = true;
                self.parked = order == Order::Park;
                self.stop_within(Duration::ZERO);
            }
            Event::Order(Order::Sample(sampling)) => self.sampling = Some(sampling),
            Event::Order(Order::ProfilerRules { rules }) => self.profiler_rules = Some(rules),
            Event::Order(Order::Freeze) => self.pause = Some(Pause::Freeze),
            Event::Order(Order::Thaw { until }) => self.pause = Some(Pause::Thaw { until }),
            Event::Refused { reason } => {
                say(format_args!("the server refuses this agent: {reason}"));
                self.abandoned = true;
                self.stop_within(Duration::ZERO);
            }
            Event::LeaseOver { reason, grace } => {
                say(format_args!("{reason}"));
                self.abandoned = true;
                self.stop_within(grace);
            }
            Event::Network { handle } => self.network = Some(handle),
            Event::Mirrored => self.mirrored += 1,
            Event::Evaluated => self.evaluated = true,
            Event::OwnEvaluated => self.own_evaluated = true,
            Event::Overfull { bytes } => self.overfull = Some(bytes),
            Event::Unfed { reason } => self.unfed = Some(reason),
            Event::Visit { id, visit } => self.visits.push((id, visit)),
            Event::Assigned { .. } | Event::Exited(_) | Event::Packed(_) | Event::Said(_) => {}
        }
    }

    /// Whether no program is to be started any more.
    pub(crate) fn is_to_stop(&self) -> bool {
        self.stop.is_some() || self.leave.is_some()
    }

    /// The notice of an instance that is taken away is over.
    pub(crate) fn leave_by(&mut self, now: Instant) {
        if let Some((_, grace)) = self.leave.filter(|(at, _)| *at <= now) {
            self.stop_within(grace);
        }
    }

    /// Orders are repeated; they change something only when they are more urgent.
    fn stop_within(&mut self, grace: Duration) {
        self.stop = Some(self.stop.map_or(grace, |before| before.min(grace)));
    }
}
