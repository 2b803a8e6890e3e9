//! Checksums: those that clients send with a body, by header or in its trailer, and those of
//! objects made of parts.

use std::collections::{BTreeMap, BTreeSet};

use crc_fast::CrcAlgorithm;
use http::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::dto::{Checksum, ChecksumAlgorithm, ChecksumType};
use s3s::{S3Result, TrailingHeaders, s3_error};
use shoal_store::{PartMeta, UploadChecksum};

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
        let mut promise =
            Self { md5: Some(text("content-md5").to_owned()).filter(|md5| !md5.is_empty()), ..Self::default() };
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

    /// Also computes the checksum that the upload's object will need.
    pub(crate) fn and(mut self, upload: Option<&UploadChecksum>) -> Self {
        self.algorithms.extend(upload.and_then(|checksum| known(&checksum.algorithm)));
        self
    }

    /// Computes what the promise is about.
    pub(crate) fn hasher(&self) -> ChecksumHasher {
        hasher(|algorithm| self.algorithms.contains(algorithm))
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
                    if let Some(value) =
                        headers.get(format!("{PREFIX}{algorithm}")).and_then(|value| value.to_str().ok())
                    {
                        self.promised.insert(algorithm, value.to_owned());
                    }
                }
            })
        });
        let computed = from_dto(computed);
        for (algorithm, promised) in &self.promised {
            if !base64_simd::STANDARD.decode_to_vec(promised).is_ok_and(|sum| sum.len() == length(algorithm)) {
                return Err(s3_error!(InvalidRequest, "Value for {}{} header is invalid.", PREFIX, algorithm));
            }
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

/// The algorithm of this name in lower case, if it is one of ours.
fn known(algorithm: &str) -> Option<&'static str> {
    ALGORITHMS.into_iter().find(|known| known.eq_ignore_ascii_case(algorithm))
}

/// Bytes of a checksum.
fn length(algorithm: &str) -> usize {
    match algorithm {
        "crc32" | "crc32c" => 4,
        "crc64nvme" => 8,
        "sha1" => 20,
        _ => 32,
    }
}

