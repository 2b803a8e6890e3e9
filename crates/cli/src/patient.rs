//! Speaking about a training job with a server that may go away for a while: the job goes on
//! without it, and so does whoever watches.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::{
    client::{Client, ClientError, Noun},
    settings::ClientFlags,
};

/// How long a server may be away.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long until it is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// A client of a server that has answered once.
#[derive(Debug)]
pub(crate) struct Patient<'a> {
    client: Client,
    flags: &'a ClientFlags,
    noun: Noun,
    job: &'a str,
    away_since: Option<Instant>,
}

impl<'a> Patient<'a> {
    /// Asks by this client, and after a pause by one that is made again from the flags: a new
    /// server may listen elsewhere.
    pub(crate) fn new(client: Client, flags: &'a ClientFlags, job: &'a str) -> Self {
        Self { client, flags, noun: Noun::TrainingJob, job, away_since: None }
    }

    /// The same about a tuning job.
    pub(crate) fn of_tuning(client: Client, flags: &'a ClientFlags, name: &'a str) -> Self {
        Self { noun: Noun::TuningJob, ..Self::new(client, flags, name) }
    }

    /// Asks; `None` means that the server is away, and that it is time to ask again. What is to be
    /// said about that, `tell` says, once.
    ///
    /// # Errors
    /// The server was away for too long, or its answer is an error.
    pub(crate) fn ask<T>(
        &mut self,
        tell: impl FnOnce(&str),
        ask: impl FnOnce(&Client) -> Result<T, ClientError>,
    ) -> Result<Option<T>> {
        let (noun, job) = (self.noun, self.job);
        match ask(&self.client) {
            Err(error) if error.is_unreachable() => {
                if self.away_since.is_none() {
                    tell("the server is away; the job goes on; waiting for it");
                }
                if self.away_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    return Err(error).with_context(|| match noun {
                        Noun::TrainingJob | Noun::Either => {
                            format!("`shoal jobs logs -f {job}` follows the job when the server is back")
                        }
                        Noun::TuningJob => {
                            format!("`shoal tuning show {job}` tells how it stands when the server is back")
                        }
                    });
                }
                thread::sleep(PAUSE);
                if let Ok(client) = Client::connect(self.flags) {
                    self.client = client;
                }
                Ok(None)
            }
            answer => {
                self.away_since = None;
                answer.map(Some).map_err(|error| error.about_a(noun, job))
            }
        }
    }
}
