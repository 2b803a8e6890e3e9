//! A job's files in S3: what it reads and what it has written, with download.

use std::{io::Read, path::Path};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use shoal_store::{ObjectStream, Objects, StoreError};
use shoal_wire::S3Uri;

use super::{
    Console, ObjectsOpen, Visit, amounts, blocking,
    frame::PageError,
    query::address,
    responses::{Body, answer},
};

/// Most files of a place that a page lists.
const MOST_FILES: usize = 100;
/// Bytes that are read from the disk at once.
const PIECE: usize = 256 << 10;

/// A place in S3 and what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) label: String,
    pub(crate) uri: String,
    /// About it, in words.
    pub(crate) note: String,
    pub(crate) files: Vec<Listed>,
    /// There are more than are listed.
    pub(crate) more: bool,
}

/// A file and where to get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Relative to its place.
    pub(crate) name: String,
    pub(crate) size: String,
    pub(crate) address: String,
}

/// What is below a URI now. A bucket of another store that cannot be asked is noted at its place:
/// the rest of the page does not depend on it.
pub(crate) fn place(objects: &Objects, label: &str, uri: &S3Uri, mut note: String) -> Result<Place, StoreError> {
    let listing = match objects.list(&uri.bucket, &uri.prefix, None, None, MOST_FILES) {
        Err(StoreError::NoSuchBucket(_)) => shoal_store::Listing::default(),
        Err(StoreError::Foreign(error)) => {
            let separator = if note.is_empty() { "" } else { "; " };
            note = format!("{note}{separator}{error}");
            shoal_store::Listing::default()
        }
        listing => listing?,
    };
    let folder = uri.prefix.rfind('/').map_or(0, |slash| slash + 1);
    let files = listing
        .objects
        .iter()
        .map(|meta| Listed {
            name: meta.key[folder..].to_owned(),
            size: amounts::bytes(meta.size),
            address: address("/console/object", &[("bucket", &uri.bucket), ("key", &meta.key)]),
        })
        .collect();
    Ok(Place { label: label.to_owned(), uri: uri.to_string(), note, files, more: listing.next.is_some() })
}

impl Console {
    /// An object's contents, always as a download: nothing that a job wrote is shown as a page of
    /// ours.
    pub(super) async fn download(&self, visit: &Visit) -> Result<Response<Body>, PageError> {
        let wanted = |name| visit.query.get(name).unwrap_or_default().to_owned();
        let (bucket, key) = (wanted("bucket"), wanted("key"));
        let may_read = match &self.sources.objects_open {
            ObjectsOpen::All => true,
            ObjectsOpen::Some(is_open) => is_open(&bucket, &key),
        };
        if !may_read {
            let text = format!("This key may not read s3://{bucket}/{key}.");
            return Err(PageError::new(StatusCode::FORBIDDEN, "Not with this key", &text));
        }
        let objects = self.sources.objects.clone();
        let name = Path::new(&key).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let reader = blocking(move || match objects.reader(&bucket, &key) {
            Err(StoreError::NoSuchBucket(_) | StoreError::NoSuchKey { .. }) => {
                Err(PageError::not_found(&format!("There is no object s3://{bucket}/{key} any more.")))
            }
            read => Ok(read?),
        })
        .await?;
        let size = reader.meta.size;
        let mut response = answer("application/octet-stream", Bytes::new());
        *response.body_mut() = pieces(reader.stream(0..size));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
        // Names in plain letters for all, and in UTF-8 for those who read that.
        let plain: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() || ".-_ ".contains(c) { c } else { '_' }).collect();
        let encoded: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
        let disposition = format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{}", encoded.replace('+', "%20"));
        headers.insert(
            header::CONTENT_DISPOSITION,
            HeaderValue::from_str(&disposition).unwrap_or(HeaderValue::from_static("attachment")),
        );
        Ok(response)
    }
}

/// An object as a body, read as fast as it is taken.
fn pieces(object: ObjectStream) -> Body {
    let pieces = stream::unfold(Some(object), |object| async move {
        let mut object = object?;
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::with_capacity(PIECE);
            object.by_ref().take(PIECE as u64).read_to_end(&mut piece).map(|_| (piece, object))
        });
        match read.await {
            Ok(Ok((piece, _))) if piece.is_empty() => None,
            Ok(Ok((piece, object))) => Some((Ok(Frame::data(Bytes::from(piece))), Some(object))),
            Ok(Err(error)) => Some((Err(error.into()), None)),
            Err(error) => Some((Err(error.into()), None)),
        }
    });
    BodyExt::boxed(StreamBody::new(pieces))
}
