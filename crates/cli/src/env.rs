//! `shoal env`: what to set so that AWS clients speak with this server.

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use crate::{
    client_env::{Variable, prepare},
    exit::Exit,
    output::{show, show_json},
    settings::{ClientFlags, ServerUrl},
};

/// Arguments of `shoal env`.
#[derive(Debug, Args)]
pub(crate) struct EnvArgs {
    /// Syntax of the shell that evaluates the output.
    #[arg(long, value_enum, default_value_t)]
    shell: Shell,
    /// One JSON object; null for variables that must not be set.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// A shell's syntax.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Shell {
    /// sh, bash, zsh, dash.
    #[default]
    #[value(aliases = ["bash", "zsh", "dash"])]
    Sh,
    /// fish.
    Fish,
}

/// Prints the variables. Where there are none, prints what fails: `eval` must not go on with
/// whatever account the shell had before.
pub(crate) fn run(args: &EnvArgs) -> Result<Exit> {
    let shown = print(args);
    if shown.is_err() && !args.json {
        show("false\n")?;
    }
    shown
}

/// For a person whose clients would only say that a connection was refused.
pub(crate) fn no_server(url: &ServerUrl) -> String {
    format!("shoal: no server answers at {url} now; start one with `shoal serve`")
}

fn print(args: &EnvArgs) -> Result<Exit> {
    let settings = args.settings.settings()?;
    let variables = prepare(&settings)?;
    let url = settings.url();
    if !url.answers() {
        eprintln!("{}", no_server(&url));
    }
    if args.json {
        let object: Map<_, _> =
            variables.into_iter().map(|(name, value)| (name, value.map_or(Value::Null, Value::String))).collect();
        show_json(&Value::Object(object))?;
    } else {
        show(&variables.iter().map(|variable| statement(variable, args.shell)).collect::<String>())?;
    }
    Ok(Exit::Ok)
}

fn statement((name, value): &Variable, shell: Shell) -> String {
    match (value, shell) {
        (Some(value), Shell::Sh) => format!("export {name}='{}'\n", value.replace('\'', "'\\''")),
        (None, Shell::Sh) => format!("unset {name}\n"),
        (Some(value), Shell::Fish) => {
            format!("set -gx {name} '{}'\n", value.replace('\\', "\\\\").replace('\'', "\\'"))
        }
        (None, Shell::Fish) => format!("set -e {name}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted() {
        let variable = ("A".to_owned(), Some("it's \\".to_owned()));
        assert_eq!(statement(&variable, Shell::Sh), "export A='it'\\''s \\'\n");
        assert_eq!(statement(&variable, Shell::Fish), "set -gx A 'it\\'s \\\\'\n");
        assert_eq!(statement(&("A".to_owned(), None), Shell::Sh), "unset A\n");
    }
}
