//! Which host is to blame for a failed training job, and what is said about it.
//!
//! One host's end is another's: when a rank dies, its peers lose a connection and exit too, often reported before it. So of all failures that are
//! known when the job fails, the culprit is the one that can least be a consequence, and of equals the earliest by the agents' clocks:
//!
//! 1. ran out of memory, was killed by SIGKILL (which nobody does to itself), or was lost with its agent;
//! 2. died by another signal, or left a failure file;
//! 3. just exited.

use crate::{
    RankEnd, Time,
    limits::{MAX_TEXT, UPLOAD_LIMIT_S},
    text::{first_characters, gib, last_lines},
    training_job::{Attempt, Instance},
};

/// When the server learnt of the first failure.
pub(crate) fn first_seen(attempt: &Attempt) -> Option<Time> {
    let failures = attempt.instances.iter().filter_map(|instance| match instance {
        Instance::Ended { end, seen } if !end.success() => Some(*seen),
        Instance::Lost { seen, .. } => Some(*seen),
        _ => None,
    });
    failures.min()
}

/// `FailureReason`. Some instance has failed. What its program said stands there as AWS has it, `AlgorithmError: .., exit code: 1`; of several
/// instances the culprit is named before it.
pub(crate) fn reason(attempt: &Attempt) -> String {
    let culprit = (1u32..)
        .zip(&attempt.instances)
        .filter_map(|(host, instance)| blame(instance).map(|(rank, at)| (rank, at, host, instance)))
        .min_by_key(|(rank, at, host, _)| (*rank, *at, *host));
    match culprit {
        Some((_, _, host, Instance::Ended { end, .. })) => {
            let is_alone = attempt.instances.len() == 1;
            rank_ended(host, is_alone, end, attempt.placement.share(host).memory_bytes)
        }
        Some((_, _, host, Instance::Lost { reason, .. })) => lost(host, reason),
        _ => internal_error("the training job failed"),
    }
}

/// Whose artifacts were awaited for [`UPLOAD_LIMIT_S`].
pub(crate) fn not_uploaded(attempt: &Attempt) -> String {
    let awaited = (1u32..).zip(&attempt.instances).filter(|(_, instance)| matches!(instance, Instance::Ended { .. }));
    let hosts = Vec::from_iter(awaited.map(|(host, _)| format!("algo-{host}"))).join(", ");
    internal_error(&format!("{hosts} did not upload all artifacts within {UPLOAD_LIMIT_S} s of the end of the programs"))
}

fn lost(host: u32, reason: &str) -> String {
    let name = format!("algo-{host}");
    if reason.contains(&name) { internal_error(reason) } else { internal_error(&format!("{name}: {reason}")) }
}

/// Smaller is guiltier.
fn blame(instance: &Instance) -> Option<(u8, Time)> {
    match instance {
        Instance::Ended { end, .. } if end.success() => None,
        Instance::Ended { end, .. } => {
            let rank = match (end.out_of_memory || end.crowded_out.is_some(), end.signal, &end.failure_file) {
                (true, ..) | (_, Some(SIGKILL), _) => 0,
                (_, Some(_), _) | (_, _, Some(_)) => 1,
                _ => 2,
            };
            Some((rank, end.at))
        }
        Instance::Lost { seen, .. } => Some((0, *seen)),
        _ => None,
    }
}

const SIGKILL: i32 = 9;

fn rank_ended(host: u32, is_alone: bool, end: &RankEnd, memory_limit: u64) -> String {
    if let Some(used) = end.crowded_out {
        let used = gib(used);
        return internal_error(&format!(
            "the memory of the machine ran short, and the kernel ended a program of algo-{host}, which used {used}; run fewer training jobs at once, or let \
             each wait for its whole type (packing = \"promise\" in shoal.toml)"
        ));
    }
    let code = match (end.code, end.signal) {
        (Some(code), _) => code,
        (None, Some(signal)) => signal.saturating_add(128),
        (None, None) => 137,
    };
    let before = if end.out_of_memory {
        format!("AlgorithmError: algo-{host} ran out of memory (limit {})", gib(memory_limit))
    } else if let Some(signal) = end.signal {
        format!("AlgorithmError: algo-{host} was killed by {}", signal_name(signal))
    } else if is_alone {
        "AlgorithmError".to_owned()
    } else {
        format!("AlgorithmError: algo-{host}")
    };
    let after = format!(", exit code: {code}");
    let room = MAX_TEXT - before.chars().count() - after.chars().count() - 2;
    let said = match &end.failure_file {
        Some(text) if !text.trim().is_empty() => first_characters(text.trim(), room),
        _ => last_lines(end.stderr_tail.trim(), room),
    };
    match said.as_str() {
        "" if end.out_of_memory || end.signal.is_some() => format!("{before}{after}"),
        "" => format!("{before}: the program left no failure file and wrote nothing to stderr{after}"),
        said => format!("{before}: {said}{after}"),
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        SIGKILL => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

/// `InternalServerError: ...`, unless the reason already says whose error it is.
pub(crate) fn internal_error(reason: &str) -> String {
    let kinds = ["AlgorithmError: ", "ClientError: ", "InternalServerError: ", "CapacityError: "];
    if kinds.iter().any(|kind| reason.starts_with(kind)) {
        return first_characters(reason, MAX_TEXT);
    }
    first_characters(&format!("InternalServerError: {reason}"), MAX_TEXT)
}

/// Whether the reason says that our own side failed.
pub(crate) fn is_internal(reason: &str) -> bool {
    reason.starts_with("InternalServerError: ")
}
