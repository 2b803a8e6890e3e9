//! From an assignment to a running instance: its directories and config files, its place on the
//! job's network, its sandbox.

mod mounts;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use shoal_contract::{
    ChannelFacts, CheckpointFacts, DebugHookFacts, ElasticFacts, EndpointFacts, Facts, GroupFacts, HOSTS_FILE,
    LAUNCHER, LaunchError, Paths, ProfilerFacts, ProxyFacts, RESOURCE_FILE, Resource, Script, Threads, config_files,
    environment, hosts_file, processes_per_instance,
};
use shoal_link::{Assignment, Channel, Delivery, Input, MirrorKind, Program};
use shoal_sandbox::{
    FORWARDER_PORT, HOME, Isolation, Mount, Network, PROXY_PORT, SandboxError, SandboxSpec, Support, Together,
    remove_tree,
};

use crate::inputs::InputError;
use crate::machine_network;
use crate::mirror::Place;
use crate::script::{self, ScriptError};
use crate::{Options, inputs, inside, leftovers, mpi};

use mounts::mounts;

/// In an instance's directory: mirrored directories of the program that are not below `/opt/ml`.
const MIRRORED: &str = "mirrored";
/// Likewise: what it reads of a server on another machine.
pub(crate) const INPUTS: &str = "inputs";
/// Likewise: what its program has changed in the files of its image.
const ROOT_LAYER: &str = "root-layer";

