//! What schedulers refuse whenever they are asked, so that not every request asks them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::LaunchError;

/// How long it is believed that nothing is refused.
const FRESH: Duration = Duration::from_secs(60);
/// The same for a refusal, whose cause may be removed meanwhile.
const REFUSED: Duration = Duration::from_secs(5);
/// How long a scheduler that does not answer is asked nothing.
const SILENT: Duration = Duration::from_secs(10);

/// Answers of a scheduler, by what was asked for.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    answers: HashMap<Vec<String>, Verdict>,
    silent_until: Option<Instant>,
}

#[derive(Debug, Clone)]
struct Verdict {
    until: Instant,
    refused: Option<String>,
}

impl Verdicts {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why they are refused, if they are; asks when nothing is known.
    pub(crate) fn of(
        &self,
        args: &[String],
        now: Instant,
        ask: impl FnOnce() -> Result<(), LaunchError>,
    ) -> Option<String> {
        {
            let known = self.known();
            if let Some(verdict) = known.answers.get(args).filter(|verdict| verdict.until > now) {
                return verdict.refused.clone();
            }
            if known.silent_until.is_some_and(|until| until > now) {
                return None;
            }
        }
        let asked = Instant::now();
        let answer = ask();
        let now = now + asked.elapsed();
        let mut known = self.known();
        known.answers.retain(|_, verdict| verdict.until > now);
        let verdict = match answer {
            Ok(()) => Verdict { until: now + FRESH, refused: None },
            Err(LaunchError::Refused { what, .. }) => Verdict { until: now + REFUSED, refused: Some(what) },
            Err(_) => {
                known.silent_until = Some(now + SILENT);
                return None;
            }
        };
        known.answers.insert(args.to_vec(), verdict.clone());
        verdict.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(what: &str) -> Result<(), LaunchError> {
        Err(LaunchError::Refused { scheduler: "Slurm", target: "lab".to_owned(), what: what.to_owned() })
    }

    #[test]
    fn answers_are_believed_for_a_while() {
        let (verdicts, now) = (Verdicts::default(), Instant::now());
        let later = |seconds| now + Duration::from_secs(seconds);
        let args = ["--partition=x".to_owned()];
        assert!(verdicts.of(&args, now, || refused("invalid partition specified: x")).is_some());
        assert!(verdicts.of(&args, later(4), || panic!("it is known")).is_some());
        assert!(verdicts.of(&args, later(6), || Ok(())).is_none(), "there is one now");
        assert!(verdicts.of(&args, later(65), || panic!("it is known")).is_none());
        assert!(verdicts.of(&args, later(67), || refused("it is gone")).is_some());
    }

    #[test]
    fn one_that_is_silent_is_asked_nothing_for_a_while() {
        let (verdicts, now) = (Verdicts::default(), Instant::now());
        let later = |seconds| now + Duration::from_secs(seconds);
        let silent = || Err(LaunchError::Unavailable { target: "lab".to_owned(), what: "socket timed out".to_owned() });
        assert!(verdicts.of(&["-x".to_owned()], now, silent).is_none());
        assert!(verdicts.of(&["-y".to_owned()], later(9), || panic!("it is silent")).is_none());
        assert!(verdicts.of(&["-y".to_owned()], later(11), || refused("is invalid")).is_some());
    }
}
