//! Quotas, which `shoal.toml` lists as `[quota."user:NAME"]`, `[quota."tag:KEY=VALUE"]` and
//! `[quota.default]`, and the half-life of the fair share.

use anyhow::Result;
use shoal_plane::Limits;
use shoal_server::{QuotaOptions, TagQuota, UserQuota};

use super::{Typed, bytes, wrong};
use crate::{duration::duration, exit::UsageError};

const OF_JOBS: [&str; 3] = ["instances", "gpus", "jobs"];
const OF_SPACE: [&str; 2] = ["stored", "logs"];
const OF_USERS: [&str; 2] = ["requests_per_s", "max_priority"];

pub(super) fn quotas(typed: &Typed) -> Result<QuotaOptions> {
    let mut options = QuotaOptions { half_life_s: half_life_s(typed)?, ..QuotaOptions::default() };
    let Some((origin, tables)) = typed.named("quota") else { return Ok(options) };
    for (name, table) in tables {
        let place = format!("[quota.{name:?}] ({origin})");
        if name == "default" {
            options.default = user(table, &place)?;
        } else if let Some(name) = name.strip_prefix("user:").filter(|name| !name.is_empty()) {
            let quota = user(table, &place)?;
            if name == "owner" && quota.stored_bytes.is_some() {
                let why =
                    "the owner of the server writes everywhere, so nothing is counted for a quota of stored bytes";
                return Err(UsageError(format!("{place}: {why}: leave stored out")).into());
            }
            options.users.insert(name.to_owned(), quota);
        } else if let Some(tag) = name.strip_prefix("tag:").filter(|tag| tag.contains('=')) {
            options.tags.insert(tag.to_owned(), of_tag(table, &place)?);
        } else {
            return Err(
                UsageError(format!("{place}: a quota's name is \"user:NAME\", \"tag:KEY=VALUE\" or default")).into()
            );
        }
    }
    Ok(options)
}

fn half_life_s(typed: &Typed) -> Result<Option<u64>> {
    const NAME: &str = "fair_share_half_life";
    match typed.value(NAME) {
        "none" => Ok(None),
        text => match duration(text).map(|it| it.as_secs()) {
            Ok(seconds) if seconds > 0 => Ok(Some(seconds)),
            _ => Err(wrong(typed, NAME, "`none` or a time such as 12h or 7d")),
        },
    }
}

fn user(table: &toml::Table, place: &str) -> Result<UserQuota, UsageError> {
    let known = Vec::from_iter(OF_JOBS.into_iter().chain(OF_SPACE).chain(OF_USERS));
    let max_priority = match table.get("max_priority") {
        None => None,
        Some(value) => Some(
            value
                .as_integer()
                .and_then(|it| i32::try_from(it).ok())
                .ok_or_else(|| UsageError(format!("{place}: max_priority = {value} is no whole number")))?,
        ),
    };
    let requests_per_s = match count(table, "requests_per_s", place)? {
        Some(0) => return Err(UsageError(format!("{place}: requests_per_s is 1 at least"))),
        given => given,
    };
    Ok(UserQuota {
        limits: limits(table, &known, place)?,
        stored_bytes: size(table, "stored", place)?,
        log_bytes: size(table, "logs", place)?,
        requests_per_s,
        max_priority,
    })
}

fn of_tag(table: &toml::Table, place: &str) -> Result<TagQuota, UsageError> {
    if let Some(name) = OF_USERS.into_iter().find(|name| table.contains_key(*name)) {
        return Err(UsageError(format!(
            "{place}: {name} is for users alone: it is a key that asks, and a request has no tags; leave it out, or set it in \
             [quota.\"user:NAME\"] or [quota.default]"
        )));
    }
    let known = Vec::from_iter(OF_JOBS.into_iter().chain(OF_SPACE));
    Ok(TagQuota {
        limits: limits(table, &known, place)?,
        stored_bytes: size(table, "stored", place)?,
        log_bytes: size(table, "logs", place)?,
    })
}

