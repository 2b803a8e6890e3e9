//! Jobs that lose and gain instances while they run: the list of hosts that Shoal's training
//! library reads, and its settings.

use crate::{
    Facts,
    hyperparameters::{Hyperparameters, MPI},
    mpi, ranks,
};

/// Relative to `/opt/ml`: a line `HOST:PROCESSES` for each present instance. It is replaced as a
/// whole, by renaming, while the program runs.
pub const HOSTS_FILE: &str = "input/config/shoal_hosts";

/// The content of [`HOSTS_FILE`] for these of the job's hosts, by number from 1.
pub fn hosts_file(hosts: &[String], members: &[u32], processes: u32) -> Vec<u8> {
    let members = members.iter().filter_map(|host| hosts.get((*host as usize).checked_sub(1)?));
    members.map(|host| format!("{host}:{processes}\n")).collect::<String>().into_bytes()
}

/// Processes that the job's distribution starts on each instance.
pub fn processes_per_instance(facts: &Facts) -> u32 {
    let hyperparameters = Hyperparameters::of(&facts.hyperparameters);
    if hyperparameters.is_on(MPI) {
        mpi::per_host(facts, &hyperparameters)
    } else {
        ranks::per_instance(facts).unwrap_or(1)
    }
}

/// Variables of the training library, by which ranks find the list and each other.
pub(crate) fn variables(facts: &Facts) -> Vec<(&'static str, String)> {
    let Some(elastic) = facts.elastic else { return Vec::new() };
    let least = elastic.min_instances.saturating_mul(processes_per_instance(facts)).to_string();
    let file = facts.paths.base().join(HOSTS_FILE).to_string_lossy().into_owned();
    // Horovod's workers meet where its launcher places them.
    let meets_here = !Hyperparameters::of(&facts.hyperparameters).is_on(MPI);
    let joins = (elastic.joins && meets_here).then(|| ("SHOAL_COMM_JOINS", "1".to_owned()));
    [("SHOAL_ELASTIC_ROSTER", file), ("SHOAL_ELASTIC_LEAST", least)].into_iter().chain(joins).collect()
}
