//! `shoal keys`: the keys of a team.

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use shoal_wire::{ADD_KEY, KeyRole, LIST_KEYS, REMOVE_KEY, ROTATE_KEY, timestamp};

use crate::{
    client::Client,
    exit::Exit,
    output::{show, show_json, table},
    settings::ClientFlags,
};

/// Subcommands of `shoal keys`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key for a person or program, and print it: the only time that its secret is shown.
    Add(AddArgs),
    /// Show all keys, without their secrets.
    List(ListArgs),
    /// Replace a key by a new one, and print that: the old one opens nothing from now on.
    Rotate(NamedArgs),
    /// Remove a key: it opens nothing from now on. Jobs that were created with it stay.
    Remove(NamedArgs),
}

/// What a key may do.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    /// Everything.
    Owner,
    /// See and change what was created with the key.
    User,
    /// See everything and change nothing.
    Reader,
}

impl From<Role> for KeyRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Owner => Self::Owner,
            Role::User => Self::User,
            Role::Reader => Self::Reader,
        }
    }
}

/// Arguments of `shoal keys add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Whose it is: 1 to 64 letters, digits and +=,.@-_.
    name: String,
    /// What it may do.
    #[arg(long, value_enum)]
    role: Role,
    /// A user may read this of S3 in addition to what may be written; several times for several
    /// places. Without it, everything.
    #[arg(long, value_name = "S3_URI")]
    read: Vec<String>,
    /// A user may write here; several times for several places [default:
    /// s3://DEFAULT_BUCKET/NAME/].
    #[arg(long, value_name = "S3_URI")]
    write: Vec<String>,
    /// Shoal.AddKey's answer as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Arguments of `shoal keys list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Shoal.ListKeys' answer as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Arguments of `shoal keys rotate` and `shoal keys remove`.
#[derive(Debug, Args)]
pub(crate) struct NamedArgs {
    /// Name of the key.
    name: String,
    /// The answer as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Does it.
pub(crate) fn run(command: &KeysCommand) -> Result<Exit> {
    match command {
        KeysCommand::Add(args) => {
            let mut input = json!({"Name": args.name, "Role": KeyRole::from(args.role).name()});
            for (member, places) in [("Read", &args.read), ("Write", &args.write)] {
                if !places.is_empty() {
                    input[member] = json!(places);
                }
            }
            let key = Client::connect(&args.settings)?.sagemaker(ADD_KEY, &input)?;
            args.read
                .iter()
                .chain(&args.write)
                .filter_map(|place| note_on_prefix(place))
                .for_each(|note| eprintln!("{note}"));
            show_key(&key, args.json)
        }
        KeysCommand::List(args) => {
            let answer = Client::connect(&args.settings)?.sagemaker(LIST_KEYS, &json!({}))?;
            if args.json {
                show_json(&answer)?;
            } else {
                show(&text(&answer))?;
            }
            Ok(Exit::Ok)
        }
        KeysCommand::Rotate(args) => {
            let key = Client::connect(&args.settings)?.sagemaker(ROTATE_KEY, &json!({"Name": args.name}))?;
            show_key(&key, args.json)
        }
        KeysCommand::Remove(args) => {
            let answer = Client::connect(&args.settings)?.sagemaker(REMOVE_KEY, &json!({"Name": args.name}))?;
            if args.json {
                show_json(&answer)?;
            }
            Ok(Exit::Ok)
        }
    }
}

/// A note on a place that opens more than a folder.
fn note_on_prefix(place: &str) -> Option<String> {
    let (bucket, prefix) = place.strip_prefix("s3://")?.split_once('/')?;
    (!prefix.is_empty() && !prefix.ends_with('/')).then(|| {
        format!(
            "note: {place} is a prefix of keys and opens s3://{bucket}/{prefix}-2/ as well; for that folder alone write \
             {place}/"
        )
    })
}

/// A new key, as the file `keys` of a data directory has one.
fn show_key(key: &Value, as_json: bool) -> Result<Exit> {
    let text = |member: &str| key[member].as_str().unwrap_or_default();
    if as_json {
        show_json(key)?;
    } else {
        let (id, secret) = (text("AccessKeyId"), text("SecretAccessKey"));
        show(&format!("access_key_id={id}\nsecret_access_key={secret}\n"))?;
    }
    Ok(Exit::Ok)
}

fn text(answer: &Value) -> String {
    let mut rows = vec![["NAME", "ROLE", "KEY", "MADE", "READS", "WRITES"].map(str::to_owned).to_vec()];
    rows.extend(answer["Keys"].as_array().into_iter().flatten().map(row));
    table(&rows)
}

fn row(key: &Value) -> Vec<String> {
    let text = |member: &str| key[member].as_str().unwrap_or_default().to_owned();
    let places = |member: &str| match key[member].as_array() {
        None => "all".to_owned(),
        Some(places) if places.is_empty() => "-".to_owned(),
        Some(places) => places.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
    };
    let made = match timestamp::from_seconds(key["RotationTime"].as_f64().unwrap_or_default()) {
        0 => "-".to_owned(),
        ms => timestamp::iso8601(ms),
    };
    vec![text("Name"), text("Role"), text("AccessKeyId"), made, places("Read"), places("Write")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_without_a_slash_in_the_end_has_a_note() {
        assert!(note_on_prefix("s3://b/ann").is_some_and(|note| note.ends_with("write s3://b/ann/")));
        assert_eq!(["s3://b", "s3://b/", "s3://b/ann/"].map(note_on_prefix), [None, None, None]);
    }

    #[test]
    fn a_list_shows_what_keys_open() {
        let answer = json!({"Keys": [
            {"Name": "owner", "Role": "owner", "AccessKeyId": "AKIA0", "Read": null, "Write": null, "RotationTime": 0},
            {"Name": "anna", "Role": "user", "AccessKeyId": "AKIA1", "Read": null, "Write": ["s3://b/anna/"],
                "RotationTime": 1_700_000_000.0},
            {"Name": "rita", "Role": "reader", "AccessKeyId": "AKIA2", "Read": null, "Write": [],
                "RotationTime": 1_700_000_000.0}]});
        let shown = text(&answer);
        let lines: Vec<Vec<_>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["owner", "owner", "AKIA0", "-", "all", "all"]);
        assert_eq!(lines[2], ["anna", "user", "AKIA1", "2023-11-14T22:13:20Z", "all", "s3://b/anna/"]);
        assert_eq!(lines[3], ["rita", "reader", "AKIA2", "2023-11-14T22:13:20Z", "all", "-"]);
    }
}
