//! What schedulers refuse whenever they are asked, believed for a minute.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::LaunchError;

/// How long an answer is believed.
const FRESH: Duration = Duration::from_secs(60);
/// How long a controller that does not answer is not asked again.
const SILENT: Duration = Duration::from_secs(10);

/// Answers of the last minute, by what was asked for.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(Mutex<HashMap<Vec<String>, Verdict>>);

#[derive(Debug, Clone)]
struct Verdict {
    until: Instant,
    refused: Option<String>,
}

impl Verdicts {
    /// Why they are refused, if they are; asks when nothing is known.
    pub(crate) fn of(
        &self,
        args: &[String],
        now: Instant,
        ask: impl FnOnce() -> Result<(), LaunchError>,
    ) -> Option<String> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = known().get(args).filter(|verdict| verdict.until > now) {
            return verdict.refused.clone();
        }
        let (refused, fresh) = match ask() {
            Err(LaunchError::Refused { what, .. }) => (Some(what), FRESH),
            Ok(_) => (None, FRESH),
            Err(_) => (None, SILENT),
        };
        let mut known = known();
        known.retain(|_, verdict| verdict.until > now);
        known.insert(args.to_vec(), Verdict { until: now + fresh, refused: refused.clone() });
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(what: &str) -> Result<(), LaunchError> {
        Err(LaunchError::Refused { scheduler: "Slurm", target: "lab".to_owned(), what: what.to_owned() })
    }

    #[test]
    fn answers_are_believed_for_a_minute() {
        let (verdicts, now) = (Verdicts::default(), Instant::now());
        let later = |seconds| now + Duration::from_secs(seconds);
        let args = ["--partition=x".to_owned()];
        assert!(verdicts.of(&args, now, || refused("invalid partition specified: x")).is_some());
        assert!(verdicts.of(&args, later(59), || panic!("it is known")).is_some());
        assert!(verdicts.of(&args, later(61), || Ok(())).is_none(), "there is one now");
        let silent = || Err(LaunchError::Unavailable { target: "lab".to_owned(), what: "socket timed out".to_owned() });
        assert!(verdicts.of(&["-x".to_owned()], now, silent).is_none());
        assert!(verdicts.of(&["-x".to_owned()], later(11), || refused("is invalid")).is_some());
    }
}
