//! Instances that are kept between attempts: those of a tuning job's trials, and of training jobs with a `KeepAlivePeriodInSeconds`.
//!
//! A kept instance is an allocation of agents that serve no attempt. It is named by the attempt that it was started for, its *origin*, whose run
//! directory stays as long as it lives. Each of its agents holds a connection (`link::ToServer::Idle`) and ends with that, so nothing of the pool
//! outlives the server. Whatever is odd about a kept instance costs a cold start, never a job: it is taken only with all its agents there, and
//! ended when they do not come at once. The core knows nothing of all this, and what people are
//! told of it is [`crate::warm_status`]'s.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::net::UnixStream,
    sync::{Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shoal_launch::{AllocationSpec, AllocationStatus, LauncherExt};
use shoal_link::{Assignment, Decoder, Hello, Limits, Order, Program, ToAgent};
use shoal_store::ResourceKind;
use shoal_wire::CreateTrainingJob;

use crate::{
    agents::read_some,
    attempts::{Attempt, Down, Plan, run_dir},
    effects::{World, describe},
    keys::sha256_hex,
};

/// How long agents have to clear away an attempt and say that they are idle.
const PARK: Duration = Duration::from_secs(10);
/// Between two looks whether they still can.
const LOOK: Duration = Duration::from_millis(50);
/// How long kept agents have to call for their next attempt.
const WAKE: Duration = Duration::from_secs(2);
/// How long a launch waits for an instance that is about to be free: less than a new one takes.
const SOON: Duration = Duration::from_millis(100);
/// An instance whose program stays in memory makes room when a new one is started, if it has been idle for so long.
const YIELDS: Duration = Duration::from_secs(2);
/// Of trials: they end soon after their tuning job, and before that if it has no use for them.
const IDLE_TRIALS: Duration = Duration::from_secs(30);

/// For whom an attempt's instance is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keep {
    /// The tuning job; empty for training jobs of their own.
    pub(crate) owner: String,
    /// For so long.
    pub(crate) idle_s: u64,
    /// Everything that two attempts must have in common, as a digest.
    pub(crate) key: String,
    /// Its program stays, with what it has read.
    #[serde(default)]
    pub(crate) is_loaded: bool,
}

/// What of a request two training jobs of their own must have in common, as at AWS.
const SHAPE: [&str; 3] = ["RoleArn", "VpcConfig", "EnableInterContainerTrafficEncryption"];

impl Keep {
    /// For the trials of a tuning job, which differ in their name, hyperparameters, metrics and checkpoints only.
    pub(crate) fn of_trial(plan: &Plan, tuning: String) -> Self {
        Self::of(plan, tuning, IDLE_TRIALS, "")
    }

    /// For training jobs of their own on the same kind of instances. Built-in algorithms must have the same inputs, too: they stay, with what they have
    /// read. Any other program is started anew in an empty instance.
    pub(crate) fn of_job(plan: &Plan, request: &CreateTrainingJob) -> Option<Self> {
        let seconds = request.resources.keep_alive_s;
        let mut resources = request.raw.get("ResourceConfig").cloned();
        if let Some(Value::Object(resources)) = &mut resources {
            resources.remove("KeepAlivePeriodInSeconds");
        }
        let shape = (SHAPE.map(|member| request.raw.get(member)), resources);
        (seconds > 0)
            .then(|| Self::of(plan, String::new(), Duration::from_secs(seconds.into()), &serde_json::to_string(&shape).unwrap_or_default()))
    }

    fn of(plan: &Plan, owner: String, idle: Duration, shape: &str) -> Self {
        let is_builtin = |it: &Assignment| matches!(it.program, Program::Builtin { .. });
        let is_trial = !owner.is_empty();
        let of_host = |it: &Assignment| {
            let path = it.checkpoint.as_ref().map(|checkpoint| &checkpoint.local_path);
            // Each attempt has its own share of the cores: a number for its program, and no limit.
            let limits = Limits { cpus: 0, ..it.limits.clone() };
            let place = (&it.region, it.host, &it.hosts, &it.instance_type, limits, &it.egress);
            let program = (is_trial || is_builtin(it)).then_some((path, &it.environment, &it.channels, &it.program, &it.python, &it.root));
            serde_json::to_string(&(place, program))
        };
        let hosts: Vec<_> = plan.assignments.iter().map(|it| of_host(it).unwrap_or_default()).collect();
        let key = sha256_hex(&format!("{owner} {shape} {} {}", plan.isolated, hosts.join(" ")));
        let is_loaded = is_trial || plan.assignments.iter().any(is_builtin);
        Self { owner, idle_s: idle.as_secs(), key, is_loaded }
    }
}

