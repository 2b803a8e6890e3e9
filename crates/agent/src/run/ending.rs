//! The end of a program, or that it could not be started: what is reported of it, and what is sent.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use shoal_contract::{MAX_CHARACTERS, SUCCESS, escape_line, failure_text};
use shoal_link::{LogLine, Phase, RankEnd, RankOutcome, ReportBody};
use shoal_sandbox::OutOfMemory;

use super::Agent;
use crate::attempt_error::AttemptError;
use crate::clock::now_ms;
use crate::outcome::{SIGTERM, was_killed};
use crate::output::Said;
use crate::{artifacts, causes, inside, volume};

/// How long the end of a failed program waits for its last checkpoints and other files, so that
/// whoever hears of it finds them.
const LAST_FILES: Duration = Duration::from_secs(1);

impl Agent<'_> {
    /// The program is over (or never was): says how, and sends what it left if that is wanted.
    pub(super) fn ended(
        &mut self,
        outcome: RankOutcome,
        out_of_memory: Option<OutOfMemory>,
        said: Said,
    ) -> Result<(), AttemptError> {
        let file = inside::read_start(&self.home.ml(), Path::new("output/failure"), 4 * MAX_CHARACTERS as u64);
        // A failure file that is not one is the program's own affair; its exit code says enough.
        let failure_file = file.ok().flatten().and_then(|bytes| failure_text(&bytes));
        let failure_file = self.wishes.overfull.take().map(volume::too_much).or(failure_file);
        let crowded_out = out_of_memory.and_then(|why| match why {
            OutOfMemory::Own => None,
            OutOfMemory::Together { used_bytes } => Some(used_bytes),
        });
        let is_own = out_of_memory == Some(OutOfMemory::Own);
        let end = RankEnd { outcome, out_of_memory: is_own, crowded_out, failure_file, stderr_tail: said.stderr_tail };
        let at_ms = now_ms();
        self.conclude_rules();
        self.mirrors.iter().for_each(|mirror| mirror.finish(was_killed(outcome, out_of_memory.is_some())));
        // Asked first: the server may answer this report with a release, which is no wish for
        // artifacts.
        let is_wanted = outcome == RankOutcome::Exited(SUCCESS) || self.is_to_stop();
        if !is_wanted {
            self.await_mirrors(Some(Instant::now() + LAST_FILES));
        }
        let ended = ReportBody::RankEnded { end, final_metrics: said.final_metrics };
        if is_wanted && self.mirrors.is_empty() && artifacts::are_small(&self.home.ml()) {
            // Sent in no time, so that one report of the end and all that follows are one thing for
            // the server.
            self.has_uploaded = true;
            let sent = artifacts::send(&self.home.ml(), self.most_stored, &AtomicBool::new(false), &|item| {
                item.post(self.outbox)
            });
            let is_sent = sent.is_ok();
            let mut last = vec![ended];
            if is_sent {
                last.extend([ReportBody::Phase { phase: Phase::Uploading }, ReportBody::Uploaded]);
            }
            self.outbox.report_together(at_ms, last)?;
            return Ok(sent?);
        }
        self.outbox.report_at(at_ms, ended)?;
        if is_wanted { self.upload() } else { Ok(()) }
    }

    pub(super) fn never_started(&mut self) -> Result<(), AttemptError> {
        self.ended(RankOutcome::Signaled(SIGTERM), None, Said::default())
    }

    /// The user's mistake, told as a shell would: on stderr and by the exit code.
    pub(super) fn not_startable(&mut self, message: &str, code: i32) -> Result<(), AttemptError> {
        let line = LogLine { at_ms: now_ms(), text: escape_line(message.as_bytes()) };
        self.outbox.report(ReportBody::Logs { lines: vec![line] })?;
        self.ended(RankOutcome::Exited(code), None, Said { stderr_tail: causes::reason(message), ..Said::default() })
    }
}
