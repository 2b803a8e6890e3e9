//! The operations that actions consist of. A machine requests a list of steps for an attempt; the
//! driver performs them in order, and answers once: with the first one's outcome that is not
//! [`Outcome::Done`], which ends the list, or with `Done`. Every step may be repeated after a
//! crash.

use shoal_plane::{Action, AttemptId, Host, JobName, Placement, TrialLaunch};

use crate::warm_pool::{AllocationId, Grant, Retention, ReusePolicy};

/// [`Action::Launch`].
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// Training job's name.
    pub job: JobName,
    /// Attempt id.
    pub attempt: AttemptId,
    /// Its number among the job's, from 1.
    pub number: u32,
    /// Where it runs, and with how much.
    pub placement: Placement,
    /// Hosts of the attempt.
    pub instances: u32,
    /// Those to start.
    pub hosts: Vec<Host>,
    /// They are added to others that run.
    pub joins: bool,
    /// Seconds for which agents live without a server.
    pub lease_s: u64,
    /// For a trial.
    pub trial: Option<TrialLaunch>,
}

impl Launch {
    /// The launch that the core requests; none if it requests something else.
    pub(crate) fn of(action: &Action) -> Option<Self> {
        let Action::Launch { job, attempt, number, placement, instances, hosts, joins, lease_s, trial } =
            action.clone()
        else {
            return None;
        };
        Some(Self { job, attempt, number, placement, instances, hosts, joins, lease_s, trial })
    }
}

/// When artifacts are written although there may be no space for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePolicy {
    /// Only if the job is being stopped: the last write failed recently.
    IfStopping,
    /// If there seems to be space, or the job is being stopped.
    IfSpace,
    /// Whatever comes of it: there is no other try.
    Always,
}

/// One operation for an attempt. An attempt's *plan* is what its agents receive, in a file in its
/// run directory; it is *admitted* while its agents may connect.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Answers [`Outcome::Delayed`] if the disk has no room for another attempt.
    CheckSpace,
    /// Answers [`Outcome::Found`] if there is a plan on disk.
    FindPlan,
    /// Prepare the channels and the plan, and hold it in memory; answers [`Outcome::Prepared`].
    Prepare(Box<Launch>),
    /// Write the plan that is prepared, for a warm instance or for a new one.
    WritePlan(Option<AllocationId>),
    /// Admit the plan that is prepared. Agents of a warm instance are served after
    /// [`Step::Connect`].
    Admit(Option<AllocationId>),
    /// Admit the plan that is on disk; fails if there is none.
    Adopt,
    /// Start those agents of an admitted attempt that were never started: all or none.
    Submit,
    /// Write to the plan that new instances with these GPUs take the places of hosts.
    Join(Vec<(Host, Vec<u32>)>),
    /// Expect agents of these hosts from now on.
    Expect(Vec<Host>),
    /// Start the agents of these hosts that were never started, all or none.
    Add {
        /// Host numbers.
        hosts: Vec<Host>,
        /// As [`Placement::nodes`].
        nodes: Vec<String>,
    },
    /// Serve the agents of the warm instance: all are connected.
    Connect(Grant),
    /// Write what the job's log is to contain about the launch; fails nothing.
    WriteNotes,
    /// Send the orders of an action, which stand until the attempt is released.
    Order(Box<Action>),
    /// Store the artifacts of these hosts.
    StoreArtifacts {
        /// Training job's name.
        job: JobName,
        /// The attempt's number among the job's, from 1.
        number: u32,
        /// Those that have sent theirs.
        hosts: Vec<Host>,
        /// If there may be no space.
        write: WritePolicy,
    },
    /// End the processes of these hosts. Answers [`Outcome::Delayed`] while something may be left
    /// of them: their capacity is not free.
    EndInstances(Vec<Host>),
    /// Close the connections of these hosts, wait until what they delivered is stored, and reset
    /// their links.
    CloseLinks(Vec<Host>),
    /// Remove what these hosts have sent, and the numbers of their reports.
    RemoveInstances(Vec<Host>),
    /// Answers [`Outcome::Instance`].
    FindInstance,
    /// Order all agents to exit; each end of one is reported by
    /// [`crate::lanes::Event::AgentEnded`], if the launcher reports ends.
    Leave,
    /// Have the instance read its inputs in its own name, and order all agents to clear the attempt
    /// away.
    Park,
    /// Close the connections of agents that were not served: their instance is ended.
    GiveUp,
    /// End the processes of an allocation and remove its directory. Answers [`Outcome::Delayed`]
    /// while its scheduler does not answer.
    EndAllocation {
        /// Which.
        allocation: AllocationId,
        /// Number of its agents; if it is not known, as many as its directory shows.
        hosts: Option<u32>,
    },
    /// Admit no agent of the attempt any more.
    Withdraw,
    /// Forget what is prepared, and what of the store the attempt reads.
    ReleaseInputs,
    /// Remove the plan and what this number of hosts has sent; what agents have in the same
    /// directory stays.
    RemovePlan(u32),
    /// Remove the run directory.
    RemoveRun,
    /// Show the instance as available.
    Offer(Box<Retention>),
    /// Forget how far the attempt's reports came.
    ForgetReports,
}