/// Why there is no instance.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstanceError {
    /// This machine has no address for the others.
    #[error("could not find this machine's address, by which the other instances reach it")]
    Address(#[source] io::Error),
    /// The operating system refused.
    #[error("could not {what}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// The machine refused a network or a sandbox, or the program cannot be started.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// What it reads cannot be had.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A built-in algorithm's library is not on this machine.
    #[error("{0}")]
    Library(String),
    /// There is no port for the program's way to the server.
    #[error("could not listen for the program's connections to the server")]
    Relay(#[source] io::Error),
    /// The user's script cannot be started.
    #[error(transparent)]
    Script(#[from] ScriptError),
}

/// Directories of one instance, below the attempt's run directory.
#[derive(Debug)]
pub(crate) struct Home {
    own: PathBuf,
    /// Where no server clears up, this holds the directory.
    lock: Option<File>,
    /// What names its control groups and helpers begin with, whatever attempts come: those of the
    /// first.
    id: String,
}

impl Home {
    /// `run_dir/algo-K`, made if it is not there.
    pub(crate) fn create(options: &Options) -> Result<Self, InstanceError> {
        let run_dir = &options.run_dir;
        let own = run_dir.join(format!("algo-{}", options.host));
        let made = match options.server.is_remote() {
            true => leftovers::hold(&own).map(Some),
            false => fs::create_dir_all(&own).map(|()| None),
        };
        let lock = made.map_err(failed(|| format!("make {}", own.display())))?;
        // The kernel and other processes need real paths.
        let own = own.canonicalize().map_err(failed(|| format!("find {}", own.display())))?;
        Ok(Self { own, lock, id: format!("{}-{}", options.data_id, options.attempt) })
    }

    /// What is `/opt/ml` inside.
    pub(crate) fn ml(&self) -> PathBuf {
        self.own.join("ml")
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.own.join("spool")
    }

    /// Where trees of objects are, which a server on another machine has.
    pub(crate) fn inputs(&self) -> PathBuf {
        self.own.join(INPUTS)
    }

    /// Where modules of SageMaker's images are, for scripts.
    pub(crate) fn toolkit(&self) -> PathBuf {
        self.own.join("toolkit")
    }

    /// Where the program can write on this machine's disk.
    pub(crate) fn written(&self) -> Vec<PathBuf> {
        [self.ml(), self.own.join("scratch"), self.own.join(ROOT_LAYER), self.own.join(MIRRORED)].into()
    }

    fn scratch(&self, channel: &str) -> PathBuf {
        self.own.join("scratch").join(channel)
    }

    /// Where what a program changes in the files of its image goes: an empty directory.
    pub(crate) fn root_layer(&self) -> io::Result<PathBuf> {
        let layer = self.own.join(ROOT_LAYER);
        fs::create_dir_all(&layer)?;
        Ok(layer)
    }

    /// Where a mirrored directory is: below that for `/opt/ml`, or beside it.
    pub(crate) fn mirrored(&self, kind: MirrorKind, local_path: &str) -> Place {
        let marks = self.own.join("marks").join(kind.name());
        match Path::new(local_path).strip_prefix(shoal_contract::BASE) {
            Ok(root) => Place { base: self.ml(), root: root.to_owned(), marks },
            Err(_) => Place { base: self.own.join(MIRRORED).join(kind.name()), root: PathBuf::new(), marks },
        }
    }

    /// An empty directory of the agent's own, for the watch of the rules.
    pub(crate) fn rule_marks(&self) -> PathBuf {
        self.own.join("marks/rules")
    }

    /// The agent's own directory for the evaluation of a user's own rule.
    pub(crate) fn own_rule(&self, number: usize) -> PathBuf {
        self.own.join("rules").join(number.to_string())
    }

    /// Removes what an attempt has left. Where its instance stays, the directories that every
    /// attempt has stay, too, empty: those of these channels, on which it has its mounts, among
    /// them; and what is mounted there.
    pub(crate) fn clear(&self, kept: Option<&[Channel]>) -> io::Result<()> {
        let Some(channels) = kept else {
            remove_tree(&self.own)?;
            return fs::create_dir(&self.own);
        };
        let tree = Paths::new(self.ml());
        let of_channels = channels.iter().map(|channel| tree.channel(&channel.name));
        let inputs = Vec::from_iter(channels.iter().filter_map(|channel| match &channel.tree {
            Input::Local(_) => None,
            Input::Objects(tree) => inputs::place_of(&self.inputs(), tree),
        }));
        let staying: Vec<PathBuf> = tree
            .directories()
            .into_iter()
            .chain(of_channels)
            .chain(MirrorKind::ALL.map(|kind| self.own.join(MIRRORED).join(kind.name())))
            .collect();
        let stays = |path: &Path| staying.iter().chain(&inputs).any(|it| it.starts_with(path));
        empty(&self.own, &stays, &inputs)
    }

    /// A file of ours at a place in the instance.
    fn show(&self, target: &Path, text: &str) -> Result<Mount, InstanceError> {
        let source = self.own.join(target.file_name().unwrap_or_default());
        fs::write(&source, text).map_err(failed(|| format!("write {}", source.display())))?;
        Ok(Mount::ReadOnly { source, target: target.to_owned() })
    }

    /// Replaces the file that tells the program how far it may go. Nothing of the program may be
    /// running.
    pub(crate) fn write_resource(&self, resource: &Resource) -> io::Result<()> {
        self.replace(RESOURCE_FILE, &resource.to_bytes())
    }

    /// Replaces a file in `input/config` as a whole. The program may have put a link in the place
    /// of either.
    fn replace(&self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let Some(config) = inside::resolve(&self.ml(), Path::new("input/config"))? else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let name = Path::new(file).file_name().unwrap_or_default();
        let draft = config.join(name).with_extension("new");
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut new = fs::OpenOptions::new().write(true).create_new(true).open(&draft)?;
        io::Write::write_all(&mut new, bytes)?;
        fs::rename(&draft, config.join(name))
    }

    /// Replaces the list of present instances that the program reads.
    pub(crate) fn write_members(&self, hosts: &[String], members: &[u32], processes: u32) -> io::Result<()> {
        self.replace(HOSTS_FILE, &hosts_file(hosts, members, processes))
    }

    /// Removes everything.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match self.lock {
            Some(_) => leftovers::remove(&self.own),
            None => remove_tree(&self.own),
        }
    }
}

