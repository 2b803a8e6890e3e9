//! Bodies into objects' files.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use md5::{Digest, Md5};
use s3s::checksum::ChecksumHasher;
use s3s::dto::{Checksum, ETag, PutObjectInput, PutObjectOutput, StreamingBlob, UploadPartInput, UploadPartOutput};
use s3s::{S3Request, S3Response, S3Result, TrailingHeaders, s3_error};
use shoal_store::{Attributes, ContentHash, ObjectFile, ObjectWriter, StoreError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::attributes;
use crate::backend::Backend;
use crate::checksums::{Promise, object_with_checksums, part_with_checksums};
use crate::chunked;
use crate::conditions::put_condition;
use crate::encryption::{self, Shown, asked, customer, with_encryption};
use crate::errors::{blocking, blocking_s3, from_body, from_store};
use crate::guard::Guard;
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
    let S3Request { input, headers, trailing_headers, extensions, .. } = req;
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let guard = extensions.get::<Guard>().cloned();
    let asked = asked!(backend, guard.as_ref(), input)?;
    let customer = asked.customer().cloned();
    let condition = put_condition(input.if_match, input.if_none_match)?;
    let attributes = attributes::from_request(&headers, input.metadata, input.tagging.as_deref())?;
    let (bucket, key) = (input.bucket, input.key);
    let (own, of_bucket) = (backend.clone(), bucket.clone());
    let open = move |length: Length| {
        let encryption = asked.encryption(&own, guard.as_ref(), &of_bucket)?;
        let writer = match length {
            Length::Small => own.objects.writer_here(),
            Length::Long => own.objects.writer(),
        };
        writer.and_then(|writer| own.objects.encrypt(writer, &encryption)).map_err(from_store)
    };
    let promise = Promise::of(&headers);
    let received =
        Received::of(open.clone(), input.body, promise, trailing_headers, backend.check_bucket(&bucket)).await?;
    let objects = Arc::clone(&backend.objects);
    let (meta, expiration) = blocking_s3(move || {
        let (writer, checksums) = received.file(open)?;
        let attributes = Attributes { checksums, ..attributes };
        let meta = objects.commit(writer, &bucket, &key, &attributes, &condition).map_err(from_store)?;
        let expiration = lifecycle_settings::expiration(&objects, &bucket, &meta);
        Ok((meta, expiration))
    })
    .await?;

    let shown = Shown::of(backend, meta.attributes.encryption.as_ref(), customer.as_ref());
    let output = object_with_checksums!(
        &meta.attributes.checksums,
        PutObjectOutput {
            e_tag: Some(attributes::etag(&meta)),
            expiration,
            version_id: meta.version.shown().map(str::to_owned),
            ..PutObjectOutput::default()
        }
    );
    Ok(S3Response::new(with_encryption!(shown, output)))
}

pub(crate) async fn upload_part(
    backend: &Backend,
    req: S3Request<UploadPartInput>,
) -> S3Result<S3Response<UploadPartOutput>> {
    let S3Request { input, headers, trailing_headers, extensions, .. } = req;
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let number = multipart::part_number(input.part_number)?;
    let upload = multipart::check_upload(backend, &input.upload_id, &input.bucket, &input.key).await?;
    encryption::may_write_part(backend, extensions.get::<Guard>(), &upload)?;

    let promise = Promise::of(&headers).and(upload.checksum.as_ref());
    let customer = customer!(input)?;
    let shown = Shown::of_part(backend, &upload, customer.as_ref())?;
    let (objects, length) = (Arc::clone(&backend.objects), chunked::content_length(&headers));
    let open = move |length_class: Length| {
        let writer = match length_class {
            Length::Small => objects.writer_here(),
            Length::Long => objects.part_writer(&upload.id, number, length),
        };
        let key = customer.as_ref().map(|customer| &customer.key);
        writer.and_then(|writer| objects.seal_part(writer, &upload, key)).map_err(encryption::of_part)
    };
    let received = Received::of(open.clone(), input.body, promise, trailing_headers, async { Ok(()) }).await?;
    let objects = Arc::clone(&backend.objects);
    let part = blocking_s3(move || {
        let (writer, checksums) = received.file(open)?;
        objects.commit_part(writer, &input.upload_id, number, &checksums).map_err(from_store)
    })
    .await?;

    let output = part_with_checksums!(
        &part.checksums,
        UploadPartOutput { e_tag: Some(ETag::Strong(part.etag)), ..UploadPartOutput::default() }
    );
    Ok(S3Response::new(with_encryption!(shown, output)))
}

/// How long a body is.
#[derive(Debug, Clone, Copy)]
enum Length {
    /// It is in memory.
    Small,
    Long,
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
    /// What is long is in a file already; with the checksums and the MD5 of what came.
    File(Box<ObjectWriter>, Checksum, [u8; 16]),
}

