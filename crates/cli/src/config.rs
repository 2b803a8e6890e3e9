//! `shoal config`: every setting, its value, and where it comes from.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use crate::{
    exit::Exit,
    output::{show, show_json, table},
    settings::{ServerFlags, Settings},
};

/// Arguments of `shoal config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// An object of objects: `{"listen": {"value": .., "origin": ..}, ..}`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ServerFlags,
}

/// Prints the settings, and then complains about those that make no sense.
pub(crate) fn run(args: &ConfigArgs) -> Result<Exit> {
    let typed = args.settings.typed()?;
    if args.json {
        let entry = |(name, value, origin): (&str, &str, &crate::settings::Origin)| {
            (name.to_owned(), json!({"value": value, "origin": origin.to_string()}))
        };
        show_json(&Value::Object(typed.iter().map(entry).collect()))?;
    } else {
        let mut rows = vec![["SETTING", "VALUE", "FROM"].map(str::to_owned).to_vec()];
        rows.extend(typed.iter().map(|(name, value, origin)| vec![name.to_owned(), value.to_owned(), origin.to_string()]));
        show(&table(&rows))?;
    }
    Settings::of(&typed)?;
    Ok(Exit::Ok)
}
