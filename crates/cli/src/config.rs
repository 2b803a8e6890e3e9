//! `shoal config`: every setting, its value, and where it comes from; and where the server listens
//! that runs with them.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use shoal_plane::Node;

use crate::{
    exit::Exit,
    output::{show, show_json, table},
    settings::{ServerFlags, Settings, size_of},
};

/// Arguments of `shoal config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// An object of objects: `{"listen": {"value": .., "origin": ..}, ..}`; `server` is the URL of
    /// the one that runs, or null.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ServerFlags,
}

/// Prints the settings, and then complains about those that make no sense.
pub(crate) fn run(args: &ConfigArgs) -> Result<Exit> {
    let typed = args.settings.typed()?;
    let settings = Settings::of(&typed);
    let running = settings.as_ref().ok().and_then(Settings::running).map(|url| url.to_string());
    let state = if running.is_some() { "running" } else { "not running; `shoal serve` starts it" };
    if args.json {
        let entry = |(name, value, origin): (&str, &str, &crate::settings::Origin)| {
            (name.to_owned(), json!({"value": value, "origin": origin.to_string()}))
        };
        let server = ("server".to_owned(), json!({"value": running, "origin": state}));
        show_json(&Value::Object(typed.iter().map(entry).chain([server]).collect()))?;
    } else {
        let mut rows = vec![["SETTING", "VALUE", "FROM"].map(str::to_owned).to_vec()];
        rows.extend(
            typed.iter().map(|(name, value, origin)| vec![name.to_owned(), value.to_owned(), origin.to_string()]),
        );
        let nodes = typed.nodes().zip(settings.as_ref().ok());
        rows.extend(nodes.iter().flat_map(|((origin, _), settings)| {
            let of_node = |node: &Node| format!("{}: {}", node.name, size_of(std::slice::from_ref(node)));
            settings.nodes.iter().map(move |node| vec!["[[node]]".to_owned(), of_node(node), origin.to_string()])
        }));
        rows.push(vec!["(server)".to_owned(), running.unwrap_or_else(|| "-".to_owned()), state.to_owned()]);
        show(&table(&rows))?;
    }
    settings?;
    Ok(Exit::Ok)
}
