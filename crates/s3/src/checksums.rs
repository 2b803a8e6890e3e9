//! Checksums that clients send with a body, by header or in its trailer.

use std::collections::{BTreeMap, BTreeSet};

use http::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::dto::Checksum;
use s3s::{S3Result, TrailingHeaders, s3_error};

const ALGORITHMS: [&str; 5] = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256"];
const PREFIX: &str = "x-amz-checksum-";

/// What a request says about the content of its body.
#[derive(Debug, Default)]
pub(crate) struct Promise {
    /// To be computed: those promised, in the trailer to come, or only named.
    algorithms: BTreeSet<&'static str>,
    /// Base64 by algorithm.
    promised: BTreeMap<&'static str, String>,
    /// Base64.
    md5: Option<String>,
}

impl Promise {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut promise = Self { md5: Some(text("content-md5").to_owned()).filter(|md5| !md5.is_empty()), ..Self::default() };
        let named = [text("x-amz-sdk-checksum-algorithm"), text("x-amz-checksum-algorithm")];
        let trailers = text("x-amz-trailer").to_ascii_lowercase();
        for algorithm in ALGORITHMS {
            let header = format!("{PREFIX}{algorithm}");
            let value = text(&header);
            if !value.is_empty() {
                promise.promised.insert(algorithm, value.to_owned());
            }
            let announced = trailers.split(',').any(|name| name.trim() == header);
            if !value.is_empty() || announced || named.iter().any(|name| name.eq_ignore_ascii_case(algorithm)) {
                promise.algorithms.insert(algorithm);
            }
        }
        promise
    }

    /// Computes what the promise is about.
    pub(crate) fn hasher(&self) -> ChecksumHasher {
        use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
        let wants = |algorithm| self.algorithms.contains(algorithm);
        ChecksumHasher {
            crc32: wants("crc32").then(Crc32::new),
            crc32c: wants("crc32c").then(Crc32c::new),
            crc64nvme: wants("crc64nvme").then(Crc64Nvme::new),
            sha1: wants("sha1").then(Sha1::new),
            sha256: wants("sha256").then(Sha256::new),
        }
    }

    /// Compares what came with what was promised and returns it.
    pub(crate) fn check(
        mut self,
        computed: Checksum,
        md5: [u8; 16],
        trailers: Option<&TrailingHeaders>,
    ) -> S3Result<BTreeMap<String, String>> {
        if let Some(promised) = &self.md5 {
            let promised = base64_simd::STANDARD.decode_to_vec(promised).map_err(|_| s3_error!(InvalidDigest))?;
            if promised != md5 {
                return Err(s3_error!(BadDigest, "The Content-MD5 you specified did not match what we received."));
            }
        }
        trailers.and_then(|trailers| {
            trailers.read(|headers| {
                for algorithm in ALGORITHMS {
                    if let Some(value) = headers.get(format!("{PREFIX}{algorithm}")).and_then(|value| value.to_str().ok()) {
                        self.promised.insert(algorithm, value.to_owned());
                    }
                }
            })
        });
        let computed = from_dto(computed);
        for (algorithm, promised) in &self.promised {
            // Only what a trailer brought unannounced is not computed.
            if computed.get(*algorithm).is_some_and(|computed| computed != promised) {
                return Err(s3_error!(
                    BadDigest,
                    "The {} you specified did not match the calculated checksum.",
                    algorithm.to_ascii_uppercase()
                ));
            }
        }
        Ok(computed)
    }
}

/// Base64 by algorithm, of those that are there.
pub(crate) fn from_dto(checksum: Checksum) -> BTreeMap<String, String> {
    let Checksum { checksum_crc32, checksum_crc32c, checksum_crc64nvme, checksum_sha1, checksum_sha256, .. } = checksum;
    let values = [checksum_crc32, checksum_crc32c, checksum_crc64nvme, checksum_sha1, checksum_sha256];
    ALGORITHMS.into_iter().zip(values).filter_map(|(algorithm, value)| Some((algorithm.to_owned(), value?))).collect()
}

pub(crate) fn to_dto(checksums: &BTreeMap<String, String>) -> Checksum {
    let value = |algorithm| checksums.get(algorithm).cloned();
    Checksum {
        checksum_crc32: value("crc32"),
        checksum_crc32c: value("crc32c"),
        checksum_crc64nvme: value("crc64nvme"),
        checksum_sha1: value("sha1"),
        checksum_sha256: value("sha256"),
        checksum_type: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_held_to_what_its_headers_promise() {
        // Of "hello".
        const MD5: &str = "XUFAKrxLKna5cZ2REBfFkg==";
        for (headers, expected) in [
            (vec![], Ok(vec![])),
            (vec![("x-amz-checksum-crc32", "NhCmhg==")], Ok(vec!["crc32"])),
            (vec![("x-amz-checksum-crc32", "AAAAAA==")], Err("BadDigest")),
            (vec![("x-amz-checksum-sha256", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=")], Ok(vec!["sha256"])),
            (vec![("x-amz-sdk-checksum-algorithm", "CRC32")], Ok(vec!["crc32"])),
            (vec![("x-amz-trailer", "x-amz-checksum-crc32c")], Ok(vec!["crc32c"])),
            (vec![("content-md5", MD5)], Ok(vec![])),
            (vec![("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], Err("BadDigest")),
            (vec![("content-md5", "?")], Err("InvalidDigest")),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in &headers {
                map.insert(*name, value.parse().unwrap());
            }
            let promise = Promise::of(&map);
            let mut hasher = promise.hasher();
            hasher.update(b"hello");
            let md5 = base64_simd::STANDARD.decode_to_vec(MD5).unwrap().try_into().unwrap();
            let kept = promise.check(hasher.finalize(), md5, None).map(|kept| kept.into_keys().collect::<Vec<_>>());
            let kept = kept.map_err(|error| error.code().as_str().to_owned());
            assert_eq!(kept, expected.map(|keys| keys.into_iter().map(str::to_owned).collect()).map_err(str::to_owned), "{headers:?}");
        }
    }
}
