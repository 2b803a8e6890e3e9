//! Stacks of an instance's processes, sampled from outside for a while, folded: `frame;frame;frame
//! count` a line, outermost first. Python's frames are read while the program runs; of other
//! processes there is the name, and only while they compute.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use py_spy::{Config, PythonSpy, StackTrace, config::LockingStrategy};
use rustix::time::{ClockId, clock_gettime};

use crate::stacks::{descendants, readable};

/// Between two looks for processes that have begun or ended.
const RESCAN: Duration = Duration::from_secs(2);
/// Looks at a process that may have no interpreter yet.
const TRIES: u32 = 3;
/// Of a core, at most: samples are fewer where they cost more.
const MOST_SHARE: f64 = 0.008;
/// Different stacks; further ones are counted together.
const MOST_STACKS: usize = 5000;
/// Bytes of all of them.
const MOST_BYTES: usize = 1 << 20;
/// Frames of a stack, from outside; those within are left out.
const MOST_FRAMES: usize = 200;

/// Samples all processes below this one, an instance's first process.
#[must_use]
pub fn sampled_stacks(first: u32, seconds: u32, per_second: u32) -> String {
    let end = Instant::now() + Duration::from_secs(seconds.into());
    let interval = Duration::from_secs(1) / per_second.max(1);
    let mut processes = Processes { known: HashMap::new() };
    let (mut folded, mut scanned, mut spent) = (Folded::default(), None::<Instant>, Duration::ZERO);
    let begin = Instant::now();
    while Instant::now() < end {
        if scanned.is_none_or(|at| at.elapsed() >= RESCAN) {
            processes.scan(first);
            scanned = Some(Instant::now());
        }
        let before = cpu_time();
        processes.sample(&mut folded);
        folded.samples += 1;
        spent += cpu_time().saturating_sub(before);
        // Below the share on average: a dear sample is followed by a longer pause.
        let affordable = spent.div_f64(MOST_SHARE).saturating_sub(begin.elapsed());
        thread::sleep(interval.max(affordable).min(end.saturating_duration_since(Instant::now())));
    }
    folded.text()
}

/// Of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

struct Processes {
    known: HashMap<u32, Process>,
}

struct Process {
    label: String,
    /// None where it is no Python, as far as is known.
    spy: Option<PythonSpy>,
    tries: u32,
    /// What it has used so far, in ticks.
    ticks: u64,
}

impl Processes {
    fn scan(&mut self, first: u32) {
        let live = descendants(first);
        self.known.retain(|pid, _| live.contains(pid));
        for pid in live {
            let process = self.known.entry(pid).or_insert_with(|| Process::new(pid));
            if process.spy.is_none() && process.tries < TRIES {
                process.tries += 1;
                process.spy = python(pid);
            }
        }
    }

    fn sample(&mut self, folded: &mut Folded) {
        for (pid, process) in &mut self.known {
            match &mut process.spy {
                Some(spy) => match spy.get_stack_traces() {
                    Ok(traces) => traces.iter().for_each(|trace| folded.add_trace(&process.label, trace)),
                    // It changed while it was read.
                    Err(_) => folded.missed += 1,
                },
                None => {
                    let ticks = ticks(*pid).unwrap_or(process.ticks);
                    if ticks > process.ticks {
                        folded.add(process.label.clone());
                    }
                    process.ticks = ticks;
                }
            }
        }
    }
}

impl Process {
    fn new(pid: u32) -> Self {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        let environment = read("environ");
        let rank = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"RANK="));
        let rank = rank.map(|rank| format!("rank {}: ", String::from_utf8_lossy(rank))).unwrap_or_default();
        let (program, arguments) = command.trim().split_once(' ').unwrap_or((command.trim(), ""));
        let program = program.rsplit('/').next().unwrap_or_default();
        let label = frame(&format!("{rank}{}", format!("{program} {arguments}").trim_end()));
        Self { label, spy: None, tries: 0, ticks: ticks(pid).unwrap_or(0) }
    }
}

fn python(pid: u32) -> Option<PythonSpy> {
    let config = Config { blocking: LockingStrategy::NonBlocking, ..Config::default() };
    PythonSpy::new(i32::try_from(pid).ok()?, &config).ok()
}

/// Processor time of a process.
fn ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Counts of stacks.
#[derive(Debug, Default)]
struct Folded {
    counts: HashMap<String, u64>,
    bytes: usize,
    others: u64,
    samples: u64,
    missed: u64,
}

