//! Instances that are retained between attempts: who may have them, and what is kept with them.
//!
//! A warm instance is named by the attempt that it was started for, whose run directory stays as
//! long as it runs. Its agents exit with their connections, so nothing of the pool outlives the
//! server.

use std::{fs, io, path::Path, time::Duration};

use serde_json::Value;
use shoal_link::{Assignment, Limits, Order, Program, Root};
use shoal_plane::{Host, TuningName};
use shoal_runtime::warm_pool::{AllocationId, ReusePolicy};
use shoal_store::{ResourceKind, Rows};
use shoal_wire::CreateTrainingJob;

use crate::{
    allocations::directories,
    attempts::{Attempt, NETWORK_FILE, Plan},
    channels::Trees,
    hex::sha256_hex,
    parts, requests,
};

/// How long an instance waits for another trial of its tuning job; it also ends when that job has
/// ended.
const IDLE_TRIALS: Duration = Duration::from_secs(30);

/// What of a request two training jobs of their own must have in common, as at AWS.
const SHAPE: [&str; 3] = ["RoleArn", "VpcConfig", "EnableInterContainerTrafficEncryption"];

/// For the trials of a tuning job, which differ in their name, hyperparameters, metrics and
/// checkpoints only.
pub(crate) fn policy_of_trial(plan: &Plan, tuning: TuningName) -> ReusePolicy {
    policy(plan, tuning, IDLE_TRIALS, "")
}

/// For training jobs of their own on the same kind of instances. Built-in algorithms must have the
/// same inputs, too: they stay, with the data that they have read. Any other program is started in
/// an empty instance.
pub(crate) fn policy_of_job(plan: &Plan, request: &CreateTrainingJob) -> Option<ReusePolicy> {
    let seconds = request.resources.keep_alive_s;
    let mut resources = request.raw.get("ResourceConfig").cloned();
    if let Some(Value::Object(resources)) = &mut resources {
        resources.remove("KeepAlivePeriodInSeconds");
    }
    let shape = (SHAPE.map(|member| request.raw.get(member)), resources);
    let idle = Duration::from_secs(seconds.into());
    (seconds > 0).then(|| policy(plan, TuningName::default(), idle, &serde_json::to_string(&shape).unwrap_or_default()))
}

fn policy(plan: &Plan, owner: TuningName, idle: Duration, shape: &str) -> ReusePolicy {
    let is_builtin = |it: &Assignment| matches!(it.program, Program::Builtin { .. });
    let is_trial = !owner.is_empty();
    // A container stays one of its image, of which its launcher has found out what it starts or
    // has not.
    let container = |it: &Assignment| {
        let root = it.root.clone().filter(|root| matches!(root, Root::Container { .. }))?;
        Some((root, matches!(it.program, Program::Image { .. })))
    };
    let of_host = |it: &Assignment| {
        let mirrored: Vec<_> = it.mirrored().map(|(kind, mirrored)| (kind, mirrored.local_path)).collect();
        // Each attempt has its own share of the cores: a number for its program, and no limit.
        let limits = Limits { cpus: 0, ..it.limits.clone() };
        let place = (&it.region, it.host, &it.hosts, &it.instance_type, limits, &it.egress);
        let program = (is_trial || is_builtin(it)).then_some((
            mirrored,
            &it.environment,
            &it.channels,
            &it.program,
            &it.python,
            &it.root,
        ));
        match container(it) {
            Some(image) => serde_json::to_string(&(place, program, image)),
            None => serde_json::to_string(&(place, program)),
        }
    };
    let hosts: Vec<_> = plan.assignments.iter().map(|it| of_host(it).unwrap_or_default()).collect();
    let nodes = plan.nodes.iter().map(|node| format!("{node} ")).collect::<String>();
    // Instances are for jobs of the same creator.
    let creator = plan.creator.as_deref().unwrap_or_default();
    // A pod has what it was created with.
    let mounted = directories(plan).iter().map(|it| format!("{} ", it.display())).collect::<String>();
    let key = sha256_hex(&format!("{owner} {shape} {} {nodes}{mounted}{}{creator}", plan.isolated, hosts.join(" ")));
    let is_loaded = is_trial || plan.assignments.iter().any(is_builtin);
    ReusePolicy { owner, idle_s: idle.as_secs(), key, is_loaded }
}

/// Which attempts may have an attempt's instance after it, as things are now.
pub(crate) fn policy_now(rows: &dyn Rows, plan: &Plan) -> Option<ReusePolicy> {
    match &plan.reuse {
        Some(policy) if !policy.owner.is_empty() => Some(policy.clone()),
        // `UpdateTrainingJob` may have changed for how long.
        _ => policy_of_job(plan, &requests::of_training_job(rows, &plan.job).ok()?),
    }
}

/// Whether a tuning job may start more trials.
pub(crate) fn has_more_trials(rows: &dyn Rows, tuning: &str) -> bool {
    rows.resource(ResourceKind::TUNING_JOB, tuning).is_ok_and(|row| row.is_some_and(|row| !row.ended))
}

/// Has the agents of an attempt clear it away; its channels are claimed for its instance.
pub(crate) fn park(trees: &Trees, running: &Attempt) {
    let allocation = AllocationId(running.plan.allocation_id().clone());
    for channel in running.plan.assignments.iter().flat_map(|it| &it.channels) {
        trees.claim(&trees.path_of(&channel.tree), &claim(&allocation));
    }
    running.order_all(&Order::Park);
}

/// The attempt that the instance serves has claimed its channels itself, or nothing reads them
/// any more.
pub(crate) fn release_claims(trees: &Trees, allocation: &AllocationId) {
    trees.release(&claim(allocation));
}

/// Removes what the server has of an attempt in the directory of its own instance; the agents'
/// own directories and files stay.
pub(crate) fn remove_plan(dir: &Path, hosts: u32) -> io::Result<()> {
    match fs::remove_file(dir.join(NETWORK_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    parts::remove(dir, Host::all(hosts))?;
    fs::remove_file(dir.join(Plan::FILE))
}

/// In whose name a warm instance reads its channels.
fn claim(allocation: &AllocationId) -> String {
    format!("kept {}", allocation.0)
}
