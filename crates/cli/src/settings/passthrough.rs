//! Buckets that show one of another store, which `shoal.toml` lists as `[bucket.NAME]`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};

use anyhow::Result;
use shoal_server::{PassthroughBucket, PassthroughOptions};

use super::url::ServerUrl;
use super::{Typed, size};
use crate::exit::UsageError;

/// The buckets of a server that listens at an address.
pub(super) fn passthrough(typed: &Typed, listen: SocketAddr) -> Result<PassthroughOptions> {
    let mut buckets = BTreeMap::new();
    if let Some((origin, tables)) = typed.named("bucket") {
        for (name, table) in tables {
            let place = format!("[bucket.{name}] ({origin})");
            let shown = bucket(name, table, &place)?;
            if let Some(endpoint) = shown.endpoint().filter(|endpoint| is_at(endpoint, listen)) {
                let why = format!("the store at {endpoint} is this server itself: give the address of another one");
                return Err(UsageError(format!("{place}: {why}")).into());
            }
            buckets.insert(name.clone(), shown);
        }
    }
    Ok(PassthroughOptions { buckets, cache_bytes: size(typed, "objects_cache")? })
}

fn bucket(name: &str, table: &toml::Table, place: &str) -> Result<PassthroughBucket, UsageError> {
    let wrong = |why: &str| UsageError(format!("{place}: {why}"));
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    let ends = |text: &str| !text.starts_with(['.', '-']) && !text.ends_with(['.', '-']);
    if !(3..=63).contains(&name.len()) || !name.bytes().all(is_letter) || !ends(name) {
        return Err(wrong("a bucket's name is 3 to 63 of a-z, 0-9, '.' and '-', with a letter or digit at both ends"));
    }
    if let Some(unknown) = table.keys().find(|member| !["passthrough", "read_only"].contains(&member.as_str())) {
        return Err(wrong(&format!("there is no {unknown:?} in a bucket; there are: passthrough, read_only")));
    }
    let is_read_only = match table.get("read_only") {
        None => false,
        Some(value) => value.as_bool().ok_or_else(|| wrong("read_only is true or false"))?,
    };
    let address = table.get("passthrough").and_then(toml::Value::as_str);
    let address = address.ok_or_else(|| wrong("passthrough is the bucket that it shows, \"s3://BUCKET/PREFIX\""))?;
    PassthroughBucket::parse(address, is_read_only).map_err(|why| wrong(&format!("passthrough: {why}")))
}

/// Whether a URL leads to who listens at an address; of names only localhost is known.
fn is_at(url: &str, listen: SocketAddr) -> bool {
    let Some(url) = ServerUrl::parse(url, None) else { return false };
    let ip = match url.host() {
        "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
        host => host.parse().ok(),
    };
    // An address that this machine has can be bound.
    let is_own = |ip: IpAddr| ip.is_loopback() || TcpListener::bind((ip, 0)).is_ok();
    let is_reached = |ip: IpAddr| ip == listen.ip() || listen.ip().is_unspecified() && is_own(ip);
    url.authority.ends_with(&format!(":{}", listen.port())) && ip.is_some_and(is_reached)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(file: &str) -> Result<PassthroughOptions> {
        let flags = [("data_dir".to_owned(), "/data".to_owned())].into();
        let read = |path: &Path| Ok((path == Path::new("/data/shoal.toml")).then(|| file.to_owned()));
        passthrough(&Typed::gather(&flags, &|_| None, &read)?, "0.0.0.0:9777".parse().unwrap())
    }

    #[test]
    fn a_bucket_shows_another_one() {
        let found = read(
            "[bucket.team-data]\npassthrough = \"s3://theirs/a?endpoint=http://127.0.0.1:9\"\nread_only = true\n\
             [bucket.other]\npassthrough = \"s3://other\"\n",
        );
        let parsed = |address, is_read_only| PassthroughBucket::parse(address, is_read_only).unwrap();
        let expected = BTreeMap::from([
            ("team-data".to_owned(), parsed("s3://theirs/a?endpoint=http://127.0.0.1:9", true)),
            ("other".to_owned(), parsed("s3://other", false)),
        ]);
        assert_eq!(found.unwrap().buckets, expected);
        assert!(read("").unwrap().buckets.is_empty());
        for (file, why) in [
            ("[bucket.Team]\npassthrough = \"s3://theirs\"", "a bucket's name is 3 to 63"),
            ("[bucket.team]\npassthrough = \"theirs\"", "[bucket.team] (file /data/shoal.toml): passthrough: "),
            ("[bucket.team]\nread_only = true", "passthrough is the bucket that it shows"),
            ("[bucket.team]\npassthrough = \"s3://theirs\"\nread_only = 1", "read_only is true or false"),
            ("[bucket.team]\nobjects = \"s3://theirs\"", "there is no \"objects\" in a bucket"),
            ("[bucket.team]\npassthrough = \"s3://a?endpoint=http://localhost:9777\"", "9777 is this server itself"),
            ("[bucket.team]\npassthrough = \"s3://a?endpoint=https://[::1]:9777\"", "9777 is this server itself"),
            ("bucket = \"team\"", "buckets of other stores are tables"),
        ] {
            let error = read(file).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
