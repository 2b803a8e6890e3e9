//! Whose Describe is held back. Some clients look seldom (every 5, 30 or 120 s), so that a job of
//! half a second would seem to take that long: the answer waits a little for the job's end when
//! such a client asks. Waiters ask for nothing but the end, so their answers wait at any age of the
//! job; the SDKs also show what goes on meanwhile, so theirs wait for young jobs alone, and not
//! where our plugin makes them look often. A person's client, and any other, is answered at once.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::clock::now_ms;

/// How long an answer waits. Less than any sensible time-out of a client.
const HOLD: Duration = Duration::from_secs(3);
/// Until what age a job is young.
const YOUNG: Duration = Duration::from_secs(60);
/// Most jobs that are remembered as just created.
const REMEMBERED: usize = 1000;

/// What our plugin adds to the `User-Agent` (crates/cli/python/shoal_polling.py).
const LOOKS_OFTEN: &str = "shoal-polling";
const SDK_V2: &str = "SageMaker-Python-SDK";
const SDK_V3: &str = "AWS-SageMakerCore";

/// What has to be remembered for it.
#[derive(Default)]
pub(crate) struct Holds {
    /// Jobs that SDK v3 has created and not yet described: it does so at once, whether its user
    /// wants to wait or not.
    fresh: Mutex<HashSet<String>>,
}

impl Holds {
    /// A client creates a job.
    pub(super) fn created(&self, job: &str, user_agent: &str) {
        if user_agent.contains(SDK_V3) {
            let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
            if fresh.len() >= REMEMBERED {
                fresh.clear();
            }
            fresh.insert(job.to_owned());
        }
    }

    /// How long the answer to this client may wait for the end of this job.
    pub(super) fn wait(&self, job: &str, created_ms: u64, user_agent: &str) -> Duration {
        if is_waiter(user_agent) {
            return HOLD;
        }
        let is_first_of_v3 =
            user_agent.contains(SDK_V3) && self.fresh.lock().unwrap_or_else(PoisonError::into_inner).remove(job);
        let is_sdk = user_agent.contains(SDK_V2) || user_agent.contains(SDK_V3);
        if !is_sdk || is_first_of_v3 || user_agent.contains(LOOKS_OFTEN) {
            return Duration::ZERO;
        }
        YOUNG.saturating_sub(Duration::from_millis(now_ms().saturating_sub(created_ms))).min(HOLD)
    }
}

/// Botocore lists the features in use as letters: `m/D,B,g`; `B` is a waiter (of boto3, or the AWS
/// CLI's `wait`).
fn is_waiter(user_agent: &str) -> bool {
    user_agent
        .split(' ')
        .filter_map(|word| word.strip_prefix("m/"))
        .any(|features| features.split(',').any(|feature| feature == "B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_wait_are_known() {
        let (now, long_ago) = (now_ms(), 0);
        for (user_agent, created_ms, expected) in [
            ("Boto3/1.44.5 lang/python#3.11.7 m/b,Z,g,E,N AWS-SageMaker-Python-SDK/2.257.7", now, true),
            ("Boto3/1.44.5 lang/python#3.11.7 m/b,Z,g,E,N AWS-SageMaker-Python-SDK/2.257.7", long_ago, false),
            ("Boto3/1.44.5 lang/python#3.11.7 m/b,Z,g,E,N AWS-SageMaker-Python-SDK/2.257.7 shoal-polling", now, false),
            (
                "Boto3/1.44.5 m/b,Z,g,E,N cfg/retry-mode#standard Botocore/1.44.5 lib/AWS-SageMakerCore#2.27.0",
                now,
                true,
            ),
            ("aws-cli/1.46.2 md/Botocore#1.43.62 m/D,B,g,N,Z,b cfg/retry-mode#legacy", now, true),
            ("aws-cli/1.46.2 md/Botocore#1.43.62 m/D,B,g,N,Z,b cfg/retry-mode#legacy shoal-polling", long_ago, true),
            ("aws-cli/1.46.2 md/Botocore#1.43.62 m/b,N,D,g,Z cfg/retry-mode#legacy", now, false),
            ("Boto3/1.44.5 md/Botocore#1.44.5 m/Z,b,N,g,E", now, false),
            ("", now, false),
        ] {
            assert_eq!(!Holds::default().wait("job", created_ms, user_agent).is_zero(), expected, "{user_agent}");
        }
    }

    #[test]
    fn what_sdk_v3_asks_at_creation_is_answered_at_once() {
        let (holds, sdk) = (Holds::default(), "lib/AWS-SageMakerCore#2.27.0");
        holds.created("job", sdk);
        let waits = |job| !holds.wait(job, now_ms(), sdk).is_zero();
        assert_eq!([waits("job"), waits("job"), waits("other")], [false, true, true]);
    }

    #[test]
    fn few_creations_are_remembered_and_those_of_sdk_v3_alone() {
        let (holds, sdk) = (Holds::default(), "lib/AWS-SageMakerCore#2.27.0");
        holds.created("by another", "Boto3/1.44.5 AWS-SageMaker-Python-SDK/2.257.7");
        assert!(!holds.wait("by another", now_ms(), sdk).is_zero(), "its first Describe waits");
        for number in 0..3 * REMEMBERED {
            holds.created(&format!("job-{number}"), sdk);
            assert!(holds.fresh.lock().unwrap().len() <= REMEMBERED);
        }
        let last = format!("job-{}", 3 * REMEMBERED - 1);
        assert!(holds.wait(&last, now_ms(), sdk).is_zero(), "the newest one is known");
    }

    #[test]
    fn a_young_job_is_waited_for_until_it_is_not_young() {
        let sdk = "AWS-SageMaker-Python-SDK/2.257.7";
        let wait = |age: Duration| {
            let created_ms = now_ms() - u64::try_from(age.as_millis()).unwrap();
            Holds::default().wait("job", created_ms, sdk)
        };
        assert_eq!(wait(Duration::ZERO), HOLD);
        assert!(wait(YOUNG - Duration::from_secs(1)) <= Duration::from_secs(1), "up to that age and no longer");
        assert_eq!(wait(YOUNG + Duration::from_secs(1)), Duration::ZERO);
        // A clock that was set back.
        assert_eq!(Holds::default().wait("job", u64::MAX, sdk), HOLD);
    }
}
