//! A server's life: open, recover, listen, stop. It makes all parts, and gives each what it depends
//! on.

mod addresses;
mod guarding;
mod limits;
mod notifying;
mod running;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, atomic::AtomicBool},
    thread::{self, JoinHandle},
    time::Duration,
};

use shoal_console::{Console, JobChanges, ObjectsOpen, Sources};
use shoal_encryption::KeyRing as MasterKeys;
use shoal_s3::S3Front;
use shoal_store::{DataDir, Objects, SqliteJournal, SqliteRows, Telemetry};
use shoal_wire::KeyRole;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};

use self::{
    guarding::Guarding,
    limits::{open_files, places},
    notifying::{Notifying, job_states},
};
use crate::{
    AccessKeys, Options, ServerError,
    admission::Admission,
    agent_stream::listen_unix,
    agents::{self, Agents, Callers, Idle, Inputs, RemoteListener},
    allocations::Allocations,
    api::{Api, Holds, Records, Registry},
    attempts::Attempts,
    audit::AuditLog,
    bodies::Unverified,
    budgets::Budgets,
    channels::Trees,
    checkpoints::Mirrors,
    connections::Connections,
    console::{self, ConsoleKeys},
    core::{self, Core},
    driver::{self, Hands, Outcomes},
    effects::Performer,
    elsewhere::{self, open_objects},
    error::io_error,
    exporter::Exporter,
    http::Front,
    identity::Identity,
    idle_agents::IdleAgents,
    ledger::Ledger,
    lifecycle,
    listeners::Listeners,
    machines::Machines,
    memory::Memory,
    notifications::{self, Transport},
    plans::Plans,
    pool_effects::PoolPerformer,
    profile::Profiles,
    profiling::Profiling,
    quotas::Measuring,
    recovery, requests, retention,
    sampling::Sampling,
    search::Indexes,
    sso::Sso,
    storing::Storing,
    sweeps::Sweeps,
    tuning::{self, Looks, ServerDesk, Tuner},
    visits::Visits,
    warm_status::WarmPools,
    watching::Watcher,
};

/// A server that listens.
pub struct Server {
    keys: AccessKeys,
    listeners: Listeners,
    front: Arc<Front>,
    objects: Arc<Objects>,
    telemetry: Arc<Telemetry>,
    /// The agents' on this machine.
    socket: PathBuf,
    core: Core,
    core_thread: JoinHandle<()>,
    agents_stopping: Arc<AtomicBool>,
    agents_thread: JoinHandle<()>,
    tuner: Tuner,
    tuner_threads: Vec<JoinHandle<()>>,
    audit: Arc<AuditLog>,
    audit_thread: JoinHandle<()>,
    background: JoinSet<()>,
    journal_rows: SqliteRows,
    open: Arc<Connections>,
}

