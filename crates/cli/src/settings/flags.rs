//! The settings as flags of commands, made from the one list.

use std::{collections::BTreeMap, env, fs, io, path::Path};

use anyhow::Result;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::{Settings, Typed, declared::SETTINGS};

/// Every setting: for commands that start or describe a server.
pub type ServerFlags = Flags<false>;

/// The settings that a client needs to find a server and to speak with it.
pub(crate) type ClientFlags = Flags<true>;

/// Setting's name and what was typed behind its flag.
#[derive(Debug, Clone, Default)]
pub struct Flags<const CLIENTS_ONLY: bool>(BTreeMap<String, String>);

impl<const CLIENTS_ONLY: bool> Flags<CLIENTS_ONLY> {
    /// What was typed, here and in every other place.
    pub(crate) fn typed(&self) -> Result<Typed> {
        Typed::gather(&self.0, &|name| env::var(name).ok(), &|path: &Path| match fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// What it means.
    pub fn settings(&self) -> Result<Settings> {
        Settings::of(&self.typed()?)
    }

    /// Whether the user named a server on the command line; then it goes before the environment's
    /// endpoint.
    pub(crate) fn name_a_server(&self) -> bool {
        self.0.contains_key("data_dir") || self.0.contains_key("listen")
    }
}

impl<const CLIENTS_ONLY: bool> FromArgMatches for Flags<CLIENTS_ONLY> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = |name: &str| matches.try_get_one::<String>(name).ok().flatten().cloned();
        Ok(Self(SETTINGS.iter().filter_map(|setting| Some((setting.name.to_owned(), typed(setting.name)?))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

impl<const CLIENTS_ONLY: bool> Args for Flags<CLIENTS_ONLY> {
    fn augment_args(command: Command) -> Command {
        SETTINGS.iter().filter(|setting| setting.client || !CLIENTS_ONLY).fold(command, |command, setting| {
            let arg = Arg::new(setting.name)
                .long(setting.name.replace('_', "-"))
                .value_name(setting.value)
                .help(format!("{} [env: SHOAL_{}]", setting.help, setting.name.to_uppercase()))
                .help_heading("Settings (see `shoal config`)");
            command.arg(if setting.is_switch {
                arg.num_args(0..=1).require_equals(true).default_missing_value("true")
            } else {
                arg
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
