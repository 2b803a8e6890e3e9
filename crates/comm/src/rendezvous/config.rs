//! How a group is to be formed: from the environment, as launchers of the field set it, or by hand.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fmt};

use super::handshake::Secret;
use super::store::Store;
use crate::{Error, guard::UNLIMITED, staging::Order};

/// Where ranks find each other.
#[derive(Clone)]
pub enum Meeting {
    /// Rank 0 serves a store at this address; the others connect to it.
    Tcp {
        /// Name or address of rank 0's machine.
        host: String,
        /// A free port there.
        port: u16,
    },
    /// A directory that all ranks reach, new or empty for each group.
    Directory(PathBuf),
    /// A store that the caller has: of another library, or [`LocalStore`](super::LocalStore)
    /// between threads.
    Store(Arc<dyn Store>),
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Store(store) => f.write_str(&store.place()),
        }
    }
}

/// Which transport moves the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carrier {
    /// Shared memory within a host, TCP across.
    #[default]
    Auto,
    /// TCP between all ranks, also on one host.
    Tcp,
    /// NCCL between GPUs, one for each rank; needs the feature `nccl`, NCCL's library and CUDA's
    /// driver. The library is looked for by its name `libnccl.so.2`, or at the path in
    /// `SHOAL_COMM_NCCL`. Addresses of calls may be of this GPU's memory; what writes it must be
    /// done before the call.
    Nccl {
        /// This rank's GPU, as CUDA numbers those that the process sees.
        device: usize,
    },
}

/// How a group is to be formed. [`Config::new`] and the setters, or [`Config::from_env`].
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) meeting: Meeting,
    pub(crate) secret: Secret,
    pub(crate) heartbeat: Duration,
    pub(crate) patience: Duration,
    pub(crate) deadline: Duration,
    pub(crate) stall: Duration,
    pub(crate) address: Option<IpAddr>,
    pub(crate) host: Option<String>,
    pub(crate) carrier: Carrier,
    pub(crate) keep_input: bool,
    pub(crate) replaces: bool,
    pub(crate) joins: bool,
    /// How ranks of this host go through memory that is not registered; rank 0's counts.
    pub(crate) staging: Order,
}

/// Least heartbeat: below it a busy machine would be taken for a dead one.
pub const LEAST_HEARTBEAT: Duration = Duration::from_millis(500);

impl Config {
    /// Rank `rank` of `size`, which meet there.
    pub fn new(rank: usize, size: usize, meeting: Meeting) -> Self {
        Self {
            rank,
            size,
            meeting,
            secret: Secret::new(""),
            heartbeat: Duration::from_secs(5),
            patience: Duration::from_secs(300),
            deadline: Duration::from_secs(1800),
            stall: Duration::from_secs(30),
            address: None,
            host: None,
            carrier: Carrier::Auto,
            keep_input: false,
            replaces: false,
            joins: false,
            staging: Order::Auto,
        }
    }

