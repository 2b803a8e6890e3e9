//! When an agent that says nothing is taken for dead: it is stopped, or its machine hangs.
//!
//! Silence is counted while the server listens, and only then: neither a server that was stopped itself nor one that is slow to store blames
//! its agents. What was counted is forgotten at the first byte that comes.

use std::time::Duration;

/// An agent that has nothing else to say is to say that it lives so many times within the silence that is allowed.
const SIGNS: u32 = 6;
/// And at least so often.
const RAREST_SIGN: Duration = Duration::from_secs(5);
const MOST_FREQUENT_SIGN: Duration = Duration::from_millis(50);

/// How often agents are asked to say that they live.
pub(crate) fn sign_every(allowed: Duration) -> Duration {
    (allowed / SIGNS).clamp(MOST_FREQUENT_SIGN, RAREST_SIGN)
}

/// What the server hears of one agent.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    quiet: Duration,
    connection: Connection,
}

/// The agent's present connection.
#[derive(Debug, Default)]
enum Connection {
    /// It has none, and is expected to make one.
    #[default]
    None,
    /// It has not said a sign of life yet; agents from before these existed never do, and may be silent.
    Signless,
    /// It says signs of life.
    Open,
    /// What came is being stored: nobody listens.
    Busy { signs: bool },
}

impl Ear {
    /// The agent has connected; what it says is taken from now on.
    pub(crate) fn connected(&mut self) {
        *self = Self { quiet: Duration::ZERO, connection: Connection::Signless };
    }

    /// It has hung up.
    pub(crate) fn disconnected(&mut self) {
        *self = Self::default();
    }

    /// Bytes came, and are taken in until [`Ear::listens`].
    pub(crate) fn hears(&mut self) {
        let signs = self.signs();
        *self = Self { quiet: Duration::ZERO, connection: Connection::Busy { signs } };
    }

    /// Among them was a sign of life.
    pub(crate) fn hears_sign(&mut self) {
        self.connection = Connection::Busy { signs: true };
    }

    /// All is taken in.
    pub(crate) fn listens(&mut self) {
        self.connection = if self.signs() { Connection::Open } else { Connection::Signless };
    }

    /// Time has passed; says how long it has been silent in all.
    pub(crate) fn passes(&mut self, time: Duration) -> Duration {
        match self.connection {
            Connection::None | Connection::Open => self.quiet += time,
            Connection::Signless | Connection::Busy { .. } => self.quiet = Duration::ZERO,
        }
        self.quiet
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
    fn silence_counts_while_the_server_listens() {
        type Step = fn(&mut Ear);
        let says: Step = |ear| {
            ear.hears();
            ear.hears_sign();
            ear.listens();
        };
        let reports: Step = |ear| {
            ear.hears();
            ear.listens();
        };
        // What happens, and the silence one and two seconds after it.
        let cases: [(&str, &[Step], [u64; 2]); 7] = [
            ("it never connects", &[], [1, 2]),
            ("it connects and is from before signs existed", &[Ear::connected, reports], [0, 0]),
            ("it connects and says that it lives", &[Ear::connected, says], [1, 2]),
            ("then it reports", &[Ear::connected, says, reports], [1, 2]),
            ("what it says is being stored", &[Ear::connected, says, Ear::hears], [0, 0]),
            ("it hangs up", &[Ear::connected, says, Ear::disconnected], [1, 2]),
            ("it comes again and has not spoken yet", &[Ear::connected, says, Ear::disconnected, Ear::connected], [0, 0]),
        ];
        for (what, steps, expected) in cases {
            let mut ear = Ear::default();
            steps.iter().for_each(|step| step(&mut ear));
            assert_eq!([ear.passes(SECOND), ear.passes(SECOND)], expected.map(Duration::from_secs), "{what}");
        }
    }

    #[test]
    fn signs_come_well_within_the_silence_that_is_allowed() {
        for (allowed_s, every_ms) in [(0, 50), (3, 500), (60, 5000), (3600, 5000)] {
            assert_eq!(sign_every(Duration::from_secs(allowed_s)), Duration::from_millis(every_ms));
        }
    }
}
