//! Bodies into objects' files.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use s3s::dto::{Checksum, ETag, PutObjectInput, PutObjectOutput, StreamingBlob, UploadPartInput, UploadPartOutput};
use s3s::{S3Request, S3Response, S3Result, TrailingHeaders, s3_error};
use shoal_store::{Attributes, ObjectFile, ObjectWriter, Objects, StoreError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::attributes;
use crate::backend::Backend;
use crate::checksums::{Promise, object_with_checksums, part_with_checksums};
use crate::chunked;
use crate::conditions::put_condition;
use crate::errors::{blocking, blocking_s3, from_body, from_store};
use crate::lifecycle_settings;
use crate::multipart;

/// Pieces of a body that wait for the disk. hyper's are at most some hundred kilobytes each.
const QUEUE: usize = 64;
/// Bodies up to this length are taken in whole before anything is done with them.
const SMALL: usize = 64 * 1024;

pub(crate) async fn put_object(
    backend: &Backend,
    req: S3Request<PutObjectInput>,
) -> S3Result<S3Response<PutObjectOutput>> {
    let S3Request { input, headers, trailing_headers, .. } = req;
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let server_side_encryption = attributes::encryption(input.server_side_encryption)?;
    let condition = put_condition(input.if_match, input.if_none_match)?;
    let attributes = attributes::from_request(&headers, input.metadata, input.tagging.as_deref())?;
    let (bucket, key) = (input.bucket, input.key);
    let objects = Arc::clone(&backend.objects);
    let open = move || objects.writer();
    let received =
        Received::of(open, input.body, Promise::of(&headers), trailing_headers, backend.check_bucket(&bucket)).await?;
    let objects = Arc::clone(&backend.objects);
    let (meta, expiration) = blocking_s3(move || {
        let (writer, checksums) = received.file(&objects)?;
        let attributes = Attributes { checksums, ..attributes };
        let meta = objects.commit(writer, &bucket, &key, &attributes, &condition).map_err(from_store)?;
        let expiration = lifecycle_settings::expiration(&objects, &bucket, &meta);
        Ok((meta, expiration))
    })
    .await?;

    Ok(S3Response::new(object_with_checksums!(
        &meta.attributes.checksums,
        PutObjectOutput {
            e_tag: Some(attributes::etag(&meta)),
            expiration,
            version_id: meta.version.shown().map(str::to_owned),
            server_side_encryption,
            ssekms_key_id: input.ssekms_key_id,
            ..PutObjectOutput::default()
        }
    )))
}

pub(crate) async fn upload_part(
    backend: &Backend,
    req: S3Request<UploadPartInput>,
) -> S3Result<S3Response<UploadPartOutput>> {
    let S3Request { input, headers, trailing_headers, .. } = req;
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let number = multipart::part_number(input.part_number)?;
    let upload = multipart::check_upload(backend, &input.upload_id, &input.bucket, &input.key).await?;

    let promise = Promise::of(&headers).and(upload.checksum.as_ref());
    let (objects, id, length) =
        (Arc::clone(&backend.objects), input.upload_id.clone(), chunked::content_length(&headers));
    let open = move || objects.part_writer(&id, number, length);
    let received = Received::of(open, input.body, promise, trailing_headers, async { Ok(()) }).await?;
    let objects = Arc::clone(&backend.objects);
    let part = blocking_s3(move || {
        let (writer, checksums) = received.file(&objects)?;
        objects.commit_part(writer, &input.upload_id, number, &checksums).map_err(from_store)
    })
    .await?;

    Ok(S3Response::new(part_with_checksums!(
        &part.checksums,
        UploadPartOutput { e_tag: Some(ETag::Strong(part.etag)), ..UploadPartOutput::default() }
    )))
}

/// A body that has come in.
struct Received {
    content: Content,
    promise: Promise,
    trailers: Option<TrailingHeaders>,
}

enum Content {
    /// What is small stays in memory, so that one step on a blocking thread does the rest.
    Pieces(Vec<Bytes>),
    /// What is long is in a file already.
    File(Box<ObjectWriter>, Checksum),
}

impl Received {
    /// Takes a body in. `before_long` is asked before a long one is written to what `open` gives;
    /// that goes when anything is wrong.
    async fn of(
        open: impl FnOnce() -> Result<ObjectWriter, StoreError> + Send + 'static,
        body: Option<StreamingBlob>,
        promise: Promise,
        trailers: Option<TrailingHeaders>,
        before_long: impl Future<Output = S3Result<()>>,
    ) -> S3Result<Self> {
        let (mut pieces, mut length) = (Vec::new(), 0);
        if let Some(mut body) = body {
            while let Some(piece) = body.next().await {
                let piece = piece.map_err(|error| from_body(&error))?;
                length += piece.len();
                pieces.push(piece);
                if length > SMALL {
                    before_long.await?;
                    let (writer, computed) = write_long(open, pieces, body, &promise).await?;
                    return Ok(Self { content: Content::File(Box::new(writer), computed), promise, trailers });
                }
            }
        }
        Ok(Self { content: Content::Pieces(pieces), promise, trailers })
    }

    /// The body's file and checksums, held to what the headers and its trailer promise. Blocks.
    fn file(self, objects: &Objects) -> S3Result<(ObjectWriter, BTreeMap<String, String>)> {
        let Self { content, promise, trailers } = self;
        let (writer, computed) = match content {
            Content::File(writer, computed) => (*writer, computed),
            Content::Pieces(pieces) => {
                let mut hasher = promise.hasher();
                let mut writer = objects.writer_here().map_err(from_store)?;
                for piece in pieces {
                    hasher.update(&piece);
                    writer.append(&piece).map_err(from_store)?;
                }
                (writer, hasher.finalize())
            }
        };
        let checksums = promise.check(computed, writer.md5(), trailers.as_ref())?;
        Ok((writer, checksums))
    }
}

/// Writes a long body to its file while it comes in, and hashes it on another thread.
async fn write_long(
    open: impl FnOnce() -> Result<ObjectWriter, StoreError> + Send + 'static,
    first: Vec<Bytes>,
    body: StreamingBlob,
    promise: &Promise,
) -> S3Result<(ObjectWriter, Checksum)> {
    let mut hasher = promise.hasher();
    let (mut file, mut hash) = blocking(move || Ok(open()?.split())).await?;
    let (to_file, mut of_file) = mpsc::channel::<Bytes>(QUEUE);
    let (to_hash, mut of_hash) = mpsc::channel::<Bytes>(QUEUE);
    let writing = tokio::spawn(blocking(move || {
        while let Some(piece) = of_file.blocking_recv() {
            file.append(&piece)?;
        }
        Ok(Unclaimed(Some(file)))
    }));
    let hashing = tokio::spawn(blocking(move || {
        while let Some(piece) = of_hash.blocking_recv() {
            hash.update(&piece);
            hasher.update(&piece);
        }
        Ok((hash, hasher.finalize()))
    }));
    let mut pieces = stream::iter(first.into_iter().map(Ok)).chain(body);
    while let Some(piece) = pieces.next().await {
        // Dropping the queues ends the writer, whose file goes with it.
        let piece = piece.map_err(|error| from_body(&error))?;
        if to_file.send(piece.clone()).await.is_err() || to_hash.send(piece).await.is_err() {
            // The writer has failed; it says why below.
            break;
        }
    }
    drop((to_file, to_hash));
    let file = writing.await.map_err(|_| s3_error!(InternalError))??;
    let (hash, computed) = hashing.await.map_err(|_| s3_error!(InternalError))??;
    Ok((file.claim().with(hash), computed))
}

/// The file of a body that may have been given up meanwhile. Clearing a part's place waits for the
/// disk.
struct Unclaimed(Option<ObjectFile>);

impl Unclaimed {
    fn claim(mut self) -> ObjectFile {
        self.0.take().expect("it is taken once")
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let (Some(file), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            drop(runtime.spawn_blocking(move || drop(file)));
        }
    }
}
