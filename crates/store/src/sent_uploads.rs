//! Completions of uploads to buckets that show one elsewhere. A completion sends the whole object,
//! which takes as long as it takes, and a client that gives up waiting asks again: one call sends,
//! the others wait for what comes of it, and it is known for some minutes afterwards.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::error::ForeignError;
use crate::{ObjectMeta, PutCondition, StoreError};

/// How long a result is known: longer than clients repeat a request.
const KEPT: Duration = Duration::from_secs(15 * 60);

/// By the upload's id.
#[derive(Debug, Default)]
pub(crate) struct SentUploads(Mutex<BTreeMap<String, Arc<Sending>>>);

#[derive(Debug)]
struct Sending {
    /// Of the parts, in their order.
    etag: Option<String>,
    condition: PutCondition,
    /// With the time.
    result: Mutex<Option<(Instant, Result<ObjectMeta, Failure>)>>,
    ended: Condvar,
}

/// What the others get.
#[derive(Debug, Clone)]
enum Failure {
    Foreign(crate::ForeignFault, String),
    Precondition(String),
    /// Each tries for itself.
    Other,
}

impl Failure {
    fn of(error: &StoreError) -> Self {
        match error {
            StoreError::Foreign(ForeignError { fault, text }) => Self::Foreign(*fault, text.clone()),
            StoreError::PreconditionFailed { key } => Self::Precondition(key.clone()),
            _ => Self::Other,
        }
    }

    fn error(self) -> Option<StoreError> {
        match self {
            Self::Foreign(fault, text) => Some(ForeignError { fault, text }.into()),
            Self::Precondition(key) => Some(StoreError::PreconditionFailed { key }),
            Self::Other => None,
        }
    }
}

impl Sending {
    fn result(&self) -> MutexGuard<'_, Option<(Instant, Result<ObjectMeta, Failure>)>> {
        self.result.lock().expect("no holder of this lock panics")
    }

    fn end(&self, result: Result<ObjectMeta, Failure>) {
        self.result().get_or_insert((Instant::now(), result));
        self.ended.notify_all();
    }

    fn wait(&self) -> Result<ObjectMeta, Failure> {
        let ended = self.ended.wait_while(self.result(), |result| result.is_none());
        let ended = ended.expect("no holder of this lock panics");
        ended.as_ref().map_or(Err(Failure::Other), |(_, result)| result.clone())
    }

    fn is_known(&self) -> bool {
        match &*self.result() {
            Some((at, Ok(_))) => at.elapsed() < KEPT,
            Some((_, Err(_))) => false,
            None => true,
        }
    }
}

/// Ends what breaks off, too.
struct Turn<'a> {
    sent: &'a SentUploads,
    upload: &'a str,
    sending: Arc<Sending>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.sending.end(Err(Failure::Other));
        if !self.sending.is_known() {
            // Unless another call has taken its place already.
            let mut all = self.sent.lock();
            if all.get(self.upload).is_some_and(|other| Arc::ptr_eq(other, &self.sending)) {
                all.remove(self.upload);
            }
        }
    }
}

impl SentUploads {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Sending>>> {
        self.0.lock().expect("no holder of this lock panics")
    }

    /// Sends an upload's object, if no other call does or has done so. `etag`: of its parts, in
    /// their order.
    pub(crate) fn once(
        &self,
        upload: &str,
        etag: Option<&str>,
        condition: &PutCondition,
        send: impl FnOnce() -> Result<ObjectMeta, StoreError>,
    ) -> Result<ObjectMeta, StoreError> {
        let sending = loop {
            let other = {
                let mut all = self.lock();
                all.retain(|_, sending| sending.is_known());
                match all.get(upload) {
                    Some(other) => Arc::clone(other),
                    None => {
                        let (condition, result, ended) = (condition.clone(), Mutex::default(), Condvar::new());
                        let sending = Arc::new(Sending { etag: etag.map(str::to_owned), condition, result, ended });
                        all.insert(upload.to_owned(), Arc::clone(&sending));
                        break sending;
                    }
                }
            };
            match other.wait() {
                Ok(meta) if other.etag.as_deref() == etag => return Ok(meta),
                Ok(_) => return Err(StoreError::NoSuchUpload(upload.to_owned())),
                Err(failure) if other.etag.as_deref() == etag && other.condition == *condition => {
                    if let Some(error) = failure.error() {
                        return Err(error);
                    }
                }
                Err(_) => {}
            }
        };
        let turn = Turn { sent: self, upload, sending };
        let sent = send();
        turn.sending.end(sent.as_ref().map(ObjectMeta::clone).map_err(Failure::of));
        sent
    }

