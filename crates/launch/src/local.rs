//! Child processes of this machine.
//!
//! Instance K of an allocation owns two files in its directory. `agent-K.log` is its stdout and
//! stderr, and is locked (flock) by whoever starts it; the lock goes with the open file to the
//! child and so lasts exactly as long as something of the instance lives, whatever becomes of the
//! caller and whenever. `agent-K.pid` says which process it is; once written, the instance is never
//! started again. The directory itself is locked while a caller works on the allocation, so that
//! nobody sees it half started.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::memory::{Processes, Scale};
use crate::process::{Process, leader, writing_to};
use crate::watch::watch;
use crate::{AllocationSpec, AllocationStatus, LaunchError, Launcher, MemoryUse, OnEnd, Watch};

/// How long the kernel may take to start or to end a process.
const PATIENCE: Duration = Duration::from_secs(10);
/// As if it used all memory, when the kernel looks for what to end.
const GOES_FIRST: u64 = 1000;
/// The variable by which a command learns on which node it is to start the instance.
const NODE: &str = "SHOAL_NODE";
const POLL: Duration = Duration::from_millis(5);

/// The launcher of this machine. What there is to know stands in the allocation's directory; kept
/// here is only what memory was weighed.
#[derive(Debug, Default)]
pub struct Local {
    /// Put before each command line: a program that starts agents somewhere else.
    command: Vec<String>,
    scale: Mutex<Scale>,
}

impl Local {
    /// Starts each instance as `command.. PROGRAM ARGS.. --host K`, with the agent's environment.
    /// The command runs the rest of its arguments somewhere else, lives as long as what it has
    /// started, and ends it when it is killed; an instance is lost when its command ends. Where
    /// nodes are listed, it finds the name of the instance's in `SHOAL_NODE`.
    #[must_use]
    pub fn by_command(command: Vec<String>) -> Self {
        Self { command, ..Self::default() }
    }
}

impl Launcher for Local {
    fn is_remote(&self, _: &[String]) -> bool {
        !self.command.is_empty()
    }

    fn reports_ends(&self) -> bool {
        true
    }

    fn submit(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        start(spec, instances(spec), &self.command)
    }

    fn add(&self, spec: &AllocationSpec, hosts: &[u32]) -> Result<(), LaunchError> {
        start(spec, hosts.iter().map(|host| Instance { spec, host: *host }), &self.command)
    }

    fn remove(&self, spec: &AllocationSpec, hosts: &[u32]) -> Result<(), LaunchError> {
        let _turn = take_turn(spec, File::lock)?;
        let remove = |instance: Instance<'_>| {
            instance.stop()?;
            match fs::remove_file(instance.pid_file()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(failed(|| format!("remove {}", instance.pid_file().display()))(error))
                }
                _ => Ok(()),
            }
        };
        // One that cannot be ended keeps no other from it.
        hosts.iter().map(|host| remove(Instance { spec, host: *host })).fold(Ok(()), Result::and)
    }

    fn status(&self, specs: &[&AllocationSpec]) -> Vec<Result<AllocationStatus, LaunchError>> {
        specs.iter().map(|spec| status(spec)).collect()
    }

    fn watch(&self, spec: &AllocationSpec, on_end: OnEnd) -> Result<Watch, LaunchError> {
        let _turn = take_turn(spec, File::lock_shared)?;
        let mut running = Vec::new();
        for instance in instances(spec) {
            let Some(process) = instance.process()? else { continue };
            match process.handle().map_err(failed(|| format!("watch process {}", process.pid)))? {
                Some(handle) => running.push((instance.host, handle)),
                None => on_end(instance.host),
            }
        }
        watch(running, on_end).map_err(failed(|| format!("watch the processes of {}", spec.id)))
    }

    fn memory(&self, specs: &[&AllocationSpec]) -> MemoryUse {
        let root = |instance: Instance<'_>| Some(instance.recorded().ok()??.pid);
        let roots: Vec<(&str, Vec<i32>)> =
            specs.iter().map(|spec| (spec.id.as_str(), instances(spec).filter_map(root).collect())).collect();
        let all: Vec<i32> = roots.iter().flat_map(|(_, roots)| roots).copied().collect();
        let used = self.scale.lock().unwrap_or_else(PoisonError::into_inner).memory(&all);
        roots.into_iter().map(|(id, roots)| (id.to_owned(), roots.iter().map(|root| used[root]).sum())).collect()
    }

    fn end_first(&self, specs: &[&AllocationSpec]) {
        let processes = Processes::look();
        let last = specs.len().saturating_sub(1) as u64;
        for (spec, behind) in specs.iter().zip((0..=last).rev()) {
            // Whatever the last one uses, the first one weighs more, though it uses nothing.
            let weight = (GOES_FIRST * behind).checked_div(last).unwrap_or(GOES_FIRST);
            let recorded = instances(spec).filter_map(|instance| instance.recorded().ok().flatten());
            let family = recorded.flat_map(|process| processes.family(process.pid));
            family.for_each(|pid| weigh(pid.cast_unsigned(), weight));
        }
    }

    fn stop(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        let _turn = take_turn(spec, File::lock)?;
        instances(spec).try_for_each(|instance| instance.stop())
    }
}

