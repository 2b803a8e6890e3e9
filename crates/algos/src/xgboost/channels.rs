//! The channels of the job: which there may be, of what format they are, and what this host finds
//! in them.

use std::path::{Path, PathBuf};

use super::data::{ContentType, CsvOptions, DataError, Files, Format, Source};
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

/// Reads what [`Rows::read`] will want, so that it finds it done: see
/// [`crate::Algorithm::prepare`]. `each_time` gets the sources if all channels have rows.
pub(super) fn prepare(instance: &Instance, format: Format, each_time: impl FnOnce(&mut [&mut Source])) {
    let names = ["train", "validation"].into_iter().filter(|name| instance.job.channels.contains_key(*name));
    let paths: Vec<PathBuf> = names.map(|name| instance.paths.channel(name)).collect();
    for path in &paths {
        if !prepared::has(path, format)
            && let Ok(Some(source)) = scan(path, format)
        {
            prepared::put(path.clone(), format, source);
        }
    }
    prepared::with(&paths, format, each_time);
}

/// `None` if there are no rows.
fn scan(path: &Path, format: Format) -> Result<Option<Source>, DataError> {
    let files = Files::list(path)?;
    if files.is_empty() { Ok(None) } else { Source::scan(files, format) }
}

/// Channels that were read before a training asked for them. Their files never change: they are
/// stored objects.
mod prepared {
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::{Format, Source};

    static SOURCES: Mutex<Vec<(PathBuf, Format, Source)>> = Mutex::new(Vec::new());

    fn sources() -> MutexGuard<'static, Vec<(PathBuf, Format, Source)>> {
        SOURCES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(path: &Path, format: Format) -> bool {
        sources().iter().any(|(of, as_what, _)| of == path && *as_what == format)
    }

    pub(super) fn put(path: PathBuf, format: Format, source: Source) {
        sources().push((path, format, source));
    }

    /// All of these, in this order.
    pub(super) fn with(paths: &[PathBuf], format: Format, look: impl FnOnce(&mut [&mut Source])) {
        let mut all = sources();
        let mut found: Vec<(usize, &mut Source)> = all
            .iter_mut()
            .filter(|(_, as_what, _)| *as_what == format)
            .filter_map(|(of, _, source)| Some((paths.iter().position(|path| path == of)?, source)))
            .collect();
        if found.len() == paths.len() {
            found.sort_unstable_by_key(|(place, _)| *place);
            look(&mut found.into_iter().map(|(_, source)| source).collect::<Vec<_>>());
        }
    }

    /// A forked process takes its own copy.
    pub(super) fn take(path: &Path, format: Format) -> Option<Source> {
        let mut sources = sources();
        let index = sources.iter().position(|(of, as_what, _)| of == path && *as_what == format)?;
        Some(sources.swap_remove(index).2)
    }
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
    pub(super) fn read(
        instance: &Instance,
        hyperparameters: &Hyperparameters,
        format: Format,
    ) -> Result<Self, Failure> {
        let paths = ["train", "validation"].map(|name| instance.paths.channel(name));
        let validates = instance.job.channels.contains_key("validation");
        let read = |path: &Path| match prepared::take(path, format) {
            Some(source) => Ok(Some(source)),
            None => scan(path, format),
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
        let no_data =
            |channel: &str, path: &Path| Failure::User(format!("No data in {channel} channel path {}", path.display()));
        match (self.train, self.validation) {
            (None, _) => Err(no_data("training", &self.paths[0])),
            (Some(_), None) if self.validates => Err(no_data("validation", &self.paths[1])),
            (Some(train), validation) => Ok((train, validation)),
        }
    }
}
