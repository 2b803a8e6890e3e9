//! `shoal serve`: a server in this process, until Ctrl-C.

use std::{
    convert::Infallible,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use shoal_algos::{Algorithms, BUILT_IN};
use shoal_launch::{ByTarget, KubernetesOptions, Launcher, Local, SlurmOptions, kubernetes, slurm};
use shoal_plane::{Capacity, Catalog, Node};
use shoal_sandbox::Support;
use shoal_server::{Options, Server, TelemetryLimits};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    client::Client,
    copied, env_cache, environments,
    exit::Exit,
    images::OurImages,
    log,
    output::show,
    settings::{Scheduler, ServerFlags, ServerUrl, Settings, Target, size_of},
};

/// A user's own instance types, in the data directory.
const CATALOG: &str = "instance-types.txt";

/// Arguments of `shoal serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    settings: ServerFlags,
    /// The data directory is a copy of another one: gives it an id of its own first.
    #[arg(long)]
    copied: bool,
    /// Many servers have this flag; ours has another.
    #[arg(long = "port", hide = true, value_parser = port)]
    _port: Option<Infallible>,
}

fn port(typed: &str) -> Result<Infallible, String> {
    Err(format!("there is no --port; use --listen 127.0.0.1:{typed}"))
}

/// Serves. Running training jobs outlive the server: the next one takes them up.
pub(crate) fn run(args: &ServeArgs, algorithms: Algorithms) -> Result<Exit> {
    serve(&args.settings, algorithms, args.copied, |_| {})
}

/// Serves with the product's algorithms and options changed.
///
/// # Errors
/// The server cannot be started.
pub fn with(flags: &ServerFlags, change: impl FnOnce(&mut Options)) -> Result<Exit> {
    serve(flags, BUILT_IN, false, change)
}

fn serve(
    flags: &ServerFlags,
    algorithms: Algorithms,
    is_copied: bool,
    change: impl FnOnce(&mut Options),
) -> Result<Exit> {
    let settings = flags.settings()?;
    copied::check(&settings.data_dir, !settings.targets.is_empty(), is_copied)?;
    for doubt in settings.doubts(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()), algorithms) {
        eprintln!("warning: {doubt}");
    }
    log::install(settings.log);
    let support = Support::probe();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("could not start the server's threads")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("could not listen for SIGTERM")?;
        let mut options = options(&settings, algorithms, &support)?;
        change(&mut options);
        let server = Server::start(options).await?;
        announce(&settings, &server);
        if let Err(error) = copied::note(&settings.data_dir) {
            // A server on a full disk is still of use.
            tracing::error!("{error:#}");
        }
        show(&greeting(&settings, &support))?;
        if settings.tls.is_none()
            && let Some(warning) = exposure(server.address())
        {
            eprintln!("{warning}");
        }
        if let Some(days) = settings.environments_days {
            tokio::spawn(env_cache::prune_old(settings.clone(), days));
        }
        let ended = server
            .run(async {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    _ = terminate.recv() => {}
                }
                eprintln!("{}", farewell(&settings).await);
            })
            .await;
        withdraw(&settings);
        ended?;
        Ok(Exit::Ok)
    })
}

/// What goes on without the server, as itself tells.
async fn farewell(settings: &Settings) -> String {
    let (tell, told) = tokio::sync::oneshot::channel();
    let settings = settings.clone();
    // A thread of its own: a server that cannot answer is not waited for.
    thread::spawn(move || tell.send(running(&settings)));
    match tokio::time::timeout(Duration::from_secs(2), told).await {
        Ok(Ok(Ok(1))) => "stopping; 1 training job goes on".to_owned(),
        Ok(Ok(Ok(jobs))) if jobs > 1 => format!("stopping; {jobs} training jobs go on"),
        _ => "stopping".to_owned(),
    }
}

/// How many training jobs are not over.
fn running(settings: &Settings) -> Result<usize> {
    let client = Client::local(settings)?;
    Ok(client
        .list("ListTrainingJobs", "TrainingJobSummaries", json!({"StatusEquals": "InProgress"}), usize::MAX)?
        .len())
}

