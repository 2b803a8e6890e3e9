//! From what is known of the gang to a training job's status and secondary status.

use super::TrainingJob;
use crate::{JobStatus, SecondaryStatus, Time, Transition, gang::instances::Instance};

/// The table of [`crate::training`].
pub(crate) fn follows(from: SecondaryStatus, to: SecondaryStatus) -> bool {
    use SecondaryStatus as S;
    let next: &[S] = match from {
        S::Starting => {
            &[S::Pending, S::Downloading, S::Interrupted, S::Stopping, S::Failed, S::Stopped, S::MaxWaitTimeExceeded]
        }
        S::Pending => &[S::Starting, S::Failed, S::Stopped, S::MaxWaitTimeExceeded],
        S::Downloading => &[S::Training, S::Interrupted, S::Stopping, S::Failed, S::Stopped, S::Starting],
        S::Training => &[S::Uploading, S::Interrupted, S::Stopping, S::Failed, S::Stopped, S::Starting, S::Pending],
        S::Interrupted => &[S::Starting, S::Pending, S::Failed, S::Stopped, S::MaxWaitTimeExceeded],
        S::Stopping => &[S::Uploading, S::Stopped, S::MaxRuntimeExceeded, S::MaxWaitTimeExceeded, S::Failed],
        S::Uploading => {
            &[S::Completed, S::Stopped, S::MaxRuntimeExceeded, S::MaxWaitTimeExceeded, S::Failed, S::Starting]
        }
        S::Completed | S::Failed | S::Stopped | S::MaxRuntimeExceeded | S::MaxWaitTimeExceeded => &[],
    };
    next.contains(&to)
}

impl TrainingJob {
    pub(crate) fn status(&self) -> JobStatus {
        match self.secondary() {
            _ if self.gang.in_progress() => JobStatus::InProgress,
            _ if self.gang.is_stopping() => JobStatus::Stopping,
            SecondaryStatus::Completed => JobStatus::Completed,
            SecondaryStatus::Failed => JobStatus::Failed,
            _ => JobStatus::Stopped,
        }
    }

    pub(crate) fn secondary(&self) -> SecondaryStatus {
        self.last_transition().status
    }

    /// The message of the present secondary status.
    pub(crate) fn message(&self) -> &str {
        &self.last_transition().message
    }

    fn last_transition(&self) -> &Transition {
        self.transitions.last().expect("a job begins with a transition and loses none")
    }

    /// One step forward, if the instances are further than the secondary status.
    pub(crate) fn next_secondary(&self) -> Option<SecondaryStatus> {
        use SecondaryStatus as S;
        let attempt = self.gang.running().filter(|attempt| self.gang.is_stopping() || attempt.failed.is_none())?;
        match self.secondary() {
            S::Stopping if self.gang.is_uploading(attempt) => Some(S::Uploading),
            _ if !self.gang.in_progress() => None,
            // The end of its queue was not reported.
            S::Pending if attempt.any(|instance| *instance == Instance::Downloading || instance.has_run()) => {
                Some(S::Starting)
            }
            S::Starting if attempt.any(|instance| *instance == Instance::Downloading || instance.has_run()) => {
                Some(S::Downloading)
            }
            S::Downloading if attempt.any(Instance::has_run) => Some(S::Training),
            S::Training if self.gang.is_uploading(attempt) => Some(S::Uploading),
            _ => None,
        }
    }

    /// The secondary status stays, with another message.
    pub(crate) fn set_message(&mut self, message: &str) {
        if let Some(last) = self.transitions.last_mut() {
            message.clone_into(&mut last.message);
        }
    }

    pub(crate) fn enter(&mut self, status: SecondaryStatus, at: Time, message: &str) {
        if matches!(status, SecondaryStatus::Downloading | SecondaryStatus::Training) {
            self.gang.begin(at);
        }
        if self.secondary() == status {
            return self.set_message(message);
        }
        if let Some(last) = self.transitions.last_mut() {
            last.end = Some(at);
        }
        self.transitions.push(Transition { status, start: at, end: None, message: message.to_owned() });
    }
}
