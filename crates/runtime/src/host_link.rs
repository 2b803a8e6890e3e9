//! The connections of one host of an attempt: which one counts, what is sent to a new one, how long
//! the agent has been silent.
//!
//! An agent that reconnects is not served before everything that its older connection has delivered
//! is stored: the number up to which the server has its reports is read after that. The same holds
//! for each kind of files that it mirrors.

use std::time::Duration;

use shoal_link::{MirrorKind, Order, ToAgent};

use crate::{Liveness, Mono, Now};

/// An agent that mirrors files is not waited for any more after this long without a byte.
const MIRROR_IDLE: Duration = Duration::from_secs(30);

/// Number of a connection, unique in a server's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The host's instance is started now, if it was not before.
    Expected,
    /// The host's agent has opened a connection for reports and has shown its token.
    Hello(ConnId),
    /// An admitted connection has received its `Welcome`.
    Welcomed {
        /// Which.
        conn: ConnId,
        /// The agent's version has visits.
        has_visits: bool,
        /// The agent's version has [`Order::Sample`].
        has_sampling: bool,
        /// The agent's version has [`Order::ProfilerRules`].
        has_rules: bool,
    },
    /// Bytes arrived.
    Received(ConnId),
    /// Among them was a sign of life.
    SignReceived(ConnId),
    /// All that arrived is stored.
    Processed(ConnId),
    /// The connection has ended, and what it delivered is stored.
    Closed(ConnId),
    /// All agents of the warm instance that is to serve the attempt have connected.
    InstanceConnected,
    /// They have not, and another instance is to serve it.
    InstanceGivenUp,
    /// The core orders it; the order stands until the attempt is released.
    Order(Order),
    /// The agent has opened a connection for files of this kind.
    MirrorHello(MirrorKind, ConnId),
    /// Bytes arrived on it.
    MirrorReceived(MirrorKind, ConnId),
    /// It has ended, and what it delivered is stored.
    MirrorClosed(MirrorKind, ConnId),
}

/// What the driver does.
#[derive(Debug, PartialEq)]
pub enum Io {
    /// Serve this connection from now on.
    Admit(ConnId),
    /// Send it. One that is lost is replaced after the agent's next `Hello`.
    Send(ConnId, ToAgent),
    /// End the connection. What it has delivered is stored all the same.
    Close(ConnId),
}

/// Why an instance cannot be visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoVisit {
    /// Its agent reconnects by itself, or is about to be given up.
    #[error("its agent is not connected at the moment; try again")]
    NotConnected,
    /// The agent was started by a previous server.
    #[error("its agent is of an older version that has no visits; a training job that is created now can be visited")]
    TooOld,
}

/// One connection is served, and the newest other one waits for its end.
#[derive(Debug, Default)]
struct Turn {
    serving: Option<ConnId>,
    next: Option<ConnId>,
}

impl Turn {
    fn hello(&mut self, conn: ConnId) -> Vec<Io> {
        let Some(serving) = self.serving else {
            self.serving = Some(conn);
            return vec![Io::Admit(conn)];
        };
        match self.next.replace(conn) {
            Some(superseded) => vec![Io::Close(superseded)],
            None => vec![Io::Close(serving)],
        }
    }

    fn closed(&mut self, conn: ConnId) -> Vec<Io> {
        if self.next == Some(conn) {
            self.next = None;
        }
        if self.serving != Some(conn) {
            return Vec::new();
        }
        self.serving = self.next.take();
        self.serving.map(Io::Admit).into_iter().collect()
    }
}

/// Connections that mirror files of one kind.
#[derive(Debug, Default)]
struct Mirror {
    turn: Turn,
    /// The newest one, and when a byte last arrived on it.
    newest: Option<(ConnId, Mono)>,
}

/// What an agent's version has.
#[derive(Debug, Clone, Copy)]
struct Abilities {
    visits: bool,
    sampling: bool,
    rules: bool,
}

impl Abilities {
    /// One that does not know an order would take it for a broken connection.
    fn know(self, order: &Order) -> bool {
        match order {
            Order::Sample(_) => self.sampling,
            Order::ProfilerRules { .. } => self.rules,
            _ => true,
        }
    }
}

/// One host's connections.
#[derive(Debug, Default)]
pub struct HostLink {
    turn: Turn,
    /// Until all agents of a warm instance have connected none is served: otherwise a program would
    /// run, and its reports would be stored, of an attempt that another instance may yet have to
    /// serve.
    awaits_instance: bool,
    /// The served connection has been welcomed; what its agent's version has.
    welcomed: Option<Abilities>,
    orders: Vec<Order>,
    liveness: Liveness,
    mirrors: [Mirror; MirrorKind::ALL.len()],
}

impl HostLink {
    /// The link of an attempt that waits for the agents of a warm instance.
    #[must_use]
    pub fn awaiting_instance() -> Self {
        Self { awaits_instance: true, ..Self::default() }
    }

