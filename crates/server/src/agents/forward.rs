//! A training program's connection to this server's port for clients, which its agent on another
//! machine carries here.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream},
    os::unix::net::UnixStream,
    thread,
};

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use shoal_link::ToAgent;

use crate::agent_stream::AgentSender;

const STACK_BYTES: usize = 128 << 10;
/// Where programs of jobs come from, as those of agents on this machine do: what is counted by
/// address is not counted for the owner.
const JOBS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Carries bytes both ways until both have ended.
pub(super) fn carry(address: &str, agent: UnixStream, sender: &AgentSender) -> io::Result<()> {
    let server = connect(address)?;
    server.set_nodelay(true)?;
    sender.send(ToAgent::Ready)?;
    agent.set_read_timeout(None)?;
    agent.set_write_timeout(None)?;
    let (from, to) = (server.try_clone()?, agent.try_clone()?);
    let (end_of_server, end_of_agent) = (server.try_clone()?, agent.try_clone()?);
    let back = move || copy(from, to, |how| drop(end_of_agent.shutdown(how)));
    let back = thread::Builder::new().name("forward".into()).stack_size(STACK_BYTES).spawn(back)?;
    copy(agent, server, |how| drop(end_of_server.shutdown(how)));
    // It only ends early by panicking, and then its streams are closed all the same.
    let _ = back.join();
    Ok(())
}

fn connect(address: &str) -> io::Result<TcpStream> {
    match address.parse() {
        Ok(SocketAddr::V4(server)) if server.ip().is_loopback() => {
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            // Else the port is chosen before its peer is known, and none that another connection
            // has left may be used again for a minute.
            setsockopt(&socket, IpBindAddressNoPort, &true)?;
            bind(&socket, &SocketAddrV4::new(JOBS, 0))?;
            rustix::net::connect(&socket, &server)?;
            Ok(socket.into())
        }
        _ => TcpStream::connect(address),
    }
}

fn copy(mut from: impl Read, mut to: impl Write, end: impl Fn(Shutdown)) {
    let is_complete = io::copy(&mut from, &mut to).is_ok();
    end(if is_complete { Shutdown::Write } else { Shutdown::Both });
}