impl Folded {
    fn add_trace(&mut self, process: &str, trace: &StackTrace) {
        let name = trace.thread_name.as_deref().unwrap_or_default();
        // Threads of pools that wait tell nothing; that the program's own thread waits does.
        if trace.frames.is_empty() || !trace.active && name != "MainThread" && !name.is_empty() {
            return;
        }
        let mut stack = process.to_owned();
        if !matches!(name, "MainThread" | "") {
            stack.push(';');
            stack.push_str(&frame(name));
        }
        // How Python imports is the same everywhere, and deep.
        let is_shown = |it: &&py_spy::Frame| !it.filename.starts_with("<frozen importlib");
        for it in trace.frames.iter().rev().filter(is_shown).take(MOST_FRAMES) {
            let file = it.short_filename.as_deref().unwrap_or(&it.filename);
            stack.push(';');
            stack.push_str(&frame(&format!("{} ({file})", it.name)));
        }
        if !trace.active {
            stack.push_str(";[waits]");
        }
        self.add(stack);
    }

    fn add(&mut self, stack: String) {
        if let Some(count) = self.counts.get_mut(&stack) {
            *count += 1;
        } else if self.counts.len() < MOST_STACKS && self.bytes + stack.len() <= MOST_BYTES {
            self.bytes += stack.len();
            self.counts.insert(stack, 1);
        } else {
            self.others += 1;
        }
    }

    fn text(self) -> String {
        let mut lines = Vec::from_iter(self.counts);
        if self.others > 0 {
            lines.push(("[other stacks]".to_owned(), self.others));
        }
        lines.sort();
        let text = lines.into_iter().map(|(stack, count)| format!("{stack} {count}\n")).collect::<String>();
        format!("{text}# {} samples, {} missed\n", self.samples, self.missed)
    }
}

/// A program's text as a frame: what separates frames and lines is replaced.
fn frame(text: &str) -> String {
    readable(text).replace(';', ",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use py_spy::Frame;

    fn trace(thread: &str, active: bool, functions: &[&str]) -> StackTrace {
        let named = |name: &&str| Frame {
            name: (*name).to_owned(),
            filename: "/opt/ml/code/train.py".to_owned(),
            module: None,
            short_filename: Some("train.py".to_owned()),
            line: 3,
            locals: None,
            is_entry: true,
            is_shim_entry: false,
        };
        StackTrace {
            pid: 1,
            thread_id: 1,
            thread_name: Some(thread.to_owned()),
            os_thread_id: None,
            active,
            owns_gil: false,
            frames: functions.iter().map(named).collect(),
            process_info: None,
        }
    }

    #[test]
    fn stacks_are_folded_from_outside() {
        let mut folded = Folded { samples: 3, ..Folded::default() };
        for _ in 0..2 {
            folded.add_trace("python a", &trace("MainThread", true, &["step", "<module>"]));
        }
        folded.add_trace("python a", &trace("MainThread", false, &["next;\n", "<module>"]));
        folded.add_trace("python a", &trace("pool", false, &["wait"]));
        folded.add_trace("python a", &trace("pool", true, &["work"]));
        let expected = "python a;<module> (train.py);next,? (train.py);[waits] 1\n\
                        python a;<module> (train.py);step (train.py) 2\npython a;pool;work (train.py) 1\n\
                        # 3 samples, 0 missed\n";
        assert_eq!(folded.text(), expected);
    }

    #[test]
    fn different_stacks_are_bounded() {
        let mut folded = Folded::default();
        (0..MOST_STACKS + 70).for_each(|number| folded.add(format!("stack {number}")));
        folded.add("stack 0".to_owned());
        let text = folded.text();
        assert!(text.contains("[other stacks] 70\n") && text.contains("stack 0 2\n"));
        assert_eq!(text.lines().count(), MOST_STACKS + 2);
    }

    #[test]
    fn a_process_that_computes_is_seen_at_its_rate() {
        let mut busy = std::process::Command::new("/bin/sh")
            .args(["-c", "(while :; do :; done) & wait"])
            .env("RANK", "3")
            .spawn()
            .unwrap();
        while descendants(busy.id()).is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        let before = Instant::now();
        let text = sampled_stacks(busy.id(), 1, 20);
        let took = before.elapsed();
        descendants(busy.id()).iter().for_each(|pid| {
            std::process::Command::new("kill").arg(pid.to_string()).status().unwrap();
        });
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(text.contains("rank 3: sh -c (while :, do :, done) & wait "), "{text}");
        assert!(text.lines().last().unwrap().starts_with("# "), "{text}");
    }
}
