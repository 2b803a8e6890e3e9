//! Performs what `shoal_runtime::warm_pool` requests: instances that are retained between attempts.
//!
//! A warm instance is named by the attempt that it was started for, whose run directory stays as
//! long as it runs. Its agents exit with their connections, so nothing of the pool outlives the
//! server.

use std::{fs, io, os::unix::net::UnixStream, time::Duration};

use serde_json::Value;
use shoal_link::{Assignment, Decoder, Hello, Limits, Order, Program, ToAgent};
use shoal_plane::{AttemptId, Host, TuningName};
use shoal_runtime::{
    ConnId,
    steps::Outcome,
    warm_pool::{AllocationId, Event, Io, ReusePolicy},
};
use shoal_store::ResourceKind;
use shoal_wire::CreateTrainingJob;

use crate::{
    agent_stream::{AgentSender, read_some},
    attempts::{Attempt, NETWORK_FILE, Plan, run_dir},
    hex::sha256_hex,
    world::World,
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
    let of_host = |it: &Assignment| {
        let path = it.checkpoint.as_ref().map(|checkpoint| &checkpoint.local_path);
        // Each attempt has its own share of the cores: a number for its program, and no limit.
        let limits = Limits { cpus: 0, ..it.limits.clone() };
        let place = (&it.region, it.host, &it.hosts, &it.instance_type, limits, &it.egress);
        let program = (is_trial || is_builtin(it)).then_some((
            path,
            &it.environment,
            &it.channels,
            &it.program,
            &it.python,
            &it.root,
        ));
        serde_json::to_string(&(place, program))
    };
    let hosts: Vec<_> = plan.assignments.iter().map(|it| of_host(it).unwrap_or_default()).collect();
    let nodes = plan.nodes.iter().map(|node| format!("{node} ")).collect::<String>();
    let key = sha256_hex(&format!("{owner} {shape} {} {nodes}{}", plan.isolated, hosts.join(" ")));
    let is_loaded = is_trial || plan.assignments.iter().any(is_builtin);
    ReusePolicy { owner, idle_s: idle.as_secs(), key, is_loaded }
}

impl World {
    /// Performs an output of the pool; returns its answer, if it has one.
    pub(crate) fn perform_for_pool(&self, io: Io) -> Option<Event> {
        if let Some((attempt, steps)) = io.steps() {
            return match self.perform(&attempt, steps) {
                Outcome::Failed(reason) => {
                    tracing::warn!("attempt {attempt} cannot be assigned a warm instance: {reason}");
                    io.failed()
                }
                _ => io.done(),
            };
        }
        match io {
            Io::ReadKeepAlive { job } => {
                let seconds = self.request(&job).ok()?.resources.keep_alive_s;
                Some(Event::KeepAlive { job, seconds })
            }
            Io::CheckOwner { owner } => (!self.has_more_trials(&owner)).then_some(Event::OwnerEnded { owner }),
            Io::Check { allocation, attempt } => {
                let running = self.attempts.get(&attempt);
                let is_running = running.as_ref().is_some_and(|running| self.is_complete(&running.allocation));
                let is_mirroring = running.is_some_and(|running| running.is_mirroring());
                Some(Event::Checked { allocation, is_running, is_mirroring })
            }
            Io::Serve { attempt, conns } => {
                let running = self.attempts.get(&attempt)?;
                let serve = || ToAgent::Serve { attempt: attempt.to_string(), token: running.token.clone() };
                let sent = conns
                    .into_iter()
                    .all(|conn| self.idle_agents.get(conn).is_some_and(|agent| agent.send(serve()).is_ok()));
                (!sent).then_some(Event::ServeFailed { attempt })
            }
            Io::Refuse(conn) => {
                if let Some(agent) = self.idle_agents.get(conn) {
                    // One that is not reached exits all the same.
                    let _ = agent.send(ToAgent::Refused { reason: "this instance is not retained".to_owned() });
                    agent.close();
                }
                None
            }
            Io::Retire { conns, retired } => {
                conns.into_iter().filter_map(|conn| self.idle_agents.get(conn)).for_each(|agent| agent.close());
                self.pool_ends(Some(&retired.retention.policy), &retired.retention.job, retired.idle);
                None
            }
            Io::End(instances) => {
                let all: Vec<_> = instances.into_iter().map(|it| (it.allocation.0, it.hosts)).collect();
                self.end_allocations(&all);
                None
            }
            // They have steps, or the driver carries it to its machine.
            Io::Park { .. } | Io::Clear { .. } | Io::Assign { .. } | Io::Unassign { .. } | Io::Lane(_) => None,
        }
    }

    /// Which attempts may have an attempt's instance after it, as things are now.
    pub(crate) fn policy_now(&self, plan: &Plan) -> Option<ReusePolicy> {
        match &plan.reuse {
            Some(policy) if !policy.owner.is_empty() => Some(policy.clone()),
            // `UpdateTrainingJob` may have changed for how long.
            _ => policy_of_job(plan, &self.request(&plan.job).ok()?),
        }
    }

    /// Whether a tuning job may start more trials.
    pub(crate) fn has_more_trials(&self, tuning: &str) -> bool {
        self.rows.resource(ResourceKind::TUNING_JOB, tuning).is_ok_and(|row| row.is_some_and(|row| !row.ended))
    }

    /// Has the agents of an attempt clear it away; its channels are claimed for its instance.
    pub(crate) fn park(&self, running: &Attempt) {
        let allocation = AllocationId(running.plan.allocation_id().clone());
        for channel in running.plan.assignments.iter().flat_map(|it| &it.channels) {
            self.trees.claim(&self.trees.path_of(&channel.tree), &claim(&allocation));
        }
        running.order_all(&Order::Park);
    }

    /// The attempt that the instance serves has claimed its channels itself, or nothing reads them
    /// any more.
    pub(crate) fn release_claims(&self, allocation: &AllocationId) {
        self.trees.release(&claim(allocation));
    }

    /// Removes what the server has of an attempt in the directory of its own instance; the agents'
    /// own directories and files stay.
    pub(crate) fn remove_plan(&self, attempt: &AttemptId, hosts: u32) -> io::Result<()> {
        let dir = run_dir(&self.runs, attempt);
        match fs::remove_file(dir.join(NETWORK_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        crate::parts::remove(&dir, Host::all(hosts))?;
        fs::remove_file(dir.join(Plan::FILE))
    }

    /// Serves the connection of an agent that serves no attempt, until its end.
    pub(crate) fn hold(
        &self,
        hello: &Hello,
        conn: ConnId,
        mut stream: UnixStream,
        sender: &AgentSender,
        mut decoder: Decoder,
    ) -> io::Result<()> {
        if !self.keys.equal(&hello.token, &self.keys.agent_token(&hello.attempt)) {
            return sender.send(ToAgent::Refused { reason: "wrong token".to_owned() });
        }
        let allocation = AllocationId(hello.attempt.as_str().into());
        self.idle_agents.insert(conn, sender.clone());
        self.machines.send(Event::AgentIdle { allocation: allocation.clone(), host: Host(hello.host), conn });
        // The agent sends nothing; what ends this is the end of the connection.
        let ended = stream.set_read_timeout(None).map(|()| while read_some(&mut stream, &mut decoder).is_ok() {});
        self.idle_agents.remove(conn);
        self.machines.send(Event::AgentClosed { allocation, conn });
        ended
    }
}

/// In whose name a warm instance reads its channels.
fn claim(allocation: &AllocationId) -> String {
    format!("kept {}", allocation.0)
}
