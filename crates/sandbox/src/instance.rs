//! An instance's helper: makes the namespaces, becomes their first process, starts the program.

use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setgroups};

use crate::addresses::{PREFIX, private_address};
use crate::init::{Reaper, supervise};
use crate::netlink::{ETH0, LOOPBACK, Netlink};
use crate::privileges::{self, Fork, become_program, fork_sibling, parent_namespace};
use crate::program::{self, NotStarted};
use crate::root::{self, Builder, Shortfalls};
use crate::talk::{Mode, Order, Report, receive, send};
use crate::users::{FORWARDER_PORT, PROXY_PORT, UNPRIVILEGED_ID};
use crate::{SandboxError, SandboxSpec, plain};

pub(crate) fn run(stream: &UnixStream, _id: &str) -> ! {
    if let Err(error) = make(stream) {
        // If nobody listens any more there is nobody to tell.
        let _ = send(stream, &Report::Failed { message: error.chain() }, &[]);
    }
    std::process::exit(1)
}

fn make(stream: &UnixStream) -> Result<(), SandboxError> {
    let order = receive(stream).map_err(SandboxError::io("receive the instance's description"))?;
    let Some((Order::Start { spec, mode }, mut fds)) = order else { return Ok(()) };
    let line = if fds.len() == 3 { fds.pop() } else { None };
    let Ok([user, bridge]) = <[OwnedFd; 2]>::try_from(fds) else {
        return plain_instance(stream, *spec, mode);
    };
    // The namespace in which we are root: the machine's, or one in which our user is.
    let outer = parent_namespace(&user).map_err(SandboxError::io("find the user namespace"))?;
    if mode == Mode::Root {
        setgroups(&[]).map_err(SandboxError::io("drop root's groups"))?;
    } else {
        setns(&outer, CloneFlags::CLONE_NEWUSER).map_err(SandboxError::io("enter the user namespace"))?;
    }
    make_namespaces(&spec, &bridge)?;
    // The child is not to be heard before its parent has said who it is.
    let (mut introduced, introduction) = io::pipe().map_err(SandboxError::io("make a pipe"))?;
    match fork_sibling().map_err(SandboxError::io("fork"))? {
        Fork::Parent(pid) => {
            send(stream, &Report::Forked { pid: pid.as_raw() }, &[])
                .map_err(SandboxError::io("report the first process"))?;
            std::process::exit(0)
        }
        Fork::Child => {
            drop(introduction);
            introduced.read_to_end(&mut Vec::new()).map_err(SandboxError::io("wait to be introduced"))?;
            first_process(stream, &spec, mode, [&user, &outer], line)
        }
    }
}

/// All but the user's and the control group's; the PID namespace is for the next child.
fn make_namespaces(spec: &SandboxSpec, bridge: &OwnedFd) -> Result<(), SandboxError> {
    let own = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    if spec.addresses.is_empty() {
        connect(spec, bridge, own | CloneFlags::CLONE_NEWNET)?;
    } else {
        unshare(own).map_err(SandboxError::io("make namespaces"))?;
    }
    nix::unistd::sethostname(&spec.hostname).map_err(SandboxError::io(format!("set the host name {}", spec.hostname)))
}

/// Makes the namespaces, the network's among them, and connects that to the job's.
fn connect(spec: &SandboxSpec, bridge: &OwnedFd, all: CloneFlags) -> Result<(), SandboxError> {
    setns(bridge, CloneFlags::CLONE_NEWNET).map_err(SandboxError::io("enter the network"))?;
    let at_bridge = Netlink::open().map_err(SandboxError::io("open a netlink socket"))?;
    unshare(all).map_err(SandboxError::io("make namespaces"))?;
    let here = Netlink::open().map_err(SandboxError::io("open a netlink socket"))?;
    let address = private_address(spec.host);
    let [a, b, c, d] = address.octets();
    // The name differs from that of a dead instance at the same place, which the kernel may not
    // have cleared away yet.
    let peer = format!("h{}-{}", spec.host, std::process::id());
    let connected = here
        .add_pair([2, 0, a, b, c, d], &peer, bridge.as_fd())
        .and_then(|()| at_bridge.attach(&peer))
        .and_then(|()| here.add_address(ETH0, address, PREFIX))
        .and_then(|()| here.up(ETH0))
        .and_then(|()| here.up(LOOPBACK));
    connected.map_err(SandboxError::io(format!("connect {} to the network", spec.hostname)))?;
    // A system that refuses this has a slower network, and no other.
    let _slower = here.acknowledge_at_once(ETH0, address, PREFIX);
    Ok(())
}

