//! Rules of `InputDataConfig`.

use std::collections::BTreeSet;

use crate::{
    Channel, ChannelSource, Error, FileSystemSource, InputMode, RecordWrapper, S3DataType, S3Source,
    refusal::{refuse, s3_uri},
    training_job::request,
};

/// The instance groups that channels are for, with the paths that name them.
pub(super) fn named_groups(channels: &[request::Channel]) -> Vec<(String, String)> {
    let mut groups = Vec::new();
    for (at, channel) in channels.iter().enumerate() {
        let path = format!("inputDataConfig.{}.member.dataSource.s3DataSource.instanceGroupNames", at + 1);
        let names = channel.data_source.s3_data_source.iter().flat_map(|source| &source.instance_group_names);
        groups.extend(names.map(|name| (path.clone(), name.clone())));
    }
    groups
}

pub(super) fn channels(channels: Vec<request::Channel>, default_mode: InputMode) -> Result<Vec<Channel>, Error> {
    let mut names = BTreeSet::new();
    let mut checked = Vec::with_capacity(channels.len());
    for (at, channel) in channels.into_iter().enumerate() {
        let path = format!("inputDataConfig.{}.member", at + 1);
        if !names.insert(channel.channel_name.clone()) {
            return refuse(
                &format!("{path}.channelName"),
                &format!("the channel '{}' is there twice", channel.channel_name),
            );
        }
        if matches!(channel.channel_name.as_str(), "." | "..") {
            return refuse(&format!("{path}.channelName"), "a channel is a directory and cannot have this name");
        }
        checked.push(self::channel(channel, &path, default_mode)?);
    }
    refuse_names_of_pipes(&checked)?;
    Ok(checked)
}

/// The pipes of a channel are `NAME_0`, `NAME_1`, .., beside the directories of others.
fn refuse_names_of_pipes(channels: &[Channel]) -> Result<(), Error> {
    for pipe in channels.iter().filter(|channel| channel.input_mode == InputMode::Pipe) {
        let is_pipe = |name: &str| {
            let epoch = name.strip_prefix(&*pipe.name).and_then(|rest| rest.strip_prefix('_'));
            epoch.is_some_and(|epoch| !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_digit()))
        };
        if let Some(at) = channels.iter().position(|channel| is_pipe(&channel.name)) {
            return refuse(
                &format!("inputDataConfig.{}.member.channelName", at + 1),
                &format!("{} is the name of a pipe of the channel {}; give another name", channels[at].name, pipe.name),
            );
        }
    }
    Ok(())
}

fn channel(channel: request::Channel, path: &str, default_mode: InputMode) -> Result<Channel, Error> {
    let input_mode = channel.input_mode.unwrap_or(default_mode);
    let is_gzip = channel.compression_type.as_deref() == Some("Gzip");
    if input_mode != InputMode::Pipe && is_gzip {
        return refuse(
            &format!("{path}.compressionType"),
            &format!(
                "invalid compression type for channel {}: File mode only supports None; use Pipe mode, or let the \
                 program decompress",
                channel.channel_name
            ),
        );
    }
    if input_mode != InputMode::Pipe && channel.record_wrapper_type == RecordWrapper::RecordIO {
        return refuse(
            &format!("{path}.recordWrapperType"),
            "RecordIO is for Pipe mode only; leave it out and store the data as the program reads it",
        );
    }
    Ok(Channel {
        source: source(channel.data_source, &format!("{path}.dataSource"), input_mode)?,
        name: channel.channel_name,
        content_type: channel.content_type,
        record_wrapper: channel.record_wrapper_type,
        is_gzip,
        input_mode,
        shuffle_seed: channel.shuffle_config.map(|shuffle| shuffle.seed),
    })
}

fn source(given: request::DataSource, path: &str, input_mode: InputMode) -> Result<ChannelSource, Error> {
    match given {
        request::DataSource { s3_data_source: Some(s3), file_system_data_source: None, dataset_source: None } => {
            Ok(ChannelSource::S3(s3_source(s3, &format!("{path}.s3DataSource"), input_mode)?))
        }
        request::DataSource { s3_data_source: None, file_system_data_source: Some(given), dataset_source: None } => {
            let file_system = file_system(&given, &format!("{path}.fileSystemDataSource"), input_mode)?;
            Ok(ChannelSource::FileSystem { file_system })
        }
        request::DataSource { s3_data_source: None, file_system_data_source: None, dataset_source: Some(_) } => refuse(
            &format!("{path}.datasetSource"),
            "Shoal has no hub data sets; copy the data to S3 (`aws s3 cp --recursive`) and give S3DataSource",
        ),
        _ => refuse(path, "exactly one data source is needed; give S3DataSource or FileSystemDataSource"),
    }
}

fn s3_source(s3: request::S3DataSource, path: &str, input_mode: InputMode) -> Result<S3Source, Error> {
    let data_type = match s3.s3_data_type.as_str() {
        "S3Prefix" => S3DataType::S3Prefix,
        "ManifestFile" => S3DataType::ManifestFile,
        "AugmentedManifestFile" => S3DataType::AugmentedManifestFile,
        other => {
            return refuse(
                &format!("{path}.s3DataType"),
                &format!("Shoal does not read {other}; use S3Prefix, ManifestFile or AugmentedManifestFile"),
            );
        }
    };
    let attributes = format!("{path}.attributeNames");
    match (data_type, s3.attribute_names.is_empty()) {
        (S3DataType::AugmentedManifestFile, _) if input_mode != InputMode::Pipe => {
            return refuse(
                &format!("{path}.s3DataType"),
                "AugmentedManifestFile can only be used if the channel's input mode is Pipe; set InputMode to Pipe",
            );
        }
        (S3DataType::AugmentedManifestFile, true) => {
            return refuse(&attributes, "AugmentedManifestFile needs the names of the attributes to stream");
        }
        (S3DataType::S3Prefix | S3DataType::ManifestFile, false) => {
            return refuse(&attributes, "they are for AugmentedManifestFile only; leave them out");
        }
        _ => {}
    }
    let mut names = s3.attribute_names.iter().enumerate();
    if let Some((_, twice)) = names.find(|(at, name)| s3.attribute_names[..*at].contains(name)) {
        return refuse(&attributes, &format!("{twice} is listed twice"));
    }
    if s3.hub_access_config.is_some() {
        return refuse(&format!("{path}.hubAccessConfig"), "Shoal has no hubs; copy the data to S3 and leave it out");
    }
    Ok(S3Source {
        data_type,
        uri: s3_uri(&format!("{path}.s3Uri"), &s3.s3_uri)?,
        distribution: s3.s3_data_distribution_type,
        attribute_names: s3.attribute_names,
        instance_groups: s3.instance_group_names,
    })
}

fn file_system(
    given: &request::FileSystemDataSource,
    path: &str,
    input_mode: InputMode,
) -> Result<FileSystemSource, Error> {
    if input_mode != InputMode::File {
        return refuse(path, "a file system is mounted, which is File mode; set the channel's InputMode to File");
    }
    let directory = format!("{path}.directoryPath");
    if !given.directory_path.starts_with('/') {
        return refuse(&directory, "it must begin with '/', the root of the file system");
    }
    if given.directory_path.contains('\0') {
        return refuse(&directory, "it has a NUL character, which no path can have");
    }
    let names: Vec<&str> = given.directory_path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    if names.contains(&"..") {
        return refuse(&directory, "it must not contain '..'");
    }
    Ok(FileSystemSource {
        id: given.file_system_id.clone(),
        is_writable: given.file_system_access_mode == "rw",
        directory: names.join("/"),
    })
}
