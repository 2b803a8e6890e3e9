//! Why an attempt's inputs are not there: the job fails, or its launch is delayed.

use shoal_encryption::KeyError;
use shoal_store::StoreError;

use crate::{channels::ChannelError, error_chain::describe};

/// Why an attempt does not have its inputs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotPrepared {
    /// It never will; the text is for the failure reason.
    Failed(String),
    /// It may have them later: the store of contents or a key's command does not answer, or the
    /// disk is full.
    Delayed(String),
}

impl NotPrepared {
    /// Of what is at this place.
    pub(crate) fn of(place: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let channel = error.downcast_ref::<ChannelError>();
        let store = match channel {
            Some(ChannelError::Store(error)) => Some(error),
            Some(_) => None,
            None => error.downcast_ref::<StoreError>(),
        };
        let why = format!("{place}: {}", describe(error));
        match store {
            Some(error) if error.is_away() => Self::Delayed(why),
            Some(StoreError::Full(_) | StoreError::Key(KeyError::Unavailable(_))) => Self::Delayed(why),
            _ => Self::Failed(why),
        }
    }
}

impl From<String> for NotPrepared {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}