/// `user` is the program's user namespace, `outer` the one around it.
fn first_process(
    stream: &UnixStream,
    spec: &SandboxSpec,
    mode: Mode,
    [user, outer]: [&OwnedFd; 2],
    line: Option<OwnedFd>,
) -> Result<(), SandboxError> {
    let listen = |port: u16| {
        let what = format!("listen on 127.0.0.1:{port} in the instance");
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(SandboxError::io(what))
    };
    let mut listeners = Vec::new();
    if spec.addresses.is_empty() {
        listeners.push(listen(FORWARDER_PORT)?);
        if spec.has_proxy {
            listeners.push(listen(PROXY_PORT)?);
        }
    }
    let builder = match mode {
        Mode::Root => Builder { owner: UNPRIVILEGED_ID, show_as: Some(outer.as_fd()) },
        Mode::Rootless | Mode::Processes | Mode::Container => Builder { owner: 0, show_as: None },
    };
    give_output(builder.owner).map_err(SandboxError::io("give the program its output"))?;
    let shortfalls = root::enter(spec, builder)?;
    match receive(stream).map_err(SandboxError::io("hear of the control group"))? {
        Some((Order::Limited, _)) => {}
        Some(_) | None => return Ok(()),
    }
    unshare(CloneFlags::CLONE_NEWCGROUP).map_err(SandboxError::io("make a control group namespace"))?;
    become_program(user.as_fd()).map_err(SandboxError::io("become the program's user"))?;
    start_and_supervise(stream, spec, mode, shortfalls, listeners, line)
}

/// So that the program can open `/dev/stdout` and `/dev/stderr`, which are pipes of their own owner
/// and mode.
fn give_output(owner: u32) -> Result<(), nix::Error> {
    let (user, group) = (Uid::from_raw(owner), Gid::from_raw(owner));
    nix::unistd::fchown(io::stdout(), Some(user), Some(group))?;
    nix::unistd::fchown(io::stderr(), Some(user), Some(group))
}

fn plain_instance(stream: &UnixStream, spec: SandboxSpec, mode: Mode) -> Result<(), SandboxError> {
    prctl::set_child_subreaper(true).map_err(SandboxError::io("become the reaper of orphans"))?;
    let (spec, notes) = plain::arrange(spec, mode)?;
    prctl::set_no_new_privs().map_err(SandboxError::io("set no_new_privs"))?;
    let shortfalls = Shortfalls { notes, read_only: false };
    start_and_supervise(stream, &spec, mode, shortfalls, Vec::new(), None)
}

fn start_and_supervise(
    stream: &UnixStream,
    spec: &SandboxSpec,
    mode: Mode,
    shortfalls: Shortfalls,
    listeners: Vec<TcpListener>,
    line: Option<OwnedFd>,
) -> Result<(), SandboxError> {
    let reaper = Reaper::new()?;
    let report = |report: Report, fds: &[_]| send(stream, &report, fds).map_err(SandboxError::io("report"));
    match program::start(spec, line)? {
        Err(NotStarted { message, code }) => report(Report::NotStarted { message, code }, &[]),
        Ok(program) => {
            privileges::forget_output().map_err(SandboxError::io("let go of the program's output"))?;
            let fds: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
            report(Report::Running { notes: shortfalls.notes, read_only: shortfalls.read_only }, &fds)?;
            drop(listeners);
            supervise(stream, &reaper, program, mode)
        }
    }
}
