//! Errors as one line for people and for the server.

use std::error::Error;
use std::io;

use shoal_contract::escape_line;

/// The error and, after colons, its causes. A library may quote any bytes of a broken file, so
/// control characters are escaped as in logs.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    Vec::from_iter(text.lines().map(|line| escape_line(line.as_bytes()))).join("\n")
}

/// Whether a disk has no space left.
pub(crate) fn is_of_full_disk(error: &(dyn Error + 'static)) -> bool {
    let is_full = |cause: &io::Error| cause.kind() == io::ErrorKind::StorageFull;
    std::iter::successors(Some(error), |&error| error.source()).any(|it| it.downcast_ref().is_some_and(is_full))
}

/// Maximum length of a reason. The whole `FailureReason` has at most 1024 characters; the server
/// needs the rest for what it puts around this.
const MOST: usize = 960;

/// What of a text stands in a job's failure reason: of a long one the beginning, which says what
/// went wrong, and the end, which says why.
pub(crate) fn reason(text: &str) -> String {
    const GAP: &str = " ... ";
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= MOST {
        return text.to_owned();
    }
    let first = MOST / 3;
    let last = letters.len() - (MOST - first - GAP.len());
    letters[..first].iter().copied().chain(GAP.chars()).chain(letters[last..].iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::InstanceError;

    #[test]
    fn control_characters_of_a_broken_file_are_told_as_logs_tell_them() {
        let broken = io::Error::other("not a number: \u{1b}[2J\0 of the entry\nsecond line");
        assert_eq!(with_causes(&broken), "not a number: #033[2J#000 of the entry\nsecond line");
    }

    #[test]
    fn a_full_disk_is_found_among_causes() {
        let io = |number| io::Error::from_raw_os_error(number);
        let nested = |source| InstanceError::Io { what: "make a".to_owned(), source };
        assert!(is_of_full_disk(&io(28)) && is_of_full_disk(&nested(io(28))));
        assert!(!is_of_full_disk(&io(13)) && !is_of_full_disk(&nested(io(13))));
    }

    #[test]
    fn a_reason_keeps_both_ends() {
        assert_eq!(reason("requirements \u{fc}"), "requirements \u{fc}");
        let short = reason(&format!("it failed; it said:\n{}ERROR: no \u{fc}", "x\n".repeat(1000)));
        assert_eq!(short.chars().count(), MOST);
        assert!(short.starts_with("it failed; it said:\nx\n") && short.ends_with("x\nERROR: no \u{fc}"), "{short}");
    }
}