/// How a list of steps ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// All of it is done.
    Done,
    /// A step has failed.
    Failed(String),
    /// The thread that performed a step panicked: nothing follows.
    Panicked,
    /// A step is to be tried again later: the disk lacks space, something may be left of an
    /// instance, or a scheduler does not answer.
    Delayed {
        /// For people.
        reason: String,
        /// The disk was found full by writing.
        has_written: bool,
    },
    /// The attempt's plan on disk.
    Found(KnownPlan),
    /// The channels are ready.
    Prepared {
        /// Of warm instances that could serve it.
        reuse_key: Option<String>,
    },
    /// A released attempt.
    Instance(Box<Instance>),
}

/// A plan in a run directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPlan {
    /// The instance that serves the attempt.
    pub allocation: AllocationId,
    /// Number of its agents.
    pub hosts: u32,
    /// See [`crate::warm_pool::ReusePolicy::key`]; none if the instance is not retained.
    pub key: Option<String>,
    /// The attempt can lose and gain instances.
    pub is_elastic: bool,
}

/// What a launch finds of itself when it is requested again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPlan {
    /// What its agents were to do.
    pub plan: FoundPlan,
    /// All instances of its allocation run.
    pub is_complete: bool,
    /// Reports of its agents are stored.
    pub has_reports: bool,
}

/// What is known of an attempt that is released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// None if no agent was started for it, or its plan is removed already.
    pub plan: Option<FoundPlan>,
    /// See [`crate::recovery::serves_another`].
    pub is_shared: bool,
    /// If it is admitted.
    pub agents: Option<Agents>,
}

/// The agents of an attempt that is released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    /// The attempt's training job.
    pub job: JobName,
    /// As things are now; none if nothing may have the instance afterwards.
    pub policy: Option<ReusePolicy>,
    /// The policy's owner starts no more trials.
    pub owner_has_ended: bool,
    /// Hosts whose agents are connected.
    pub connected: u32,
    /// All processes of its allocation run.
    pub is_complete: bool,
}

impl Instance {
    /// The instance as the pool may retain it.
    pub(crate) fn retention(&self) -> Option<Retention> {
        let (plan, agents) = (self.plan.as_ref()?, self.agents.as_ref()?);
        let policy = agents.policy.clone().filter(|policy| policy.owner.is_empty() || !agents.owner_has_ended)?;
        let is_usable = agents.is_complete && agents.connected >= plan.hosts;
        let (allocation, job, hosts) = (plan.allocation.clone(), agents.job.clone(), plan.hosts);
        is_usable.then_some(Retention { allocation, job, policy, hosts })
    }
}

/// Ends what is left of an attempt and removes it. `is_shared`: its instance serves another attempt
/// now, and so do its processes and directory.
pub(crate) fn clear(attempt: &AttemptId, plan: Option<&FoundPlan>, is_shared: bool) -> Vec<Step> {
    let end = || Step::EndAllocation {
        // Without a plan no agent was started here, or it is that of a warm instance.
        allocation: plan.map_or_else(|| AllocationId(attempt.clone()), |plan| plan.allocation.clone()),
        hosts: plan.map(|plan| plan.hosts),
    };
    let ended = (!is_shared).then(end);
    let removed = (!is_shared).then_some(Step::RemoveRun);
    let steps = ended.into_iter().chain([Step::Withdraw, Step::ReleaseInputs]).chain(removed);
    steps.chain([Step::ForgetReports]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> FoundPlan {
        FoundPlan { allocation: AllocationId("older".into()), hosts: 2, key: Some("key".to_owned()), is_elastic: false }
    }

    #[test]
    fn an_instance_is_retained_if_it_is_complete_and_something_may_follow() {
        let policy =
            |owner: &str| ReusePolicy { owner: owner.into(), idle_s: 1, key: "key".to_owned(), is_loaded: false };
        let good = Agents {
            job: "job".into(),
            policy: Some(policy("tuning")),
            owner_has_ended: false,
            connected: 2,
            is_complete: true,
        };
        let instance =
            |agents: Agents| Instance { plan: Some(plan()), is_shared: false, agents: Some(agents) }.retention();
        let expected = Retention {
            allocation: AllocationId("older".into()),
            job: "job".into(),
            policy: policy("tuning"),
            hosts: 2,
        };
        assert_eq!(instance(good.clone()), Some(expected));
        for bad in [
            Agents { policy: None, ..good.clone() },
            Agents { owner_has_ended: true, ..good.clone() },
            Agents { connected: 1, ..good.clone() },
            Agents { is_complete: false, ..good.clone() },
        ] {
            assert_eq!(instance(bad.clone()), None, "{bad:?}");
        }
        let alone = Agents { policy: Some(policy("")), owner_has_ended: true, ..good };
        assert!(instance(alone).is_some(), "a training job of its own has no owner");
    }

    #[test]
    fn what_serves_another_attempt_is_not_ended() {
        let end = |allocation: &str, hosts| Step::EndAllocation { allocation: AllocationId(allocation.into()), hosts };
        let rest = [Step::Withdraw, Step::ReleaseInputs, Step::RemoveRun, Step::ForgetReports];
        let attempt = AttemptId::from("a");
        assert_eq!(clear(&attempt, Some(&plan()), false)[0], end("older", Some(2)));
        let without_plan = clear(&attempt, None, false);
        assert_eq!((&without_plan[0], &without_plan[1..]), (&end("a", None), &rest[..]));
        assert_eq!(clear(&attempt, None, true), [Step::Withdraw, Step::ReleaseInputs, Step::ForgetReports]);
    }
}