/// An allocation without an attempt.
struct Kept {
    keep: Keep,
    /// The training job that had it last.
    job: String,
    allocation: AllocationSpec,
    /// By host number - 1: the agents that have come.
    agents: Vec<Option<Down>>,
    /// The attempt before has been cleared away, and this may be taken.
    since: Option<Instant>,
}

impl Kept {
    /// For how long it has been offered.
    fn offered(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn is_whole(&self) -> bool {
        self.agents.iter().all(Option::is_some)
    }
}

/// The instances that are kept, by origin.
#[derive(Default)]
pub(crate) struct Pool {
    kept: Mutex<HashMap<String, Kept>>,
    changed: Condvar,
    /// Attempts whose release is under way, with the keys of their instances: those may be kept soon.
    leaving: Mutex<HashMap<String, String>>,
    /// Those that are kept no longer: their agents end.
    ending: Mutex<Vec<(String, Kept)>>,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.lock().expect("no holder of this lock panics")
    }

    /// Waits until all agents of it are idle, for as long as that can come; says whether they are.
    fn await_whole(&self, origin: &str, can_come: impl Fn() -> bool) -> bool {
        let mut kept = self.lock();
        loop {
            match kept.get(origin) {
                None => return false,
                Some(it) if it.is_whole() => return true,
                Some(_) => {}
            }
            let waited;
            (kept, waited) = self.changed.wait_timeout(kept, LOOK).expect("no holder of this lock panics");
            if waited.timed_out() && !can_come() {
                return false;
            }
        }
    }

    /// An attempt's release is about to begin.
    pub(crate) fn leaves(&self, running: &Attempt) {
        if let Some(keep) = &running.plan.keep {
            let mut leaving = self.leaving.lock().expect("no holder of this lock panics");
            leaving.insert(running.plan.attempt.clone(), keep.key.clone());
        }
    }

    /// It is over, however it went.
    pub(crate) fn has_left(&self, attempt: &str) {
        if self.leaving.lock().expect("no holder of this lock panics").remove(attempt).is_some() {
            // Under the lock, so that nobody misses it between a look and the wait.
            let _kept = self.lock();
            self.changed.notify_all();
        }
    }

    /// As [`Self::take`]; waits a moment for those of this key that are about to be free.
    fn take_soon(&self, key: &str, wanted: impl Fn(&Kept) -> bool) -> Option<(String, Kept)> {
        let until = Instant::now() + SOON;
        loop {
            if let Some(taken) = self.take(&wanted) {
                return Some(taken);
            }
            let kept = self.lock();
            let is_leaving = self.leaving.lock().expect("no holder of this lock panics").values().any(|it| it == key);
            let left = until.saturating_duration_since(Instant::now());
            if !is_leaving || left.is_zero() {
                return None;
            }
            if !kept.values().any(&wanted) {
                drop(self.changed.wait_timeout(kept, left).expect("no holder of this lock panics"));
            }
        }
    }

    fn take(&self, wanted: impl Fn(&Kept) -> bool) -> Option<(String, Kept)> {
        let mut kept = self.lock();
        // The one that was used last: others may be given up.
        let origin = kept.iter().filter(|(_, it)| wanted(it)).max_by_key(|(_, it)| it.since).map(|(origin, _)| origin.clone())?;
        let it = kept.remove(&origin)?;
        Some((origin, it))
    }
}

impl World {
    /// Keeps an attempt's instance, clear of the attempt; says whether it did. If not, it is to be released like any other.
    pub(crate) fn park(&self, running: &Attempt) -> bool {
        let (Some(keep), origin) = (self.keep_of(running), running.plan.origin().to_owned()) else { return false };
        let is_whole = || matches!(self.launcher.status_of(&running.allocation), Ok(AllocationStatus::Running { lost }) if lost.is_empty());
        if !self.is_wanted(&keep) || !is_whole() || running.connected() < running.plan.assignments.len() {
            return false;
        }
        let agents = vec![None; running.plan.assignments.len()];
        let kept = Kept { keep, job: running.plan.job.clone(), allocation: running.allocation.clone(), agents, since: None };
        for channel in running.plan.assignments.iter().flat_map(|it| &it.channels) {
            self.trees.claim(channel.tree.as_ref(), &claim(&origin));
        }
        let (job, is_job) = (kept.job.clone(), kept.keep.owner.is_empty());
        self.pool.lock().insert(origin.clone(), kept);
        // From here on an update finds it; one that has come since it was looked at is looked at again.
        if is_job && let Ok(request) = self.request(&job) {
            self.keep_for(&job, request.resources.keep_alive_s);
        }
        (1..=running.allocation.instances).for_each(|host| running.order(host, Order::Park));
        let until = Instant::now() + PARK;
        if self.pool.await_whole(&origin, || is_whole() && (Instant::now() < until || running.is_saving())) {
            return true;
        }
        self.pool.lock().remove(&origin);
        self.trees.release(&claim(&origin));
        false
    }

