//! What a worker and a server say to each other, over a group of the two: the worker is rank 0 of
//! it.

#![expect(unsafe_code, reason = "a limit is set at the seam")]

use std::ptr;

use crate::{
    Call, Element, Error, Kind, Plain, ProcessGroup, ProcessGroupExt, guard::UNLIMITED, rendezvous::MOST_RANKS,
};

/// What a worker asks, in whole numbers: which, where in the server's part, how many elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// Elements follow, to be added.
    Add { at: usize, len: usize },
    /// Elements follow, to be put in place.
    Assign { at: usize, len: usize },
    /// The answer is elements.
    Pull { at: usize, len: usize },
    /// The clock goes on; the answer is [`Ranks`].
    Advance,
    /// It has gone on, but the slowest had not come; the answer is [`Ranks`].
    WaitOn,
    /// No more.
    End,
    /// No more, and not in order: the worker is lost.
    GiveUp,
}

impl Ask {
    fn words(self) -> [i64; 3] {
        let (code, at, len) = match self {
            Self::Add { at, len } => (0, at, len),
            Self::Assign { at, len } => (1, at, len),
            Self::Pull { at, len } => (2, at, len),
            Self::Advance => (3, 0, 0),
            Self::WaitOn => (4, 0, 0),
            Self::End => (5, 0, 0),
            Self::GiveUp => (6, 0, 0),
        };
        [code, at as i64, len as i64]
    }

    /// What a worker asks of a server that has `part` elements.
    fn parse([code, at, len]: [i64; 3], part: usize) -> Result<Self, Error> {
        let (at, len) = (usize::try_from(at).unwrap_or(usize::MAX), usize::try_from(len).unwrap_or(usize::MAX));
        match code {
            0..=2 if at.checked_add(len).is_none_or(|end| end > part) => {}
            0 => return Ok(Self::Add { at, len }),
            1 => return Ok(Self::Assign { at, len }),
            2 => return Ok(Self::Pull { at, len }),
            3 => return Ok(Self::Advance),
            4 => return Ok(Self::WaitOn),
            5 => return Ok(Self::End),
            6 => return Ok(Self::GiveUp),
            _ => {}
        }
        let problem = format!(
            "parameter server: a worker asked {code} of {len} elements at {at}, of a part of {part}; use the same \
             Shoal on all hosts"
        );
        Err(Error::Config { problem })
    }

    pub(super) fn send(self, pair: &dyn ProcessGroup) -> Result<(), Error> {
        send(pair, &self.words())
    }

    pub(super) fn receive(pair: &dyn ProcessGroup, part: usize) -> Result<Self, Error> {
        let mut words = [0; 3];
        receive(pair, &mut words)?;
        Self::parse(words, part)
    }
}

/// Of whom a worker hears when its clock has gone on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranks {
    /// Workers that were lost.
    pub(super) lost: Vec<usize>,
    /// The slowest, if the patience is over and they have not come.
    pub(super) awaited: Vec<usize>,
}

impl Ranks {
    pub(super) fn send(&self, pair: &dyn ProcessGroup) -> Result<(), Error> {
        send(pair, &[self.lost.len() as i64, self.awaited.len() as i64])?;
        let list: Vec<_> = self.lost.iter().chain(&self.awaited).map(|rank| *rank as i64).collect();
        if list.is_empty() { Ok(()) } else { send(pair, &list) }
    }

    pub(super) fn receive(pair: &dyn ProcessGroup) -> Result<Self, Error> {
        let mut lengths = [0_i64; 2];
        receive(pair, &mut lengths)?;
        if lengths.iter().any(|len| !(0..=MOST_RANKS as i64).contains(len)) {
            let problem =
                format!("parameter server: a server's answer names {lengths:?} ranks; use the same Shoal on all hosts");
            return Err(Error::Config { problem });
        }
        let [lost, awaited] = lengths.map(|len| len as usize);
        let mut list = vec![0_i64; lost + awaited];
        if !list.is_empty() {
            receive(pair, &mut list)?;
        }
        let mut ranks = list.into_iter().map(|rank| rank as usize);
        Ok(Self { lost: ranks.by_ref().take(lost).collect(), awaited: ranks.collect() })
    }
}

