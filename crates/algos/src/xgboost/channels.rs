//! The channels of the job: which there may be, of what format they are, and what this host finds in them.

use std::path::{Path, PathBuf};

use super::data::{ContentType, CsvOptions, Files, Format, Source};
use super::failure::Failure;
use super::hyperparameters::Hyperparameters;
use super::instance::Instance;
use super::{labels, log};

/// Checks the channels as the image does; the train channel's content type holds for both.
pub(super) fn check(instance: &Instance, hyperparameters: &Hyperparameters) -> Result<Format, Failure> {
    let channels = &instance.job.channels;
    let Some(train) = channels.get("train") else {
        return Err(Failure::User("Missing required channel: train".to_owned()));
    };
    for (name, channel) in channels {
        if !matches!(name.as_str(), "train" | "validation" | "code") {
            return Err(Failure::User(format!("Extraneous channel found: {name}")));
        }
        if channel.training_input_mode.as_deref() == Some("Pipe") {
            return Err(Failure::User(format!("Pipe mode is not supported for channel {name}: use File mode")));
        }
    }
    Ok(match ContentType::parse(train.content_type.as_deref())? {
        ContentType::Csv => Format::Csv(CsvOptions { weights: hyperparameters.csv_weights }),
        ContentType::Libsvm => Format::Libsvm,
    })
}

/// What this host's channels hold.
pub(super) struct Rows {
    pub(super) train: Option<Source>,
    pub(super) validation: Option<Source>,
    /// The job has a validation channel.
    validates: bool,
    /// Where the rows should be.
    paths: [PathBuf; 2],
}

impl Rows {
    /// Reads every line of both channels.
    pub(super) fn read(instance: &Instance, hyperparameters: &Hyperparameters, format: Format) -> Result<Self, Failure> {
        let paths = ["train", "validation"].map(|name| instance.paths.channel(name));
        let validates = instance.job.channels.contains_key("validation");
        let read = |path: &Path| {
            let files = Files::list(path)?;
            if files.is_empty() { Ok(None) } else { Source::scan(files, format) }
        };
        let train = read(&paths[0])?;
        let validation = if validates { read(&paths[1])? } else { None };
        if let (Some(train), Some(validation), Format::Csv(_)) = (&train, &validation, format)
            && train.columns() != validation.columns()
        {
            return Err(Failure::User(format!(
                "the rows of the validation channel have {} features, those of the train channel have {}",
                validation.columns(),
                train.columns()
            )));
        }
        for (channel, source) in [("train", &train), ("validation", &validation)] {
            source.as_ref().map_or(Ok(()), |source| labels::check(channel, source, hyperparameters))?;
        }
        if let Some(train) = &train {
            log::info(&format!("Train matrix has {} rows and {} columns", train.rows(), train.columns()));
        }
        if let Some(validation) = &validation {
            log::info(&format!("Validation matrix has {} rows", validation.rows()));
        }
        Ok(Self { train, validation, validates, paths })
    }

    /// The name of a channel of the job without rows on this host.
    pub(super) fn missing(&self) -> Option<&'static str> {
        match (&self.train, &self.validation) {
            (None, _) => Some("training"),
            (_, None) if self.validates => Some("validation"),
            _ => None,
        }
    }

    /// Both channels, if every channel of the job has rows.
    pub(super) fn complete(self) -> Result<(Source, Option<Source>), Failure> {
        let no_data = |channel: &str, path: &Path| Failure::User(format!("No data in {channel} channel path {}", path.display()));
        match (self.train, self.validation) {
            (None, _) => Err(no_data("training", &self.paths[0])),
            (Some(_), None) if self.validates => Err(no_data("validation", &self.paths[1])),
            (Some(train), validation) => Ok((train, validation)),
        }
    }
}