fn hasher(wants: impl Fn(&'static str) -> bool) -> ChecksumHasher {
    use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
    ChecksumHasher {
        crc32: wants("crc32").then(Crc32::new),
        crc32c: wants("crc32c").then(Crc32c::new),
        crc64nvme: wants("crc64nvme").then(Crc64Nvme::new),
        sha1: wants("sha1").then(Sha1::new),
        sha256: wants("sha256").then(Sha256::new),
    }
}

/// Computes the checksum of this name; nothing where there is none.
pub(crate) fn hasher_of(algorithm: Option<&str>) -> ChecksumHasher {
    hasher(|known| algorithm.is_some_and(|algorithm| algorithm.eq_ignore_ascii_case(known)))
}

/// What an upload's object will have, from what its beginning asks for.
pub(crate) fn for_upload(
    algorithm: Option<&ChecksumAlgorithm>,
    kind: Option<&ChecksumType>,
) -> S3Result<Option<UploadChecksum>> {
    let Some(asked) = algorithm else {
        return match kind {
            None => Ok(None),
            Some(_) => Err(s3_error!(
                InvalidRequest,
                "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header."
            )),
        };
    };
    let Some(algorithm) = known(asked.as_str()) else {
        return Err(s3_error!(
            InvalidRequest,
            "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, \
             CRC64NVME, SHA1, SHA256]"
        ));
    };
    let composite = match kind.map(ChecksumType::as_str) {
        None => algorithm != "crc64nvme",
        Some(ChecksumType::COMPOSITE) => true,
        Some(ChecksumType::FULL_OBJECT) => false,
        Some(_) => return Err(s3_error!(InvalidRequest, "Value for x-amz-checksum-type header is invalid.")),
    };
    match (algorithm, composite) {
        ("crc64nvme", true) => Err(s3_error!(
            InvalidRequest,
            "The COMPOSITE checksum type cannot be used with the crc64nvme checksum algorithm."
        )),
        ("sha1" | "sha256", false) => Err(s3_error!(
            InvalidRequest,
            "The FULL_OBJECT checksum type cannot be used with the {} checksum algorithm.",
            algorithm
        )),
        _ => Ok(Some(UploadChecksum { algorithm: algorithm.to_owned(), composite })),
    }
}

/// The checksum of an object that is made of these parts: of their checksums, with a hyphen and
/// their number, or of the whole content, which follows from theirs. `None` if a part lacks its
/// own.
pub(crate) fn of_parts(wanted: &UploadChecksum, parts: &[&PartMeta]) -> Option<String> {
    let sums =
        parts.iter().map(|part| base64_simd::STANDARD.decode_to_vec(part.checksums.get(&wanted.algorithm)?).ok());
    let sums: Vec<Vec<u8>> = sums.collect::<Option<_>>()?;
    if wanted.composite {
        let mut hasher = hasher_of(Some(&wanted.algorithm));
        sums.iter().for_each(|sum| hasher.update(sum));
        let whole = from_dto(hasher.finalize()).into_values().next()?;
        return Some(format!("{whole}-{}", parts.len()));
    }
    let crc = match wanted.algorithm.as_str() {
        "crc32" => CrcAlgorithm::Crc32IsoHdlc,
        "crc32c" => CrcAlgorithm::Crc32Iscsi,
        "crc64nvme" => CrcAlgorithm::Crc64Nvme,
        _ => return None,
    };
    let number = |sum: &[u8]| sum.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    let mut both = sums.iter().map(|sum| number(sum)).zip(parts.iter().map(|part| part.size));
    let (first, _) = both.next()?;
    let whole = both.fold(first, |whole, (sum, size)| crc_fast::checksum_combine(crc, whole, sum, size));
    let bytes = whole.to_be_bytes();
    Some(base64_simd::STANDARD.encode_to_string(&bytes[bytes.len() - length(&wanted.algorithm)..]))
}

/// Base64 by algorithm, of those that are there.
pub(crate) fn from_dto(checksum: Checksum) -> BTreeMap<String, String> {
    let Checksum { checksum_crc32, checksum_crc32c, checksum_crc64nvme, checksum_sha1, checksum_sha256, .. } = checksum;
    let values = [checksum_crc32, checksum_crc32c, checksum_crc64nvme, checksum_sha1, checksum_sha256];
    ALGORITHMS.into_iter().zip(values).filter_map(|(algorithm, value)| Some((algorithm.to_owned(), value?))).collect()
}

/// A DTO of these members and, in those of their names, checksums by algorithm of a part.
macro_rules! part_with_checksums {
    ($checksums:expr, $dto:ident { $($members:tt)* }) => {{
        let found = $crate::checksums::to_dto($checksums);
        $dto {
            checksum_crc32: found.checksum_crc32,
            checksum_crc32c: found.checksum_crc32c,
            checksum_crc64nvme: found.checksum_crc64nvme,
            checksum_sha1: found.checksum_sha1,
            checksum_sha256: found.checksum_sha256,
            $($members)*
        }
    }};
}
pub(crate) use part_with_checksums;

/// The same of an object, whose checksums have a type.
macro_rules! object_with_checksums {
    ($checksums:expr, $dto:ident { $($members:tt)* }) => {
        $crate::checksums::part_with_checksums!($checksums, $dto {
            checksum_type: $crate::checksums::type_of($checksums),
            $($members)*
        })
    };
}
pub(crate) use object_with_checksums;

pub(crate) fn type_of(checksums: &BTreeMap<String, String>) -> Option<ChecksumType> {
    // Base64 has no hyphen.
    let kind = |sum: &String| if sum.contains('-') { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT };
    checksums.values().next().map(|sum| ChecksumType::from_static(kind(sum)))
}

pub(crate) fn to_dto(checksums: &BTreeMap<String, String>) -> Checksum {
    let value = |algorithm| checksums.get(algorithm).cloned();
    Checksum {
        checksum_crc32: value("crc32"),
        checksum_crc32c: value("crc32c"),
        checksum_crc64nvme: value("crc64nvme"),
        checksum_sha1: value("sha1"),
        checksum_sha256: value("sha256"),
        checksum_type: type_of(checksums),
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
            (vec![("x-amz-checksum-crc32", "?")], Err("InvalidRequest")),
            (vec![("x-amz-checksum-sha1", "AAAAAA==")], Err("InvalidRequest")),
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
            assert_eq!(
                kept,
                expected.map(|keys| keys.into_iter().map(str::to_owned).collect()).map_err(str::to_owned),
                "{headers:?}"
            );
        }
    }

    #[test]
    fn an_upload_has_one_kind_of_checksum() {
        for (algorithm, kind, expected) in [
            (None, None, Ok(None)),
            (Some("CRC32"), None, Ok(Some(("crc32", true)))),
            (Some("CRC32C"), Some("FULL_OBJECT"), Ok(Some(("crc32c", false)))),
            (Some("CRC64NVME"), None, Ok(Some(("crc64nvme", false)))),
            (Some("SHA256"), Some("COMPOSITE"), Ok(Some(("sha256", true)))),
            (Some("SHA1"), Some("FULL_OBJECT"), Err("InvalidRequest")),
            (Some("CRC64NVME"), Some("COMPOSITE"), Err("InvalidRequest")),
            (Some("MD4"), None, Err("InvalidRequest")),
            (Some("CRC32"), Some("HALF"), Err("InvalidRequest")),
            (None, Some("COMPOSITE"), Err("InvalidRequest")),
        ] {
            let (named, of_kind) = (algorithm.map(ChecksumAlgorithm::from_static), kind.map(ChecksumType::from_static));
            let found = for_upload(named.as_ref(), of_kind.as_ref()).map_err(|error| error.code().as_str().to_owned());
            let expected = expected
                .map(|wanted| wanted.map(|(name, composite)| UploadChecksum { algorithm: name.to_owned(), composite }));
            assert_eq!(found, expected.map_err(str::to_owned), "{algorithm:?} {kind:?}");
        }
    }
}
