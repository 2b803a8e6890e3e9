//! Agents of instances that are retained, while they wait for an attempt.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use shoal_runtime::ConnId;

use crate::agent_stream::AgentSender;

/// Agents that serve no attempt, by connection.
#[derive(Default)]
pub(crate) struct IdleAgents(Mutex<HashMap<ConnId, AgentSender>>);

impl IdleAgents {
    pub(crate) fn insert(&self, conn: ConnId, agent: AgentSender) {
        self.lock().insert(conn, agent);
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<AgentSender> {
        self.lock().get(&conn).cloned()
    }

    pub(crate) fn remove(&self, conn: ConnId) {
        self.lock().remove(&conn);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConnId, AgentSender>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}
