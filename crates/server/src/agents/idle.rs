//! Agents of instances that are retained: they serve no attempt.

use shoal_plane::Host;
use std::{io, os::unix::net::UnixStream, sync::Arc};

use shoal_link::{Decoder, Hello, ToAgent};
use shoal_runtime::{
    ConnId,
    warm_pool::{AllocationId, Event},
};

use crate::{
    AccessKeys,
    agent_stream::{AgentSender, read_some},
    idle_agents::IdleAgents,
    machines::Machines,
};

/// Where they are held.
pub(crate) struct Idle {
    pub(crate) keys: AccessKeys,
    pub(crate) idle_agents: Arc<IdleAgents>,
    pub(crate) machines: Machines,
}

impl Idle {
    /// Serves the connection of an agent that serves no attempt, until its end.
    pub(super) fn hold(
        &self,
        hello: &Hello,
        conn: ConnId,
        mut stream: UnixStream,
        sender: &AgentSender,
        mut decoder: Decoder,
    ) -> io::Result<()> {
        if !self.keys.equal(&hello.token, &self.keys.agent_token(&hello.attempt)) {
            return sender.send(ToAgent::Refused { reason: "wrong token".to_owned() });
        }
        let allocation = AllocationId(hello.attempt.as_str().into());
        self.idle_agents.insert(conn, sender.clone());
        self.machines.send(Event::AgentIdle { allocation: allocation.clone(), host: Host(hello.host), conn });
        // The agent sends nothing; what ends this is the end of the connection.
        let ended = stream.set_read_timeout(None).map(|()| while read_some(&mut stream, &mut decoder).is_ok() {});
        self.idle_agents.remove(conn);
        self.machines.send(Event::AgentClosed { allocation, conn });
        ended
    }
}