/// Starts all of these or none.
fn start<'a>(
    spec: &AllocationSpec,
    instances: impl Iterator<Item = Instance<'a>>,
    command: &[String],
) -> Result<(), LaunchError> {
    let _turn = take_turn(spec, File::lock)?;
    let mut started = Vec::new();
    for instance in instances {
        match instance.start(command) {
            Ok(Some(child)) => started.push((instance, child)),
            Ok(None) => {}
            Err(error) => {
                for (instance, mut child) in started {
                    // A child that has ended already cannot be killed; either way it is gone after
                    // the wait.
                    let _ = child.kill();
                    let _ = child.wait();
                    let _ = fs::remove_file(instance.pid_file());
                }
                return Err(error);
            }
        }
    }
    started.into_iter().for_each(|(_, child)| reap(child));
    Ok(())
}

fn status(spec: &AllocationSpec) -> Result<AllocationStatus, LaunchError> {
    let _turn = take_turn(spec, File::lock_shared)?;
    let (mut known, mut lost) = (false, Vec::new());
    for instance in instances(spec) {
        // An instance that was never started is not lost: another thread is in the middle of
        // `submit`.
        if let Some(process) = instance.process()? {
            known = true;
            lost.extend((!process.is_alive()).then_some(instance.host));
        }
    }
    Ok(match lost.len() {
        _ if !known => AllocationStatus::Unknown,
        n if n == spec.instances as usize => AllocationStatus::Ended,
        _ => AllocationStatus::Running { lost },
    })
}

/// Tells the kernel how much more than what it uses a process weighs when memory has run out, in
/// thousandths of all there is. What it starts afterwards weighs the same. A write that is refused
/// changes nothing.
fn weigh(pid: u32, thousandths: u64) {
    let _ = fs::write(format!("/proc/{pid}/oom_score_adj"), thousandths.to_string());
}

/// The allocation's directory, locked; `None` if there is none, and then there is nothing to
/// protect.
fn take_turn(spec: &AllocationSpec, lock: fn(&File) -> io::Result<()>) -> Result<Option<File>, LaunchError> {
    match File::open(&spec.dir).and_then(|dir| lock(&dir).map(|()| dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        dir => dir.map(Some).map_err(failed(|| format!("lock {}", spec.dir.display()))),
    }
}

fn instances(spec: &AllocationSpec) -> impl Iterator<Item = Instance<'_>> {
    (1..=spec.instances).map(move |host| Instance { spec, host })
}

struct Instance<'a> {
    spec: &'a AllocationSpec,
    host: u32,
}

