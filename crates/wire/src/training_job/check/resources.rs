//! Rules of `ResourceConfig`.

use crate::{Error, InstanceGroup, Resources, refusal::refuse, training_job::request};

/// 16 TiB.
const LARGEST_VOLUME_GB: u32 = 16_384;
/// SDK v2's default; instances have no volume of their own.
const DEFAULT_VOLUME_GB: u32 = 30;

pub(crate) fn resources(config: Option<request::ResourceConfig>) -> Result<Resources, Error> {
    let path = "resourceConfig";
    let Some(config) = config else { return refuse(path, "it is required; give InstanceType and InstanceCount") };
    if !config.instance_preferences.is_empty() {
        return refuse(
            &format!("{path}.instancePreferences"),
            "Shoal takes one type; give InstanceType and InstanceCount",
        );
    }
    if config.instance_placement_config.is_some() {
        return refuse(&format!("{path}.instancePlacementConfig"), "Shoal has no UltraServers; leave it out");
    }
    if config.training_plan_arn.is_some() {
        return refuse(
            &format!("{path}.trainingPlanArn"),
            "Shoal has no training plans; leave it out, jobs wait in the queue",
        );
    }
    let instance_groups = instance_groups(config.instance_groups)?;
    let (instance_type, instance_count) = match (instance_groups.first(), config.instance_type, config.instance_count) {
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
            return refuse(
                &format!("{path}.instanceGroups"),
                "groups and InstanceType with InstanceCount are alternatives; give one of them",
            );
        }
        (Some(first), None, None) => {
            let count = instance_groups.iter().fold(0_u32, |sum, group| sum.saturating_add(group.instance_count));
            (first.instance_type.clone(), count)
        }
        (None, Some(instance_type), Some(count)) => (instance_type, count),
        (None, None, _) => return refuse(&format!("{path}.instanceType"), "it is required"),
        (None, Some(_), None) => return refuse(&format!("{path}.instanceCount"), "it is required"),
    };
    if instance_count == 0 {
        return refuse(&format!("{path}.instanceCount"), "it must be at least 1");
    }
    let volume_gb = config.volume_size_in_gb.unwrap_or(DEFAULT_VOLUME_GB);
    if volume_gb > LARGEST_VOLUME_GB {
        return refuse(
            &format!("{path}.volumeSizeInGB"),
            &format!("{volume_gb} is more than the largest volume has, {LARGEST_VOLUME_GB}"),
        );
    }
    if config.volume_kms_key_id.is_some_and(|key| !key.is_empty()) && has_local_storage(&instance_type) {
        return refuse(
            &format!("{path}.volumeKmsKeyId"),
            &format!("{instance_type} has storage of its own, which is encrypted by the machine; leave it out"),
        );
    }
    Ok(Resources {
        instance_type,
        instance_count,
        volume_gb,
        keep_alive_s: config.keep_alive_period_in_seconds,
        instance_groups,
    })
}

fn instance_groups(groups: Vec<request::InstanceGroup>) -> Result<Vec<InstanceGroup>, Error> {
    let mut checked: Vec<InstanceGroup> = Vec::with_capacity(groups.len());
    for (at, group) in groups.into_iter().enumerate() {
        let path = format!("resourceConfig.instanceGroups.{}.member", at + 1);
        let request::InstanceGroup { instance_type, instance_count, instance_group_name: name } = group;
        if checked.iter().any(|other| other.name == name) {
            return refuse(&format!("{path}.instanceGroupName"), &format!("the group '{name}' is there twice"));
        }
        if instance_count == 0 {
            return refuse(&format!("{path}.instanceCount"), "it must be at least 1");
        }
        checked.push(InstanceGroup { name, instance_type, instance_count });
    }
    Ok(checked)
}

/// Whether instances of a type have disks of their own instead of a volume: a `d` after the
/// generation says so, and some families all do.
fn has_local_storage(instance_type: &str) -> bool {
    let family = instance_type.split('.').nth(1).unwrap_or_default();
    let traits =
        family.trim_start_matches(char::is_alphabetic).trim_start_matches(|digit: char| digit.is_ascii_digit());
    traits.contains('d') || ["g5", "g6", "g7", "p5", "p6", "trn"].iter().any(|start| family.starts_with(start))
}

pub(super) fn refuse_unknown_groups(named: &[(String, String)], groups: &[InstanceGroup]) -> Result<(), Error> {
    match named.iter().find(|(_, name)| !groups.iter().any(|group| group.name == *name)) {
        Some((path, name)) => refuse(path, &format!("resourceConfig.instanceGroups has no group '{name}'")),
        None => Ok(()),
    }
}

pub(super) fn warm_pool(keep_alive_s: u32, spot: bool) -> Result<(), Error> {
    if spot && keep_alive_s > 0 {
        return refuse(
            "resourceConfig.keepAlivePeriodInSeconds",
            "a warm pool cannot be used with managed spot training; leave one of them out",
        );
    }
    Ok(())
}