/// Makes the job's network if this is its first instance; otherwise joins the one that has this
/// handle, or gives `None` as long as there is none.
pub(crate) fn network(
    assignment: &Assignment,
    home: &Home,
    support: &Support,
    handle: Option<&str>,
) -> Result<Option<Network>, InstanceError> {
    if assignment.host == 1 {
        let hosts = u32::try_from(assignment.hosts.len()).unwrap_or(u32::MAX);
        return Ok(Some(Network::create(&format!("{}-network", home.id), hosts, support)?));
    }
    Ok(handle.map(|handle| Network::join(handle, support)).transpose()?)
}

/// The network of the machines on which the instances are, by their addresses.
pub(crate) fn network_of_machines(
    home: &Home,
    addresses: Vec<Ipv4Addr>,
    support: &Support,
) -> Result<Network, InstanceError> {
    Ok(Network::of_machines(&format!("{}-network", home.id), addresses, support)?)
}

/// Makes the tree of files that the program finds. Gives the instance's description, what the job's
/// log is to say of how the program runs, and the number of processes that its distribution starts.
pub(crate) fn prepare(
    options: &Options,
    assignment: &Assignment,
    home: &Home,
    network: &Network,
    support: &Support,
) -> Result<(SandboxSpec, Vec<String>, u32), InstanceError> {
    let mut mounts = mounts(assignment, home);
    let facts = facts(assignment, &mounts, network, support);
    make_tree(assignment, home, &facts)?;
    let (command, cwd) = command(options, assignment, &facts, home)?;
    let mut env = variables(assignment, &facts);
    let mut notes = Vec::from_iter(script::apart(assignment, &Paths::new(home.ml()).code()));
    // Programs of ours have their number of threads by SM_NUM_CPUS.
    if !matches!(assignment.program, Program::Builtin { .. }) {
        let threads = Threads::of(&facts, &command, visible_cpus(facts.cpus));
        env.extend(threads.variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
        notes.extend(threads.note);
    }
    let driver = mpi::driver(assignment);
    if driver.is_some() && assignment.elastic.is_some() {
        return Err(ScriptError::from(LaunchError::NotElastic("mpi_driver.py of SDK v3")).into());
    }
    if command.first().is_some_and(|program| program == LAUNCHER) || driver.is_some() {
        mounts.push(Mount::ReadOnly { source: options.program.clone(), target: LAUNCHER.into() });
    }
    if let Some(target) = &driver {
        mounts.push(home.show(target, mpi::OURS)?);
    }
    if command.get(..2).is_some_and(|words| words == [LAUNCHER, "mpi"]) || driver.is_some() {
        env.push((mpi::SECRET.to_owned(), mpi::secret(&options.token)));
    }
    if matches!(assignment.program, Program::Script { .. }) {
        // Ranks that meet at MASTER_ADDR have nothing else in common that no stranger knows.
        env.push((mpi::SECRET_OF_GROUPS.to_owned(), mpi::secret_of_groups(&options.token)));
    }
    let spec = SandboxSpec {
        id: format!("{}-{}", home.id, assignment.host),
        hostname: facts.current_host().to_owned(),
        host: assignment.host,
        hosts: assignment.hosts.clone(),
        mounts,
        command,
        env,
        cwd,
        memory_bytes: assignment.limits.memory_bytes,
        together: assignment
            .limits
            .together_bytes
            .map(|memory_bytes| Together { name: options.data_id.clone(), memory_bytes }),
        cpu_weight: assignment.limits.cpu_weight,
        pids: assignment.limits.pids,
        has_proxy: assignment.egress.is_some(),
        addresses: network.machines().to_vec(),
    };
    Ok((spec, notes, processes_per_instance(&facts)))
}

/// Cores that a program of this machine sees, and for each of which its libraries would start a
/// thread.
fn visible_cpus(otherwise: u32) -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(otherwise, |set| set.count())
}

fn is_pipe(channel: &Channel) -> bool {
    matches!(channel.delivery, Delivery::Pipe(_))
}