    /// From the environment: `MASTER_ADDR`, `MASTER_PORT`, `RANK`, `WORLD_SIZE` as launchers set
    /// them. In a training job of Shoal's without a launcher, where the last two are missing, the
    /// job's instances are the ranks (`SM_HOSTS`, `SM_CURRENT_HOST`; those of its distribution's
    /// instance groups, if it has one), and its temporary key is the secret. Beside them
    /// `SHOAL_COMM_SECRET`, `SHOAL_COMM_HEARTBEAT`, `SHOAL_COMM_PATIENCE`, `SHOAL_COMM_DEADLINE`
    /// and `SHOAL_COMM_STALL` (seconds), `SHOAL_COMM_ADDRESS` (which address of this machine to
    /// listen on), `SHOAL_COMM_HOST` (see [`Config::host`]), `SHOAL_COMM_DIRECTORY` (meet there
    /// instead of at `MASTER_ADDR`), `SHOAL_COMM_TRANSPORT` (`auto`, `tcp`, or `nccl` with the GPU
    /// of number `LOCAL_RANK`, 0 if not set) `SHOAL_COMM_STAGING` (how ranks of one host hand each
    /// other memory that is not registered: docs/process-groups.md) and `SHOAL_COMM_REPLACES`
    /// (`1`: this process replaces one that died) and `SHOAL_COMM_JOINS` (`1`: it joins an
    /// existing group).
    ///
    /// # Errors
    /// [`Error::Config`]: a variable is missing or cannot be; it says which, and what it may be.
    pub fn from_env() -> Result<Self, Error> {
        Self::read(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// The same from any table of variables.
    ///
    /// # Errors
    /// As for [`Config::from_env`].
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let variables = Variables(&lookup);
        let meeting = match variables.text("SHOAL_COMM_DIRECTORY") {
            Some(path) => Meeting::Directory(path.into()),
            None => Meeting::Tcp { host: variables.required("MASTER_ADDR")?, port: variables.number("MASTER_PORT")? },
        };
        Self::read_at(meeting, lookup)
    }

    /// The same for ranks that meet elsewhere than the table says.
    ///
    /// # Errors
    /// As for [`Config::from_env`].
    pub fn read_at(meeting: Meeting, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let variables = Variables(&lookup);
        let launched = variables.text("RANK").is_some() || variables.text("WORLD_SIZE").is_some();
        let job = variables.text("SM_HOSTS").zip(variables.text("SM_CURRENT_HOST")).filter(|_| !launched);
        let joins = variables.switch("SHOAL_COMM_JOINS", "in a process that joins an existing group")?;
        let (rank, size) = match &job {
            _ if joins => (0, 1),
            Some((hosts, current)) => super::job::place(hosts, current, variables.text("SM_TRAINING_ENV").as_deref())?,
            None => (variables.number("RANK")?, variables.number("WORLD_SIZE")?),
        };
        let mut config = Self::new(rank, size, meeting);
        // The temporary key of a job is on all its instances, and nowhere else.
        let key = || job.and_then(|_| variables.text("AWS_SECRET_ACCESS_KEY"));
        config.secret = Secret::new(variables.text("SHOAL_COMM_SECRET").or_else(key).unwrap_or_default());
        let times = [
            ("SHOAL_COMM_HEARTBEAT", &mut config.heartbeat),
            ("SHOAL_COMM_PATIENCE", &mut config.patience),
            ("SHOAL_COMM_DEADLINE", &mut config.deadline),
            ("SHOAL_COMM_STALL", &mut config.stall),
        ];
        for (name, value) in times {
            if let Some(seconds) = variables.seconds(name)? {
                *value = seconds;
            }
        }
        if let Some(address) = variables.text("SHOAL_COMM_ADDRESS") {
            let parsed = address.parse().map_err(|_| {
                Error::config(format!(
                    "SHOAL_COMM_ADDRESS is {address:?}, which is no IP address: give one of this machine's (`ip addr` \
                     lists them)"
                ))
            })?;
            config.address = Some(parsed);
        }
        config.host = variables.text("SHOAL_COMM_HOST");
        config.carrier = match variables.text("SHOAL_COMM_TRANSPORT").as_deref() {
            None | Some("auto") => Carrier::Auto,
            Some("tcp") => Carrier::Tcp,
            Some("nccl") => Carrier::Nccl {
                device: variables.text("LOCAL_RANK").map_or(Ok(0), |_| variables.number("LOCAL_RANK"))?,
            },
            Some(other) => {
                return Err(Error::config(format!(
                    "SHOAL_COMM_TRANSPORT is {other:?}: set it to \"auto\", \"tcp\" or \"nccl\", or not at all"
                )));
            }
        };
        if let Some(text) = variables.text("SHOAL_COMM_STAGING") {
            config.staging =
                Order::parse(&text).map_err(|problem| Error::config(format!("SHOAL_COMM_STAGING: {problem}")))?;
        }
        config.joins = joins;
        config.replaces = variables.switch("SHOAL_COMM_REPLACES", "in a replacement")?;
        config.check()?;
        Ok(config)
    }

    /// The secret that all ranks share. Without one, ranks meet only at loopback addresses, in a
    /// directory, or in a store of the caller's.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = Secret::new(secret);
        self
    }

    /// After how much silence a rank is taken for hung; at least [`LEAST_HEARTBEAT`], 5 s if not
    /// set. The same on all ranks.
    #[must_use]
    pub const fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// How long to wait for ranks that have not come, in forming and in re-forming; 300 s if not
    /// set.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long an operation may take that names no deadline of its own; 1800 s if not set.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// After how long a waiting rank prints who has not come to the operation; 30 s if not set.
    #[must_use]
    pub const fn stall(mut self, stall: Duration) -> Self {
        self.stall = stall;
        self
    }

