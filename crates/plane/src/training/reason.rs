//! `FailureReason`: whose failure it is, which host is to blame, and what its program reported.
//!
//! What the program reported is there as AWS has it, `AlgorithmError: .., exit code: 1`; of several
//! instances the culprit is named before it.

use crate::{
    Host, RankEnd,
    gang::{
        failure::{Failure, SIGKILL},
        instances::Attempt,
    },
    limits::{LAUNCH_LIMIT_S, MAX_TEXT, UPLOAD_LIMIT_S},
    text::{first_characters, gib, last_lines},
};

/// `FailureReason` of a job that fails so.
pub(crate) fn of(attempt: &Attempt, failure: &Failure<'_>) -> String {
    match failure {
        Failure::Program { host, end } => {
            let is_alone = attempt.instances.len() == 1;
            rank_ended(*host, is_alone, end, attempt.placement.share(*host).memory_bytes)
        }
        Failure::Lost { host, reason } => lost(*host, reason),
        Failure::NotLaunched => {
            internal_error(&format!("no instance reported within {LAUNCH_LIMIT_S} s of its launch"))
        }
        Failure::NotUploaded { hosts } => {
            let hosts = Vec::from_iter(hosts.iter().map(Host::to_string)).join(", ");
            internal_error(&format!(
                "{hosts} did not upload all artifacts within {UPLOAD_LIMIT_S} s of the end of the programs"
            ))
        }
    }
}

fn lost(host: Host, reason: &str) -> String {
    let name = host.to_string();
    if reason.contains(&name) { internal_error(reason) } else { internal_error(&format!("{name}: {reason}")) }
}

fn rank_ended(host: Host, is_alone: bool, end: &RankEnd, memory_limit: u64) -> String {
    if let Some(used) = end.crowded_out {
        let used = gib(used);
        return internal_error(&format!(
            "the memory of the machine ran short, and the kernel ended a program of {host}, which used {used}; \
             run fewer training jobs at once, or let \
             each wait for its whole type (packing = \"promise\" in shoal.toml)"
        ));
    }
    let code = match (end.code, end.signal) {
        (Some(code), _) => code,
        (None, Some(signal)) => signal.saturating_add(128),
        (None, None) => 137,
    };
    let before = if end.out_of_memory {
        format!("AlgorithmError: {host} ran out of memory (limit {})", gib(memory_limit))
    } else if let Some(signal) = end.signal {
        format!("AlgorithmError: {host} was killed by {}", signal_name(signal))
    } else if is_alone {
        "AlgorithmError".to_owned()
    } else {
        format!("AlgorithmError: {host}")
    };
    let after = format!(", exit code: {code}");
    let room = MAX_TEXT - before.chars().count() - after.chars().count() - 2;
    let said = match &end.failure_file {
        Some(text) if !text.trim().is_empty() => first_characters(text.trim(), room),
        _ => last_lines(end.stderr_tail.trim(), room),
    };
    match said.as_str() {
        "" if end.success() => {
            format!("{before}: the program ended by itself, and was to run until it is stopped{after}")
        }
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