    /// What follows from an event.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Io> {
        match event {
            Event::Hello(conn) => {
                let io = self.turn.hello(conn);
                return self.unless_awaiting(io);
            }
            Event::Expected => self.liveness.expected(),
            Event::InstanceConnected => {
                if std::mem::take(&mut self.awaits_instance) {
                    return self.turn.serving.map(Io::Admit).into_iter().collect();
                }
            }
            Event::InstanceGivenUp => {
                return [self.turn.serving, self.turn.next].into_iter().flatten().map(Io::Close).collect();
            }
            Event::Welcomed { conn, has_visits: visits, has_sampling: sampling, has_rules: rules } => {
                return self.on_welcomed(conn, Abilities { visits, sampling, rules });
            }
            Event::Closed(conn) => {
                if self.turn.serving == Some(conn) {
                    self.welcomed = None;
                    self.liveness.disconnected();
                }
                let io = self.turn.closed(conn);
                return self.unless_awaiting(io);
            }
            Event::Order(order) => return self.on_order(order),
            Event::Received(conn) if self.connected() == Some(conn) => self.liveness.received(),
            Event::SignReceived(conn) if self.connected() == Some(conn) => self.liveness.received_sign(),
            Event::Processed(conn) if self.connected() == Some(conn) => self.liveness.processed(),
            Event::Received(_) | Event::SignReceived(_) | Event::Processed(_) => {}
            Event::MirrorHello(kind, conn) => {
                let mirror = &mut self.mirrors[kind as usize];
                mirror.newest = Some((conn, now.mono));
                return mirror.turn.hello(conn);
            }
            Event::MirrorReceived(kind, conn) => {
                if let Some((newest, received)) = &mut self.mirrors[kind as usize].newest
                    && *newest == conn
                {
                    *received = now.mono;
                }
            }
            Event::MirrorClosed(kind, conn) => {
                let mirror = &mut self.mirrors[kind as usize];
                mirror.newest = mirror.newest.filter(|(newest, _)| *newest != conn);
                return mirror.turn.closed(conn);
            }
        }
        Vec::new()
    }

    fn unless_awaiting(&self, mut io: Vec<Io>) -> Vec<Io> {
        io.retain(|io| !(self.awaits_instance && matches!(io, Io::Admit(_))));
        io
    }

    fn on_welcomed(&mut self, conn: ConnId, abilities: Abilities) -> Vec<Io> {
        if self.turn.serving != Some(conn) {
            return Vec::new();
        }
        self.welcomed = Some(abilities);
        self.liveness.connected();
        self.orders
            .iter()
            .filter(|order| abilities.know(order))
            .map(|order| Io::Send(conn, ToAgent::Order(order.clone())))
            .collect()
    }

    fn on_order(&mut self, order: Order) -> Vec<Io> {
        let is_pace = |order: &Order| matches!(order, Order::Freeze | Order::Thaw { .. });
        let is_members = |order: &Order| matches!(order, Order::Members { .. });
        let is_sample = |order: &Order| matches!(order, Order::Sample(_));
        let is_rules = |order: &Order| matches!(order, Order::ProfilerRules { .. });
        // Only the latest order of each of these kinds is kept.
        for replaces in [is_pace, is_members, is_sample, is_rules] {
            if replaces(&order) {
                self.orders.retain(|standing| !replaces(standing));
            }
        }
        if !self.orders.contains(&order) {
            self.orders.push(order.clone());
        }
        let conn = self.connected().filter(|_| self.welcomed.is_some_and(|abilities| abilities.know(&order)));
        conn.map(|conn| Io::Send(conn, ToAgent::Order(order))).into_iter().collect()
    }

    /// The connection that is served and welcomed.
    pub fn connected(&self) -> Option<ConnId> {
        self.turn.serving.filter(|_| self.welcomed.is_some())
    }

    /// Where a request to open a visit is sent.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn visited(&self) -> Result<ConnId, NoVisit> {
        match (self.connected(), self.welcomed) {
            (Some(conn), Some(Abilities { visits: true, .. })) => Ok(conn),
            (Some(_), _) => Err(NoVisit::TooOld),
            (None, _) => Err(NoVisit::NotConnected),
        }
    }

    /// Whether the host was ordered to stop or may exit.
    pub fn is_stopping(&self) -> bool {
        self.orders.iter().any(|order| matches!(order, Order::Stop { .. } | Order::Release))
    }

    /// Whether the end of the agent's process is news at once: it was not ordered, and nothing that
    /// it sent is still to be read. Otherwise the next check for lost agents finds it.
    pub fn is_end_news(&self) -> bool {
        !self.is_stopping() && self.connected().is_none()
    }

    /// Time has passed in which the server read; returns how long the agent has been silent.
    pub fn elapse(&mut self, time: Duration) -> Duration {
        self.liveness.elapse(time)
    }

    /// Whether the agent is still mirroring files.
    pub fn is_mirroring(&self, now: Mono) -> bool {
        self.mirrors.iter().filter_map(|mirror| mirror.newest).any(|(_, received)| now.since(received) < MIRROR_IDLE)
    }
}

#[cfg(test)]
mod tests;