fn size(table: &toml::Table, name: &str, place: &str) -> Result<Option<u64>, UsageError> {
    let Some(value) = table.get(name) else { return Ok(None) };
    match value.as_str().and_then(bytes) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(UsageError(format!("{place}: {name} = {value} is no size: give one such as \"20GiB\""))),
    }
}

fn limits(table: &toml::Table, known: &[&str], place: &str) -> Result<Limits, UsageError> {
    if let Some(unknown) = table.keys().find(|name| !known.contains(&name.as_str())) {
        let all = known.join(", ");
        return Err(UsageError(format!("{place}: there is no {unknown:?} in such a quota; there are: {all}")));
    }
    Ok(Limits {
        instances: count(table, "instances", place)?,
        gpus: count(table, "gpus", place)?,
        jobs: count(table, "jobs", place)?,
    })
}

fn count(table: &toml::Table, name: &str, place: &str) -> Result<Option<u32>, UsageError> {
    let Some(value) = table.get(name) else { return Ok(None) };
    match value.as_integer().and_then(|number| u32::try_from(number).ok()) {
        Some(number) => Ok(Some(number)),
        None => Err(UsageError(format!("{place}: {name} = {value} is not a number, at least 0"))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(file: &str) -> Result<QuotaOptions> {
        let flags = [("data_dir".to_owned(), "/data".to_owned())].into();
        let read = |path: &Path| Ok((path == Path::new("/data/shoal.toml")).then(|| file.to_owned()));
        quotas(&Typed::gather(&flags, &|_| None, &read)?)
    }

    #[test]
    fn each_table_is_a_quota() {
        let options = read(
            "fair_share_half_life = \"12h\"\n[quota.\"user:anna\"]\ninstances = 4\ngpus = 0\nstored = \"2GiB\"\n\
             max_priority = -1\n[quota.\"tag:team=vision\"]\njobs = 3\nlogs = \"2MiB\"\nstored = \"1GiB\"\n[quota.default]\nrequests_per_s = 50\nlogs = \"1MiB\"\n",
        )
        .unwrap();
        assert_eq!(options.half_life_s, Some(12 * 3600));
        let anna = options.users["anna"];
        assert_eq!(anna.limits, Limits { instances: Some(4), gpus: Some(0), jobs: None });
        assert_eq!((anna.stored_bytes, anna.max_priority), (Some(2 << 30), Some(-1)));
        let vision = options.tags["team=vision"];
        assert_eq!(
            (vision.limits.jobs, vision.log_bytes, vision.stored_bytes),
            (Some(3), Some(2 << 20), Some(1 << 30))
        );
        assert_eq!((options.default.requests_per_s, options.default.log_bytes), (Some(50), Some(1 << 20)));
        assert_eq!(read("").unwrap().half_life_s, Some(7 * 24 * 3600));
        assert_eq!(read("fair_share_half_life = \"none\"\n").unwrap().half_life_s, None);
    }

    #[test]
    fn what_is_no_quota_is_explained() {
        for (file, expected) in [
            ("[quota.anna]\n", "[quota.\"anna\"] (file /data/shoal.toml): a quota's name is "),
            ("[quota.\"tag:vision\"]\n", "a quota's name is "),
            ("[quota.\"tag:a=b\"]\nrequests_per_s = 5\n", "requests_per_s is for users alone: it is a key that asks"),
            ("[quota.\"tag:a=b\"]\nlogs = 5\n", "logs = 5 is no size"),
            ("[quota.default]\ncores = 1\n", "there is no \"cores\" in such a quota"),
            ("[quota.default]\njobs = -1\n", "jobs = -1 is not a number"),
            ("[quota.default]\nstored = 5\n", "stored = 5 is no size"),
            ("[quota.default]\nrequests_per_s = 0\n", "requests_per_s is 1 at least"),
            ("[quota.\"user:owner\"]\nstored = \"1GiB\"\n", "the owner of the server writes everywhere"),
            ("fair_share_half_life = \"soon\"\n", "`none` or a time such as 12h or 7d"),
            ("quota = 5\n", "quotas are tables"),
        ] {
            let error = format!("{:#}", read(file).unwrap_err());
            assert!(error.contains(expected), "{file}: {error}");
        }
    }
}