impl Instance<'_> {
    fn pid_file(&self) -> PathBuf {
        self.spec.dir.join(format!("agent-{}.pid", self.host))
    }

    fn log_file(&self) -> PathBuf {
        // The kernel names open files by their real path.
        let dir = self.spec.dir.canonicalize().unwrap_or_else(|_| self.spec.dir.clone());
        dir.join(format!("agent-{}.log", self.host))
    }

    /// Starts the instance, unless it was started before: `None`.
    fn start(&self, by: &[String]) -> Result<Option<Child>, LaunchError> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.recorded()?.is_some() {
                return Ok(None);
            }
            if let Some(log) = self.lock()? {
                // Looked at again under the lock: another caller may have started it, and it may
                // have ended.
                return if self.recorded()?.is_some() { Ok(None) } else { self.spawn(log, by).map(Some) };
            }
            // Somebody started it and was killed before it could be recorded, or is about to record
            // it.
            if let Some(process) = leader(writing_to(&self.log_file())) {
                self.record(&process)?;
                return Ok(None);
            }
            thread::sleep(POLL);
        }
        Err(self.stuck("does not start"))
    }

    fn spawn(&self, log: File, by: &[String]) -> Result<Child, LaunchError> {
        let spec = self.spec;
        let also = log.try_clone().map_err(failed(|| format!("duplicate {}", self.log_file().display())))?;
        let mut command = match by {
            [] => Command::new(&spec.program),
            [first, others @ ..] => {
                let mut command = Command::new(first);
                command.args(others).arg(&spec.program);
                command
            }
        };
        let program = command.get_program().to_string_lossy().into_owned();
        command.args(&spec.args).arg("--host").arg(self.host.to_string()).env_clear();
        command
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(spec.node(self.host).map(|node| (NODE, node)))
            .envs(spec.env.iter().map(|(name, value)| (name, value)));
        // Out of the caller's process group: a Ctrl-C at its terminal is not for agents.
        command.stdin(Stdio::null()).stdout(log).stderr(also).current_dir("/").process_group(0);
        let mut child = command.spawn().map_err(failed(|| format!("start {program} for instance {}", self.host)))?;
        // Should the machine run out of memory, the kernel's OOM killer takes programs of instances
        // before the server, and the last to start first.
        weigh(child.id(), GOES_FIRST);
        // An unreaped child keeps its id, so this finds it even if it has ended already, as a
        // zombie without identity.
        let recorded = match Process::with_pid(child.id().cast_signed()) {
            Some(process) => self.record(&process),
            None => self.record_text(&format!("{} 0 ended", child.id())),
        };
        if let Err(error) = recorded {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok(child)
    }

    /// What became of the instance, if it was ever started.
    fn process(&self) -> Result<Option<Process>, LaunchError> {
        match self.recorded()? {
            None if self.log_file().exists() && self.lock()?.is_none() => Ok(leader(writing_to(&self.log_file()))),
            recorded => Ok(recorded),
        }
    }

    fn recorded(&self) -> Result<Option<Process>, LaunchError> {
        let path = self.pid_file();
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            text => text.and_then(|text| text.parse()).map(Some).map_err(failed(|| format!("read {}", path.display()))),
        }
    }

    fn record(&self, process: &Process) -> Result<(), LaunchError> {
        self.record_text(&process.to_string())
    }

    /// All or nothing: a pid file is never seen half written.
    fn record_text(&self, text: &str) -> Result<(), LaunchError> {
        static DRAFTS: AtomicU32 = AtomicU32::new(0);
        let path = self.pid_file();
        let draft =
            path.with_extension(format!("draft-{}-{}", std::process::id(), DRAFTS.fetch_add(1, Ordering::Relaxed)));
        let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path));
        written.map_err(failed(|| format!("write {}", path.display())))
    }

    /// The log, locked; `None` while something of the instance lives.
    fn lock(&self) -> Result<Option<File>, LaunchError> {
        let path = self.log_file();
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let log = log.map_err(failed(|| format!("open {}", path.display())))?;
        match log.try_lock() {
            Ok(()) => Ok(Some(log)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(failed(|| format!("lock {}", path.display()))(source)),
        }
    }

    fn stop(&self) -> Result<(), LaunchError> {
        let kill =
            |process: &Process| process.kill(PATIENCE).map_err(failed(|| format!("kill process {}", process.pid)));
        if let Some(process) = self.recorded()? {
            kill(&process)?;
        }
        let until = Instant::now() + PATIENCE;
        while self.log_file().exists() && self.lock()?.is_none() {
            if Instant::now() >= until {
                return Err(self.stuck("survives SIGKILL"));
            }
            writing_to(&self.log_file()).iter().try_for_each(kill)?;
            thread::sleep(POLL);
        }
        Ok(())
    }

    fn stuck(&self, what: &'static str) -> LaunchError {
        LaunchError::Stuck { id: self.spec.id.clone(), host: self.host, what, log: self.log_file() }
    }
}

/// Takes the child's exit status when it ends, so that no zombie stays. If there is no thread to be
/// had, a zombie does.
fn reap(mut child: Child) {
    let reaper = thread::Builder::new().name("reaper".into()).stack_size(64 << 10);
    let _ = reaper.spawn(move || child.wait());
}

fn failed(what: impl FnOnce() -> String) -> impl FnOnce(io::Error) -> LaunchError {
    move |source| LaunchError::Io { what: what(), source }
}
