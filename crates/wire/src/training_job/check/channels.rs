//! Rules of `InputDataConfig`.

use std::collections::BTreeSet;

use crate::{
    Channel, Error, InputMode, RecordWrapper, S3DataType,
    refusal::{refuse, s3_uri},
    training_job::request,
};

/// What is said to those who want to be fed.
pub(super) const NO_PIPE: &str = "Shoal has no Pipe mode; use File or FastFile, which copy nothing here";

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
    Ok(checked)
}

fn channel(channel: request::Channel, path: &str, default_mode: InputMode) -> Result<Channel, Error> {
    let input_mode = channel.input_mode.unwrap_or(default_mode);
    if input_mode == InputMode::Pipe {
        let place = if channel.input_mode.is_some() {
            format!("{path}.inputMode")
        } else {
            "algorithmSpecification.trainingInputMode".to_owned()
        };
        return refuse(&place, NO_PIPE);
    }
    if channel.compression_type.as_deref() == Some("Gzip") {
        return refuse(
            &format!("{path}.compressionType"),
            "Gzip is for Pipe mode only; use None and let the program decompress",
        );
    }
    if channel.record_wrapper_type == RecordWrapper::RecordIO {
        return refuse(
            &format!("{path}.recordWrapperType"),
            "RecordIO is for Pipe mode only; leave it out and store the data as the program reads it",
        );
    }
    let source = format!("{path}.dataSource");
    let others = [
        (
            "fileSystemDataSource",
            channel.data_source.file_system_data_source.is_some(),
            "Shoal has no EFS or FSx file systems",
        ),
        ("datasetSource", channel.data_source.dataset_source.is_some(), "Shoal has no hub data sets"),
    ];
    let given = others.iter().filter(|(_, given, _)| *given).count()
        + usize::from(channel.data_source.s3_data_source.is_some());
    if given != 1 {
        return refuse(&source, "exactly one data source is needed; give S3DataSource");
    }
    if let Some((name, _, what)) = others.iter().find(|(_, given, _)| *given) {
        return refuse(
            &format!("{source}.{name}"),
            &format!("{what}; copy the data to S3 (`aws s3 cp --recursive`) and give S3DataSource"),
        );
    }
    let Some(s3) = channel.data_source.s3_data_source else { return refuse(&source, "give S3DataSource") };
    let source = format!("{source}.s3DataSource");
    let data_type = match s3.s3_data_type.as_str() {
        "S3Prefix" => S3DataType::S3Prefix,
        "ManifestFile" => S3DataType::ManifestFile,
        other => {
            return refuse(
                &format!("{source}.s3DataType"),
                &format!("Shoal does not read {other}; use S3Prefix or ManifestFile"),
            );
        }
    };
    if !s3.attribute_names.is_empty() {
        return refuse(&format!("{source}.attributeNames"), "they are for AugmentedManifestFile only; leave them out");
    }
    if s3.hub_access_config.is_some() {
        return refuse(&format!("{source}.hubAccessConfig"), "Shoal has no hubs; copy the data to S3 and leave it out");
    }
    Ok(Channel {
        name: channel.channel_name,
        data_type,
        uri: s3_uri(&format!("{source}.s3Uri"), &s3.s3_uri)?,
        distribution: s3.s3_data_distribution_type,
        content_type: channel.content_type,
        record_wrapper: channel.record_wrapper_type,
        input_mode,
        shuffle_seed: channel.shuffle_config.map(|shuffle| shuffle.seed),
        instance_groups: s3.instance_group_names,
    })
}
