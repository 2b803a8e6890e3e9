//! What of `InputDataConfig` depends on what is stored, on the image and on the file systems that
//! the owner allows.

use std::collections::BTreeMap;

use shoal_store::{ObjectMeta, Objects, StoreError, check_tree};
use shoal_wire::{Channel, ChannelSource, CreateTrainingJob, Error, InputMode, RecordWrapper, S3DataType, S3Source};

use super::internal;
use crate::{
    Image,
    channels::{ChannelError, MayRead, Streamed, objects_of, streamed_of},
    file_systems::FileSystems,
};

/// The header of a RecordIO record has 29 bits for its length.
const MOST_RECORD: u64 = (1 << 29) - 1;

/// What channels are checked against.
pub(super) struct Inputs<'a> {
    pub(super) objects: &'a Objects,
    pub(super) file_systems: &'a FileSystems,
    pub(super) region: &'a str,
    /// What the job's creator may read.
    pub(super) may_read: &'a MayRead,
    /// The compute target that the instances are on, if they are on one.
    pub(super) target: Option<&'a str>,
}

impl Inputs<'_> {
    pub(super) fn check(&self, request: &CreateTrainingJob, image: &Image) -> Result<(), Error> {
        for (index, channel) in (1..).zip(&request.channels) {
            let path = format!("inputDataConfig.{index}");
            if let Image::Builtin(algorithm) = image {
                of_builtin(channel, &path, &algorithm.name)?;
            }
            match &channel.source {
                ChannelSource::FileSystem { file_system } => {
                    let field = format!("{path}.dataSource.fileSystemDataSource");
                    self.file_systems.directory(file_system, self.target).map_err(|why| invalid(&field, &why))?;
                }
                ChannelSource::S3(source) if mode_of(channel, image) == InputMode::Pipe => {
                    self.pipe(channel, source, &path, &request.role_arn)?;
                }
                ChannelSource::S3(source) => self.files(channel, source, &path, &request.role_arn)?,
            }
        }
        Ok(())
    }

    fn pipe(&self, channel: &Channel, source: &S3Source, path: &str, role: &str) -> Result<(), Error> {
        let streamed = self.found(streamed_of(self.objects, source, self.may_read, &|| false), path)?;
        if streamed.is_empty() {
            return Err(self.empty(channel, source, path, role));
        }
        let objects = streamed.iter().filter_map(|it| match it {
            Streamed::Object(_, meta) => Some(&**meta),
            Streamed::Text(_) => None,
        });
        let by_id = Vec::from_iter(objects.clone().map(|meta| (meta.id.as_str(), meta)));
        // One object may be streamed many times.
        let by_id = Vec::from_iter(BTreeMap::from_iter(by_id));
        Self::tree(channel, source, path, &by_id)?;
        if channel.record_wrapper != RecordWrapper::RecordIO || channel.is_gzip {
            return Ok(());
        }
        match objects.into_iter().find(|meta| meta.size > MOST_RECORD) {
            None => Ok(()),
            Some(ObjectMeta { key, size, .. }) => Err(invalid(
                &format!("{path}.recordWrapperType"),
                &format!(
                    "the object {key} has {size} bytes, and a RecordIO record has at most {MOST_RECORD}; store it in \
                     parts, or as RecordIO already"
                ),
            )),
        }
    }

    fn files(&self, channel: &Channel, source: &S3Source, path: &str, role: &str) -> Result<(), Error> {
        let objects = self.found(objects_of(self.objects, source, self.may_read, &|| false), path)?;
        if objects.is_empty() {
            return Err(self.empty(channel, source, path, role));
        }
        let entries: Vec<_> = objects.iter().map(|(path, meta)| (path.as_str(), meta)).collect();
        Self::tree(channel, source, path, &entries)
    }

    /// All of them can be one tree.
    fn tree(channel: &Channel, source: &S3Source, path: &str, entries: &[(&str, &ObjectMeta)]) -> Result<(), Error> {
        check_tree(entries).map_err(|error| {
            Error::validation(format!(
                "{path}.dataSource.s3DataSource.s3Uri: below {} {error} (channel \"{}\")",
                source.uri, channel.name
            ))
        })
    }

    fn found<T>(&self, found: Result<Vec<T>, ChannelError>, path: &str) -> Result<Vec<T>, Error> {
        match found {
            Ok(found) => Ok(found),
            Err(error) if error.is_absent() => Ok(Vec::new()),
            // A manifest that jobs cannot read.
            Err(ChannelError::Store(StoreError::Key(error))) => {
                Err(Error::validation(format!("{path}.dataSource.s3DataSource.s3Uri: {error}")))
            }
            Err(ChannelError::Store(error)) => Err(internal(&error)),
            Err(error) => Err(Error::validation(format!("{path}.dataSource.s3DataSource.s3Uri: {error}"))),
        }
    }

    fn empty(&self, channel: &Channel, source: &S3Source, path: &str, role: &str) -> Error {
        Error::validation(format!(
            "No S3 objects found under S3 URL \"{}\" given in input data source ({path}, channel \"{}\"). Please \
             ensure that the bucket exists in the selected region ({}), that objects exist under that S3 prefix, and \
             that the role \"{role}\" has \"s3:ListBucket\" permissions on bucket \"{}\".",
            source.uri, channel.name, self.region, source.uri.bucket,
        ))
    }
}

/// How a channel comes. Built-in algorithms read all of their files when they start: what pipes
/// would bring are files for them, too.
pub(crate) fn mode_of(channel: &Channel, image: &Image) -> InputMode {
    match image {
        Image::Builtin(_) => InputMode::File,
        Image::Python(_) | Image::Root(_) | Image::Host => channel.input_mode,
    }
}

/// A built-in algorithm does not decompress, and reads no records of augmented manifests.
fn of_builtin(channel: &Channel, path: &str, algorithm: &str) -> Result<(), Error> {
    let refuse = |member: &str, why: &str| {
        Err(invalid(&format!("{path}.{member}"), &format!("{algorithm} reads text files here: {why}")))
    };
    if channel.is_gzip {
        return refuse("compressionType", "decompress the objects, and set None");
    }
    if channel.record_wrapper == RecordWrapper::RecordIO {
        return refuse("recordWrapperType", "leave RecordIO out");
    }
    if channel.s3().is_some_and(|source| source.data_type == S3DataType::AugmentedManifestFile) {
        return refuse("dataSource.s3DataSource.s3DataType", "use S3Prefix or ManifestFile");
    }
    Ok(())
}

fn invalid(path: &str, why: &str) -> Error {
    Error::validation(format!("Invalid value at '{path}': {why}."))
}