/// What the settings mean for a server of this binary.
///
/// # Errors
/// The user's catalogue of instance types is wrong, the setting `engine` names nothing, or this
/// executable cannot be named.
pub(crate) fn options(settings: &Settings, algorithms: Algorithms, support: &Support) -> Result<Options> {
    let images = OurImages::of(settings, algorithms);
    images.check()?;
    Ok(Options {
        data_dir: settings.data_dir.clone(),
        objects: settings.objects.clone(),
        passthrough: settings.passthrough.clone(),
        listen: settings.listen,
        tls: settings.tls.clone(),
        agents: settings.agents.clone(),
        region: settings.region.clone(),
        account: settings.account.clone(),
        default_bucket: settings.default_bucket.clone(),
        max_skew_s: settings.max_skew_s,
        strict: settings.strict,
        audit_reads: settings.audit_reads,
        // Instances of one job reach each other on one machine only.
        capacity: Capacity {
            nodes: nodes_and_targets(settings),
            spans: false,
            packing: settings.packing,
            quotas: settings.quotas.of_core(),
        },
        quotas: settings.quotas.clone(),
        roles: settings.roles.clone(),
        kms: settings.kms.clone(),
        catalog: catalog(&settings.data_dir)?,
        launcher: launcher(settings),
        targets: settings.compute_targets.clone(),
        program: std::env::current_exe().context("could not find this executable")?,
        agent_env: agent_env(settings, support),
        remote_agent_env: environments::variables_elsewhere(),
        grace_s: settings.grace_s,
        lease_s: settings.lease_s,
        silence_s: settings.silence.here_s,
        target_silence_s: settings.silence.targets_s,
        jobs_days: settings.jobs_days,
        experiments_days: settings.experiments_days,
        audit_days: settings.audit_days,
        telemetry: TelemetryLimits {
            job_bytes: settings.log_quota,
            total_bytes: settings.telemetry_space,
            days: settings.telemetry_days,
        },
        metrics_interval_ms: settings.metrics_interval_ms,
        network: settings.network.clone(),
        file_systems: settings.file_systems.clone(),
        notifications: settings.notifications.clone(),
        sso: settings.sso.clone(),
        images: Arc::new(images),
        sweep: Arc::new(|prefixes: &[String]| shoal_sandbox::sweep(prefixes)),
        remove_tree: shoal_sandbox::remove_tree,
    })
}

/// The nodes, and the compute targets.
fn nodes_and_targets(settings: &Settings) -> Vec<Node> {
    let targets = settings.targets.iter().map(|target| Node::of_scheduler(&target.name, target.instances));
    settings.nodes.iter().cloned().chain(targets).collect()
}

/// What starts agents.
fn launcher(settings: &Settings) -> Arc<dyn Launcher> {
    let here = Arc::new(Local::by_command(settings.launch_command.clone()));
    let of_target = |target: &Target| -> (String, Arc<dyn Launcher>) {
        let env = environments::variables_of_target(settings, target);
        let launcher: Arc<dyn Launcher> = match target.scheduler.clone() {
            Scheduler::Slurm(options) => Arc::new(slurm(SlurmOptions { env, ..*options })),
            Scheduler::Kubernetes(options) => {
                Arc::new(kubernetes(KubernetesOptions { env, docker_config: docker_config(), ..*options }))
            }
        };
        (target.name.clone(), launcher)
    };
    match &settings.targets[..] {
        [] => here,
        targets => Arc::new(ByTarget::new(here, targets.iter().map(of_target).collect())),
    }
}

/// Where docker has this user's logins of registries.
fn docker_config() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = of("DOCKER_CONFIG").or_else(|| of("HOME").map(|home| home.join(".docker")));
    directory.map(|directory| directory.join("config.json"))
}

/// What is so on this machine helps no agent on another.
fn agent_env(settings: &Settings, support: &Support) -> Vec<(String, String)> {
    if settings.launch_command.is_empty() {
        environments::variables(settings).into_iter().chain([shoal_agent::support_variable(support)]).collect()
    } else {
        environments::variables_elsewhere()
    }
}

