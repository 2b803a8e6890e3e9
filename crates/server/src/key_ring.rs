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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shoal_launch::AllocationSpec;

    use super::*;

    fn ring() -> KeyRing {
        let owner = AccessKeys {
            access_key_id: "AKIA0123456789ABCDEF".to_owned(),
            secret_access_key: "secret".to_owned(),
            session_token: None,
        };
        let plan = json!({"version": 1, "job": "job", "attempt": "job-1", "streams": [], "isolated": false,
            "assignments": [], "reads": [["data", "train/"]], "writes": [["out", "job/"]]});
        let allocation = AllocationSpec {
            id: "job-1".to_owned(),
            instances: 1,
            program: "/bin/false".into(),
            args: Vec::new(),
            env: Vec::new(),
            nodes: Vec::new(),
            wants: shoal_launch::Wants::default(),
            dir: "/".into(),
        };
        let attempts = Arc::new(Attempts::default());
        attempts.insert(Attempt::new(serde_json::from_value(plan).unwrap(), allocation, &owner));
        KeyRing { owner, attempts }
    }

    fn fault<T>(found: Result<T, KeyFault>) -> Option<KeyFault> {
        found.err()
    }

    #[test]
    fn keys_open_what_their_holders_may_do() {
        let ring = ring();
        let (owner, attempt) = (ring.owner.clone(), ring.owner.of_attempt(&"job-1".into()));
        assert_eq!(ring.find(&owner.access_key_id, None).unwrap().holder, Holder::Owner);
        assert!(matches!(ring.scope(&owner.access_key_id, None), Ok(Scope::All)));
        let token = attempt.session_token.as_deref();
        let of_job = ring.find(&attempt.access_key_id, token).unwrap();
        assert_eq!(of_job.holder, Holder::Attempt { id: "job-1".into(), job: "job".into() });
        assert_eq!(of_job.keys, attempt, "the signature is compared with its token, too");
        match ring.scope(&attempt.access_key_id, token) {
            Ok(Scope::Job { read, write }) => {
                assert_eq!(read, [("data".to_owned(), "train/".to_owned())]);
                assert_eq!(write, [("out".to_owned(), "job/".to_owned())]);
            }
            _ => panic!("not the job's scope"),
        }
        for wrong in [None, Some(""), Some("x"), owner.of_attempt(&"job-2".into()).session_token.as_deref()] {
            assert_eq!(fault(ring.scope(&attempt.access_key_id, wrong)), Some(KeyFault::WrongToken), "{wrong:?}");
        }
        assert_eq!(ring.secret(&attempt.access_key_id), Some(attempt.secret_access_key));
    }

    #[test]
    fn keys_of_attempts_that_are_over_open_nothing() {
        let ring = ring();
        let attempt = ring.owner.of_attempt(&"job-1".into());
        ring.attempts.remove(&"job-1".into());
        let token = attempt.session_token.as_deref();
        assert_eq!(fault(ring.find(&attempt.access_key_id, token)), Some(KeyFault::Unknown));
        assert_eq!(fault(ring.scope(&attempt.access_key_id, token)), Some(KeyFault::Unknown));
        assert_eq!(ring.secret(&attempt.access_key_id), None);
    }

    #[test]
    fn an_assumed_role_has_the_owners_rights_until_it_expires() {
        let ring = ring();
        let session = |expires_ms| Session { role: "Trainer".to_owned(), name: "me".to_owned(), expires_ms };
        let keys = session(now_ms() + 3_600_000).open(&ring.owner).unwrap();
        let (id, token) = (keys.access_key_id.as_str(), keys.session_token.as_deref());
        assert!(matches!(ring.find(id, token).unwrap().holder, Holder::Session(it) if it.role == "Trainer"));
        assert!(matches!(ring.scope(id, token), Ok(Scope::All)));
        assert_eq!(ring.secret(id), Some(keys.secret_access_key.clone()));
        assert_eq!(fault(ring.find(id, None)), Some(KeyFault::WrongToken));
        assert_eq!(fault(ring.scope(id, Some("x"))), Some(KeyFault::WrongToken));
        let over = session(now_ms() - 1).open(&ring.owner).unwrap();
        let expired = ring.find(&over.access_key_id, over.session_token.as_deref());
        assert_eq!(fault(expired), Some(KeyFault::Expired));
        for unknown in ["", "AKIA", "ASIA0123456789ABCDEF", "akia0123456789abcdef"] {
            assert_eq!(fault(ring.find(unknown, None)), Some(KeyFault::Unknown), "{unknown}");
            assert_eq!(ring.secret(unknown), None, "{unknown}");
        }
    }
}
