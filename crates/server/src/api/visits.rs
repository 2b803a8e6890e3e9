//! Visits to running instances: who may, who does, and the bytes of both sides. Each is told in the
//! server's log.

use serde_json::Value;
use shoal_link::{Frame, Stream, Terminal, ToAgent, Visit, VisitEnd};
use shoal_plane::{Host, SecondaryStatus};
use shoal_wire::{Error, ErrorCode, FeedVisit, ReadVisit, Reply, StartVisit, VisitOutput, VisitResult};

use super::{Api, Caller, training::view};
use crate::{hex::random_hex, internal::internal, key_ring::Holder};

impl Api {
    pub(super) async fn start_visit(&self, request: StartVisit, caller: &Caller) -> Result<Reply, Error> {
        let StartVisit { training_job_name: job, rank, command, terminal, seconds } = request;
        let view = view(&self.row(&job).await?)?;
        let attempt = view.attempt.as_ref().and_then(|attempt| self.attempts.get(attempt));
        let runs = matches!(view.secondary, SecondaryStatus::Training | SecondaryStatus::Stopping);
        let Some(attempt) = attempt.filter(|_| runs) else {
            let status = if view.ended { view.status.name() } else { view.secondary.name() };
            return Err(Error::validation(format!(
                "training job {job} does not run: it is {status}, and only what is Training or Stopping can be visited"
            )));
        };
        let hosts = attempt.plan.assignments.len();
        let host = rank.checked_add(1).filter(|host| *host as usize <= hosts).map(Host).ok_or_else(|| {
            Error::validation(format!(
                "training job {job} has no rank {rank}: it has {hosts} instances, with ranks 0 to {}",
                hosts - 1
            ))
        })?;
        let what = command
            .as_ref()
            .map_or_else(|| "reads the stacks".to_owned(), |words| format!("runs {}", Value::from(words.clone())));
        let visit = match command {
            Some(command) => {
                let terminal = terminal.map(|it| Terminal { name: it.name, rows: it.rows, columns: it.columns });
                Visit::Command { command, terminal }
            }
            None => Visit::Stacks { seconds },
        };
        let id = random_hex(16).map_err(|error| internal(&error))?;
        let who = match &caller.holder {
            Holder::Owner => "the owner".to_owned(),
            Holder::Member => format!("key {}", caller.creator().unwrap_or_default()),
            Holder::Session(session) => format!("role {}", session.role),
            Holder::Attempt { job, .. } => format!("training job {job}"),
        };
        let session = self.visits.open(&id, &attempt.plan.attempt, host);
        // Before it is done, and whatever comes of it.
        tracing::warn!("visit {}: {who} {what} on {host} of training job {job}", &id[..8]);
        let refused = |why: &dyn std::fmt::Display| {
            self.visits.close(&id);
            Err(Error::new(
                ErrorCode::ServiceUnavailable,
                format!("{host} of training job {job} cannot be visited: {why}"),
            ))
        };
        if let Err(why) = attempt.visit(host, &id, &visit) {
            return refused(&why);
        }
        if !session.started().await {
            return refused(&"its program has not begun yet, or has just ended; see `shoal jobs show`");
        }
        Ok(Reply::start_visit(&id))
    }

    pub(super) async fn feed_visit(&self, request: FeedVisit) -> Result<Reply, Error> {
        let session = self.visits.get(&request.visit_id).ok_or_else(gone)?;
        let input = base64_simd::STANDARD
            .decode_to_vec(&request.input)
            .map_err(|_| Error::validation("Invalid value at 'input': no base64"))?;
        if request.is_left {
            session.leave();
            return Ok(Reply::feed_visit(true));
        }
        let mut frames = Vec::new();
        if let Some((rows, columns)) = request.size {
            frames.push(Frame::Message(ToAgent::Resized { rows, columns }));
        }
        if !input.is_empty() {
            frames.push(Frame::Chunk(input));
        }
        if request.is_end {
            frames.push(Frame::Message(ToAgent::InputEnds));
        }
        Ok(Reply::feed_visit(session.write(frames).await))
    }

    pub(super) async fn read_visit(&self, request: ReadVisit) -> Result<Reply, Error> {
        let session = self.visits.get(&request.visit_id).ok_or_else(gone)?;
        let (pieces, end) = session.read().await;
        let shown = |(of, bytes): (Stream, Vec<u8>)| VisitOutput {
            is_stderr: of == Stream::Stderr,
            data: base64_simd::STANDARD.encode_to_string(bytes),
        };
        let end = end.map(|end| match end {
            VisitEnd::Exited { code } => VisitResult::Exited(code),
            VisitEnd::Signaled { signal } => VisitResult::Signaled(signal),
            VisitEnd::Broken { reason } => VisitResult::Broken(reason),
        });
        if let Some(end) = &end {
            tracing::warn!("visit {}: {end:?}", &request.visit_id[..8]);
            self.visits.close(&request.visit_id);
        }
        let output: Vec<_> = pieces.into_iter().map(shown).collect();
        Ok(Reply::read_visit(&output, end.as_ref()))
    }
}

fn gone() -> Error {
    Error::new(ErrorCode::ResourceNotFound, "there is no such visit: it has ended, or nobody has read it for too long")
}
