//! Performs what `shoal_runtime::warm_pool` requests: instances that are retained between attempts.
//!
//! A warm instance is named by the attempt that it was started for, whose run directory stays as
//! long as it runs. Its agents exit with their connections, so nothing of the pool outlives the
//! server.

use std::{fs, io, os::unix::net::UnixStream, time::Duration};

use serde_json::Value;
use shoal_link::{Assignment, Decoder, Hello, Limits, Order, Program, ToAgent};
use shoal_plane::AttemptId;
use shoal_runtime::{
    ConnId,
    warm_pool::{AllocationId, Event, Grant, Io, Retention, ReusePolicy},
};
use shoal_store::ResourceKind;
use shoal_wire::CreateTrainingJob;

use crate::{
    agent_stream::{AgentSender, read_some},
    attempts::{Attempt, NETWORK_FILE, Plan, run_dir},
    hex::sha256_hex,
    launches::Prepared,
    world::World,
};

/// How long an instance waits for another trial of its tuning job; it also ends when that job has
/// ended.
const IDLE_TRIALS: Duration = Duration::from_secs(30);

/// What of a request two training jobs of their own must have in common, as at AWS.
const SHAPE: [&str; 3] = ["RoleArn", "VpcConfig", "EnableInterContainerTrafficEncryption"];

/// For the trials of a tuning job, which differ in their name, hyperparameters, metrics and
/// checkpoints only.
pub(crate) fn policy_of_trial(plan: &Plan, tuning: String) -> ReusePolicy {
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
    (seconds > 0).then(|| policy(plan, String::new(), idle, &serde_json::to_string(&shape).unwrap_or_default()))
}

