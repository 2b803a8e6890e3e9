//! One round over real processes: ranks start, one of them is killed or stopped at a random moment,
//! the others go on.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::rank;

/// What is done to the victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
}

/// One round.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    /// How many ranks.
    pub(crate) ranks: usize,
    /// Who is hit.
    pub(crate) victim: usize,
    /// How.
    pub(crate) blow: Blow,
    /// So long after all were reducing.
    pub(crate) after: Duration,
    /// Elements of the vector.
    pub(crate) length: usize,
    /// Whether a replacement is started, else the others go on alone.
    pub(crate) replace: bool,
    /// `auto`: shared memory, as all are on one host; or `tcp`.
    pub(crate) carrier: &'static str,
    /// Heartbeat in seconds.
    pub(crate) heartbeat: &'static str,
}

/// What came out, in milliseconds: the slowest survivor's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// From the blow to the error.
    pub(crate) known: f64,
    /// From the error to the new group.
    pub(crate) formed: f64,
}

/// A process that ends with its owner.
pub(crate) struct Rank {
    /// The process.
    pub(crate) child: Child,
    lines: Receiver<String>,
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nothing here takes so long, on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(100);

impl Rank {
    fn start(program: &Path, meeting: &Path, round: &Round, rank: usize, replaces: bool) -> Self {
        let mut command = Command::new(program);
        command
            .env("SHOAL_TEST_RANK", "1")
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", round.ranks.to_string())
            .env("SHOAL_COMM_DIRECTORY", meeting)
            .env("SHOAL_COMM_ADDRESS", "127.0.0.1")
            .env("SHOAL_COMM_HEARTBEAT", round.heartbeat)
            .env("SHOAL_COMM_TRANSPORT", round.carrier)
            .env(rank::LENGTH, round.length.to_string())
            .env(rank::AFTER, if round.replace { "rejoin" } else { "shrink" })
            .env("SHOAL_COMM_REPLACES", if replaces { "1" } else { "0" })
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("the test's own program");
        let stdout = child.stdout.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    /// The next line that begins so, as words.
    fn expect(&self, word: &str) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self
                .lines
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("no line {word:?} from process {}", self.child.id()));
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            if words[0] == word {
                return words;
            }
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).expect("a process id")).expect("not 0");
        rustix::process::kill_process(pid, signal).expect("it is our child");
    }
}

/// Plays it. Panics where something does not hold: who is named, sums before and after, and that
/// everybody ends by itself.
pub(crate) fn play(program: &Path, round: &Round) -> Figures {
    let meeting = tempfile::tempdir().expect("a directory");
    let mut ranks: Vec<_> =
        (0..round.ranks).map(|rank| Rank::start(program, meeting.path(), round, rank, false)).collect();
    let total: usize = (1..=round.ranks).sum();
    for rank in &ranks {
        rank.expect("formed");
        assert_eq!(rank.expect("sum")[1], total.to_string());
    }
    std::thread::sleep(round.after);
    let begun = rank::now();
    ranks[round.victim].signal(if round.blow == Blow::Kill {
        rustix::process::Signal::KILL
    } else {
        rustix::process::Signal::STOP
    });
    let victim = ranks.remove(round.victim);
    let replacement = round.replace.then(|| Rank::start(program, meeting.path(), round, round.victim, true));
    let mut figures = Figures { known: 0.0, formed: 0.0 };
    for rank in &ranks {
        let failed = rank.expect("failed");
        let wanted = if round.blow == Blow::Kill { "died" } else { "hung" };
        assert_eq!(
            (failed[2].as_str(), failed[3].as_str()),
            (wanted, round.victim.to_string().as_str()),
            "{round:?}: {}",
            failed.join(" ")
        );
        let at: u64 = failed[1].parse().expect("a time");
        let formed = rank.expect("formed");
        let then: u64 = formed[1].parse().expect("a time");
        let size = if round.replace { round.ranks } else { round.ranks - 1 };
        assert_eq!((formed[2].as_str(), formed[3].as_str()), (size.to_string().as_str(), "1"), "{round:?}");
        figures.known = figures.known.max(at.saturating_sub(begun) as f64 / 1e3);
        figures.formed = figures.formed.max(then.saturating_sub(at) as f64 / 1e3);
    }
    let expected = if round.replace { total } else { total - (round.victim + 1) };
    for mut rank in ranks.into_iter().chain(replacement) {
        for _ in 0..3 {
            assert_eq!(rank.expect("sum")[1], expected.to_string(), "{round:?}");
        }
        rank.expect("done");
        assert!(rank.child.wait().expect("our child").success(), "{round:?}");
    }
    if round.blow == Blow::Stop {
        wake(victim, round);
    }
    figures
}

/// One that was stopped wakes up, finds that it is out, and ends by itself.
fn wake(mut victim: Rank, round: &Round) {
    victim.signal(rustix::process::Signal::CONT);
    let failed = victim.expect("failed").join(" ");
    assert!(
        failed.contains("went on without this rank") || failed.contains("died") || failed.contains("hung"),
        "{round:?}: {failed}"
    );
    let end = Instant::now() + PATIENCE;
    while victim.child.try_wait().expect("our child").is_none() {
        assert!(Instant::now() < end, "{round:?}: it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}
