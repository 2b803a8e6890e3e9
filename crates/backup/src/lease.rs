//! The lock of a bucket: an object that is written on a condition and renewed. One that is not
//! renewed for a while belongs to a process that was killed, or that does not reach the bucket; no
//! clock but this machine's is read.
//!
//! The object names who wrote it by a token: a renewal that was written, and whose answer was lost,
//! fails when it is repeated, and is known to be our own.

use std::time::{Duration, Instant};

use shoal_elsewhere::{Bucket, Condition, Error, Found};

use crate::BackupError;
use crate::error::io_at;
use crate::manifest::this_process;

const LOCK: &str = "lock";

/// A lock that stays the same for this time is abandoned.
const ABANDONED: Duration = Duration::from_secs(12);

/// For how long after a renewal nothing is written that others could be surprised by: they count
/// from when they see it, and a write takes some time.
const SURE: Duration = Duration::from_secs(10);

/// The object that is the lock.
pub(crate) trait LockObject: Sync {
    fn get(&self) -> Result<Option<Found>, Error>;
    fn put(&self, content: Vec<u8>, condition: &Condition) -> Result<Option<String>, Error>;
    fn remove(&self) -> Result<(), Error>;
}

impl LockObject for Bucket {
    fn get(&self) -> Result<Option<Found>, Error> {
        self.get(LOCK)
    }

    fn put(&self, content: Vec<u8>, condition: &Condition) -> Result<Option<String>, Error> {
        self.put(LOCK, content, condition)
    }

    fn remove(&self) -> Result<(), Error> {
        self.remove(&[LOCK.to_owned()])
    }
}

/// Whether the lock is had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is.
    Held,
    /// It was not renewed for this time, so another process may take it, and may not have.
    Unsure(Duration),
    /// This process has it, or had it.
    Taken(String),
}

/// An attempt to take the lock.
#[derive(Debug)]
pub(crate) struct Attempt {
    token: String,
    /// Another's, and since when it is the same.
    seen: Option<(Option<String>, Instant)>,
}

/// A lock that was taken.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    token: String,
    etag: String,
    renewals: u64,
    /// Before its last renewal was sent.
    renewed_at: Instant,
    taken_by: Option<String>,
}

/// Each renewal is another content, so that it has another ETag.
fn content(token: &str, renewals: u64) -> Vec<u8> {
    format!("{}\n{renewals}\n{token}\n", this_process()).into_bytes()
}

/// Which renewal of ours this is, if it is one.
fn renewal_of(token: &str, content: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(content);
    let mut lines = text.lines().skip(1);
    let renewal = lines.next()?.parse().ok()?;
    (lines.next()? == token).then_some(renewal)
}

fn holder_of(content: &[u8]) -> String {
    String::from_utf8_lossy(content).lines().next().unwrap_or("another process").to_owned()
}