fn policy(plan: &Plan, owner: String, idle: Duration, shape: &str) -> ReusePolicy {
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
        match io {
            Io::Park { attempt } => {
                self.attempts.order_all(&attempt, &Order::Park);
                None
            }
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
            Io::Clear { attempt, retention } => {
                if let Some(running) = self.attempts.get(&attempt) {
                    self.remove_attempt(&running);
                }
                self.pool_is_kept(&retention.policy, &retention.job);
                Some(Event::Cleared { allocation: retention.allocation })
            }
            Io::Assign { attempt, allocation } => Some(match self.assign(&attempt, &allocation) {
                Ok(()) => Event::Assigned { attempt },
                Err(error) => {
                    tracing::warn!("attempt {attempt} cannot be assigned a warm instance: {error}");
                    Event::AssignFailed { attempt }
                }
            }),
            Io::Serve { attempt, conns } => {
                let running = self.attempts.get(&attempt)?;
                let serve = || ToAgent::Serve { attempt: attempt.to_string(), token: running.token.clone() };
                let sent = conns
                    .into_iter()
                    .all(|conn| self.idle_agents.get(conn).is_some_and(|agent| agent.send(serve()).is_ok()));
                (!sent).then_some(Event::ServeFailed { attempt })
            }
            Io::Unassign { attempt, instance } => {
                tracing::warn!(
                    "the warm instance {} does not answer: attempt {attempt} gets a new one",
                    instance.allocation.0
                );
                if let Some(running) = self.attempts.get(&attempt) {
                    running.instance_given_up();
                }
                self.attempts.remove(&attempt);
                self.end_warm(&[instance]);
                self.forget_reports(&attempt);
                Some(Event::Unassigned { attempt })
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
                self.end_warm(&instances);
                None
            }
            // The driver carries it to its machine.
            Io::Lane(_) => None,
        }
    }

    /// An attempt's instance as it could be retained; its channels are claimed for it then.
    pub(crate) fn retention(&self, running: &Attempt) -> Option<Retention> {
        let plan = &running.plan;
        let policy = match &plan.reuse {
            Some(policy) if !policy.owner.is_empty() => {
                Some(policy.clone()).filter(|policy| self.has_more_trials(&policy.owner))
            }
            // `UpdateTrainingJob` may have changed for how long.
            _ => policy_of_job(plan, &self.request(&plan.job).ok()?),
        }?;
        if running.connected() < plan.assignments.len() || !self.is_complete(&running.allocation) {
            return None;
        }
        let allocation = AllocationId(plan.allocation_id().to_owned());
        for channel in plan.assignments.iter().flat_map(|it| &it.channels) {
            self.trees.claim(&self.trees.path_of(&channel.tree), &claim(&allocation.0));
        }
        Some(Retention { allocation, job: plan.job.clone(), policy, hosts: running.allocation.instances })
    }

    /// Whether a tuning job may start more trials.
    fn has_more_trials(&self, tuning: &str) -> bool {
        self.rows.resource(ResourceKind::TUNING_JOB, tuning).is_ok_and(|row| row.is_some_and(|row| !row.ended))
    }

    /// Writes an attempt's plan for a warm instance, and admits its agents from now on.
    fn assign(&self, attempt: &AttemptId, allocation: &AllocationId) -> io::Result<()> {
        let plan = match self.prepared().get_mut(attempt) {
            Some(Prepared { plan, .. }) => Plan { allocation_id: Some(allocation.0.clone()), ..plan.clone() },
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        plan.write(&run_dir(&self.runs, attempt))?;
        self.attempts.insert(Attempt::new(plan.clone(), self.allocation_of(&plan), &self.keys).awaiting_instance());
        Ok(())
    }

    /// All agents of a warm instance have connected for their attempt.
    pub(crate) fn begin_warm(&self, plan: &Plan, grant: &Grant) {
        if let Some(attempt) = self.attempts.get(&plan.attempt) {
            attempt.instance_connected();
        }
        self.release_claims(&grant.allocation.0);
        self.pool_is_used(plan, Some((&grant.from, grant.idle)));
    }

    /// The attempt that the instance serves has claimed its channels itself, or nothing reads them
    /// any more.
    pub(crate) fn release_claims(&self, allocation: &str) {
        self.trees.release(&claim(allocation));
    }

    fn end_warm(&self, instances: &[Retention]) {
        let allocations: Vec<_> =
            instances.iter().map(|it| (&it.allocation.0, self.allocation(&it.allocation.0, it.hosts))).collect();
        self.end_allocations(allocations.iter().map(|(id, allocation)| (*id, allocation)));
        allocations.iter().for_each(|(id, _)| self.release_claims(id));
    }

    /// Removes what the server has of an attempt whose instance stays, but the numbers of its
    /// reports.
    fn remove_attempt(&self, attempt: &Attempt) {
        let id = &attempt.plan.attempt;
        self.attempts.remove(id);
        self.trees.release(id);
        let dir = run_dir(&self.runs, id);
        let removed = if attempt.plan.allocation_id() == id {
            // The agents' own directories and files stay.
            let hosts = u32::try_from(attempt.plan.assignments.len()).unwrap_or(u32::MAX);
            let network = match fs::remove_file(dir.join(NETWORK_FILE)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
            network
                .and_then(|()| crate::parts::remove(&dir, 1..=hosts))
                .and_then(|()| fs::remove_file(dir.join(Plan::FILE)))
        } else {
            (self.remove_tree)(&dir)
        };
        if let Err(error) = removed {
            tracing::error!("{}: {error}", dir.display());
        }
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
        self.machines.send(Event::AgentIdle { allocation: allocation.clone(), host: hello.host, conn });
        // The agent sends nothing; what ends this is the end of the connection.
        let ended = stream.set_read_timeout(None).map(|()| while read_some(&mut stream, &mut decoder).is_ok() {});
        self.idle_agents.remove(conn);
        self.machines.send(Event::AgentClosed { allocation, conn });
        ended
    }
}

/// In whose name a warm instance reads its channels.
fn claim(allocation: &str) -> String {
    format!("kept {allocation}")
}
