//! Whose keys open something: the owner's, those that the owner gave others, those of assumed roles
//! and of attempts that run.

use std::sync::Arc;

use shoal_plane::{AttemptId, JobName};
use shoal_s3::{KeyFault, KeyStore, PolicyCaller, Scope};
use shoal_wire::arn;

use crate::{
    attempts::{Attempt, Attempts},
    clock::now_ms,
    identity::{Identity, ROLE},
    keys::AccessKeys,
    quotas::{Quotas, user_of},
    roles::{self, Roles},
    sessions::{self, Session},
    team::{Member, Team},
};

/// All keys that open something.
pub(crate) struct KeyRing {
    pub(crate) owner: AccessKeys,
    pub(crate) team: Arc<Team>,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) roles: Arc<Roles>,
    pub(crate) identity: Identity,
}

/// A key and whose it is.
pub(crate) struct Known {
    pub(crate) keys: AccessKeys,
    pub(crate) holder: Holder,
    /// Whose rights bound it; `None` for the owner's.
    pub(crate) member: Option<Arc<Member>>,
}

/// Who holds a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The owner of the server.
    Owner,
    /// A person or program with a key that the owner added.
    Member,
    /// Who assumed a role: has the rights of the key that did, for a time.
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
            return Ok(Known { keys: self.owner.clone(), holder: Holder::Owner, member: None });
        }
        if let Some(attempt) = self.attempt(access_key_id) {
            let holder = Holder::Attempt { id: attempt.plan.attempt.clone(), job: attempt.plan.job.clone() };
            return Ok(Known { keys: attempt.keys.clone(), holder, member: self.creator(&attempt) });
        }
        if let Some(member) = self.team.by_key(access_key_id) {
            return Ok(Known { keys: self.team.keys(&member), holder: Holder::Member, member: Some(member) });
        }
        let secret_access_key = sessions::secret_of(&self.owner, access_key_id).ok_or(KeyFault::Unknown)?;
        let session = Session::of(&self.owner, access_key_id, token, now_ms())?;
        if !self.roles.has(&session.role) {
            return Err(KeyFault::Unknown);
        }
        // A session ends with the key that it was opened with.
        let member = match &session.issuer {
            None => None,
            Some(issuer) => Some(self.team.by_key(issuer).ok_or(KeyFault::Unknown)?),
        };
        let keys = AccessKeys {
            access_key_id: access_key_id.to_owned(),
            secret_access_key,
            session_token: token.map(str::to_owned),
        };
        Ok(Known { keys, holder: Holder::Session(session), member })
    }

    /// How policies name a holder, and what its role narrows it to.
    pub(crate) fn policy_caller(&self, holder: &Holder, member: Option<&Member>) -> PolicyCaller {
        let account = &self.identity.account;
        match (holder, member) {
            (Holder::Session(session), _) => PolicyCaller {
                principals: roles::principals(account, &session.role, &session.name),
                username: None,
                narrowed_by: self.roles.policies(&session.role).into_iter().chain(session.policies()).collect(),
            },
            (Holder::Member, Some(member)) => member.policy_caller(account),
            (Holder::Attempt { id, .. }, _) => {
                PolicyCaller { principals: vec![arn::assumed_role(account, ROLE, id)], ..PolicyCaller::default() }
            }
            (Holder::Owner | Holder::Member, _) => {
                PolicyCaller { principals: vec![arn::assumed_role(account, ROLE, "shoal")], ..PolicyCaller::default() }
            }
        }
    }

    /// Whose training job an attempt is; `None` for the owner's.
    fn creator(&self, attempt: &Attempt) -> Option<Arc<Member>> {
        attempt.plan.creator.as_deref().map(|creator| self.team.creator(creator))
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
        if let Some(attempt) = self.attempt(access_key_id) {
            return Some(attempt.keys.secret_access_key.clone());
        }
        let of_member = self.team.by_key(access_key_id).map(|_| self.team.secret(access_key_id));
        of_member.or_else(|| sessions::secret_of(&self.owner, access_key_id))
    }

    fn scope(&self, access_key_id: &str, session_token: Option<&str>) -> Result<Scope, KeyFault> {
        if let Some(attempt) = self.attempt(access_key_id) {
            let wanted = attempt.keys.session_token.as_deref().unwrap_or_default();
            if !session_token.is_some_and(|given| self.owner.equal(given, wanted)) {
                return Err(KeyFault::WrongToken);
            }
            let (mut read, mut write) = (attempt.plan.reads.clone(), attempt.plan.writes.clone());
            // What its creator may not do any more, it may not do either.
            if let Some(creator) = self.creator(&attempt) {
                read.retain(|(bucket, prefix)| creator.may_read(bucket, prefix));
                write.retain(|(bucket, prefix)| creator.may_write(bucket, prefix));
            }
            return Ok(Scope::Job { read, write });
        }
        let known = self.find(access_key_id, session_token)?;
        if !self.quotas.admits_request(user_of(known.member.as_deref()), now_ms()) {
            return Err(KeyFault::TooMany);
        }
        Ok(known.member.map_or(Scope::All, |member| member.scope()))
    }

    fn caller(&self, access_key_id: &str, session_token: Option<&str>) -> PolicyCaller {
        match self.find(access_key_id, session_token) {
            Ok(known) => self.policy_caller(&known.holder, known.member.as_deref()),
            // It has ended since its scope was read.
            Err(_) => PolicyCaller { narrowed_by: vec![Arc::default()], ..PolicyCaller::default() },
        }
    }

    /// What jobs store is not lost to a quota.
    fn full(&self, access_key_id: &str, session_token: Option<&str>) -> Option<String> {
        if self.attempt(access_key_id).is_some() {
            return None;
        }
        let known = self.find(access_key_id, session_token).ok()?;
        self.quotas.full(user_of(known.member.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shoal_launch::AllocationSpec;
    use shoal_store::{Batch, Journal as _, RowChange, SqliteJournal};
    use shoal_wire::KeyRole;

    use super::*;
    use crate::attempts::Plan;

    fn ring() -> KeyRing {
        let owner = AccessKeys {
            access_key_id: "AKIA0123456789ABCDEF".to_owned(),
            secret_access_key: "secret".to_owned(),
            session_token: None,
        };
        let plan = json!({"version": 1, "job": "job", "attempt": "job-1", "streams": [], "isolated": false,
            "assignments": [], "reads": [["data", "train/"]], "writes": [["out", "job/"]]});
        let allocation = AllocationSpec {
            wants: shoal_launch::Wants::default(),
            id: "job-1".to_owned(),
            instances: 1,
            program: "/bin/false".into(),
            args: Vec::new(),
            env: Vec::new(),
            nodes: Vec::new(),
            dir: "/".into(),
        };
        let attempts = Arc::new(Attempts::default());
        attempts.insert(Attempt::new(serde_json::from_value(plan.clone()).unwrap(), allocation.clone(), &owner));
        let mut of_anna: Plan = serde_json::from_value(plan).unwrap();
        (of_anna.attempt, of_anna.creator) = ("anna-1".into(), Some("anna".to_owned()));
        of_anna.writes.push(("mine".to_owned(), "anna/job/".to_owned()));
        attempts.insert(Attempt::new(of_anna, allocation, &owner));
        let team = team(&owner, &[]);
        let identity = Identity { region: "us-east-1".to_owned(), account: "123456789012".to_owned() };
        KeyRing { owner, team, attempts, quotas: Arc::default(), roles: Arc::default(), identity }
    }

    /// The team that reads these keys of a journal.
    fn team(owner: &AccessKeys, members: &[Member]) -> Arc<Team> {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = SqliteJournal::open(&dir.path().join("shoal.db")).unwrap();
        let rows = members.iter().map(|member| RowChange::Put(Box::new(member.to_row("123456789012")))).collect();
        journal.append(&Batch { events: Vec::new(), rows }).unwrap();
        Arc::new(Team::open(owner.clone(), Arc::new(journal.rows())).unwrap())
    }

    fn with_members(ring: &mut KeyRing, members: &[Member]) {
        ring.team = team(&ring.owner, members);
    }

    fn member(name: &str, role: KeyRole, access_key_id: &str) -> Member {
        Member {
            name: name.to_owned(),
            role,
            access_key_id: access_key_id.to_owned(),
            read: None,
            write: vec![("mine".to_owned(), format!("{name}/"))],
            created_ms: 1,
            rotated_ms: 1,
        }
    }

    #[test]
    fn each_key_opens_what_its_role_may_do() {
        let mut ring = ring();
        let members = [
            member("anna", KeyRole::User, "AKIA000000000000ANNA"),
            member("rita", KeyRole::Reader, "AKIA000000000000RITA"),
            member("otto", KeyRole::Owner, "AKIA000000000000OTTO"),
        ];
        with_members(&mut ring, &members);
        let mut secrets = std::collections::BTreeSet::from([ring.owner.secret_access_key.clone()]);
        for member in &members {
            let known = ring.find(&member.access_key_id, None).unwrap();
            assert_eq!((known.holder, known.member.as_deref()), (Holder::Member, Some(member)));
            assert_eq!(ring.secret(&member.access_key_id), Some(known.keys.secret_access_key.clone()));
            assert!(secrets.insert(known.keys.secret_access_key), "no secret is another one's");
            assert_eq!(ring.scope(&member.access_key_id, None), Ok(member.scope()));
        }
        assert_eq!(members[2].scope(), Scope::All);
        assert_eq!(members[1].scope(), Scope::Key { read: None, write: Vec::new() });
    }

    #[test]
    fn a_role_has_the_rights_of_the_key_that_assumed_it_and_ends_with_it() {
        let mut ring = ring();
        let anna = member("anna", KeyRole::User, "AKIA000000000000ANNA");
        with_members(&mut ring, std::slice::from_ref(&anna));
        let session = Session {
            issuer: Some(anna.access_key_id.clone()),
            role: "Trainer".to_owned(),
            name: "me".to_owned(),
            expires_ms: now_ms() + 3_600_000,
            documents: Vec::new(),
        };
        let keys = session.open(&ring.owner).unwrap();
        let (id, token) = (keys.access_key_id.as_str(), keys.session_token.as_deref());
        assert_eq!(ring.find(id, token).unwrap().member.as_deref(), Some(&anna));
        assert_eq!(ring.scope(id, token), Ok(anna.scope()));
        // Rotated: another id.
        with_members(&mut ring, &[member("anna", KeyRole::User, "AKIA000000000ROTATED")]);
        assert_eq!(fault(ring.find(id, token)), Some(KeyFault::Unknown));
        assert_eq!(fault(ring.find(&anna.access_key_id, None)), Some(KeyFault::Unknown));
        assert_eq!(ring.secret(&anna.access_key_id), None);
    }

    #[test]
    fn a_jobs_keys_open_no_more_than_its_creators() {
        let mut ring = ring();
        let keys = ring.owner.of_attempt(&"anna-1".into());
        let token = keys.session_token.as_deref();
        let pair = |bucket: &str, prefix: &str| (bucket.to_owned(), prefix.to_owned());
        let narrow = |read: Option<Vec<(String, String)>>| Member { read, ..member("anna", KeyRole::User, "AKIA1") };
        for (members, read, write) in [
            (vec![narrow(None)], vec![pair("data", "train/")], vec![pair("mine", "anna/job/")]),
            (vec![narrow(Some(vec![pair("data", "train/x")]))], vec![], vec![pair("mine", "anna/job/")]),
            (vec![], vec![], vec![]),
            (vec![member("anna", KeyRole::Reader, "AKIA1")], vec![pair("data", "train/")], vec![]),
            (
                vec![member("anna", KeyRole::Owner, "AKIA1")],
                vec![pair("data", "train/")],
                vec![pair("out", "job/"), pair("mine", "anna/job/")],
            ),
        ] {
            with_members(&mut ring, &members);
            assert_eq!(ring.scope(&keys.access_key_id, token), Ok(Scope::Job { read, write }), "{members:?}");
            let known = ring.find(&keys.access_key_id, token).unwrap();
            assert_eq!(known.member.map(|it| it.name.clone()).as_deref(), Some("anna"), "also of a removed key");
        }
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
        let session = |expires_ms| Session {
            issuer: None,
            role: "Trainer".to_owned(),
            name: "me".to_owned(),
            expires_ms,
            documents: Vec::new(),
        };
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