    /// How an attempt's instance is kept as things are now: for how long, `UpdateTrainingJob` may have changed.
    fn keep_of(&self, running: &Attempt) -> Option<Keep> {
        match &running.plan.keep {
            Some(keep) if !keep.owner.is_empty() => Some(keep.clone()),
            _ => Keep::of_job(&running.plan, &self.request(&running.plan.job).ok()?),
        }
    }

    /// The attempt that a kept instance has served is cleared away.
    pub(crate) fn keep(&self, origin: &str) {
        let of = self.pool.lock().get(origin).map(|kept| (kept.keep.clone(), kept.job.clone()));
        if let Some((keep, job)) = of {
            self.pool_is_kept(&keep, &job);
        }
        if let Some(kept) = self.pool.lock().get_mut(origin) {
            kept.since = Some(Instant::now());
        }
    }

    /// Keeps what an ended training job has kept for so long in all instead; not at all for 0.
    pub(crate) fn keep_for(&self, job: &str, seconds: u32) {
        let is_it = |kept: &Kept| kept.job == job && kept.keep.owner.is_empty();
        for kept in self.pool.lock().values_mut().filter(|kept| is_it(kept)) {
            kept.keep.idle_s = seconds.into();
        }
        if seconds == 0 {
            self.end_those(|kept| is_it(kept) && kept.since.is_some());
        }
    }

    /// Gives an attempt a kept instance, if there is one for it; says whether it runs there.
    pub(crate) fn wake(&self, plan: &Plan) -> io::Result<bool> {
        let Some(keep) = &plan.keep else { return Ok(false) };
        let fits = |kept: &Kept| kept.since.is_some() && kept.is_whole() && kept.keep.key == keep.key;
        while let Some((origin, kept)) = self.pool.take_soon(&keep.key, fits) {
            let plan = Plan { origin: Some(origin.clone()), ..plan.clone() };
            plan.write(&run_dir(&self.runs, &plan.attempt))?;
            self.attempts.insert(Attempt::new(plan.clone(), kept.allocation.clone(), &self.keys).called());
            let attempt = self.attempts.get(&plan.attempt).ok_or(io::ErrorKind::NotFound)?;
            let serve = || ToAgent::Serve { attempt: plan.attempt.clone(), token: attempt.token.clone() };
            let told = kept.agents.iter().flatten().all(|agent| agent.send(serve()).is_ok());
            // One that says nothing may be one that was stopped, and nothing of it has happened yet.
            if told && attempt.await_connected(WAKE) {
                attempt.has_come();
                self.trees.release(&claim(&origin));
                self.pool_is_used(&plan, Some((&kept.job, kept.offered())));
                return Ok(true);
            }
            tracing::warn!("the kept instance {origin} does not answer: training job {} gets a new one", plan.job);
            self.attempts.remove(&plan.attempt);
            self.end_kept(&origin, &kept);
            if let Err(error) = self.telemetry.forget(&plan.attempt) {
                tracing::error!("{error}");
            }
        }
        Ok(false)
    }

    /// Ends kept instances that nobody has wanted for long, and clears away those that others have ended.
    pub(crate) fn end_idle(&self) {
        let keeps: Vec<Keep> = self.pool.lock().values().map(|kept| kept.keep.clone()).collect();
        let over: Vec<Keep> = keeps.into_iter().filter(|keep| !self.is_wanted(keep)).collect();
        let is_over = |kept: &Kept, since: Instant| over.contains(&kept.keep) || since.elapsed().as_secs() >= kept.keep.idle_s;
        self.end_those(|kept| kept.since.is_some_and(|since| is_over(kept, since)));
        let ending = std::mem::take(&mut *self.pool.ending.lock().expect("no holder of this lock panics"));
        self.end_allocations(ending.iter().map(|(origin, kept)| (origin.as_str(), &kept.allocation)));
        ending.iter().for_each(|(origin, _)| self.trees.release(&claim(origin)));
    }

