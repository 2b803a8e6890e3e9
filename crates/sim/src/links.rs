//! The server's end of its connections with agents, and what lies between the two ends. A connection keeps the order of what goes over it, and
//! loses nothing but by breaking.

use shoal_plane::{Command, InstanceReport};

use crate::{
    Bug,
    agent::{Down, Order, Report, ReportBody, Up},
    coverage::Point,
    launcher::Key,
    shell::Refusal,
    world::{SimEvent, Simulation, Step, broken},
};

/// An attempt that runs, as a server has it in memory.
#[derive(Debug)]
pub(crate) struct Running {
    hosts: Vec<Host>,
}

#[derive(Debug, Default)]
struct Host {
    connection: Option<u64>,
    /// They stand until the attempt is released.
    orders: Vec<Order>,
}

impl Running {
    pub(crate) fn new(instances: u32) -> Self {
        Self { hosts: (0..instances).map(|_| Host::default()).collect() }
    }

    pub(crate) fn instances(&self) -> u32 {
        u32::try_from(self.hosts.len()).expect("few hosts")
    }

    fn host(&mut self, host: u32) -> Option<&mut Host> {
        self.hosts.get_mut((host as usize).checked_sub(1)?)
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) key: Key,
    /// What the server has stored of this agent; none before the hello.
    acked: Option<u64>,
    /// When what was last sent in each direction arrives.
    up_at: u64,
    down_at: u64,
}

impl Simulation {
    /// An agent calls; gives the connection's number.
    pub(crate) fn open(&mut self, key: &Key) -> u64 {
        self.called += 1;
        let number = self.called;
        self.connections.insert(number, Connection { key: key.clone(), acked: None, up_at: 0, down_at: 0 });
        number
    }

    /// The connection is gone with all that was on its way; the agent calls again after a while.
    pub(crate) fn cut(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else { return };
        let (attempt, host) = &connection.key;
        if let Some(entry) = self.server.as_mut().and_then(|server| server.attempts.get_mut(attempt)?.host(*host))
            && entry.connection == Some(number)
        {
            entry.connection = None;
        }
        if self.agent_loses(&connection.key, number) {
            let pause = self.faults.random.between(50, 1000);
            self.after(pause, SimEvent::Connect(connection.key));
        }
    }

    pub(crate) fn send_up(&mut self, number: u64, message: Up) {
        let at = self.now + self.faults.latency();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.up_at = connection.up_at.max(at);
        let at = connection.up_at;
        // A report that comes twice is nothing new to the server.
        if matches!(message, Up::Reports(_)) && self.faults.one_in(15) {
            self.at(at, SimEvent::Up { connection: number, message: message.clone() });
        }
        self.at(at, SimEvent::Up { connection: number, message });
    }

    fn send_down(&mut self, number: u64, message: Down) {
        let at = self.now + self.faults.latency();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.down_at = connection.down_at.max(at);
        let at = connection.down_at;
        self.at(at, SimEvent::Down { connection: number, message });
    }

    /// Gives an order that stands until the attempt is released.
    pub(crate) fn order(&mut self, attempt: &str, host: u32, order: Order) {
        let stands = self.bug != Some(Bug::LostStop);
        let forgets = self.bug == Some(Bug::LostResume) && matches!(order, Order::Resume(_));
        let Some(entry) = self.server().attempts.get_mut(attempt).and_then(|running| running.host(host)) else { return };
        if matches!(order, Order::Freeze | Order::Resume(_)) {
            entry.orders.retain(|order| !matches!(order, Order::Freeze | Order::Resume(_)));
        }
        if stands && !forgets && !entry.orders.contains(&order) {
            entry.orders.push(order);
        }
        if let Some(connection) = entry.connection {
            self.send_down(connection, Down::Order(order));
        }
    }

    pub(crate) fn up(&mut self, number: u64, message: Up) -> Step {
        let Some(connection) = self.connections.get(&number) else { return Ok(()) };
        let key = connection.key.clone();
        match message {
            Up::Hello => {
                self.greet(number, &key);
                Ok(())
            }
            Up::Reports(reports) => self.take(number, &key, reports),
        }
    }

    fn greet(&mut self, number: u64, key: &Key) {
        let acked = self.disk.acked.get(key).copied().unwrap_or(0);
        let Some(entry) = self.server().attempts.get_mut(&key.0).and_then(|running| running.host(key.1)) else {
            return self.send_down(number, Down::Refused);
        };
        let (older, orders) = (entry.connection.replace(number), entry.orders.clone());
        if let Some(older) = older {
            self.connections.remove(&older);
        }
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.acked = Some(acked);
        }
        self.send_down(number, Down::Welcome { acked });
        orders.into_iter().for_each(|order| self.send_down(number, Down::Order(order)));
    }

    /// Makes what has come durable, in order, and acknowledges it.
    fn take(&mut self, number: u64, key: &Key, reports: Vec<Report>) -> Step {
        let Some(before) = self.connections.get(&number).and_then(|connection| connection.acked) else {
            return broken(format!("{key:?} reports before it was welcomed"));
        };
        let (mut last, mut lines) = (before, Vec::new());
        for Report { seq, body } in reports {
            if seq <= last && self.bug != Some(Bug::RepeatedReport) {
                continue;
            }
            if seq > last + 1 {
                return broken(format!("report {seq} of {key:?} came after {last}"));
            }
            last = last.max(seq);
            match body {
                ReportBody::Line(line) => lines.push(line),
                ReportBody::Part(part) => drop(self.disk.parts.entry(key.clone()).or_default().insert(part)),
                ReportBody::Uploading => {}
                ReportBody::Fact(report) => {
                    // A reader who sees the job ended must find its last lines: they become durable first.
                    self.disk.ingest(key, seq - 1, &mut lines);
                    if self.bug == Some(Bug::EarlyAcknowledgement) {
                        self.acknowledge(number, key, seq, &mut lines);
                    }
                    if !self.fact(number, key, report)? {
                        return Ok(());
                    }
                }
            }
        }
        if self.bug == Some(Bug::RepeatedReport) {
            self.disk.lines.entry(key.clone()).or_default().append(&mut lines);
        }
        if last > before {
            self.acknowledge(number, key, last, &mut lines);
        }
        Ok(())
    }

    fn acknowledge(&mut self, number: u64, key: &Key, seq: u64, lines: &mut Vec<u32>) {
        let acked = self.disk.ingest(key, seq, lines);
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.acked = Some(acked);
        }
        self.send_down(number, Down::Ack(acked));
    }

    /// Whether the core has taken the report; if not, the agent has to say it again on a new connection.
    fn fact(&mut self, number: u64, key: &Key, report: InstanceReport) -> Step<bool> {
        self.say(|| format!("{key:?}: {report:?}"));
        let result = self.execute(&Command::InstanceReported { attempt: key.0.clone(), host: key.1, report }, true)?;
        if matches!(result.answer, Err(Refusal::Journal)) {
            self.cut(number);
            return Ok(false);
        }
        self.passes(&result.kinds, Point::BeforeAck)?;
        Ok(true)
    }
}
