//! What an agent keeps of its instance between two attempts, and how it waits for the next one.

use std::time::Duration;

use shoal_contract::Expressions;
use shoal_link::{Decoder, Frame, ToAgent, ToServer, encode};
use shoal_sandbox::{Network, Support, Zygote};

use crate::connection::{hello, receive};
use crate::shared_objects::SharedObjects;
use crate::{Options, own_log::say};

/// A server that takes nothing for so long is as good as gone.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);

/// An instance without an attempt.
pub(crate) struct Kept {
    pub(crate) support: Support,
    pub(crate) network: Network,
    /// What the next attempt's program is a run of; without one it gets a new sandbox.
    pub(crate) zygote: Option<Zygote>,
    pub(crate) expressions: Expressions,
    /// Trees that the next attempt may have, too.
    pub(crate) shared: Option<SharedObjects>,
}

/// The next attempt and its secret; `None` when there is none to wait for: the server says so, or
/// is gone.
pub(crate) fn next(first: &Options) -> Option<(String, String)> {
    match ask(first) {
        Ok(ToAgent::Serve { attempt, token }) => Some((attempt, token)),
        Ok(ToAgent::Refused { reason }) => {
            say(format_args!("the server has no use for this instance any more: {reason}"));
            None
        }
        // It has closed the connection, as it does with what it needs no longer.
        Ok(_) | Err(_) => None,
    }
}

fn ask(first: &Options) -> std::io::Result<ToAgent> {
    let mut stream = first.server.connect()?;
    stream.set_write_timeout(Some(SERVER_TIMEOUT))?;
    let idle = encode(&Frame::Message(ToServer::Idle(hello(first)))).map_err(std::io::Error::other)?;
    std::io::Write::write_all(&mut stream, &idle)?;
    receive(&mut stream, &mut Decoder::default())
}
