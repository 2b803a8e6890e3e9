//! When an agent that sends nothing is taken for lost: it was stopped, or its machine hangs.
//!
//! Silence counts only while the server reads: neither a server that was stopped itself nor one
//! that is slow to store blames its agents. The first byte that arrives resets it.

use shoal_plane::Host;
use std::time::Duration;

/// Signs of life that an idle agent sends within the silence that is allowed.
const SIGNS: u32 = 6;
const MAX_SIGN_INTERVAL: Duration = Duration::from_secs(5);
const MIN_SIGN_INTERVAL: Duration = Duration::from_millis(50);

/// How often agents are asked to send a sign of life, for this allowed silence.
#[must_use]
pub fn sign_interval(allowed: Duration) -> Duration {
    (allowed / SIGNS).clamp(MIN_SIGN_INTERVAL, MAX_SIGN_INTERVAL)
}

/// Why an instance is taken for lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Its process has ended.
    Ended,
    /// Its agent has been silent for this long.
    Silent(Duration),
}

/// Which hosts are taken for lost, of those whose silence is known. `ended`: those whose process
/// has ended.
#[must_use]
pub fn losses(silences: &[(Host, Duration)], ended: &[Host], allowed: Duration) -> Vec<(Host, Loss)> {
    let loss = |(host, silence): &(Host, Duration)| match ended.contains(host) {
        true => Some((*host, Loss::Ended)),
        false => (*silence >= allowed).then_some((*host, Loss::Silent(*silence))),
    };
    silences.iter().filter_map(loss).collect()
}

/// How long one agent has been silent.
#[derive(Debug, Default)]
pub struct Liveness {
    silence: Duration,
    connection: Connection,
}

/// The agent's connection.
#[derive(Debug, Default)]
enum Connection {
    /// It has none, and is expected to open one.
    #[default]
    None,
    /// It has not sent a sign of life; agents of versions without them never do, and may be silent.
    Signless,
    /// It sends signs of life.
    Open,
    /// What arrived is being stored, and nothing is read meanwhile.
    Busy { signs: bool },
}

impl Liveness {
    /// Its instance is started now: where there was none, no agent was silent.
    pub fn expected(&mut self) {
        if matches!(self.connection, Connection::None) {
            self.silence = Duration::ZERO;
        }
    }

    /// The agent has connected; the server reads from now on.
    pub fn connected(&mut self) {
        *self = Self { silence: Duration::ZERO, connection: Connection::Signless };
    }

    /// Its connection has ended.
    pub fn disconnected(&mut self) {
        *self = Self::default();
    }

    /// Bytes arrived, and are handled until [`Liveness::processed`].
    pub fn received(&mut self) {
        let signs = self.signs();
        *self = Self { silence: Duration::ZERO, connection: Connection::Busy { signs } };
    }

    /// Among them was a sign of life.
    pub fn received_sign(&mut self) {
        self.connection = Connection::Busy { signs: true };
    }

    /// All that arrived is handled.
    pub fn processed(&mut self) {
        self.connection = if self.signs() { Connection::Open } else { Connection::Signless };
    }

    /// Time has passed; returns how long the agent has been silent.
    pub fn elapse(&mut self, time: Duration) -> Duration {
        match self.connection {
            Connection::None | Connection::Open => self.silence += time,
            Connection::Signless | Connection::Busy { .. } => self.silence = Duration::ZERO,
        }
        self.silence
    }

    fn signs(&self) -> bool {
        matches!(self.connection, Connection::Open | Connection::Busy { signs: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn silence_counts_while_the_server_reads() {
        type Step = fn(&mut Liveness);
        let signs: Step = |liveness| {
            liveness.received();
            liveness.received_sign();
            liveness.processed();
        };
        let reports: Step = |liveness| {
            liveness.received();
            liveness.processed();
        };
        let silence: Step = |liveness| {
            liveness.elapse(60 * SECOND);
        };
        // What happens, and the silence one and two seconds after it.
        let cases: [(&str, &[Step], [u64; 2]); 9] = [
            ("it never connects", &[], [1, 2]),
            ("it is started late", &[silence, Liveness::expected], [1, 2]),
            (
                "it is started again while it is connected",
                &[Liveness::connected, signs, silence, Liveness::expected],
                [61, 62],
            ),
            ("it connects and is of a version without signs", &[Liveness::connected, reports], [0, 0]),
            ("it connects and sends a sign of life", &[Liveness::connected, signs], [1, 2]),
            ("then it reports", &[Liveness::connected, signs, reports], [1, 2]),
            ("what it sent is being stored", &[Liveness::connected, signs, Liveness::received], [0, 0]),
            ("its connection ends", &[Liveness::connected, signs, Liveness::disconnected], [1, 2]),
            (
                "it connects again and has sent nothing",
                &[Liveness::connected, signs, Liveness::disconnected, Liveness::connected],
                [0, 0],
            ),
        ];
        for (what, steps, expected) in cases {
            let mut liveness = Liveness::default();
            steps.iter().for_each(|step| step(&mut liveness));
            assert_eq!([liveness.elapse(SECOND), liveness.elapse(SECOND)], expected.map(Duration::from_secs), "{what}");
        }
    }

    #[test]
    fn signs_come_well_within_the_silence_that_is_allowed() {
        for (allowed_s, every_ms) in [(0, 50), (3, 500), (60, 5000), (3600, 5000)] {
            assert_eq!(sign_interval(Duration::from_secs(allowed_s)), Duration::from_millis(every_ms));
        }
    }

    #[test]
    fn an_ended_process_is_known_by_its_end_and_a_silent_one_by_the_time() {
        let silences = [(1, 59 * SECOND), (2, 60 * SECOND), (3, Duration::ZERO), (4, 61 * SECOND)]
            .map(|(host, it)| (Host(host), it));
        assert_eq!(
            losses(&silences, &[Host(3), Host(4), Host(7)], 60 * SECOND),
            [(Host(2), Loss::Silent(60 * SECOND)), (Host(3), Loss::Ended), (Host(4), Loss::Ended)],
            "a host of unknown silence has no place yet"
        );
        assert_eq!(losses(&silences, &[], Duration::MAX), []);
    }
}
