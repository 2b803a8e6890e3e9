//! Whose Describe is held back. SDKs look seldom (every 5, 30 or 120 s), so that a job of half a second would seem to take that
//! long: the answer about a young job waits a little for its end when such a client asks. A person's client, and any other, is
//! answered at once.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::core::now_ms;

/// How long an answer waits.
pub(super) const HOLD: Duration = Duration::from_secs(3);
/// Until what age a job is young, in milliseconds.
const YOUNG_MS: u64 = 60_000;
/// Most jobs that are remembered as just created.
const REMEMBERED: usize = 1000;

const SDK_V2: &str = "SageMaker-Python-SDK";
const SDK_V3: &str = "AWS-SageMakerCore";

/// What has to be remembered for it.
#[derive(Default)]
pub(super) struct Holds {
    /// Jobs that SDK v3 has created and not yet described: it does so at once, whether its user wants to wait or not.
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

    /// Whether the answer to this client may wait for news of this job.
    pub(super) fn waits(&self, job: &str, user_agent: &str) -> bool {
        if user_agent.contains(SDK_V3) {
            return !self.fresh.lock().unwrap_or_else(PoisonError::into_inner).remove(job);
        }
        user_agent.contains(SDK_V2) || is_waiter(user_agent)
    }
}

/// Whether a job of this age is worth waiting for.
pub(super) fn is_young(created_ms: u64) -> bool {
    now_ms().saturating_sub(created_ms) < YOUNG_MS
}

/// Botocore lists the features in use as letters: `m/D,B,g`; `B` is a waiter (of boto3, or the AWS CLI's `wait`).
fn is_waiter(user_agent: &str) -> bool {
    user_agent.split(' ').filter_map(|word| word.strip_prefix("m/")).any(|features| features.split(',').any(|feature| feature == "B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_wait_are_known() {
        for (user_agent, expected) in [
            ("Boto3/1.44.5 lang/python#3.11.7 m/b,Z,g,E,N AWS-SageMaker-Python-SDK/2.257.7", true),
            ("Boto3/1.44.5 m/b,Z,g,E,N cfg/retry-mode#standard Botocore/1.44.5 lib/AWS-SageMakerCore#2.27.0", true),
            ("aws-cli/1.46.2 md/Botocore#1.43.62 m/D,B,g,N,Z,b cfg/retry-mode#legacy", true),
            ("aws-cli/1.46.2 md/Botocore#1.43.62 m/b,N,D,g,Z cfg/retry-mode#legacy", false),
            ("Boto3/1.44.5 md/Botocore#1.44.5 m/Z,b,N,g,E", false),
            ("", false),
        ] {
            assert_eq!(Holds::default().waits("job", user_agent), expected, "{user_agent}");
        }
    }

    #[test]
    fn what_sdk_v3_asks_at_creation_is_answered_at_once() {
        let (holds, sdk) = (Holds::default(), "lib/AWS-SageMakerCore#2.27.0");
        holds.created("job", sdk);
        assert_eq!([holds.waits("job", sdk), holds.waits("job", sdk), holds.waits("other", sdk)], [false, true, true]);
    }
}
