//! What this process is told of its training job: the files under `/opt/ml/input/config` and the
//! environment.
//!
//! Besides SageMaker's variables it reads three of its own: `SHOAL_ALGORITHM_PORT` (the first
//! host's port, 9099), `SHOAL_XGBOOST_SILENCE_SECONDS` (how long a host may say nothing, 60) and
//! `SHOAL_HOST_ADDRESSES` (`algo-1=10.0.0.1,algo-2=10.0.0.2`, where names do not resolve).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use shoal_contract::{BASE, Job, Paths, checkpoint_directory};

use super::failure::Failure;

/// The port on which the first host calls the roll; the image uses it for its first rendezvous.
const PORT: u16 = 9099;

/// This instance.
#[derive(Debug)]
pub(super) struct Instance {
    /// The tree of files.
    pub(super) paths: Paths,
    /// The job's configuration.
    pub(super) job: Job,
    /// The directory that is mirrored to S3.
    pub(super) checkpoints: Option<PathBuf>,
    /// The training job's name.
    pub(super) job_name: String,
    /// Cores that may be used.
    pub(super) cpus: usize,
    /// Port of the roll on the first host.
    pub(super) port: u16,
    /// How long a host may say nothing before it counts as lost.
    pub(super) silence: Duration,
    /// Addresses of hosts whose names do not resolve.
    addresses: BTreeMap<String, IpAddr>,
}

/// The tree's place: `SAGEMAKER_BASE_DIR`, else `/opt/ml`.
pub(super) fn paths() -> Paths {
    Paths::new(
        std::env::var_os("SAGEMAKER_BASE_DIR")
            .filter(|base| !base.is_empty())
            .map_or_else(|| PathBuf::from(BASE), PathBuf::from),
    )
}

impl Instance {
    /// Reads the configuration of this process's training job.
    pub(super) fn read(paths: Paths) -> Result<Self, Failure> {
        let file = |name: &str| {
            let path = paths.config().join(name);
            std::fs::read(&path).map_err(|source| Failure::File { what: "read", path, source })
        };
        let job =
            Job::parse(&file("hyperparameters.json")?, &file("resourceconfig.json")?, &file("inputdataconfig.json")?)?;
        let checkpoint_config = paths.config().join("checkpointconfig.json");
        let checkpoints = if checkpoint_config.exists() {
            Some(checkpoint_directory(&file("checkpointconfig.json")?)?)
        } else {
            None
        };
        let cpus = number("SM_NUM_CPUS").map_or_else(available_cpus, |cpus: usize| cpus.max(1));
        Ok(Self {
            paths,
            job,
            checkpoints,
            job_name: std::env::var("TRAINING_JOB_NAME").unwrap_or_default(),
            cpus,
            port: number("SHOAL_ALGORITHM_PORT").unwrap_or(PORT),
            silence: Duration::from_secs(number("SHOAL_XGBOOST_SILENCE_SECONDS").unwrap_or(60)),
            addresses: std::env::var("SHOAL_HOST_ADDRESSES")
                .map_or_else(|_| BTreeMap::new(), |text| host_addresses(&text)),
        })
    }

    /// The address of a host of the job, if its name resolves by now.
    pub(super) fn address(&self, host: &str) -> Option<IpAddr> {
        let resolved = || (host, 0).to_socket_addrs().ok()?.next().map(|address| address.ip());
        self.addresses.get(host).copied().or_else(resolved).or_else(|| plain_address(host))
    }
}

/// Where no namespaces can be had, instances are plain processes (which have `SHOAL_INSTANCE`), and
/// `algo-K` is at 127.0.1.K.
fn plain_address(host: &str) -> Option<IpAddr> {
    std::env::var_os("SHOAL_INSTANCE")?;
    let number: u8 = host.strip_prefix("algo-")?.parse().ok()?;
    Some(Ipv4Addr::new(127, 0, 1, number).into())
}

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    std::env::var(variable).ok()?.trim().parse().ok()
}

fn available_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// `algo-1=127.0.1.1,algo-2=127.0.1.2`: for instances without a private name service.
fn host_addresses(text: &str) -> BTreeMap<String, IpAddr> {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .filter_map(|(host, address)| Some((host.trim().to_owned(), address.trim().parse().ok()?)))
        .collect()
}