/// The contract's variables, and those that a program of ours asked for.
fn variables(assignment: &Assignment, facts: &Facts) -> Vec<(String, String)> {
    let mut all = environment(facts);
    if let Program::Builtin { variables, .. } = &assignment.program {
        all.extend(variables.clone());
    }
    all.into_iter().collect()
}

fn command(
    options: &Options,
    assignment: &Assignment,
    facts: &Facts,
    home: &Home,
) -> Result<(Vec<String>, PathBuf), ScriptError> {
    let code = Paths::default().code();
    Ok(match &assignment.program {
        Program::Builtin { name, .. } => (vec![LAUNCHER.into(), "algorithm".into(), name.clone()], "/".into()),
        Program::Host { entrypoint, arguments } => (entrypoint.iter().chain(arguments).cloned().collect(), code),
        // On `shoal/host` the machine's own Python may have it.
        Program::Script { .. }
            if assignment.python.is_some()
                && options.python_package.is_none()
                && Script::is_for_dataparallel(&assignment.hyperparameters) =>
        {
            return Err(ScriptError::NoPackage);
        }
        // Behind what only the image tells.
        Program::Image { arguments } => (arguments.clone(), code),
        Program::Script { source, arguments } => {
            let tree = source.as_ref().map(Input::directory);
            (script::prepare(assignment, facts, tree, arguments, &Paths::new(home.ml()).code())?, code)
        }
    })
}

fn facts(assignment: &Assignment, mounts: &[Mount], network: &Network, support: &Support) -> Facts {
    let paths = Paths::new(support.path_of(mounts, Path::new(shoal_contract::BASE)));
    let is_isolated = matches!(support.isolation, Isolation::Full { .. });
    // A container's names are known, too.
    let has_names = support.isolation != Isolation::Processes;
    // Not plain processes, and not on several machines.
    let has_own_network = is_isolated && network.machines().is_empty();
    let interface = match has_own_network {
        true => Some("eth0".to_owned()),
        false => network.machines().get(assignment.host as usize - 1).copied().and_then(machine_network::interface),
    };
    let addresses = (1..).zip(&assignment.hosts).map(|(host, name)| (name.clone(), network.address(host).to_string()));
    let path_of = |path: &str| support.path_of(mounts, Path::new(path)).to_string_lossy().into_owned();
    Facts {
        addresses: if has_names { BTreeMap::new() } else { addresses.collect() },
        job_name: assignment.job_name.clone(),
        job_arn: assignment.job_arn.clone(),
        region: assignment.region.clone(),
        host: assignment.host,
        hosts: assignment.hosts.clone(),
        instance_type: assignment.instance_type.clone(),
        groups: Vec::from_iter(assignment.groups.iter().map(|group| GroupFacts {
            name: group.name.clone(),
            instance_type: group.instance_type.clone(),
            hosts: group.hosts.clone(),
        })),
        network_interface: interface.unwrap_or_else(|| "lo".to_owned()),
        first_port: assignment.machine_network.map(|network| network.first_port),
        hyperparameters: assignment.hyperparameters.clone(),
        environment: assignment.environment.clone(),
        channels: Vec::from_iter(assignment.channels.iter().map(|channel| ChannelFacts {
            name: channel.name.clone(),
            content_type: channel.content_type.clone(),
            distribution: channel.distribution.clone(),
            record_wrapper: channel.record_wrapper.clone(),
            is_pipe: is_pipe(channel),
        })),
        profiler: assignment.profiler.as_ref().map(|profiler| ProfilerFacts {
            interval_ms: profiler.interval_ms,
            parameters: profiler.parameters.clone(),
            is_disabled: profiler.is_disabled,
        }),
        checkpoint: assignment.checkpoint.as_ref().map(|checkpoint| CheckpointFacts {
            uri: checkpoint.uri.clone(),
            local_path: path_of(&checkpoint.local_path),
        }),
        cpus: assignment.limits.cpus,
        gpus: u32::try_from(assignment.limits.gpus.len()).unwrap_or(u32::MAX),
        endpoint: assignment.endpoint.as_ref().map(|endpoint| EndpointFacts {
            url: match has_own_network {
                true => format!("http://127.0.0.1:{FORWARDER_PORT}"),
                false => format!("http://{}", endpoint.server_address.as_deref().unwrap_or_default()),
            },
            access_key_id: endpoint.access_key_id.clone(),
            secret_access_key: endpoint.secret_access_key.clone(),
            session_token: endpoint.session_token.clone(),
        }),
        // Plain processes have the machine's own network.
        proxy: assignment
            .egress
            .as_ref()
            .filter(|_| has_own_network)
            .map(|_| ProxyFacts { url: format!("http://127.0.0.1:{PROXY_PORT}"), bypass: bypass(assignment, network) }),
        debug_hook: assignment.debug_hook.as_ref().map(|hook| DebugHookFacts {
            output_path: hook.output_path.clone(),
            local_path: path_of(&hook.local_path),
            parameters: hook.parameters.clone(),
            collections: hook.collections.clone(),
        }),
        tensor_board: assignment.tensor_board.as_ref().map(|board| path_of(&board.local_path)),
        elastic: assignment.elastic.map(|it| ElasticFacts { min_instances: it.min_instances, joins: it.joins }),
        home: if is_isolated { HOME.into() } else { paths.code().to_string_lossy().into_owned() },
        paths,
    }
}

