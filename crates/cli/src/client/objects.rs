//! S3: what `train` uploads, what `demo` looks at, and what `jobs prune` removes.

use std::io::Read;

use shoal_wire::client as wire;
use ureq::http::Method;

use super::{Client, ClientError};

/// Of a multipart upload; files up to this size go in one request.
const PART_BYTES: usize = 64 << 20;

impl Client {
    /// Creates a bucket unless we have it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(crate) fn create_bucket(&self, bucket: &str) -> Result<(), ClientError> {
        // The first region alone has no name in this request.
        let configuration = match self.endpoint.region.as_str() {
            "us-east-1" => String::new(),
            region => format!(
                "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
            ),
        };
        match self.s3(Method::PUT, &format!("/{bucket}"), configuration.into_bytes()) {
            Err(ClientError::Refused(error)) if error.code == "BucketAlreadyOwnedByYou" => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Stores all that `content` yields, part by part when it is long. `key` is not encoded.
    ///
    /// # Errors
    /// See [`ClientError`]; or `content` cannot be read.
    pub(crate) fn put_object(&self, bucket: &str, key: &str, content: &mut dyn Read) -> anyhow::Result<()> {
        let path = format!("/{bucket}/{}", encoded(key));
        let first = part(content)?;
        if first.len() < PART_BYTES {
            self.s3(Method::PUT, &path, first)?;
            return Ok(());
        }
        let mut response = self.s3(Method::POST, &format!("{path}?uploads="), Vec::new())?;
        let started = String::from_utf8_lossy(&self.body(&mut response)?).into_owned();
        let id = element(&started, "UploadId").ok_or_else(|| self.not_understood("it gives no upload id".to_owned()))?;
        let upload = format!("uploadId={}", encoded_value(id));
        let (mut parts, mut next) = (String::new(), first);
        for number in 1.. {
            let response = self.s3(Method::PUT, &format!("{path}?partNumber={number}&{upload}"), next)?;
            let etag = response.headers().get("etag").and_then(|value| value.to_str().ok()).unwrap_or_default();
            parts.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"));
            next = part(content)?;
            if next.is_empty() {
                break;
            }
        }
        let whole = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>").into_bytes();
        let mut response = self.s3(Method::POST, &format!("{path}?{upload}"), whole)?;
        let answer = self.body(&mut response)?;
        // S3 may find out that a completion fails after it has begun to answer 200.
        if element(&String::from_utf8_lossy(&answer), "Code").is_some() {
            return Err(ClientError::Refused(wire::error(500, &answer)).into());
        }
        Ok(())
    }

    /// A whole object.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(crate) fn get_object(&self, bucket: &str, key: &str) -> Result<Vec<u8>, ClientError> {
        let mut response = self.s3(Method::GET, &format!("/{bucket}/{}", encoded(key)), Vec::new())?;
        self.body(&mut response)
    }

    /// Keys below a prefix and their bytes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(crate) fn list_objects(&self, bucket: &str, prefix: &str) -> Result<Vec<(String, u64)>, ClientError> {
        let question = format!("/{bucket}?list-type=2&encoding-type=url&prefix={}", encoded_value(prefix));
        let (mut all, mut page) = (Vec::new(), question.clone());
        loop {
            let mut response = self.s3(Method::GET, &page, Vec::new())?;
            let answer = String::from_utf8_lossy(&self.body(&mut response)?).into_owned();
            for object in answer.split("<Contents>").skip(1) {
                let bytes = element(object, "Size").and_then(|size| size.parse().ok());
                let (Some(key), Some(bytes)) = (element(object, "Key").and_then(decoded), bytes) else {
                    return Err(self.not_understood("it lists an object without key or size".to_owned()));
                };
                all.push((key, bytes));
            }
            match element(&answer, "NextContinuationToken") {
                Some(token) => page = format!("{question}&continuation-token={}", encoded_value(token)),
                None => return Ok(all),
            }
        }
    }

    /// Removes an object; one that is not there is none.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(crate) fn delete_object(&self, bucket: &str, key: &str) -> Result<(), ClientError> {
        self.s3(Method::DELETE, &format!("/{bucket}/{}", encoded(key)), Vec::new()).map(drop)
    }
}

/// Up to [`PART_BYTES`], less only at the end.
fn part(content: &mut dyn Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    content.take(PART_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Text of the first element of this name in a flat XML answer of ours.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(text, _)| text)
}

/// A key as a path.
fn encoded(key: &str) -> String {
    key.split('/').map(encoded_value).collect::<Vec<_>>().join("/")
}

/// A key of a list that was asked for with `encoding-type=url`.
fn decoded(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.replace('+', " ").into_bytes();
    for piece in pieces {
        let (code, plain) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend(plain.replace('+', " ").into_bytes());
    }
    String::from_utf8(bytes).ok()
}

fn encoded_value(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    text.bytes().map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_answers() {
        assert_eq!(encoded("a b/c+d/ü.csv"), "a%20b/c%2Bd/%C3%BC.csv");
        assert_eq!(decoded("a%20b/c%2Bd+%C3%BC.csv").as_deref(), Some("a b/c+d ü.csv"));
        assert_eq!([decoded("%2"), decoded("%zz"), decoded("%ff")], [None, None, None]);
        let xml = "<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>";
        assert_eq!(element(xml, "Code"), Some("NoSuchKey"));
        assert_eq!(element(xml, "UploadId"), None);
    }

    #[test]
    fn content_is_cut_into_parts() {
        let mut content = std::io::repeat(7).take(PART_BYTES as u64 + 3);
        assert_eq!(part(&mut content).unwrap().len(), PART_BYTES);
        assert_eq!(part(&mut content).unwrap().len(), 3);
        assert!(part(&mut content).unwrap().is_empty());
    }
}
