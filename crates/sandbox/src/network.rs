//! The private network of one training job.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::addresses::private_address;
use crate::spawn::{self, Helper};
use crate::talk::{Order, Report, receive, send};
use crate::{Isolation, SandboxError, Support, users};

/// A bridge has no more ports (BR_MAX_PORTS).
const MOST_HOSTS: u32 = 1023;
/// Loopback addresses that plain processes get: 127.0.1.K.
const MOST_PLAIN_HOSTS: u32 = 254;

/// A bridge of its own for the instances of one training job, with no way out; or, where no
/// namespaces can be had, loopback addresses.
///
/// One process makes it (the agent of the first instance) and it goes with that process; others
/// join by its handle.
#[derive(Debug)]
pub struct Network {
    kind: Kind,
    /// Where the machines of the instances have theirs in common.
    machines: Option<Vec<Ipv4Addr>>,
}

#[derive(Debug)]
enum Kind {
    Loopback,
    Private { handle: String, namespaces: Namespaces, _owner: Option<Owner> },
}

/// What an instance needs of a network.
#[derive(Debug)]
pub(crate) struct Namespaces {
    /// The user namespace in which programs live.
    pub user: OwnedFd,
    /// The network namespace that has the bridge.
    pub bridge: OwnedFd,
}

#[derive(Debug)]
struct Owner(Helper);

impl Drop for Owner {
    fn drop(&mut self) {
        // Both fail only if the helper is gone already.
        let _ = self.0.child.kill();
        let _ = self.0.child.wait();
    }
}

impl Network {
    /// Makes a network for `hosts` instances. `id` names its helper in the process list and must be
    /// unique on this machine.
    ///
    /// # Errors
    /// The machine refuses namespaces or a bridge, or there are too many hosts.
    pub fn create(id: &str, hosts: u32, support: &Support) -> Result<Network, SandboxError> {
        let most = if support.mode().has_namespaces() { MOST_HOSTS } else { MOST_PLAIN_HOSTS };
        if !(1..=most).contains(&hosts) {
            return Err(SandboxError::TooManyHosts { hosts, most });
        }
        let Isolation::Full { rootless } = support.isolation else {
            return Ok(Network { kind: Kind::Loopback, machines: None });
        };
        let helper = spawn::start(spawn::NETWORK, id, None)?;
        let owner = Owner(helper);
        let Helper { name, stream, child } = &owner.0;
        loop {
            let report = receive(stream).map_err(SandboxError::io(format!("hear from {name}")))?;
            match report.map(|(report, _)| report) {
                Some(Report::NeedsMaps) => {
                    write_maps(child.id(), users::mapped_ids(rootless))?;
                    send(stream, &Order::Mapped, &[]).map_err(SandboxError::io(format!("answer {name}")))?;
                }
                Some(Report::Up) => break,
                Some(Report::Failed { message }) => return Err(SandboxError::Helper { helper: name.clone(), message }),
                Some(_) | None => return Err(SandboxError::Silent { helper: name.clone() }),
            }
        }
        let pid = child.id();
        let started = start_time(pid).ok_or_else(|| SandboxError::Silent { helper: name.clone() })?;
        let namespaces = Namespaces::of(pid)?;
        let kind = Kind::Private { handle: format!("{pid}:{started}"), namespaces, _owner: Some(owner) };
        Ok(Network { kind, machines: None })
    }

    /// The network of the machines themselves, for instances on several of them: these are their
    /// addresses, by host number - 1.
    ///
    /// # Errors
    /// As [`Network::create`].
    pub fn of_machines(id: &str, addresses: Vec<Ipv4Addr>, support: &Support) -> Result<Network, SandboxError> {
        // The program has a user namespace all the same.
        let own = Network::create(id, 1, support)?;
        Ok(Network { machines: Some(addresses), ..own })
    }

    /// What another process of the same user on this machine needs to [`Network::join`].
    #[must_use]
    pub fn handle(&self) -> String {
        match &self.kind {
            Kind::Loopback => "loopback".to_owned(),
            Kind::Private { handle, .. } => handle.clone(),
        }
    }

    /// Joins the network that another process of the same user has made. It still ends with its
    /// maker.
    ///
    /// # Errors
    /// The maker is gone.
    pub fn join(handle: &str, support: &Support) -> Result<Network, SandboxError> {
        if !support.mode().has_namespaces() {
            return Ok(Network { kind: Kind::Loopback, machines: None });
        }
        let gone = || SandboxError::NetworkGone { handle: handle.to_owned() };
        let (pid, started) = handle.split_once(':').ok_or_else(gone)?;
        let (pid, started) = (pid.parse::<u32>().map_err(|_| gone())?, started.parse::<u64>().map_err(|_| gone())?);
        let namespaces = Namespaces::of(pid).map_err(|_| gone())?;
        // Asked after the namespaces were opened: a process that began then has not been replaced
        // by another one since.
        if start_time(pid) != Some(started) {
            return Err(gone());
        }
        let kind = Kind::Private { handle: handle.to_owned(), namespaces, _owner: None };
        Ok(Network { kind, machines: None })
    }

    /// The address of instance number `host` (from 1): what `algo-<host>` resolves to inside an
    /// instance. Plain processes bind it to stay out of each other's way, and names do not resolve
    /// for them.
    #[must_use]
    pub fn address(&self, host: u32) -> Ipv4Addr {
        if let Some(address) = self.machines().get((host as usize).wrapping_sub(1)) {
            return *address;
        }
        match self.kind {
            Kind::Loopback => Ipv4Addr::new(127, 0, 1, host as u8),
            Kind::Private { .. } => private_address(host),
        }
    }

    /// The addresses of the instances' machines, where these are several; else none.
    #[must_use]
    pub fn machines(&self) -> &[Ipv4Addr] {
        self.machines.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespaces(&self) -> Option<&Namespaces> {
        match &self.kind {
            Kind::Loopback => None,
            Kind::Private { namespaces, .. } => Some(namespaces),
        }
    }
}

impl Namespaces {
    fn of(pid: u32) -> Result<Namespaces, SandboxError> {
        let open = |kind: &str| {
            let path = format!("/proc/{pid}/ns/{kind}");
            File::open(&path).map(OwnedFd::from).map_err(SandboxError::io(format!("open {path}")))
        };
        Ok(Namespaces { user: open("user")?, bridge: open("net")? })
    }

    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.user.as_fd(), self.bridge.as_fd()]
    }
}

/// Root of the helper's user namespace is `user` and `group` on the machine.
fn write_maps(pid: u32, (user, group): (u32, u32)) -> Result<(), SandboxError> {
    for (file, text) in
        [("setgroups", "deny".to_owned()), ("uid_map", format!("0 {user} 1")), ("gid_map", format!("0 {group} 1"))]
    {
        let path = format!("/proc/{pid}/{file}");
        fs::write(&path, &text).map_err(SandboxError::io(format!("write \"{text}\" to {path}")))?;
    }
    Ok(())
}

/// When a process began, in clock ticks since the machine did: with the pid, a name that is never
/// given twice.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may contain anything; the start
    // time is the 20th after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_time_is_found_whatever_the_name() {
        assert!(start_time(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(start_time(u32::MAX), None);
    }
}