/// What the program reaches without a proxy: its own loopback and the instances of its job, by name
/// and by address.
fn bypass(assignment: &Assignment, network: &Network) -> Vec<String> {
    let hosts = (1..).zip(&assignment.hosts).flat_map(|(host, name)| [name.clone(), network.address(host).to_string()]);
    ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into_iter().chain(hosts).collect()
}

fn make_tree(assignment: &Assignment, home: &Home, facts: &Facts) -> Result<(), InstanceError> {
    let tree = Paths::new(home.ml());
    // What a program of ours does not write in needs no place for changes.
    let scratch = |name: &str| (!matches!(assignment.program, Program::Builtin { .. })).then(|| home.scratch(name));
    let of_channels = assignment
        .channels
        .iter()
        .filter(|channel| !is_pipe(channel))
        .flat_map(|channel| [Some(tree.channel(&channel.name)), scratch(&channel.name)])
        .flatten();
    let mirrored = assignment.mirrored().map(|(kind, it)| home.mirrored(kind, it.local_path).directory());
    for directory in tree.directories().into_iter().chain(of_channels).chain(mirrored) {
        fs::create_dir_all(&directory).map_err(failed(|| format!("make {}", directory.display())))?;
    }
    for (path, bytes) in config_files(facts) {
        let path = home.ml().join(path);
        fs::write(&path, bytes).map_err(failed(|| format!("write {}", path.display())))?;
    }
    if assignment.elastic.is_some() {
        let all = Vec::from_iter((1..).take(assignment.hosts.len()));
        let processes = processes_per_instance(facts);
        home.write_members(&facts.hosts, &all, processes)
            .map_err(failed(|| format!("write {HOSTS_FILE} in {}", home.ml().display())))?;
    }
    if let Some(resource) = &assignment.resource {
        let resource = Resource { from: resource.from, until: resource.until, max: resource.max };
        home.write_resource(&resource)
            .map_err(failed(|| format!("write {RESOURCE_FILE} in {}", home.ml().display())))?;
    }
    Ok(())
}

/// Removes everything in a directory but the directories that stay, and everything in those that
/// are not among the `full` ones. A link is no directory.
fn empty(directory: &Path, stays: &impl Fn(&Path) -> bool, full: &[PathBuf]) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if full.contains(&path) {
            continue;
        }
        if !stays(&path) {
            remove_tree(&path)?;
        } else if entry.file_type()?.is_dir() {
            empty(&path, stays, full)?;
        } else {
            return Err(io::Error::other(format!("{} is no directory", path.display())));
        }
    }
    Ok(())
}

fn failed(what: impl FnOnce() -> String) -> impl FnOnce(io::Error) -> InstanceError {
    move |source| InstanceError::Io { what: what(), source }
}
