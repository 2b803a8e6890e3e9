//! Instances that run on a compute target while their agents do not reach this server: its address
//! is wrong there, or a firewall closes its port. Their scheduler cannot know that.

use std::{collections::HashMap, time::Duration};

use shoal_plane::{AttemptId, Host};

/// For agents to start and connect; then the job's status message has what to check.
const EXPECTED: Duration = Duration::from_secs(20);

/// How long attempts have run without a connection of some of their agents.
#[derive(Debug, Default)]
pub(super) struct Unreached(HashMap<AttemptId, Duration>);

impl Unreached {
    /// Time has passed in which some agents were not connected; whether it is to be reported now.
    pub(super) fn elapse(&mut self, attempt: &AttemptId, passed: Duration) -> bool {
        let before = self.0.entry(attempt.clone()).or_default();
        let is_late = *before < EXPECTED && *before + passed >= EXPECTED;
        *before += passed;
        is_late
    }

    pub(super) fn forget_all_but(&mut self, is_known: impl Fn(&AttemptId) -> bool) {
        self.0.retain(|attempt, _| is_known(attempt));
    }
}

/// For the job's status message. `machines`: what is known of where the hosts are.
pub(super) fn reason(hosts: &[Host], machines: &[String], address: &str) -> String {
    let hosts = Vec::from_iter(hosts.iter().map(Host::to_string)).join(", ");
    let seconds = EXPECTED.as_secs();
    format!(
        "the compute target has run {hosts}{} for {seconds} s, but no agent has connected from there to this server at \
         {address}. {}",
        on(machines),
        what_to_check(address)
    )
}

/// Why a host is given up whose agent has never connected.
pub(super) fn lost(host: Host, machine: Option<&str>, address: &str, silence: Duration) -> String {
    let (machine, seconds) = (on(machine.map(str::to_owned).as_slice()), silence.as_secs());
    format!(
        "the agent of {host}{machine} has not connected to this server at {address} within {seconds} s. {}",
        what_to_check(address)
    )
}

/// ` on n1, n2`
pub(super) fn on(machines: &[String]) -> String {
    if machines.is_empty() { String::new() } else { format!(" on {}", machines.join(", ")) }
}

fn what_to_check(address: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    format!(
        "The address is probably not reachable from the nodes: check there with `nc -vz {host} {port}`, set agents_address \
         in shoal.toml to this machine's name or address as the nodes know it, and open the port of agents_listen in \
         firewalls"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_reported_once_when_it_is_late() {
        let (mut unreached, attempt) = (Unreached::default(), AttemptId::from("a"));
        let half = Duration::from_millis(500);
        let reports = (0..200).filter(|_| unreached.elapse(&attempt, half));
        assert_eq!(Vec::from_iter(reports), [39]);
        unreached.forget_all_but(|_| false);
        assert!(unreached.elapse(&attempt, EXPECTED), "another one of that name");
    }

    #[test]
    fn the_address_and_what_to_check_are_named() {
        let names = ["n1".to_owned(), "n2".to_owned()];
        let text = reason(&[Host(1), Host(2)], &names, "login1:9778");
        for part in ["algo-1, algo-2 on n1, n2", "at login1:9778", "nc -vz login1 9778", "agents_address"] {
            assert!(text.contains(part), "{text}");
        }
        let text = lost(Host(1), None, "login1:9778", Duration::from_secs(300));
        assert!(text.starts_with("the agent of algo-1 has not connected to this server at login1:9778 within 300 s. "));
    }
}