    /// Makes room for a new instance.
    pub(crate) fn make_room(&self) {
        self.end_those(|kept| kept.keep.is_loaded && kept.since.is_some_and(|since| since.elapsed() >= YIELDS));
    }

    /// Whether more attempts may come for an instance.
    fn is_wanted(&self, keep: &Keep) -> bool {
        keep.owner.is_empty()
            || self.rows.resource(ResourceKind::TUNING_JOB, &keep.owner).is_ok_and(|row| row.is_some_and(|row| !row.ended))
    }

    /// Their agents end with their connections; what they leave is cleared away by [`Self::end_idle`].
    fn end_those(&self, which: impl Fn(&Kept) -> bool) {
        while let Some((origin, kept)) = self.pool.take(&which) {
            kept.agents.iter().flatten().for_each(Down::close);
            self.pool_ends(Some(&kept.keep), &kept.job, kept.offered());
            self.pool.ending.lock().expect("no holder of this lock panics").push((origin, kept));
        }
    }

    fn end_kept(&self, origin: &str, kept: &Kept) {
        kept.agents.iter().flatten().for_each(Down::close);
        self.pool_ends(Some(&kept.keep), &kept.job, kept.offered());
        self.end_allocation(origin, &kept.allocation);
        self.trees.release(&claim(origin));
    }

    /// Ends and removes what there is of an allocation.
    pub(crate) fn end_allocation(&self, origin: &str, allocation: &AllocationSpec) {
        self.end_allocations([(origin, allocation)]);
    }

    fn end_allocations<'a>(&self, all: impl IntoIterator<Item = (&'a str, &'a AllocationSpec)>) {
        let stopped = all.into_iter().inspect(|(_, allocation)| {
            if let Err(error) = self.launcher.stop(allocation) {
                tracing::error!("{}", describe(&error));
            }
        });
        let origins: Vec<&str> = stopped.map(|(origin, _)| origin).collect();
        self.sweeps.clear(origins.iter().map(|origin| format!("{}-{origin}-", self.data_id)));
        for origin in origins {
            let dir = run_dir(&self.runs, origin);
            if let Err(error) = (self.remove_tree)(&dir) {
                tracing::error!("{}: {error}", dir.display());
            }
        }
    }

    /// An attempt is over whose instance stays: all of it goes but the numbers of its reports.
    pub(crate) fn forget(&self, attempt: &Attempt) {
        let id = &attempt.plan.attempt;
        self.attempts.remove(id);
        self.trees.release(id);
        let dir = run_dir(&self.runs, id);
        let removed = if attempt.plan.origin() == id {
            // The agents' own directories and files stay.
            let hosts = u32::try_from(attempt.plan.assignments.len()).unwrap_or(u32::MAX);
            crate::parts::remove(&dir, hosts).and_then(|()| fs::remove_file(dir.join(Plan::FILE)))
        } else {
            (self.remove_tree)(&dir)
        };
        if let Err(error) = removed {
            tracing::error!("{}: {error}", dir.display());
        }
    }

    /// An agent without an attempt: held until it is wanted, or ends.
    pub(crate) fn hold(&self, hello: &Hello, mut stream: UnixStream, down: &Down, mut decoder: Decoder) -> io::Result<()> {
        // Hashes are compared, so the time that it takes tells nothing of use.
        let is_ours = sha256_hex(&hello.token) == sha256_hex(&self.keys.agent_token(&hello.attempt));
        let place = hello.host as usize;
        let came = is_ours && {
            let mut kept = self.pool.lock();
            let agent = kept.get_mut(&hello.attempt).and_then(|kept| kept.agents.get_mut(place.checked_sub(1)?));
            agent.map(|agent| *agent = Some(down.clone())).is_some()
        };
        if !came {
            return down.send(ToAgent::Refused { reason: "it is not kept".to_owned() });
        }
        self.pool.changed.notify_all();
        stream.set_read_timeout(None)?;
        // It says nothing; what ends this is the end of the connection.
        while read_some(&mut stream, &mut decoder).is_ok() {}
        let gone = |kept: &Kept| kept.agents.get(place - 1).is_some_and(|agent| agent.as_ref().is_some_and(|agent| agent.is(down)));
        if let Some((origin, kept)) = self.pool.take(|kept| kept.since.is_some() && gone(kept)) {
            self.end_kept(&origin, &kept);
        }
        Ok(())
    }
}

/// In whose name a kept instance reads its channels.
fn claim(origin: &str) -> String {
    format!("kept {origin}")
}
