//! `s3://bucket/prefix?endpoint=http://host:port&region=us-east-1&profile=name`. Pure.

use std::fmt;

/// A prefix in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The bucket.
    pub bucket: String,
    /// What all names begin with, without `/` at either end; empty for the whole bucket.
    pub prefix: String,
    /// `None` is AWS.
    pub endpoint: Option<String>,
    /// `None` is what the environment names, or us-east-1.
    pub region: Option<String>,
    /// A profile of AWS's configuration files.
    pub profile: Option<String>,
}

/// What is wrong with an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{typed}` is no address of a bucket: {why}; write s3://bucket/prefix?endpoint=https://host:port")]
pub struct BadAddress {
    typed: String,
    why: String,
}

impl Address {
    /// Whether something typed is meant to be one.
    pub fn is_meant(typed: &str) -> bool {
        typed.starts_with("s3://")
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is none; with a reason.
    pub fn parse(typed: &str) -> Result<Self, BadAddress> {
        let bad = |why: String| BadAddress { typed: typed.to_owned(), why };
        let rest = typed.strip_prefix("s3://").ok_or_else(|| bad("it does not begin with s3://".to_owned()))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() || !bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
            return Err(bad(format!("`{bucket}` is no name of a bucket")));
        }
        let prefix = prefix.trim_matches('/');
        if prefix.split('/').any(|part| part == "." || part == "..") || prefix.contains("//") {
            return Err(bad(format!("`{prefix}` has parts that are no names")));
        }
        let mut address =
            Self { bucket: bucket.to_owned(), prefix: prefix.to_owned(), endpoint: None, region: None, profile: None };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let member = match &*name {
                "endpoint" if value.starts_with("http://") || value.starts_with("https://") => &mut address.endpoint,
                "endpoint" => {
                    return Err(bad(format!("the endpoint `{value}` begins with neither http:// nor https://")));
                }
                "region" => &mut address.region,
                "profile" => &mut address.profile,
                other => {
                    return Err(bad(format!("it has no option `{other}` (endpoint, region and profile are known)")));
                }
            };
            *member = Some(value.trim_end_matches('/').to_owned());
        }
        Ok(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        self.endpoint.iter().try_for_each(|endpoint| write!(f, " at {endpoint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_or_refused_with_a_reason() {
        let whole =
            Address::parse("s3://my-bucket/a/b/?endpoint=http://127.0.0.1:9000/&region=eu-1&profile=p").unwrap();
        assert_eq!(
            whole,
            Address {
                bucket: "my-bucket".to_owned(),
                prefix: "a/b".to_owned(),
                endpoint: Some("http://127.0.0.1:9000".to_owned()),
                region: Some("eu-1".to_owned()),
                profile: Some("p".to_owned()),
            }
        );
        assert_eq!(whole.to_string(), "s3://my-bucket/a/b at http://127.0.0.1:9000");
        assert_eq!(Address::parse("s3://b").unwrap().to_string(), "s3://b");
        for (typed, why) in [
            ("file:///x", "does not begin with"),
            ("s3:///x", "no name of a bucket"),
            ("s3://a b/x", "no name of a bucket"),
            ("s3://b/x/../y", "no names"),
            ("s3://b?endpoint=localhost:9000", "neither http:// nor https://"),
            ("s3://b?speed=fast", "no option `speed`"),
        ] {
            let error = Address::parse(typed).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
