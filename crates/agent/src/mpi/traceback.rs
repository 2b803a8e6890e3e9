//! The traceback with which a rank ends, told from one of an exception that it handled: after the
//! latter it prints something else.

/// Begins and ends what Open MPI says itself.
pub(super) const RULE: &str = "----------";
/// In what its error handler says.
pub(super) const OF_OPEN_MPI: &str = "] *** ";

const BEGIN: &[u8] = b"Traceback (most recent call last)";

/// Whether a traceback begins with this line.
pub(super) fn begins(line: &[u8]) -> bool {
    line.windows(BEGIN.len()).any(|window| window == BEGIN)
}

/// The traceback that is the last that a rank has printed on stderr.
#[derive(Debug, Default)]
pub(super) struct LastTraceback(Option<(u64, Part)>);

/// Which part of its output a rank prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Frames,
    Exception,
    /// What Open MPI prints at the end; nothing of the program's follows.
    OfOpenMpi,
}

impl LastTraceback {
    /// When it began.
    pub(super) fn at(&self) -> Option<u64> {
        self.0.map(|(at, _)| at)
    }

    /// Takes the rank's next line, with its time.
    pub(super) fn note(&mut self, line: &[u8], at: u64) {
        self.0 = match self.0 {
            _ if begins(line) => Some((at, Part::Frames)),
            Some((begun, part)) => part.then(&String::from_utf8_lossy(line)).map(|part| (begun, part)),
            None => None,
        };
    }
}

impl Part {
    /// After another line; `None`: the rank goes on after the exception.
    fn then(self, line: &str) -> Option<Self> {
        let is_blank = line.trim_matches(|letter: char| letter.is_whitespace() || letter.is_control()).is_empty();
        match self {
            Self::Frames if line.starts_with([' ', '\t']) || is_blank => Some(self),
            Self::Frames => Some(Self::Exception),
            _ if is_blank || self == Self::OfOpenMpi => Some(self),
            _ if line.starts_with(RULE) || line.contains(OF_OPEN_MPI) => Some(Self::OfOpenMpi),
            // Of an exception with several causes another traceback follows.
            _ if line.starts_with("During handling of") || line.starts_with("The above exception") => Some(self),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lines: &[&str]) -> Option<u64> {
        let mut last = LastTraceback::default();
        for (at, line) in (0..).zip(lines) {
            last.note(line.as_bytes(), at);
        }
        last.at()
    }

    #[test]
    fn one_after_which_the_rank_goes_on_does_not_count() {
        let raised = ["Traceback (most recent call last):", "  File \"train.py\", line 1", "ValueError: bad"];
        assert_eq!(at(&[]), None);
        assert_eq!(at(&raised), Some(0));
        assert_eq!(at(&[&raised[..], &["go on"]].concat()), None);
        assert_eq!(at(&[&raised[..], &["go on"], &raised[..]].concat()), Some(4));
        // Of several causes the last counts.
        let during = ["", "During handling of the above exception, another exception occurred:", ""];
        assert_eq!(at(&[&raised[..], &during, &raised].concat()), Some(6));
        let abort = ["\0", "--------------------", "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD"];
        assert_eq!(at(&[&raised[..], &abort].concat()), Some(0));
    }
}
