//! What newcomers and the group that takes them in write at the meeting place.

use std::time::Duration;

use crate::Error;
use crate::rendezvous::frame::{Fields, put_bytes};
use crate::rendezvous::{MOST_RANKS, Member};

/// How often either side looks while it waits for the other.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What a newcomer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ticket {
    /// It is taken in, as this rank of so many, of which the first `living` take it in. `formation`
    /// is the name of the group that they make.
    Taken { rank: usize, size: usize, living: usize, epoch: u64, formation: u64 },
    /// It is not, and why.
    Refused(String),
}

impl Ticket {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Taken { rank, size, living, epoch, formation } => {
                let mut out = vec![1];
                for number in [*rank as u64, *size as u64, *living as u64, *epoch, *formation] {
                    out.extend(number.to_le_bytes());
                }
                out
            }
            Self::Refused(why) => {
                let mut out = vec![0];
                put_bytes(&mut out, why.as_bytes());
                out
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let ticket = match fields.byte()? {
            0 => Self::Refused(fields.text()?),
            1 => {
                let mut count = || usize::try_from(fields.u64()?).ok();
                let (rank, size, living) = (count()?, count()?, count()?);
                let ticket = Self::Taken { rank, size, living, epoch: fields.u64()?, formation: fields.u64()? };
                (living <= rank && rank < size && size <= MOST_RANKS).then_some(ticket)?
            }
            _ => return None,
        };
        fields.end()?;
        Some(ticket)
    }
}

pub(super) fn newcomer(number: usize) -> String {
    format!("newcomer/{number}")
}

pub(super) fn ticket(member: &Member) -> String {
    format!("ticket/{:016x}", member.incarnation)
}

pub(super) fn seat(formation: u64, rank: usize) -> String {
    format!("formation/{formation:016x}/{rank}")
}

pub(super) fn torn() -> Error {
    Error::rendezvous(
        "rank 0's list of newcomers was not written by this version of the library: use the same Shoal on all hosts"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_come_back() {
        let taken = Ticket::Taken { rank: 3, size: 4, living: 2, epoch: 2, formation: u64::MAX };
        for it in [taken.clone(), Ticket::Refused("no".to_owned())] {
            assert_eq!(Ticket::decode(&it.encode()), Some(it.clone()));
            assert_eq!(Ticket::decode(&it.encode()[1..]), None, "{it:?}");
        }
        let Ticket::Taken { size, living, epoch, formation, .. } = taken else { unreachable!() };
        for rank in [4, 1] {
            let wrong = Ticket::Taken { rank, size, living, epoch, formation };
            assert_eq!(Ticket::decode(&wrong.encode()), None, "a newcomer is one of them, behind the living");
        }
    }
}
