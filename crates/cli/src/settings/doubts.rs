//! What is allowed and surely not meant: told when a server starts.

use std::net::SocketAddr;

use shoal_algos::{Algorithm, Algorithms};
use shoal_link::NetworkMode;
use shoal_tuner::near;

use super::{Settings, declared::SETTINGS};

/// Variables that begin as the settings' do, and are read elsewhere: by agents, algorithms, process
/// groups, the Python package and the tests.
const OTHERS: [&str; 18] = [
    "SHOAL_AGENT_TOKEN",
    "SHOAL_ALGORITHM_PORT",
    "SHOAL_BIN",
    "SHOAL_CACHE",
    "SHOAL_GPUS_FROM",
    "SHOAL_HOST_ADDRESSES",
    "SHOAL_INSTANCE",
    "SHOAL_ISOLATION",
    "SHOAL_MUTATIONS",
    "SHOAL_NODE",
    "SHOAL_SDK_POLLING",
    "SHOAL_SEED",
    "SHOAL_SHARED",
    "SHOAL_SHARED_OBJECTS",
    "SHOAL_SHARED_OBJECTS_SIZE",
    "SHOAL_SOAK",
    "SHOAL_SUPPORT",
    "SHOAL_TORCH_PYTHON",
];
/// Beginnings of whole families of them, beside those of each algorithm.
const FAMILIES: [&str; 3] = ["SHOAL_COMM_", "SHOAL_MPI_", "SHOAL_TEST_"];

impl Settings {
    /// Warnings, given the names of the environment's variables.
    pub(crate) fn doubts(&self, variables: impl IntoIterator<Item = String>, algorithms: Algorithms) -> Vec<String> {
        let network = &self.network;
        let reaches_a_list = network.max == NetworkMode::AllowList;
        let of_the_network = match (network.allow.is_empty(), reaches_a_list) {
            (false, false) if network.max == NetworkMode::None => Some(
                "network_allow names hosts, and no job may reach them: network is none; start with --network \
                      allow-list"
                    .to_owned(),
            ),
            (true, true) => Some(
                "network is allow-list, and network_allow names no host, so that jobs reach none; name some: \
                 --network-allow pypi.org"
                    .to_owned(),
            ),
            _ => None,
        };
        let is_each_machines_own = |listen: SocketAddr| listen.ip().is_unspecified() || listen.ip().is_loopback();
        let of_agents = self.agents.as_ref().filter(|it| it.address.is_none() && is_each_machines_own(it.listen));
        let of_agents = of_agents.map(|agents| {
            format!(
                "agents_listen is {} and agents_address is not set, so that agents on another machine look for this \
                 server there: set agents_address to this machine's name as other machines know it",
                agents.listen
            )
        });
        let families = Vec::from_iter(
            FAMILIES.map(str::to_owned).into_iter().chain(algorithms.iter().map(Algorithm::variable_prefix)),
        );
        let known = || SETTINGS.iter().map(|setting| format!("SHOAL_{}", setting.name.to_uppercase()));
        let is_ours = |name: &String| {
            name.starts_with("SHOAL_")
                && !OTHERS.contains(&name.as_str())
                && !families.iter().any(|family| name.starts_with(family))
                && !known().any(|known| known == *name)
        };
        let names = Vec::from_iter(known());
        let unknown = variables.into_iter().filter(is_ours).map(|name| {
            let hint = near(&name, names.iter().map(String::as_str));
            format!("the variable {name} is no setting, and has no effect{hint}")
        });
        let mut unknown = Vec::from_iter(unknown);
        unknown.sort();
        let of_file_systems = self.file_systems.missing().map(|(id, path)| {
            format!(
                "file_systems names {} for {id}, which is no directory at present: jobs that want it are refused",
                path.display()
            )
        });
        of_the_network.into_iter().chain(of_agents).chain(of_file_systems).chain(unknown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Settings, Typed};

    fn doubts(flags: &[(&str, &str)], variables: &[&str]) -> Vec<String> {
        let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let settings = Settings::of(&Typed::gather(&flags, &|_| None, &|_| Ok(None)).unwrap()).unwrap();
        settings.doubts(variables.iter().map(|name| (*name).to_owned()), shoal_algos::BUILT_IN)
    }

    #[test]
    fn agents_elsewhere_need_an_address_of_this_machine() {
        let listen = |address| ("agents_listen", address);
        assert!(doubts(&[listen("0.0.0.0:9778")], &[])[0].contains("set agents_address to this machine's name"));
        assert_eq!(doubts(&[listen("127.0.0.1:0")], &[]).len(), 1);
        assert_eq!(doubts(&[listen("0.0.0.0:9778"), ("agents_address", "login1")], &[]).len(), 0);
        assert_eq!(doubts(&[listen("10.0.0.5:9778")], &[]).len(), 0);
    }

    #[test]
    fn what_is_surely_not_meant_is_told() {
        let none: [&str; 0] = [];
        assert_eq!(
            doubts(&[], &["SHOAL_MEMORY", "SHOAL_COMM_HOST", "SHOAL_ALGORITHM_PORT", "SHOAL_CACHE", "HOME"]),
            none
        );
        let missing = doubts(&[("file_systems", "fs-01234567=/none/such,fs-0000000a=/tmp")], &[]);
        assert_eq!(missing.len(), 1);
        assert!(missing[0].contains("names /none/such for fs-01234567, which is no directory"), "{missing:?}");
        let hosts = ("network_allow", "pypi.org");
        assert_eq!(doubts(&[("network", "allow-list"), hosts], &[]), none);
        assert_eq!(doubts(&[("network_max", "host"), hosts], &[]), none);
        assert!(doubts(&[hosts], &[])[0].contains("start with --network allow-list"));
        assert!(doubts(&[("network", "allow-list")], &[])[0].contains("network_allow names no host"));
        assert_eq!(
            doubts(&[], &["SHOAL_MEMROY"]),
            ["the variable SHOAL_MEMROY is no setting, and has no effect; did you mean SHOAL_MEMORY?"]
        );
    }
}