    /// Which address of this machine the other ranks connect to; the one that leads to the meeting
    /// place if not set.
    #[must_use]
    pub const fn address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// What tells hosts apart: ranks with the same name share memory. Found out if not set.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.host = Some(name.into());
        self
    }

    /// Which transport moves the data.
    #[must_use]
    pub const fn carrier(mut self, carrier: Carrier) -> Self {
        self.carrier = carrier;
        self
    }

    /// Keeps a copy of the input of operations in place, and puts it back when one fails, so that
    /// it can be tried again.
    #[must_use]
    pub const fn keep_input(mut self, keep: bool) -> Self {
        self.keep_input = keep;
        self
    }

    /// This process replaces the one that had its rank: it waits for the others to `rejoin`.
    #[must_use]
    pub const fn replaces(mut self, replaces: bool) -> Self {
        self.replaces = replaces;
        self
    }

    /// This process joins an existing group: it waits at the meeting place until the ranks call
    /// `grow`, and gets its rank there; the given one is ignored.
    #[must_use]
    pub const fn joins(mut self, joins: bool) -> Self {
        self.joins = joins;
        self
    }

    /// Refuses what cannot be.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.size == 0 || self.size > MOST_RANKS {
            return Err(Error::config(format!("WORLD_SIZE is {}: a group has 1 to {MOST_RANKS} ranks", self.size)));
        }
        if self.rank >= self.size {
            return Err(Error::config(format!(
                "RANK is {} and WORLD_SIZE {}: ranks go from 0 to {}. Give every process its own, and all the same \
                 WORLD_SIZE",
                self.rank,
                self.size,
                self.size - 1
            )));
        }
        if self.joins && self.replaces {
            return Err(Error::config(
                "a process either replaces a lost rank or joins as a new one: set SHOAL_COMM_REPLACES or \
                 SHOAL_COMM_JOINS, not both"
                    .to_owned(),
            ));
        }
        for (what, time) in [("heartbeat", self.heartbeat), ("patience", self.patience)] {
            if time > UNLIMITED {
                return Err(Error::config(format!(
                    "a {what} of {} s is more than ten years: set less",
                    time.as_secs()
                )));
            }
        }
        if let Some(host) = self.host.as_ref().filter(|host| host.len() > LONGEST_NAME) {
            return Err(Error::config(format!(
                "SHOAL_COMM_HOST has {} bytes: a host's name may have {LONGEST_NAME}",
                host.len()
            )));
        }
        if self.heartbeat < LEAST_HEARTBEAT {
            return Err(Error::config(format!(
                "a heartbeat of {:?} is too short to tell a busy machine from a hung one: set at least \
                 {LEAST_HEARTBEAT:?}",
                self.heartbeat
            )));
        }
        match &self.meeting {
            Meeting::Tcp { host, .. } if self.secret.is_empty() && !is_loopback(host) => Err(Error::config(format!(
                "MASTER_ADDR is {host:?}, which other machines can reach, and there is no secret: set \
                 SHOAL_COMM_SECRET to the same random text \
                 on all ranks (`openssl rand -hex 16` makes one), so that no stranger can join"
            ))),
            Meeting::Tcp { port: 0, .. } => {
                Err(Error::config("MASTER_PORT is 0: all ranks must know the port; choose a free one".to_owned()))
            }
            _ => self.check_carrier(),
        }
    }

    /// Refuses a transport that this build or this process does not have, before any other rank is
    /// met.
    fn check_carrier(&self) -> Result<(), Error> {
        let Carrier::Nccl { .. } = self.carrier else { return Ok(()) };
        if self.keep_input {
            return Err(Error::config(
                "inputs cannot be kept over NCCL: reduce out of place instead, which leaves what is sent as it was"
                    .to_owned(),
            ));
        }
        if cfg!(feature = "nccl") {
            return Ok(());
        }
        Err(Error::config(
            "NCCL is asked for, and this program was built without it: build it with shoal-comm's feature `nccl`, or \
             choose another transport \
             (SHOAL_COMM_TRANSPORT=auto)"
                .to_owned(),
        ))
    }
}

/// Most bytes of a host's name.
const LONGEST_NAME: usize = 1024;

