//! The keys of a server beside its owner's: who holds them and what each opens.
//!
//! A key is a row; its secret is stored nowhere, as it follows from the owner's key and the id.
//! Rows of keys are few and looked up with each request, so all are in memory.

mod access;
mod locations;
mod member;

use std::sync::{Arc, PoisonError, RwLock};

use shoal_store::{ResourceFilter, ResourceSort, Rows, StoreError};

use crate::keys::AccessKeys;

pub(crate) use access::{Access, access};
pub(crate) use locations::locations;
pub(crate) use member::{KEY, Member, Places};

/// Rows that are read at once.
const READ: usize = 1000;

/// All keys but the owner's.
pub(crate) struct Team {
    owner: AccessKeys,
    rows: Arc<dyn Rows>,
    members: RwLock<Vec<Arc<Member>>>,
}

impl Team {
    /// The keys of a data directory.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) fn open(owner: AccessKeys, rows: Arc<dyn Rows>) -> Result<Self, StoreError> {
        let team = Self { owner, rows, members: RwLock::default() };
        team.reload()?;
        Ok(team)
    }

    /// Reads the keys again; after this a removed one opens nothing.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) fn reload(&self) -> Result<(), StoreError> {
        // Locked while rows are read: of two changes at once, the last to read sees both.
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        let mut read = Vec::new();
        let mut filter = ResourceFilter { sort: ResourceSort::Name, limit: READ, ..ResourceFilter::new(KEY) };
        loop {
            let page = self.rows.list(&filter)?;
            for row in &page.rows {
                match Member::of(row) {
                    Some(member) => read.push(Arc::new(member)),
                    None => tracing::error!("key {} opens nothing: its row cannot be read", row.name),
                }
            }
            match page.next {
                None => break,
                next => filter.after = next,
            }
        }
        *members = read;
        Ok(())
    }

    /// All, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Member>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The holder of the key with this id.
    pub(crate) fn by_key(&self, access_key_id: &str) -> Option<Arc<Member>> {
        self.find(|member| member.access_key_id == access_key_id)
    }

    /// The holder of the key with this name.
    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Member>> {
        self.find(|member| member.name == name)
    }

    /// Who created a resource. A key that was removed opens nothing, so its jobs are narrowed to
    /// what jobs always may do.
    pub(crate) fn creator(&self, name: &str) -> Arc<Member> {
        self.by_name(name).unwrap_or_else(|| Arc::new(Member::removed(name)))
    }

    /// The secret of a key, which is that of its id alone.
    pub(crate) fn secret(&self, access_key_id: &str) -> String {
        self.owner.derive("member-secret:", access_key_id)[..40].to_owned()
    }

    /// The key as its holder has it.
    pub(crate) fn keys(&self, member: &Member) -> AccessKeys {
        AccessKeys {
            access_key_id: member.access_key_id.clone(),
            secret_access_key: self.secret(&member.access_key_id),
            session_token: None,
        }
    }

    fn find(&self, is_it: impl Fn(&Member) -> bool) -> Option<Arc<Member>> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members.iter().find(|member| is_it(member)).cloned()
    }
}
