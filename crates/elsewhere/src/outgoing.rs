//! Contents that are sent piece by piece, with the id of an upload in parts known to the caller
//! before its first part is sent: a caller that is killed can end it later.

use std::time::Duration;

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use tokio::task::JoinSet;

use crate::bucket::PART_BYTES;
use crate::{Bucket, Error};

/// Parts of one content on their way.
const PARTS_AT_ONCE: usize = 3;
/// S3 takes 10,000 of them.
const MAX_PARTS: u64 = 9_000;
/// Between two checks of whether the caller ends.
const POLL: Duration = Duration::from_millis(50);

/// A content.
pub struct Outgoing<'a, E> {
    /// Its name.
    pub name: &'a str,
    /// Its length.
    pub size: u64,
    /// Reads it from a place on, in order.
    pub read: &'a mut dyn FnMut(u64, usize) -> Result<Vec<u8>, E>,
    /// Notes the id of an upload in parts.
    pub begun: &'a dyn Fn(&str) -> Result<(), E>,
    /// Whether to end without an end.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl Bucket {
    /// Sends a content; it is there, complete, when this returns.
    ///
    /// # Errors
    /// The store's, or the caller's.
    pub fn send_pieces<E: From<Error>>(&self, content: Outgoing<'_, E>) -> Result<(), E> {
        let is_cancelled = content.is_cancelled;
        let cancelled = async {
            while !is_cancelled() {
                tokio::time::sleep(POLL).await;
            }
        };
        let sent = async {
            tokio::select! {
                sent = self.send_all(content) => sent,
                () = cancelled => Err(Error::Cancelled { location: self.location() }.into()),
            }
        };
        self.block(sent)
    }

    async fn send_all<E: From<Error>>(&self, content: Outgoing<'_, E>) -> Result<(), E> {
        let Outgoing { name, size, read, begun, .. } = content;
        let path = self.path(name);
        let failed = |error: object_store::Error| E::from(self.error(name, &error));
        let length = |at: u64, most: u64| usize::try_from(most.min(size - at)).unwrap_or(usize::MAX);
        if size <= PART_BYTES {
            let bytes = read(0, length(0, size))?;
            self.store.put(&path, PutPayload::from(bytes)).await.map_err(failed)?;
            return Ok(());
        }
        let upload = self.parts.create_multipart(&path).await.map_err(failed)?;
        begun(&upload)?;
        let part_bytes = size.div_ceil(MAX_PARTS).max(PART_BYTES);
        let (mut tasks, mut parts) = (JoinSet::new(), Vec::new());
        let mut at = 0;
        while at < size {
            while tasks.len() >= PARTS_AT_ONCE {
                parts.extend(finished(&mut tasks).await.map_err(failed)?);
            }
            let bytes = read(at, length(at, part_bytes))?;
            let (index, count) = (usize::try_from(at / part_bytes).unwrap_or(usize::MAX), bytes.len() as u64);
            let (store, path, upload) = (self.parts.clone(), path.clone(), upload.clone());
            tasks.spawn(async move {
                let payload = PutPayload::from(Bytes::from(bytes));
                Ok((index, store.put_part(&path, &upload, index, payload).await?))
            });
            at += count;
        }
        while !tasks.is_empty() {
            parts.extend(finished(&mut tasks).await.map_err(failed)?);
        }
        parts.sort_by_key(|(index, _)| *index);
        let parts = parts.into_iter().map(|(_, part)| part).collect();
        self.parts.complete_multipart(&path, &upload, parts).await.map_err(failed)?;
        Ok(())
    }

    /// Removes the parts of an upload that did not end; one that is not there does not matter.
    /// Returns `false` where the store refuses this: s3s-fs does so if the upload is not there,
    /// others if keys lack `s3:AbortMultipartUpload`, and neither may keep the object from being
    /// sent.
    ///
    /// # Errors
    /// The store's.
    pub fn abort_upload(&self, name: &str, upload: &str) -> Result<bool, Error> {
        match self.block(self.parts.abort_multipart(&self.path(name), &upload.to_owned())) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(true),
            Err(object_store::Error::PermissionDenied { .. }) => Ok(false),
            Err(error) => Err(self.error(name, &error)),
        }
    }

    /// An address from which anyone may read an object for this time; a store in memory has none.
    ///
    /// # Errors
    /// There are no keys to sign it with.
    pub fn signed_address(&self, name: &str, valid: Duration) -> Result<Option<String>, Error> {
        let Some(signer) = &self.signer else { return Ok(None) };
        let path: Path = self.path(name);
        let signed = self.block(signer.signed_url(http::Method::GET, &path, valid));
        Ok(Some(signed.map_err(|error| self.error(name, &error))?.to_string()))
    }
}

type Sent = object_store::Result<(usize, PartId)>;

/// Waits for one of them.
async fn finished(tasks: &mut JoinSet<Sent>) -> object_store::Result<Option<(usize, PartId)>> {
    match tasks.join_next().await {
        None => Ok(None),
        Some(Ok(sent)) => sent.map(Some),
        Some(Err(source)) => Err(object_store::Error::JoinError { source }),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::Address;

    fn send(bucket: &Bucket, name: &str, content: &[u8], is_cancelled: bool) -> Result<Vec<String>, Error> {
        let ids = RefCell::new(Vec::new());
        let mut read = |at: u64, length: usize| {
            let at = usize::try_from(at).unwrap();
            Ok(content[at..at + length].to_vec())
        };
        bucket.send_pieces(Outgoing::<Error> {
            name,
            size: content.len() as u64,
            read: &mut read,
            begun: &|id| {
                ids.borrow_mut().push(id.to_owned());
                Ok(())
            },
            is_cancelled: &|| is_cancelled,
        })?;
        Ok(ids.into_inner())
    }

    #[test]
    fn long_contents_go_in_parts_whose_upload_is_known() {
        let bucket = Bucket::in_memory(&Address::parse("s3://team/one").unwrap()).unwrap();
        let long: Vec<u8> = (0..30_000_001_u32).map(|at| (at % 249) as u8).collect();
        assert_eq!(send(&bucket, "long", &long, false).unwrap().len(), 1);
        assert!(bucket.get("long").unwrap().unwrap().0 == long);
        assert_eq!(send(&bucket, "short", b"text", false).unwrap().len(), 0);
        assert_eq!(bucket.get("short").unwrap().unwrap().0, b"text");
        assert_eq!(bucket.signed_address("short", POLL).unwrap(), None);
        if let Err(error) = bucket.abort_upload("long", "0") {
            assert!(error.to_string().contains("0"), "{error}");
        }
    }
}
