//! For how long presigned URLs may be good: a week, as at AWS, so that one that got lost does not
//! open things for ever.

use std::time::{SystemTime, UNIX_EPOCH};

use http::StatusCode;
use s3s::S3Result;

use crate::errors;
use crate::query::Query;

/// A week, in seconds.
const MAX_EXPIRY_S: u64 = 604_800;

/// Checks the expiry that a presigned URL states: seconds from its date (SigV4), or seconds since
/// the epoch (SigV2). That it has not passed is the framework's check.
///
/// # Errors
/// `AuthorizationQueryParametersError`: it is more than a week.
pub(crate) fn check_expiry(query: &Query, now: SystemTime) -> S3Result<()> {
    let value = |name: &str| query.get(name)?.parse::<u64>().ok();
    let now_s = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let by_date = value("X-Amz-Expires");
    let by_epoch = query.get("AWSAccessKeyId").and_then(|_| value("Expires"));
    if by_date.is_some_and(|seconds| seconds > MAX_EXPIRY_S)
        || by_epoch.is_some_and(|end_s| end_s > now_s + MAX_EXPIRY_S)
    {
        let message = "X-Amz-Expires must be less than a week (in seconds) that is 604800";
        return Err(errors::custom("AuthorizationQueryParametersError", StatusCode::BAD_REQUEST, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_week_is_the_most() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for (query, is_good) in [
            (None, true),
            (Some("list-type=2"), true),
            (Some("X-Amz-Expires=604800&X-Amz-Signature=0"), true),
            (Some("X-Amz-Signature=0&X-Amz-Expires=604801"), false),
            (Some("X-Amz-Signature=0&X-Amz-Expire%73=604801"), false),
            (Some("AWSAccessKeyId=A&Signature=0&Expires=1800604800"), true),
            (Some("AWSAccessKey%49d=A&Signature=0&%45xpires=1800604801"), false),
            (Some("AWSAccessKeyId=A&Signature=0&Expires=1800604801"), false),
            // An object's own parameter, in a request that is signed by its header.
            (Some("Expires=9999999999"), true),
        ] {
            assert_eq!(check_expiry(&Query::of(query), now).is_ok(), is_good, "{query:?}");
        }
    }
}