/// The other of the two.
fn other(pair: &dyn ProcessGroup) -> usize {
    1 - pair.rank()
}

pub(super) fn send<T: Element>(pair: &dyn ProcessGroup, elements: &[T]) -> Result<(), Error> {
    pair.send(elements, other(pair), 0)
}

/// Waits as long as the other lives.
pub(super) fn receive<T: Plain>(pair: &dyn ProcessGroup, elements: &mut [T]) -> Result<(), Error> {
    let kind = Kind::Recv { from: other(pair), tag: 0 };
    let call = Call::new(kind, T::DTYPE, ptr::null(), elements.as_mut_ptr().cast(), elements.len());
    // SAFETY: the elements are borrowed mutably until `run` returns, and have the call's length.
    unsafe { pair.run(&Call { deadline: Some(UNLIMITED), ..call }) }
}

/// An error of the pair, with the ranks' numbers in the whole group.
pub(super) fn in_whole(error: Error, worker: usize, server: usize) -> Error {
    let of = |rank: usize| if rank == 0 { worker } else { server };
    match error {
        Error::PeerDied { rank, how, at } => Error::PeerDied { rank: of(rank), how, at },
        Error::PeerHung { rank, milliseconds, at } => Error::PeerHung { rank: of(rank), milliseconds, at },
        Error::PeerGaveUp { rank, why, at } => Error::PeerGaveUp { rank: of(rank), why, at },
        Error::Deadline { waiting_for, milliseconds, at } => {
            Error::Deadline { waiting_for: waiting_for.into_iter().map(of).collect(), milliseconds, at }
        }
        Error::Disagreement { number, calls } => {
            Error::Disagreement { number, calls: calls.into_iter().map(|(rank, call)| (of(rank), call)).collect() }
        }
        Error::Broken { cause } => Error::Broken { cause: Box::new(in_whole(*cause, worker, server)) },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_arrives_and_nonsense_is_refused() {
        let (at, len) = (3, 7);
        for ask in [
            Ask::Add { at, len },
            Ask::Assign { at, len },
            Ask::Pull { at, len },
            Ask::Advance,
            Ask::WaitOn,
            Ask::End,
            Ask::GiveUp,
        ] {
            assert_eq!(Ask::parse(ask.words(), 10), Ok(ask));
        }
        for words in [[0, 4, 7], [1, -1, 2], [2, 0, i64::MIN], [7, 0, 0], [-1, 0, 0]] {
            assert!(matches!(Ask::parse(words, 10), Err(Error::Config { .. })), "{words:?}");
        }
    }

    #[test]
    fn errors_have_the_ranks_of_the_whole_group() {
        let at = crate::At { operation: "recv".to_owned(), number: 0 };
        let died = Error::PeerDied { rank: 1, how: "gone".to_owned(), at };
        let Error::Broken { cause } = in_whole(Error::Broken { cause: Box::new(died) }, 4, 9) else {
            panic!("as before")
        };
        assert!(matches!(*cause, Error::PeerDied { rank: 9, .. }), "{cause}");
    }

    #[test]
    fn an_answer_of_more_ranks_than_there_can_be_is_refused() {
        let [worker, server] = <[_; 2]>::try_from(crate::threads(2)).expect("two");
        let says = std::thread::spawn(move || send(&*server, &[1_i64 << 60, 1]));
        let error = Ranks::receive(&*worker).expect_err("nobody has so many").to_string();
        assert!(error.contains("same Shoal"), "{error}");
        says.join().expect("no panic").expect("it was taken");
    }
}
