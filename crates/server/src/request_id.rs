//! Ids of requests, as AWS writes them.

use crate::hex::random_hex;

/// The id of one more request.
pub(crate) fn request_id() -> String {
    let hex = random_hex(16).unwrap_or_else(|_| "0".repeat(32));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_an_id_of_its_own_in_the_form_of_aws() {
        let ids: std::collections::BTreeSet<String> = (0..100).map(|_| request_id()).collect();
        assert_eq!(ids.len(), 100);
        for id in ids {
            assert_eq!(id.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{id}");
            assert!(id.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()), "{id}");
        }
    }
}