impl Server {
    /// Opens the data directory, folds the journal, goes on with what was under way, and listens.
    ///
    /// # Errors
    /// The data directory is locked, unreadable or full; the address is taken.
    pub async fn start(options: Options) -> Result<Self, ServerError> {
        let data_dir = DataDir::open(&options.data_dir)?;
        let keys =
            AccessKeys::read_or_create(&data_dir.keys_path()).map_err(io_error("read or make the access keys"))?;
        let token = data_dir.metrics_token_path();
        if std::fs::read_to_string(&token).map_or(true, |written| written != keys.metrics_token()) {
            DataDir::write_private(&token, keys.metrics_token().as_bytes())?;
        }
        let listeners = Listeners::open(&data_dir, options.listen, options.tls.as_ref()).await?;
        let remote = match &options.agents {
            Some(agents) => Some(RemoteListener::open(&data_dir, agents).await?),
            None => None,
        };

        let mut journal = SqliteJournal::open(&data_dir.journal_path())?;
        let journal_rows = journal.rows();
        let rows: Arc<dyn shoal_store::Rows> = Arc::new(journal_rows.clone());
        requests::convert(&mut journal, &*rows, &*options.images)?;
        let is_first_start = !data_dir.object_index_path().exists();
        let kms = MasterKeys::open(&options.kms, &options.region, &options.account)?;
        let objects =
            Arc::new(open_objects(&data_dir, options.objects.clone(), &options.passthrough)?.with_keys(Arc::new(kms)));
        if is_first_start && let Err(error) = objects.create_bucket(&options.default_bucket) {
            tracing::warn!("bucket {} was not created: {error}", options.default_bucket);
        }
        let telemetry = Arc::new(Telemetry::open(&data_dir.telemetry_path())?);
        let recovered = core::recover(&journal, &options.capacity, &options.catalog)?;
        let pending = recovered.state.pending();
        let live = recovery::attempts(&recovered.state);
        for (job, node) in recovered.state.elsewhere() {
            tracing::warn!(
                "training job {job} has instances on node {node}, which shoal.toml does not list: until they end, other \
                 jobs may get the memory and GPUs that they use"
            );
        }

        let (act, effects) = mpsc::unbounded_channel();
        let ledger = Arc::new(Ledger::new());
        let search = Indexes::new(ledger.clone());
        let state = &recovered.state;
        let tunings = state
            .tunings()
            .filter_map(|name| Some((name, state.tuning(name)?)))
            .filter(|(_, view)| view.ended.is_none());
        let exporter =
            Exporter::new(state.in_progress(), tunings.map(|(name, view)| (name, view.status, view.created)));
        let identity = Identity { region: options.region.clone(), account: options.account.clone() };
        let has_mail = options.notifications.mail.is_some();
        let states = job_states(state, &rows, &identity, &options.notifications)?;
        let wake = Arc::new(Notify::new());
        let (core, core_thread) = core::start(
            notifications::watch(search.watch(exporter.watch(journal)), states, wake.clone()),
            rows.clone(),
            recovered,
            options.capacity.clone(),
            options.catalog.clone(),
            // The receiver lives as long as the server.
            Box::new(move |effects| drop(act.send(effects))),
        )
        .map_err(io_error("start the core's thread"))?;
        let data_dir = Arc::new(data_dir);
        let trees = Arc::new(Trees::new(data_dir.channels_path(), objects.clone()));
        let file_systems = Arc::new(options.file_systems.clone().started_by(&*options.launcher));
        let (machines, events) = Machines::new();
        let (attempts, visits) = (Arc::<Attempts>::default(), Arc::<Visits>::default());
        let (idle_agents, looks) = (Arc::<IdleAgents>::default(), Arc::<Looks>::default());
        let (job_changes, pools) = (Arc::<JobChanges>::default(), WarmPools { telemetry: telemetry.clone() });
        let socket = data_dir.socket_path();
        let Options { launcher, images, capacity, catalog, network, grace_s, .. } = options;
        let (silence, log_quota) = (Duration::from_secs(options.silence_s), options.telemetry.job_bytes);
        let allocations = Arc::new(Allocations {
            launcher: launcher.clone(),
            keys: keys.clone(),
            trees: trees.clone(),
            sweeps: Sweeps::new(options.sweep),
            remove_tree: options.remove_tree,
            runs: data_dir.runs_path(),
            data_id: data_dir.id().to_owned(),
            program: options.program,
            agent_env: options.agent_env,
            remote_agent_env: options.remote_agent_env,
            socket: socket.clone(),
            route: remote.as_ref().map(RemoteListener::route),
        });
        let (with_reads, days) = (options.audit_reads, options.audit_days);
        let guarding = guarding::Settings { with_reads, days, quotas: options.quotas, roles: options.roles };
        let Guarding { ring, auditor, audit_thread } =
            Guarding::open(&keys, &rows, &attempts, &identity, data_dir.root(), guarding)?;
        let profiles = Profiles { rows: rows.clone(), telemetry: telemetry.clone(), objects: objects.clone() };
        let performer = Arc::new(Performer {
            attempts: attempts.clone(),
            allocations: allocations.clone(),
            launcher: launcher.clone(),
            plans: Plans {
                rows: rows.clone(),
                trees: trees.clone(),
                images: images.clone(),
                capacity: capacity.clone(),
                network: network.clone(),
                file_systems: file_systems.clone(),
                region: identity.region.clone(),
                account: identity.account.clone(),
                lease_s: options.lease_s,
                grace_s,
                launcher: launcher.clone(),
                team: ring.team.clone(),
                targets: options.targets.clone(),
            },
            artifacts: Storing {
                rows: rows.clone(),
                objects: objects.clone(),
                data_dir: data_dir.clone(),
                runs: data_dir.runs_path(),
            },
            profiles: profiles.clone(),
            prepared: Mutex::default(),
            pools: pools.clone(),
            machines: machines.clone(),
            trees: trees.clone(),
            rows: rows.clone(),
            telemetry: telemetry.clone(),
            job_changes: job_changes.clone(),
            keys: keys.clone(),
            data_dir: data_dir.clone(),
            runs: data_dir.runs_path(),
            remove_tree: options.remove_tree,
            has_mail,
        });
        let keys_of_instances = recovery::restore(&performer, &live, &pending);
        let agents_listener = listen_unix(&socket).map_err(io_error(&format!("listen on {}", socket.display())))?;
        let agents_stopping = Arc::new(AtomicBool::new(false));
        let callers = Arc::new(Callers::default());
        let sampling = Sampling { rows: rows.clone(), interval_ms: options.metrics_interval_ms };
        let agents = Arc::new(Agents {
            attempts: attempts.clone(),
            machines: machines.clone(),
            core: core.clone(),
            telemetry: telemetry.clone(),
            profiles: profiles.clone(),
            exporter: exporter.clone(),
            job_changes: job_changes.clone(),
            search: search.clone(),
            data_dir: data_dir.clone(),
            sampling: sampling.clone(),
            mirrors: Mirrors { core: core.clone(), objects: objects.clone() },
            inputs: Inputs::new(&trees, &data_dir, &exporter),
            visits: visits.clone(),
            idle: Idle { keys: keys.clone(), idle_agents: idle_agents.clone(), machines: machines.clone() },
            server_address: listeners.for_jobs().to_string(),
            launcher: launcher.clone(),
            silence,
            log_quota,
        });
        let (local, local_callers, stopping) = (agents.clone(), callers.clone(), agents_stopping.clone());
        let agents_thread = thread::Builder::new()
            .name("agents".to_owned())
            .spawn(move || agents::serve(&local, &local_callers, &agents_listener, &stopping))
            .map_err(io_error("start the agents' thread"))?;

        let mut background = JoinSet::new();
        let tuner = Tuner::default();
        let desk = ServerDesk {
            core: core.clone(),
            rows: rows.clone(),
            images: images.clone(),
            exporter: exporter.clone(),
            region: identity.region.clone(),
            account: identity.account.clone(),
        };
        let tuner_threads = tuning::start(&tuner, desk).map_err(io_error("start the tuner's threads"))?;
        let pool_performer = PoolPerformer {
            performer: performer.clone(),
            allocations,
            attempts: attempts.clone(),
            idle_agents,
            rows: rows.clone(),
            pools: pools.clone(),
        };
        let hands = Hands {
            performer,
            pool_performer: Arc::new(pool_performer),
            trees,
            machines: machines.clone(),
            outcomes: Arc::new(Outcomes {
                core: core.clone(),
                machines: machines.clone(),
                telemetry: telemetry.clone(),
                objects: objects.clone(),
            }),
        };
        background.spawn_blocking(recovery::lose_unknown(&core, &attempts, &launcher, &live, &pending));
        background.spawn(driver::run(hands, tuner.clone(), effects, events, pending, keys_of_instances));
        let agents_address = remote.as_ref().map(|remote| remote.route().address);
        background.extend(remote.map(|remote| remote.serve(agents, callers, agents_stopping.clone())));
        let memory = Memory {
            attempts: attempts.clone(),
            launcher: launcher.clone(),
            core: core.clone(),
            machines: machines.clone(),
            capacity: capacity.clone(),
        };
        let watcher = Watcher {
            attempts: attempts.clone(),
            launcher: launcher.clone(),
            core: core.clone(),
            memory,
            silence,
            target_silence: Duration::from_secs(options.target_silence_s),
            agents_address,
        };
        background.spawn(Arc::new(watcher).watch());
        background.spawn(elsewhere::watch(objects.clone()));
        background.spawn(lifecycle::run(objects.clone()));
        background.spawn(looks.clone().expire());
        background.extend(listeners.renewal());
        background.spawn(retention::run(telemetry.clone(), options.telemetry));
        let measuring = Measuring {
            quotas: ring.quotas.clone(),
            team: ring.team.clone(),
            objects: objects.clone(),
            rows: rows.clone(),
            telemetry: telemetry.clone(),
        };
        background.spawn(Arc::new(measuring).run());
        let profiling = Profiling {
            rows: rows.clone(),
            telemetry: telemetry.clone(),
            objects: objects.clone(),
            core: core.clone(),
            failing: Mutex::default(),
        };
        background.spawn(Arc::new(profiling).run());
        let notifying = Notifying {
            core: core.clone(),
            rows: rows.clone(),
            telemetry: telemetry.clone(),
            identity: identity.clone(),
            transport: Transport::new(options.notifications, listeners.url(), keys.clone()),
            counts: exporter.notifications.clone(),
            wake,
        };
        let (topics, changed_metrics) = notifying.start(&mut background);
        let s3_options = shoal_s3::Options {
            region: identity.region.clone(),
            account: identity.account.clone(),
            max_skew: Duration::from_secs(options.max_skew_s),
            strict: options.strict,
        };
        let records = Arc::new(Records {
            rows: rows.clone(),
            telemetry: telemetry.clone(),
            objects: objects.clone(),
            images: images.clone(),
            pools,
        });
        let budgets = Arc::new(Budgets {
            core: core.clone(),
            rows: rows.clone(),
            ledger: ledger.clone(),
            catalog: catalog.clone(),
            identity: identity.clone(),
            sends_mails: has_mail,
        });
        background.spawn(budgets.clone().run());
        let admission = Admission {
            rows: rows.clone(),
            objects: objects.clone(),
            images,
            data_dir: data_dir.clone(),
            network,
            targets: options.targets,
            file_systems,
            region: identity.region.clone(),
            budgets: budgets.clone(),
            launcher: launcher.clone(),
        };
        let api = Arc::new(Api {
            core: core.clone(),
            rows: rows.clone(),
            telemetry: telemetry.clone(),
            profiles,
            records: records.clone(),
            looks,
            search,
            topics,
            changed_metrics,
            plain: Registry::new(core.clone(), rows.clone(), telemetry.clone(), identity.clone()),
            ledger,
            budgets,
            admission: Arc::new(admission),
            attempts: attempts.clone(),
            launcher,
            visits,
            machines,
            job_changes: job_changes.clone(),
            keys: keys.clone(),
            team: ring.team.clone(),
            audit: auditor.log.clone(),
            data_dir: data_dir.clone(),
            identity: identity.clone(),
            default_bucket: options.default_bucket,
            ring: ring.clone(),
            quotas: ring.quotas.clone(),
            capacity,
            catalog: catalog.clone(),
            grace_s,
            log_quota,
            sampling,
            holds: Holds::default(),
            deletion: tokio::sync::Mutex::default(),
        });
        let (jobs_days, experiments_days) = (options.jobs_days, options.experiments_days);
        if jobs_days.or(experiments_days).is_some() {
            background.spawn(api.clone().delete_what_is_old(jobs_days, experiments_days));
        }
        let source = std::net::Ipv4Addr::LOCALHOST.into();
        let asked = console::Server {
            core: core.clone(),
            records,
            api: api.clone(),
            auditor: auditor.clone(),
            member: None,
            source,
        };
        let sso = options.sso.map(|sso| Arc::new(Sso::new(sso, ring.clone())) as Arc<dyn shoal_console::SignOn>);
        let console = Console::new(Sources {
            rows,
            telemetry: telemetry.clone(),
            objects: objects.clone(),
            catalog,
            version: core.version(),
            job_changes,
            server: Arc::new(asked.clone()),
            account: identity.account,
            keys: Arc::new(ConsoleKeys { ring: ring.clone(), server: asked }),
            sign_on: sso,
            objects_open: ObjectsOpen::All,
            role: KeyRole::Owner,
            data_id: data_dir.id().to_owned(),
            data_dir: data_dir.root().to_owned(),
            grace_s,
        });
        let audit = auditor.log.clone();
        let front = Arc::new(Front {
            console,
            api,
            exporter,
            attempts,
            telemetry: telemetry.clone(),
            metrics_token: keys.metrics_token(),
            s3: S3Front::new(objects.clone(), ring.clone(), s3_options),
            keys: ring,
            max_skew_s: options.max_skew_s,
            strict: options.strict,
            unverified: Arc::new(Unverified::default()),
            jobs_bodies: Arc::new(Unverified::default()),
            auditor,
        });
        Ok(Self {
            keys,
            listeners,
            front,
            objects,
            telemetry,
            socket,
            core,
            core_thread,
            agents_stopping,
            agents_thread,
            tuner,
            tuner_threads,
            audit,
            audit_thread,
            background,
            journal_rows,
            open: Connections::new(places(open_files())),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
