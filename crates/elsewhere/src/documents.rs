//! S3's XML documents, as far as they are read here. Pure.

use std::borrow::Cow;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use serde::Deserialize;

/// Why a request failed.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ErrorDocument {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl ErrorDocument {
    /// Answers to HEAD have none, and proxies write pages.
    pub(crate) fn read(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        quick_xml::de::from_str(&text).unwrap_or_default()
    }

    /// For people.
    pub(crate) fn text(&self, status: StatusCode) -> String {
        match (self.code.as_str(), self.message.as_str()) {
            ("", _) => format!("it answers {status}"),
            (code, "") => format!("{code}, {status}"),
            (code, message) => format!("{code}: {message}"),
        }
    }
}

/// A page of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ListDocument {
    pub(crate) is_truncated: bool,
    pub(crate) next_continuation_token: Option<String>,
    encoding_type: Option<String>,
    pub(crate) contents: Vec<Listed>,
    pub(crate) common_prefixes: Vec<CommonPrefix>,
}

/// An object of it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Listed {
    pub(crate) key: String,
    pub(crate) size: u64,
    #[serde(rename = "ETag")]
    pub(crate) etag: String,
    /// RFC 3339.
    pub(crate) last_modified: String,
    pub(crate) storage_class: Option<String>,
}

/// What keys have in common.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct CommonPrefix {
    pub(crate) prefix: String,
}

impl ListDocument {
    /// `None`: it is none.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let mut page: Self = quick_xml::de::from_str(std::str::from_utf8(body).ok()?).ok()?;
        if page.encoding_type.as_deref() == Some("url") {
            let keys = page.contents.iter_mut().map(|listed| &mut listed.key);
            keys.chain(page.common_prefixes.iter_mut().map(|it| &mut it.prefix)).try_for_each(|text| {
                // As forms encode.
                let spaced = text.replace('+', " ");
                let decoded = percent_decode_str(&spaced).decode_utf8().ok().map(Cow::into_owned);
                decoded.map(|decoded| *text = decoded)
            })?;
        }
        Some(page)
    }
}

/// The begin of an upload in parts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct UploadDocument {
    upload_id: String,
}

pub(crate) fn upload_id(body: &[u8]) -> Option<String> {
    let document: UploadDocument = quick_xml::de::from_str(std::str::from_utf8(body).ok()?).ok()?;
    Some(document.upload_id)
}

/// What an upload's end answers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct CompletedDocument {
    #[serde(rename = "ETag")]
    pub(crate) etag: String,
    /// Of an error, which may come with 200.
    pub(crate) code: String,
    pub(crate) message: String,
}

pub(crate) fn completed(body: &[u8]) -> Option<CompletedDocument> {
    quick_xml::de::from_str(std::str::from_utf8(body).ok()?).ok()
}

/// The end of an upload: the ETags of its parts, in order.
pub(crate) fn completion(etags: &[String]) -> String {
    let parts = (1..).zip(etags).map(|(number, etag)| {
        let etag = quick_xml::escape::escape(etag);
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
    });
    format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", parts.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_keys_of_any_kind() {
        let page = ListDocument::read(
            br#"<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>
            <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><KeyCount>3</KeyCount>
            <NextContinuationToken>t+k</NextContinuationToken>
            <Contents><Key>a//b+c%2Bd%C3%B6</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified>
            <ETag>&quot;00ff&quot;</ETag><Size>7</Size><StorageClass>STANDARD</StorageClass></Contents>
            <CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes>
            <Contents><Key>folder/</Key><Size>0</Size><Owner><ID>o</ID></Owner></Contents></ListBucketResult>"#,
        )
        .unwrap();
        let keys: Vec<&str> = page.contents.iter().map(|listed| listed.key.as_str()).collect();
        assert_eq!(keys, ["a//b c+d\u{f6}", "folder/"]);
        assert_eq!((page.contents[0].etag.as_str(), page.contents[0].size), ("\"00ff\"", 7));
        assert_eq!(page.next_continuation_token.as_deref(), Some("t+k"), "it is not encoded");
        assert!(page.is_truncated && page.common_prefixes[0].prefix == "x/");
        assert!(ListDocument::read(b"no xml").is_none());
    }

    #[test]
    fn errors_and_uploads_are_read() {
        let error = ErrorDocument::read(b"<Error><Code>NoSuchKey</Code><Message>It &lt;is&gt; not.</Message></Error>");
        assert_eq!(error.text(StatusCode::NOT_FOUND), "NoSuchKey: It <is> not.");
        assert_eq!(ErrorDocument::read(b"").text(StatusCode::FORBIDDEN), "it answers 403 Forbidden");
        let begun =
            b"<InitiateMultipartUploadResult><Key>k</Key><UploadId>u1</UploadId></InitiateMultipartUploadResult>";
        assert_eq!(upload_id(begun).as_deref(), Some("u1"));
        let parts = completion(&["\"a\"".to_owned(), "b".to_owned()]);
        assert!(
            parts.contains("<PartNumber>2</PartNumber><ETag>b</ETag>") && parts.contains("&quot;a&quot;"),
            "{parts}"
        );
        let done = completed(b"<CompleteMultipartUploadResult><ETag>\"e-2\"</ETag></CompleteMultipartUploadResult>");
        assert_eq!(done.unwrap().etag, "\"e-2\"");
        assert_eq!(completed(b"<Error><Code>InternalError</Code></Error>").unwrap().code, "InternalError");
    }
}
