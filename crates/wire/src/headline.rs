//! The line of a `FailureReason` that names the cause, for where there is room for one.

use std::borrow::Cow;

const TRACEBACK: &str = "Traceback";
const OF_TOOLKIT: &str = "ExecuteUserScriptError:\nExitCode ";

/// The first line, which names the cause; where a traceback begins there, its last line, behind
/// whose error it is: `AlgorithmError: algo-1: ValueError: bad`.
pub fn headline(reason: &str) -> Cow<'_, str> {
    let reason = without_toolkit(reason);
    let mut lines = reason.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some(first) = lines.next() else { return Cow::Borrowed("") };
    let last = match first.split_once(TRACEBACK) {
        Some((whose, _)) => lines.next_back().map(|last| format!("{whose}{last}")),
        None => None,
    };
    Cow::Owned(last.unwrap_or_else(|| first.to_owned()))
}

/// Of
/// `AlgorithmError: algo-1: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "bad"\nCommand "python3 a.py", exit code: 1`
/// what the script said: `AlgorithmError: algo-1: bad, exit code: 1`. Where the cause stands
/// before, and for other reasons, it is the reason itself.
fn without_toolkit(reason: &str) -> Cow<'_, str> {
    match parts(reason) {
        Some((before, message, after)) => Cow::Owned(format!("{before}{message}{after}")),
        None => Cow::Borrowed(reason),
    }
}

fn parts(reason: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = reason.split_once(OF_TOOLKIT)?;
    let (_, rest) = rest.split_once("\nErrorMessage \"")?;
    let (message, rest) = rest.rsplit_once("\"\nCommand \"")?;
    let (_, after) = rest.rsplit_once('"')?;
    (!before.contains('\n')).then_some((before, message, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_found() {
        let toolkit = "ExecuteUserScriptError:\nExitCode 1\nErrorMessage \"Traceback (most recent call last):\n  File \
                       \"a.py\"\nValueError: no \"x\"\"\nCommand \"python3 a.py \"q\"\", exit code: 1";
        for (reason, expected) in [
            (String::new(), ""),
            ("AlgorithmError: algo-1: bad, exit code: 1".to_owned(), "AlgorithmError: algo-1: bad, exit code: 1"),
            ("AlgorithmError: first\nsecond, exit code: 1".to_owned(), "AlgorithmError: first"),
            // As reasons were before the cause stood first.
            (
                format!("AlgorithmError: algo-1: {toolkit}"),
                "AlgorithmError: algo-1: ValueError: no \"x\", exit code: 1",
            ),
            (
                format!("AlgorithmError: ValueError: no \"x\" (a.py, line 3)\na hint\n{toolkit}"),
                "AlgorithmError: ValueError: no \"x\" (a.py, line 3)",
            ),
            (
                "AlgorithmError: Traceback (most recent call last):\n  File\nKeyError: 1, exit code: 1\n".to_owned(),
                "AlgorithmError: KeyError: 1, exit code: 1",
            ),
            (
                "AlgorithmError: algo-2: Traceback, exit code: 1".to_owned(),
                "AlgorithmError: algo-2: Traceback, exit code: 1",
            ),
        ] {
            assert_eq!(headline(&reason), expected);
        }
    }
}
