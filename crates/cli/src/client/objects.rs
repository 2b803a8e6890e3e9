//! S3: what `train` uploads, what `demo` looks at, and what `jobs prune` removes.

use std::io::Read;

use shoal_wire::{client as wire, sigv4::percent_encoded};
use ureq::http::Method;

use super::{Client, ClientError};

/// Of a multipart upload; files up to this size go in one request.
const PART_BYTES: usize = 64 << 20;
/// Most objects that one request removes.
const MOST_AT_ONCE: usize = 1000;

impl Client {
    /// Creates a bucket unless we have it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn create_bucket(&self, bucket: &str) -> Result<(), ClientError> {
        // The first region alone has no name in this request.
        let configuration = match self.endpoint.region.as_str() {
            "us-east-1" => String::new(),
            region => format!(
                "<CreateBucketConfiguration \
                 xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
            ),
        };
        match self.s3(Method::PUT, &format!("/{bucket}"), configuration.into_bytes()) {
            Err(ClientError::Refused(error)) if error.code == "BucketAlreadyOwnedByYou" => Ok(()),
            // A key that may create none has those that there are.
            Err(ClientError::Refused(error)) if error.code == "AccessDenied" => {
                self.s3(Method::HEAD, &format!("/{bucket}"), Vec::new()).map(drop)
            }
            answer => answer.map(drop),
        }
    }

    /// Stores all that `content` yields, part by part when it is long. `key` is not encoded.
    ///
    /// # Errors
    /// See [`ClientError`]; or `content` cannot be read.
    pub fn put_object(&self, bucket: &str, key: &str, content: &mut dyn Read) -> anyhow::Result<()> {
        let path = format!("/{bucket}/{}", encoded(key));
        let first = part(content)?;
        if first.len() < PART_BYTES {
            self.s3(Method::PUT, &path, first)?;
            return Ok(());
        }
        let mut response = self.s3(Method::POST, &format!("{path}?uploads="), Vec::new())?;
        let started = String::from_utf8_lossy(&self.body(&mut response)?).into_owned();
        let id =
            element(&started, "UploadId").ok_or_else(|| self.not_understood("it gives no upload id".to_owned()))?;
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

    /// Removes objects, 1,000 with each request; one that is not there is removed already. What
    /// could not be removed, with the reason: the others are.
    pub(crate) fn delete_objects<'a>(&self, bucket: &str, keys: &[&'a str]) -> Vec<(&'a str, String)> {
        let mut failed = Vec::new();
        for keys in keys.chunks(MOST_AT_ONCE) {
            let answer = self.s3(Method::POST, &format!("/{bucket}?delete="), deletion(keys));
            match answer.and_then(|mut response| self.body(&mut response)) {
                Ok(answer) => failed.extend(undeleted(&String::from_utf8_lossy(&answer), keys)),
                // So has the bucket been.
                Err(error) if error.is_not_found() => {}
                Err(error) => failed.extend(keys.iter().map(|key| (*key, error.to_string()))),
            }
        }
        failed
    }
}

/// The body of a DeleteObjects request; the answer has only what failed.
fn deletion(keys: &[&str]) -> Vec<u8> {
    let object = |key: &&str| format!("<Object><Key>{}</Key></Object>", escaped(key));
    let objects = keys.iter().map(object).collect::<String>();
    format!("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{objects}<Quiet>true</Quiet></Delete>")
        .into_bytes()
}

/// Which of the keys an answer to [`deletion`] says are still there, and why. An error about a key
/// that we do not know is about all of them.
fn undeleted<'a>(answer: &str, keys: &[&'a str]) -> Vec<(&'a str, String)> {
    let mut failed = Vec::new();
    for error in answer.split("<Error>").skip(1) {
        let text = |name: &str| element(error, name).map(unescaped).unwrap_or_default();
        let (key, why) = (text("Key"), format!("{}: {}", text("Code"), text("Message")));
        let one = keys.iter().position(|known| *known == key);
        let about = one.map_or(keys, |at| &keys[at..=at]);
        failed.extend(about.iter().map(|key| (*key, why.clone())));
    }
    failed
}

/// A key as XML's text.
fn escaped(key: &str) -> String {
    let mut text = String::new();
    for letter in key.chars() {
        match letter {
            '&' | '<' | '>' | '"' | '\'' => text.push_str(&format!("&#{};", u32::from(letter))),
            letter if letter.is_control() => text.push_str(&format!("&#{};", u32::from(letter))),
            letter => text.push(letter),
        }
    }
    text
}

fn unescaped(text: &str) -> String {
    const NAMES: [(&str, char); 5] = [("amp", '&'), ("lt", '<'), ("gt", '>'), ("quot", '"'), ("apos", '\'')];
    let mut pieces = text.split('&');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once(';').unwrap_or((piece, ""));
        let code = match name.strip_prefix('#') {
            Some(number) => {
                number.strip_prefix('x').map_or_else(|| number.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
            }
            None => None,
        };
        let named = || NAMES.iter().find(|(known, _)| *known == name).map(|(_, letter)| *letter);
        plain.extend(code.and_then(char::from_u32).or_else(named));
        plain.push_str(rest);
    }
    plain
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
    percent_encoded(text.as_bytes())
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
    fn one_object_that_stays_is_told_apart_from_the_others() {
        let keys = ["a", "b & <c>\r\u{fc}'\"", "d"];
        let body = String::from_utf8(deletion(&keys)).unwrap();
        assert!(body.contains("<Object><Key>b &#38; &#60;c&#62;&#13;\u{fc}&#39;&#34;</Key></Object>"), "{body}");
        assert_eq!(element(&body, "Quiet"), Some("true"));
        let refused = |key: &str| {
            format!(
                "<DeleteResult><Error><Code>AccessDenied</Code><Key>{key}</Key><Message>no \
                 &lt;way&gt;</Message></Error></DeleteResult>"
            )
        };
        let why = "AccessDenied: no <way>".to_owned();
        assert_eq!(undeleted(&refused("b &amp; &lt;c&#62;&#xD;\u{fc}&apos;&quot;"), &keys), [(keys[1], why)]);
        assert_eq!(undeleted("<DeleteResult/>", &keys), []);
        assert_eq!(undeleted(&refused("e"), &keys).len(), 3, "whatever it was, nothing is taken for removed");
    }

    #[test]
    fn content_is_cut_into_parts() {
        let mut content = std::io::repeat(7).take(PART_BYTES as u64 + 3);
        assert_eq!(part(&mut content).unwrap().len(), PART_BYTES);
        assert_eq!(part(&mut content).unwrap().len(), 3);
        assert!(part(&mut content).unwrap().is_empty());
    }
}
