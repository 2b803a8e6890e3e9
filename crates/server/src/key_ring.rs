//! Whose keys open something: the owner's, those of assumed roles and of attempts that run.

use std::sync::Arc;

use shoal_plane::{AttemptId, JobName};
use shoal_s3::{KeyFault, KeyStore, Scope};

use crate::{
    attempts::{Attempt, Attempts},
    clock::now_ms,
    keys::AccessKeys,
    sessions::{self, Session},
};

/// All keys that open something: the owner's, and those of running attempts.
pub(crate) struct KeyRing {
    pub(crate) owner: AccessKeys,
    pub(crate) attempts: Arc<Attempts>,
}

/// A key and whose it is.
pub(crate) struct Known {
    pub(crate) keys: AccessKeys,
    pub(crate) holder: Holder,
}

/// Who holds a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The owner of the server.
    Owner,
    /// Who assumed a role: has the owner's rights for a time.
    Session(Session),
    /// A training job's program.
    Attempt {
        /// The attempt.
        id: AttemptId,
        /// The training job's name.
        job: JobName,
    },
}

impl KeyRing {
    /// The keys with this id and whose they are, if they open anything with this session token.
    pub(crate) fn find(&self, access_key_id: &str, token: Option<&str>) -> Result<Known, KeyFault> {
        if access_key_id == self.owner.access_key_id {
            return Ok(Known { keys: self.owner.clone(), holder: Holder::Owner });
        }
        if let Some(attempt) = self.attempt(access_key_id) {
            let holder = Holder::Attempt { id: attempt.plan.attempt.clone(), job: attempt.plan.job.clone() };
            return Ok(Known { keys: attempt.keys.clone(), holder });
        }
        let secret_access_key = sessions::secret_of(&self.owner, access_key_id).ok_or(KeyFault::Unknown)?;
        let session = Session::of(&self.owner, access_key_id, token, now_ms())?;
        let keys = AccessKeys {
            access_key_id: access_key_id.to_owned(),
            secret_access_key,
            session_token: token.map(str::to_owned),
        };
        Ok(Known { keys, holder: Holder::Session(session) })
    }

    fn attempt(&self, access_key_id: &str) -> Option<Arc<Attempt>> {
        self.attempts.all().into_iter().find(|attempt| attempt.keys.access_key_id == access_key_id)
    }
}

impl KeyStore for KeyRing {
    fn secret(&self, access_key_id: &str) -> Option<String> {
        if access_key_id == self.owner.access_key_id {
            return Some(self.owner.secret_access_key.clone());
        }
        let of_attempt = self.attempt(access_key_id).map(|attempt| attempt.keys.secret_access_key.clone());
        of_attempt.or_else(|| sessions::secret_of(&self.owner, access_key_id))
    }

    fn scope(&self, access_key_id: &str, session_token: Option<&str>) -> Result<Scope, KeyFault> {
        if let Some(attempt) = self.attempt(access_key_id) {
            let wanted = attempt.keys.session_token.as_deref().unwrap_or_default();
            if !session_token.is_some_and(|given| self.owner.equal(given, wanted)) {
                return Err(KeyFault::WrongToken);
            }
            return Ok(Scope::Job { read: attempt.plan.reads.clone(), write: attempt.plan.writes.clone() });
        }
        self.find(access_key_id, session_token).map(|_| Scope::All)
    }
}