    /// Ends an upload by `remove` when no call sends its object; none begins meanwhile.
    ///
    /// # Errors
    /// [`StoreError::NoSuchUpload`] if it was sent; those of `remove`.
    pub(crate) fn abort(
        &self,
        upload: &str,
        remove: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut removed = None;
        let sent = self.once(upload, None, &PutCondition::Always, || {
            removed = Some(remove());
            Err(StoreError::NoSuchUpload(upload.to_owned()))
        });
        removed.unwrap_or_else(|| sent.map(|_| ()))
    }

    /// What became of an upload with these parts, while that is known.
    pub(crate) fn known(&self, upload: &str, etag: Option<&str>) -> Option<ObjectMeta> {
        let sending = self.lock().get(upload).filter(|sending| sending.is_known()).cloned()?;
        let result = sending.result();
        let (_, sent) = result.as_ref()?;
        sent.as_ref().ok().filter(|_| sending.etag.as_deref() == etag).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::{Attributes, ForeignFault, Version};

    fn sent(etag: &str) -> ObjectMeta {
        ObjectMeta {
            key: "k".to_owned(),
            size: 1,
            etag: etag.to_owned(),
            modified_ms: 0,
            id: String::new(),
            attributes: Attributes::default(),
            version: Version::default(),
            passthrough: Some("team".into()),
        }
    }

    #[test]
    fn an_upload_is_aborted_before_it_is_sent_or_not_at_all() {
        let uploads = SentUploads::default();
        let failed = || ForeignError { fault: ForeignFault::Away, text: "why".to_owned() }.into();
        for (result, is_aborted) in [(Ok("theirs-7"), false), (Err(failed()), true)] {
            let (begun, finish) = (Barrier::new(2), Barrier::new(2));
            let is_dropped = AtomicUsize::new(0);
            let aborted = thread::scope(|scope| {
                let send = scope.spawn(|| {
                    uploads.once("u", Some("a1"), &PutCondition::Always, || {
                        begun.wait();
                        finish.wait();
                        result.map(sent)
                    })
                });
                begun.wait();
                let abort = scope.spawn(|| {
                    uploads.abort("u", || {
                        is_dropped.store(1, Ordering::Relaxed);
                        Ok(())
                    })
                });
                while Arc::strong_count(&uploads.lock()["u"]) < 3 {
                    thread::yield_now();
                }
                finish.wait();
                drop(send.join().unwrap());
                abort.join().unwrap()
            });
            assert_eq!(is_dropped.load(Ordering::Relaxed) == 1, is_aborted);
            assert_eq!(aborted.is_ok(), is_aborted, "{aborted:?}");
            uploads.lock().clear();
        }
    }

    /// Clients give up waiting and ask again, while it is sent and afterwards.
    #[test]
    fn one_call_sends_and_all_hear_of_it() {
        let (uploads, sends) = (SentUploads::default(), AtomicUsize::new(0));
        for result in [Err(ForeignFault::Away), Ok("theirs-7")] {
            sends.store(0, Ordering::Relaxed);
            let (begun, finish) = (Barrier::new(2), Barrier::new(2));
            let answers: Vec<_> = thread::scope(|scope| {
                let first = scope.spawn(|| {
                    uploads.once("u", Some("a1"), &PutCondition::Always, || {
                        sends.fetch_add(1, Ordering::Relaxed);
                        begun.wait();
                        finish.wait();
                        let failed = |fault| ForeignError { fault, text: "why".to_owned() }.into();
                        result.map(sent).map_err(failed)
                    })
                });
                begun.wait();
                let again = || {
                    uploads.once("u", Some("a1"), &PutCondition::Always, || {
                        sends.fetch_add(1, Ordering::Relaxed);
                        Err(StoreError::Cancelled)
                    })
                };
                let others: Vec<_> = (0..4).map(|_| scope.spawn(again)).collect();
                // All of them have it by then: each holds it, and so do the map and the sender.
                while Arc::strong_count(&uploads.lock()["u"]) < 6 {
                    thread::yield_now();
                }
                finish.wait();
                [first].into_iter().chain(others).map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(sends.load(Ordering::Relaxed), 1);
            for answer in answers {
                match result {
                    Ok(etag) => assert_eq!(answer.unwrap().etag, etag),
                    Err(_) => assert!(answer.unwrap_err().is_away()),
                }
            }
            assert_eq!(uploads.lock().len(), usize::from(result.is_ok()), "what failed may be sent again");
        }
        let again = |etag: &str| uploads.once("u", Some(etag), &PutCondition::Always, || Err(StoreError::Cancelled));
        assert_eq!(again("a1").unwrap().etag, "theirs-7");
        assert!(matches!(again("b2"), Err(StoreError::NoSuchUpload(_))), "other parts");
    }
}