/// Most ranks of one group: a full mesh of connections is not meant for more.
pub const MOST_RANKS: usize = 1024;

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    /// An empty variable counts as one that is not set.
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn required(&self, name: &str) -> Result<String, Error> {
        self.text(name).ok_or_else(|| {
            Error::config(format!(
                "{name} is not set: a launcher (torchrun, a job's distribution) sets MASTER_ADDR, MASTER_PORT, RANK \
                 and WORLD_SIZE: \
                 start it by torchrun --nproc-per-node N, or set all four by hand"
            ))
        })
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, Error> {
        let text = self.required(name)?;
        text.trim().parse().map_err(|_| {
            Error::config(format!("{name} is {text:?}, which is not a number from 0 up in its range: correct it"))
        })
    }

    /// Whether it is `1`.
    fn switch(&self, name: &str, place: &str) -> Result<bool, Error> {
        match self.text(name).as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(Error::config(format!("{name} is {other:?}: set it to 1 {place}, else not at all"))),
        }
    }

    fn seconds(&self, name: &str) -> Result<Option<Duration>, Error> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let seconds = text.trim().parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds < 1e9);
        match seconds {
            Some(seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
            None => Err(Error::config(format!("{name} is {text:?}: give seconds above 0, such as 0.5 or 5"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 4] =
        [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500"), ("RANK", "1"), ("WORLD_SIZE", "2")];

    fn read(changes: &[(&str, &str)]) -> Result<Config, Error> {
        Config::read(|name| {
            let find = |table: &[(&str, &str)]| {
                table.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            find(changes).or_else(|| find(&GOOD))
        })
    }

    #[test]
    fn instances_of_a_job_are_ranks_where_no_launcher_says_otherwise() {
        let of_agent = [
            ("MASTER_ADDR", "10.77.0.1"),
            ("MASTER_PORT", "7777"),
            ("SM_HOSTS", r#"["algo-1","algo-2"]"#),
            ("SM_CURRENT_HOST", "algo-2"),
            ("AWS_SECRET_ACCESS_KEY", "of the job"),
        ];
        let read = |table: &[(&str, &str)]| {
            let find = |name: &str| table.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            Config::read(find).and_then(|config| config.check().map(|()| config))
        };
        let config = read(&of_agent).unwrap();
        assert_eq!((config.rank, config.size), (1, 2));
        let launched = read(&[&of_agent[..], &[("RANK", "3"), ("WORLD_SIZE", "4")]].concat()).unwrap_err().to_string();
        assert!(launched.contains("there is no secret"), "a key of AWS is no secret of a launcher's ranks: {launched}");
    }

    #[test]
    fn the_environment_of_launchers_is_read() {
        let config = read(&[
            ("SHOAL_COMM_SECRET", "s"),
            ("SHOAL_COMM_HEARTBEAT", "0.5"),
            ("SHOAL_COMM_TRANSPORT", "tcp"),
            ("SHOAL_COMM_HOST", "a"),
        ]);
        let config = config.unwrap();
        assert_eq!(config.host.as_deref(), Some("a"));
        assert_eq!((config.rank, config.size, config.heartbeat, config.carrier), (1, 2, LEAST_HEARTBEAT, Carrier::Tcp));
        assert_eq!(format!("{:?}", config.meeting), "127.0.0.1:29500");
        assert!(!config.secret.is_empty());
        let config = read(&[("SHOAL_COMM_DIRECTORY", "/x"), ("MASTER_ADDR", "")]).unwrap();
        assert_eq!(format!("{:?}", config.meeting), "/x");
    }

    #[test]
    fn nccl_is_there_where_it_was_built() {
        let config = read(&[("SHOAL_COMM_TRANSPORT", "nccl"), ("LOCAL_RANK", "3")]);
        if cfg!(feature = "nccl") {
            assert_eq!(config.unwrap().carrier, Carrier::Nccl { device: 3 });
        } else {
            let text = config.unwrap_err().to_string();
            assert!(text.contains("feature `nccl`") && text.contains("SHOAL_COMM_TRANSPORT=auto"), "{text}");
        }
    }

    #[test]
    fn mistakes_say_what_to_do() {
        for (changes, part) in [
            (&[("RANK", "2")][..], "ranks go from 0 to 1"),
            (&[("RANK", "one")], "RANK is \"one\""),
            (&[("RANK", "-1")], "RANK is \"-1\""),
            (&[("RANK", "")], "RANK is not set"),
            (&[("WORLD_SIZE", "0")], "1 to 1024"),
            (&[("MASTER_PORT", "65536")], "MASTER_PORT is \"65536\""),
            (&[("MASTER_PORT", "0")], "choose a free one"),
            (&[("MASTER_ADDR", "10.0.0.1")], "SHOAL_COMM_SECRET"),
            (&[("SHOAL_COMM_HEARTBEAT", "0.1")], "at least 500ms"),
            (&[("SHOAL_COMM_HEARTBEAT", "NaN")], "seconds above 0"),
            (&[("SHOAL_COMM_ADDRESS", "here")], "no IP address"),
            (&[("SHOAL_COMM_TRANSPORT", "rdma")], "\"auto\", \"tcp\" or \"nccl\""),
            (&[("SHOAL_COMM_TRANSPORT", "nccl"), ("LOCAL_RANK", "first")], "LOCAL_RANK is \"first\""),
            (&[("SHOAL_COMM_STAGING", "stage=1")], "SHOAL_COMM_STAGING: \"stage=1\" is none of"),
            (&[("SHOAL_COMM_REPLACES", "yes")], "SHOAL_COMM_REPLACES"),
            (&[("SHOAL_COMM_HOST", &"h".repeat(1025))], "may have 1024"),
            (&[("SHOAL_COMM_PATIENCE", "9e8")], "more than ten years"),
        ] {
            let error = read(changes).unwrap_err();
            assert!(matches!(error, Error::Config { .. }) && error.to_string().contains(part), "{changes:?}: {error}");
        }
        assert!(read(&[("MASTER_ADDR", "10.0.0.1"), ("SHOAL_COMM_SECRET", "s")]).is_ok());
    }
}
