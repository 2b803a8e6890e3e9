//! As whom jobs are submitted.

use std::collections::BTreeMap;

use shoal_launch::{RestOptions, RestToken, SlurmUsers};

use super::command;
use crate::exit::UsageError;

/// What belongs to it.
pub(super) const MEMBERS: [&str; 2] = ["submit_as", "users"];

const SUDO: &str = "[\"sudo\", \"-n\", \"-u\", \"{user}\", \"--\"]";
const TOKEN: &str = "[\"scontrol\", \"token\", \"username={user}\", \"lifespan=3600\"]";

/// None: all are the server's user's, or the token's.
pub(super) fn users(
    table: &toml::Table,
    place: &str,
    rest: Option<&RestOptions>,
) -> Result<Option<SlurmUsers>, UsageError> {
    let wrong = |problem: &str| Err(UsageError(format!("{place}: {problem}")));
    let submit_as = command(table, "submit_as", place, SUDO)?;
    let has_tokens = rest.is_some_and(|it| matches!(&it.token, Some(RestToken::Command(it)) if SlurmUsers::is_in(it)));
    if submit_as.as_ref().is_some_and(|words| !SlurmUsers::is_in(words)) {
        return wrong(&format!("submit_as has no {{user}} in it, the user whose job it is: {SUDO}"));
    }
    match rest {
        Some(_) if submit_as.is_some() && !has_tokens => {
            return wrong(&format!(
                "with rest, jobs are those of the token's user: give token_command = {TOKEN}, or remove submit_as or rest"
            ));
        }
        Some(RestOptions { user: None, .. }) if has_tokens => {
            return wrong(
                "token_command has {user} in it: give user, too, whose token is used for the owner's own jobs and for \
                 listing all jobs",
            );
        }
        _ => {}
    }
    if submit_as.is_none() && !has_tokens {
        return match table.contains_key("users") {
            true => wrong(&format!("users is of no use without submit_as = {SUDO}")),
            false => Ok(None),
        };
    }
    for name in ["cache", "shared"] {
        if table.get(name).and_then(toml::Value::as_str).is_some_and(|path| !path.contains("{user}")) {
            return wrong(&format!(
                "{name} is one directory for all users, who must not write to each other's: put {{user}} into it, such \
                 as {name} = \"/scratch/{{user}}\""
            ));
        }
    }
    Ok(Some(SlurmUsers { submit_as: submit_as.unwrap_or_default(), names: names(table, place)? }))
}

/// The users of keys that are called differently on the cluster.
fn names(table: &toml::Table, place: &str) -> Result<BTreeMap<String, String>, UsageError> {
    let Some(value) = table.get("users") else { return Ok(BTreeMap::new()) };
    let example = "users = { anna = \"asmith\" }";
    let names = value.as_table().ok_or_else(|| UsageError(format!("{place}: users is a table: {example}")))?;
    let read = names.iter().map(|(key, value)| match value.as_str().filter(|name| SlurmUsers::is_name(name)) {
        Some(name) => Ok((key.clone(), name.to_owned())),
        None => Err(UsageError(format!("{place}: users.{key} = {value} is not the name of a user: {example}"))),
    });
    read.collect()
}
