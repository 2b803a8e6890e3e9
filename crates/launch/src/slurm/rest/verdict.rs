//! Whether an answer of slurmrestd's is due to its token. slurmrestd passes tokens on: one that
//! slurmctld refuses comes back as slurmctld's error, or as that of a connection that it closed.

use serde_json::Value;

use super::answers;
use super::transport::Answer;
use crate::LaunchError;

/// Slurm's number for a credential that is refused.
const AUTHENTICATION: i64 = 1007;
/// Slurm's words for that.
const REFUSED: [&str; 3] =
    ["protocol authentication error", "invalid authentication credential", "authentication credential expired"];
/// What slurmrestd 22.05 answers when slurmctld has closed the connection, as it does when a token
/// has ended; the first also when slurmctld is away.
const DOUBTFUL: [&str; 2] = ["unspecified error", "zero bytes were transmitted"];
/// Errors are short; lists are not read twice.
const LONGEST: usize = 64 << 10;

/// What follows from an answer about the token that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// It is refused, and nothing was done.
    TokenRefused,
    /// It may be refused, or slurmctld away; something may have been done.
    Doubtful,
}

pub(super) fn verdict(answer: Result<&Answer, &LaunchError>) -> Verdict {
    let Answer { status, body } = match answer {
        Ok(answer) => answer,
        Err(LaunchError::Unavailable { what, .. }) if what.contains("connection closed before message completed") => {
            return Verdict::Doubtful;
        }
        Err(_) => return Verdict::Fine,
    };
    if matches!(status, 401 | 403 | 511) {
        return Verdict::TokenRefused;
    }
    if body.is_empty() && *status != 404 {
        return Verdict::Doubtful;
    }
    let value = match body.len() {
        ..=LONGEST => serde_json::from_slice::<Value>(body).unwrap_or_default(),
        _ => return Verdict::Fine,
    };
    let words = answers::errors(&value).unwrap_or_default().to_lowercase();
    let has = |all: &[&str]| all.iter().any(|some| words.contains(some));
    if answers::error_numbers(&value).contains(&AUTHENTICATION) || has(&REFUSED) {
        return Verdict::TokenRefused;
    }
    if has(&DOUBTFUL) { Verdict::Doubtful } else { Verdict::Fine }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Verdict {
        verdict(Ok(&Answer { status, body: body.into() }))
    }

    /// Of slurmrestd 22.05, with a token that had ended: it answers all of them with HTTP 500.
    #[test]
    fn a_token_that_has_ended() {
        for body in [
            include_str!("answers/v0.0.38/expired_jobs.json"),
            include_str!("answers/v0.0.38/expired_submit.json"),
            include_str!("answers/v0.0.38/expired_cancel.json"),
        ] {
            assert_eq!(of(500, body), Verdict::Doubtful, "{body}");
        }
        assert_eq!(of(500, ""), Verdict::Doubtful);
    }

    #[test]
    fn a_token_that_is_refused() {
        for (status, body) in [
            (401, ""),
            (511, "{}"),
            (500, r#"{"errors": [{"error_number": 1007, "error": "Unspecified error"}]}"#),
            (200, r#"{"errors": [{"description": "x", "error": "Protocol authentication error"}]}"#),
            (500, r#"{"errors": [{"error": "Invalid authentication credential"}]}"#),
        ] {
            assert_eq!(of(status, body), Verdict::TokenRefused, "{status} {body}");
        }
    }

    #[test]
    fn other_errors_are_not_the_tokens() {
        assert_eq!(of(500, include_str!("answers/v0.0.38/refused.json")), Verdict::Fine);
        assert_eq!(of(200, include_str!("answers/v0.0.38/submitted.json")), Verdict::Fine);
        assert_eq!(of(404, ""), Verdict::Fine);
        assert_eq!(of(502, "<html>Bad gateway</html>"), Verdict::Fine);
    }
}