impl Received {
    /// Takes a body in. `before_long` is asked before a long one is written to what `open` gives;
    /// that goes when anything is wrong.
    async fn of(
        open: impl FnOnce(Length) -> S3Result<ObjectWriter> + Send + 'static,
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
                    let content = write_long(open, pieces, body, &promise).await?;
                    return Ok(Self { content, promise, trailers });
                }
            }
        }
        Ok(Self { content: Content::Pieces(pieces), promise, trailers })
    }

    /// The body's file and checksums, held to what the headers and its trailer promise; `open`
    /// gives the file of a small one. Blocks.
    fn file(
        self,
        open: impl FnOnce(Length) -> S3Result<ObjectWriter>,
    ) -> S3Result<(ObjectWriter, BTreeMap<String, String>)> {
        let Self { content, promise, trailers } = self;
        let (writer, computed, md5) = match content {
            Content::File(writer, computed, md5) => (*writer, computed, md5),
            Content::Pieces(pieces) => {
                let (mut hasher, mut writer) = (promise.hasher(), open(Length::Small)?);
                let mut md5 = writer.is_encrypted().then(Md5::new);
                for piece in pieces {
                    hasher.update(&piece);
                    md5.iter_mut().for_each(|md5| md5.update(&piece));
                    writer.append(&piece).map_err(from_store)?;
                }
                let md5 = md5.map_or_else(|| writer.md5(), |md5| md5.finalize().into());
                (writer, hasher.finalize(), md5)
            }
        };
        let checksums = promise.check(computed, md5, trailers.as_ref())?;
        Ok((writer, checksums))
    }
}

/// Writes a long body to its file while it comes in, and hashes it on another thread.
async fn write_long(
    open: impl FnOnce(Length) -> S3Result<ObjectWriter> + Send + 'static,
    first: Vec<Bytes>,
    body: StreamingBlob,
    promise: &Promise,
) -> S3Result<Content> {
    let hasher = promise.hasher();
    match blocking_s3(move || open(Length::Long).map(ObjectWriter::split)).await? {
        Ok((file, hash)) => {
            let write = |file: &mut ObjectFile, piece: &[u8]| file.append(piece);
            let update = |hash: &mut ContentHash, piece: &[u8]| hash.update(piece);
            let (file, hash, computed) = on_two_threads(file, write, (hash, update), hasher, first, body).await?;
            let writer = file.with(hash);
            let md5 = writer.md5();
            Ok(Content::File(Box::new(writer), computed, md5))
        }
        // The file's hash is of the ciphertext.
        Err(writer) => {
            let write = |writer: &mut Box<ObjectWriter>, piece: &[u8]| writer.append(piece);
            let update = |md5: &mut Md5, piece: &[u8]| md5.update(piece);
            let (writer, md5, computed) =
                on_two_threads(writer, write, (Md5::new(), update), hasher, first, body).await?;
            Ok(Content::File(writer, computed, md5.finalize().into()))
        }
    }
}

/// Writes a body on one thread and hashes it on another.
async fn on_two_threads<F: Send + 'static, H: Send + 'static>(
    mut file: F,
    write: impl Fn(&mut F, &[u8]) -> Result<(), StoreError> + Send + 'static,
    (mut hash, update): (H, impl Fn(&mut H, &[u8]) + Send + 'static),
    mut hasher: ChecksumHasher,
    first: Vec<Bytes>,
    body: StreamingBlob,
) -> S3Result<(F, H, Checksum)> {
    let (to_file, mut of_file) = mpsc::channel::<Bytes>(QUEUE);
    let (to_hash, mut of_hash) = mpsc::channel::<Bytes>(QUEUE);
    let writing = tokio::spawn(blocking(move || {
        while let Some(piece) = of_file.blocking_recv() {
            write(&mut file, &piece)?;
        }
        Ok(Unclaimed(Some(file)))
    }));
    let hashing = tokio::spawn(blocking(move || {
        while let Some(piece) = of_hash.blocking_recv() {
            update(&mut hash, &piece);
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
    Ok((file.claim(), hash, computed))
}

/// The file of a body that may have been given up meanwhile. Clearing a part's place waits for the
/// disk.
struct Unclaimed<F: Send + 'static>(Option<F>);

impl<F: Send + 'static> Unclaimed<F> {
    fn claim(mut self) -> F {
        self.0.take().expect("it is taken once")
    }
}

impl<F: Send + 'static> Drop for Unclaimed<F> {
    fn drop(&mut self) {
        if let (Some(file), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            drop(runtime.spawn_blocking(move || drop(file)));
        }
    }
}