impl Attempt {
    pub(crate) fn begin() -> Result<Self, BackupError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| io_at("read", "/dev/urandom")(error.into()))?;
        Ok(Self { token: hex_simd::encode_to_string(random, hex_simd::AsciiCase::Lower), seen: None })
    }

    /// Takes the lock if it is free; `None`: look again.
    pub(crate) fn step(
        &mut self,
        object: &dyn LockObject,
        location: &str,
        now: Instant,
    ) -> Result<Option<Lease>, BackupError> {
        let condition = match object.get()? {
            None => Condition::Absent,
            // It was written, and the answer was lost.
            Some((found, etag)) if renewal_of(&self.token, &found).is_some() => {
                return Ok(Some(self.taken(etag, now)));
            }
            Some((found, etag)) => {
                if self.seen.as_ref().is_some_and(|(seen, _)| *seen != etag) {
                    return Err(BackupError::Busy { location: location.to_owned(), holder: holder_of(&found) });
                }
                let (_, since) = self.seen.get_or_insert_with(|| (etag.clone(), now));
                if now.saturating_duration_since(*since) < ABANDONED {
                    return Ok(None);
                }
                etag.map_or(Condition::Always, Condition::Matches)
            }
        };
        match object.put(content(&self.token, 0), &condition) {
            Ok(etag) => Ok(Some(self.taken(etag, now))),
            // Another process was faster, or an answer was lost.
            Err(Error::Changed { .. } | Error::Missing { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn taken(&self, etag: Option<String>, now: Instant) -> Lease {
        let (token, etag) = (self.token.clone(), etag.unwrap_or_default());
        Lease { token, etag, renewals: 0, renewed_at: now, taken_by: None }
    }
}

impl Lease {
    /// Renews it, if it can be; a target that does not answer may be asked again.
    pub(crate) fn renew(&mut self, object: &dyn LockObject, now: Instant) {
        self.renewals += 1;
        // The second time when what is found is an earlier renewal, whose answer was lost.
        for _ in 0..2 {
            match object.put(content(&self.token, self.renewals), &Condition::Matches(self.etag.clone())) {
                Ok(etag) => {
                    (self.etag, self.renewed_at) = (etag.unwrap_or_default(), now);
                    return;
                }
                Err(Error::Changed { .. } | Error::Missing { .. }) => {}
                Err(_) => return,
            }
            match object.get() {
                Err(_) => return,
                Ok(None) => {
                    self.taken_by = Some("another process, which has ended since".to_owned());
                    return;
                }
                Ok(Some((found, etag))) => match renewal_of(&self.token, &found) {
                    None => {
                        self.taken_by = Some(holder_of(&found));
                        return;
                    }
                    Some(renewal) => {
                        self.etag = etag.unwrap_or_default();
                        if renewal == self.renewals {
                            self.renewed_at = now;
                            return;
                        }
                    }
                },
            }
        }
    }

    pub(crate) fn standing(&self, now: Instant) -> Standing {
        let since = now.saturating_duration_since(self.renewed_at);
        match &self.taken_by {
            Some(holder) => Standing::Taken(holder.clone()),
            None if since < SURE => Standing::Held,
            None => Standing::Unsure(since),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A bucket's object with its conditions.
    #[derive(Default)]
    struct Fake {
        object: Mutex<(Option<Vec<u8>>, u64)>,
        fault: Mutex<Fault>,
    }

    #[derive(Default, Clone, Copy, PartialEq)]
    enum Fault {
        #[default]
        None,
        /// Nothing arrives.
        Away,
        /// What is written is there, and no answer arrives.
        Deaf,
        /// The same, and the request is repeated until it is answered.
        Repeats,
    }

    impl Fake {
        fn set(&self, fault: Fault) {
            *self.fault.lock().unwrap() = fault;
        }

        fn write(&self, content: &[u8], condition: &Condition) -> Result<Option<String>, Error> {
            let mut object = self.object.lock().unwrap();
            let holds = match condition {
                Condition::Always => true,
                Condition::Absent => object.0.is_none(),
                Condition::Matches(etag) => object.0.is_some() && *etag == object.1.to_string(),
            };
            if !holds {
                return Err(Error::Changed { location: String::new(), name: LOCK.to_owned() });
            }
            *object = (Some(content.to_vec()), object.1 + 1);
            Ok(Some(object.1.to_string()))
        }
    }

    fn unreachable<T>() -> Result<T, Error> {
        Err(Error::Unreachable { location: String::new(), message: "connection refused".to_owned() })
    }

    impl LockObject for Fake {
        fn get(&self) -> Result<Option<Found>, Error> {
            if *self.fault.lock().unwrap() == Fault::Away {
                return unreachable();
            }
            let object = self.object.lock().unwrap();
            Ok(object.0.clone().map(|content| (content, Some(object.1.to_string()))))
        }
        fn put(&self, content: Vec<u8>, condition: &Condition) -> Result<Option<String>, Error> {
            let fault = *self.fault.lock().unwrap();
            match fault {
                Fault::Away => unreachable(),
                Fault::None => self.write(&content, condition),
                Fault::Deaf => {
                    let _ = self.write(&content, condition);
                    unreachable()
                }
                Fault::Repeats => {
                    let _ = self.write(&content, condition);
                    self.write(&content, condition)
                }
            }
        }
        fn remove(&self) -> Result<(), Error> {
            self.object.lock().unwrap().0 = None;
            Ok(())
        }
    }

    fn step(attempt: &mut Attempt, object: &Fake, now: Instant) -> Option<Lease> {
        attempt.step(object, "here", now).unwrap()
    }

    fn take(object: &Fake, now: Instant) -> Lease {
        step(&mut Attempt::begin().unwrap(), object, now).unwrap()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_bucket_that_was_away_for_long_is_still_ours() {
        let (object, start) = (Fake::default(), Instant::now());
        let mut lease = take(&object, start);
        object.set(Fault::Away);
        for second in (3..=60).step_by(3) {
            lease.renew(&object, start + second * SECOND);
        }
        let now = start + 60 * SECOND;
        assert_eq!(lease.standing(start + 9 * SECOND), Standing::Held);
        assert_eq!(lease.standing(now), Standing::Unsure(60 * SECOND));
        object.set(Fault::None);
        lease.renew(&object, now);
        assert_eq!(lease.standing(now + SECOND), Standing::Held);
    }

    #[test]
    fn a_renewal_whose_answer_was_lost_is_ours() {
        let (object, start) = (Fake::default(), Instant::now());
        object.set(Fault::Repeats);
        // The lock itself, too: it is found to be ours at the next look.
        let mut attempt = Attempt::begin().unwrap();
        assert!(step(&mut attempt, &object, start).is_none());
        let mut lease = step(&mut attempt, &object, start).unwrap();
        for second in 1..30 {
            lease.renew(&object, start + second * SECOND);
            assert_eq!(lease.standing(start + second * SECOND), Standing::Held);
        }
        // None arrives at all: how old the renewal is that is there is not known.
        object.set(Fault::Deaf);
        lease.renew(&object, start + 39 * SECOND);
        lease.renew(&object, start + 42 * SECOND);
        assert_eq!(lease.standing(start + 42 * SECOND), Standing::Unsure(13 * SECOND));
        object.set(Fault::None);
        lease.renew(&object, start + 45 * SECOND);
        assert_eq!(lease.standing(start + 45 * SECOND), Standing::Held);
    }

    #[test]
    fn another_holder_is_told_from_an_answer_that_was_lost() {
        let (object, start) = (Fake::default(), Instant::now());
        let mut lease = take(&object, start);
        let mut other = Attempt::begin().unwrap();
        assert!(step(&mut other, &object, start + SECOND).is_none());
        lease.renew(&object, start + 2 * SECOND);
        // One that is renewed is in use.
        let busy = other.step(&object, "here", start + 20 * SECOND).unwrap_err();
        assert!(matches!(&busy, BackupError::Busy { holder, .. } if *holder == this_process()), "{busy}");
        let mut other = Attempt::begin().unwrap();
        assert!(step(&mut other, &object, start + 20 * SECOND).is_none());
        assert!(step(&mut other, &object, start + 31 * SECOND).is_none());
        let theirs = step(&mut other, &object, start + 32 * SECOND).unwrap();
        assert_eq!(lease.standing(start + 20 * SECOND), Standing::Unsure(18 * SECOND));
        lease.renew(&object, start + 33 * SECOND);
        assert_eq!(lease.standing(start + 33 * SECOND), Standing::Taken(this_process()));
        assert_eq!(theirs.standing(start + 33 * SECOND), Standing::Held);
        // And has ended before we looked.
        let mut ours = theirs;
        object.remove().unwrap();
        ours.renew(&object, start + 34 * SECOND);
        assert!(matches!(ours.standing(start + 34 * SECOND), Standing::Taken(_)));
    }
}
