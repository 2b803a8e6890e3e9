//! `FailureReason` of a script that failed, as SageMaker's toolkit words it, read back.

use std::borrow::Cow;

/// The reason with what the script itself said alone, for where there is little room: of
/// `AlgorithmError: algo-1: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "bad"\nCommand "python3 a.py", exit code: 1` that is
/// `AlgorithmError: algo-1: bad, exit code: 1`. Other reasons are given back as they are.
pub fn reason_of_script(reason: &str) -> Cow<'_, str> {
    match parts(reason) {
        Some((before, message, after)) => Cow::Owned(format!("{before}{message}{after}")),
        None => Cow::Borrowed(reason),
    }
}

fn parts(reason: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = reason.split_once("ExecuteUserScriptError:\nExitCode ")?;
    let (_, rest) = rest.split_once("\nErrorMessage \"")?;
    let (message, rest) = rest.rsplit_once("\"\nCommand \"")?;
    let (_, after) = rest.rsplit_once('"')?;
    Some((before, message, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_script_said_is_found() {
        let wrapped = "AlgorithmError: algo-1: ExecuteUserScriptError:\nExitCode 1\nErrorMessage \"Traceback\nValueError: no \"x\"\"\nCommand \"python3 a.py \"q\"\", exit code: 1";
        assert_eq!(reason_of_script(wrapped), "AlgorithmError: algo-1: Traceback\nValueError: no \"x\", exit code: 1");
        for plain in ["", "AlgorithmError: algo-1: bad, exit code: 1", "ExecuteUserScriptError:\nExitCode 1\nand no more"] {
            assert_eq!(reason_of_script(plain), plain);
        }
    }
}