/// Sizes of instance types, with the user's own.
///
/// # Errors
/// The user's are wrong; the text has the line.
pub(crate) fn catalog(data_dir: &Path) -> Result<Catalog> {
    let path = &data_dir.join(CATALOG);
    match fs::read_to_string(path) {
        Ok(text) => Catalog::parse(&text).with_context(|| format!("{} is wrong", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Catalog::default()),
        Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
    }
}

/// Tells clients of this data directory where its server really listens.
///
/// # Errors
/// The data directory cannot be written.
pub(crate) fn announce(settings: &Settings, server: &Server) {
    let file = settings.address_file();
    let url = ServerUrl::parse(&server.url(), server.tls_authority()).expect("a server's own URL is one");
    if let Err(error) = url.write(&file) {
        // A server on a full disk is still of use: objects can be deleted.
        tracing::error!("could not write {}, so clients look at the configured address: {error}", file.display());
    }
}

/// Takes that back.
pub(crate) fn withdraw(settings: &Settings) {
    // Clients then look where a server would listen; that nobody answers there is the truth.
    let _ = fs::remove_file(settings.address_file());
}

/// Waits until a server has released every instance, some seconds at most: each attempt has a
/// directory and a plan in it until then. For servers that do not come back; instances that are
/// kept without an attempt end with them.
pub fn wait_for_release(data_dir: &Path) {
    let patience = Instant::now() + Duration::from_secs(5);
    let busy = || {
        fs::read_dir(data_dir.join("runs"))
            .is_ok_and(|runs| runs.flatten().any(|run| run.path().join("attempt.json").exists()))
    };
    while busy() && Instant::now() < patience {
        thread::sleep(Duration::from_millis(5));
    }
}

/// How instances are kept apart here, and honestly what is missing.
fn isolation(support: &Support) -> String {
    let report = support.report();
    let missing = report.iter().skip(1).filter(|(_, fine, _)| !fine).map(|(_, _, how)| how);
    report.iter().take(1).map(|(_, _, how)| how).chain(missing).map(|how| format!("  isolation  {how}\n")).collect()
}

/// What the network can see of a server that listens at this address; none if only this machine
/// reaches it.
fn exposure(address: SocketAddr) -> Option<String> {
    (!address.ip().to_canonical().is_loopback()).then(|| {
        format!(
            "warning: {address} is reached from other machines, and this server has no TLS: the network sees all data, \
             and can repeat what it saw for \
             some minutes. Start it with --tls, or listen on 127.0.0.1 behind a proxy that has TLS \
             (docs/operations.md)."
        )
    })
}

/// What each of several nodes has.
fn nodes(settings: &Settings) -> String {
    let of_node = |node: &Node| format!("  node       {}: {}\n", node.name, size_of(std::slice::from_ref(node)));
    settings.nodes.iter().filter(|_| settings.nodes.len() > 1).map(of_node).collect()
}

fn greeting(settings: &Settings, support: &Support) -> String {
    let dir = settings.data_dir.display();
    let flag = if settings.data_dir_needs_no_flag { String::new() } else { format!(" --data-dir {dir}") };
    format!(
        "Shoal {version} is listening on {url}\n  data       {dir}\n  instances  {size}\n{nodes}{isolation}\n\
         Point your AWS clients at it:\n  eval \"$(shoal env{flag})\"\n  shoal exec{flag} -- python your_notebook.py\n\
         Watch in a browser:\n  shoal console{flag}\n\n\
         Ctrl-C stops the server; training jobs that run go on, and the next server takes them up.\n",
        version = env!("CARGO_PKG_VERSION"),
        url = settings.url(),
        size = size_of(&settings.nodes),
        nodes = nodes(settings),
        isolation = isolation(support),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_others_reach_warns() {
        for (address, warns) in [
            ("127.0.0.1:9777", false),
            ("127.8.9.1:1", false),
            ("[::1]:9777", false),
            ("[::ffff:127.0.0.1]:9777", false),
            ("0.0.0.0:9777", true),
            ("192.168.1.5:9777", true),
            ("[::]:9777", true),
        ] {
            let warning = exposure(address.parse().unwrap());
            assert_eq!(warning.is_some(), warns, "{address}");
            assert!(warning.is_none_or(|text| text.contains("docs/operations.md")));
        }
    }
}
