//! What the processes of an instance are doing, seen from outside: frames of Python read from a
//! process's memory while it goes on, and of everything else what the kernel tells of its threads.
//! Frames of native code are not shown.

use std::fmt::{self, Write};
use std::fs;
use std::path::{Path, PathBuf};

use py_spy::{Config, PythonSpy, StackTrace, config::LockingStrategy};

/// A process that runs changes under its reader's eyes: tries until a view is whole.
const TRIES: u64 = 20;
/// Characters of a command line.
const MOST_COMMAND: usize = 200;

/// The stacks of all processes below this one, which is an instance's first process, as text.
#[must_use]
pub fn stacks(first: u32) -> String {
    let mut text = String::new();
    for pid in descendants(first) {
        // One that has ended meanwhile is left out; a String takes everything.
        let _ = process(pid, &mut text);
    }
    text
}

/// All below a process, parents before children.
pub(crate) fn descendants(first: u32) -> Vec<u32> {
    let (mut found, mut waiting) = (Vec::new(), vec![first]);
    while let Some(parent) = waiting.pop() {
        let lists = tasks(parent).into_iter().filter_map(|(_, task)| fs::read_to_string(task.join("children")).ok());
        let mut children: Vec<u32> = lists
            .flat_map(|list| list.split_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<_>>())
            .collect();
        children.sort_unstable_by(|a, b| b.cmp(a));
        if parent != first {
            found.push(parent);
        }
        waiting.append(&mut children);
    }
    found
}

/// Threads of a process, by number.
fn tasks(pid: u32) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut tasks: Vec<_> =
        entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()))).collect();
    tasks.sort();
    tasks
}

fn process(pid: u32, text: &mut String) -> fmt::Result {
    let Ok(command) = fs::read(format!("/proc/{pid}/cmdline")) else { return Ok(()) };
    let command = readable(&String::from_utf8_lossy(&command).replace('\0', " "));
    writeln!(
        text,
        "process {} ({})",
        inside(&Path::new("/proc").join(pid.to_string())).unwrap_or(pid),
        command.trim()
    )?;
    match python(pid) {
        Ok(traces) => {
            for trace in &traces {
                python_thread(pid, trace, text)?;
            }
        }
        Err(why) => {
            if command.contains("python") {
                writeln!(text, "  its Python cannot be read: {}", readable(&why))?;
            }
            for (_, task) in tasks(pid) {
                kernel_thread(&task, text)?;
            }
        }
    }
    Ok(())
}

fn python(pid: u32) -> Result<Vec<StackTrace>, String> {
    let pid = i32::try_from(pid).map_err(|error| error.to_string())?;
    let config = Config { blocking: LockingStrategy::NonBlocking, ..Config::default() };
    let chain = |error: &dyn fmt::Display| error.to_string();
    let mut spy = PythonSpy::retry_new(pid, &config, TRIES).map_err(|error| chain(&error))?;
    let mut traces = spy.get_stack_traces();
    for _ in 0..TRIES {
        if traces.is_ok() {
            break;
        }
        traces = spy.get_stack_traces();
    }
    traces.map_err(|error| chain(&error))
}

fn python_thread(pid: u32, trace: &StackTrace, text: &mut String) -> fmt::Result {
    // Python says it as it is in the process's own namespace.
    let number = trace.os_thread_id.map_or_else(|| format!("{:#x}", trace.thread_id), |number| number.to_string());
    let task = tasks(pid).into_iter().find(|(_, task)| inside(task).map(u64::from) == trace.os_thread_id);
    let status = task.and_then(|(_, task)| fs::read_to_string(task.join("status")).ok()).unwrap_or_default();
    let name = trace.thread_name.as_deref().map(|name| format!(" {}", readable(name))).unwrap_or_default();
    // Python before 3.11 does not tell which thread of the system it is.
    let unknown = if trace.os_thread_id.is_some() { "gone" } else { "state unknown" };
    let state = field(&status, "State:").unwrap_or(unknown);
    writeln!(text, "  thread {number}{name}: {state}{}", if trace.owns_gil { ", holds the GIL" } else { "" })?;
    for frame in &trace.frames {
        writeln!(text, "    {} ({}:{})", readable(&frame.name), readable(&frame.filename), frame.line)?;
    }
    Ok(())
}

/// What the kernel tells of a thread: state, system call, where in the kernel it waits.
fn kernel_thread(task: &Path, text: &mut String) -> fmt::Result {
    let read = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
    let status = read("status");
    let state = field(&status, "State:").unwrap_or("gone");
    let call = read("syscall")
        .split_whitespace()
        .next()
        .filter(|call| call.parse::<u32>().is_ok())
        .map(|call| format!(", system call {call}"));
    let wchan = Some(read("wchan"))
        .filter(|place| !place.is_empty() && place != "0")
        .map(|place| format!(", in {}", place.trim()));
    let name = readable(field(&status, "Name:").unwrap_or_default());
    writeln!(
        text,
        "  thread {} {name}: {state}{}{}",
        inside(task).unwrap_or_default(),
        call.unwrap_or_default(),
        wchan.unwrap_or_default()
    )?;
    for line in read("stack").lines() {
        writeln!(text, "    {}", line.split_once("] ").map_or(line, |(_, place)| place))?;
    }
    Ok(())
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()))
}

/// Its number in its own PID namespace.
fn inside(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    field(&status, "NSpid:")?.split_whitespace().next_back()?.parse().ok()
}

/// What a program has made up is printed on somebody's terminal.
pub(crate) fn readable(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { '?' } else { it }).take(MOST_COMMAND).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn processes_below_are_seen_with_what_they_do() {
        let mut child = Command::new("/bin/sh").args(["-c", "sleep 1000; true"]).spawn().unwrap();
        let me = std::process::id();
        let seen = loop {
            let text = stacks(me);
            if text.contains("(sleep 1000)") && text.matches("process ").count() >= 2 {
                break text;
            }
        };
        for pid in descendants(child.id()) {
            Command::new("kill").arg(pid.to_string()).status().unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen.contains("(/bin/sh -c sleep 1000; true)") && seen.contains(" sleep: S (sleeping)"), "{seen}");
    }

    #[test]
    fn a_command_line_cannot_write_on_a_terminal() {
        assert_eq!(readable("a\x1b[2J\nb\u{9b}c"), "a?[2J?b?c");
        assert_eq!(readable(&"x".repeat(1000)).len(), MOST_COMMAND);
    }
}
