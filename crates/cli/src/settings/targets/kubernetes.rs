//! `kind = "kubernetes"`.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::Value;
use shoal_launch::{CacheVolume, Claim, KubernetesOptions, PodOptions};

use super::{OnNodes, Scheduler, Target, instances, known, number, path, text, types};
use crate::{exit::UsageError, settings::file_systems::is_id};

/// Where `shoal` is in images of ours.
const PROGRAM: &str = "/usr/local/bin/shoal";
/// What a type may have of its own.
const POD: [&str; 11] = [
    "cpus",
    "memory",
    "gpus",
    "gpu_resource",
    "node_selector",
    "tolerations",
    "priority_class",
    "service_account",
    "queue",
    "labels",
    "image_pull_secrets",
];
const OWN: [&str; 11] = [
    "kind",
    "instances",
    "kubeconfig",
    "context",
    "namespace",
    "image",
    "init_image",
    "cache",
    "insecure_registries",
    "file_systems",
    "types",
];

pub(super) fn target(name: &str, table: &toml::Table, place: &str) -> Result<Target, UsageError> {
    known(table, &[&OWN, &POD], place)?;
    let image = text(table, "image", place)?.ok_or_else(|| {
        UsageError(format!("{place}: image is missing: the image with shoal that runs what has no image of its own"))
    })?;
    let claims = claims(table, place)?;
    let read_only = claims.iter().map(|(id, claim)| (id.clone(), claim.is_read_only)).collect();
    let kubernetes = KubernetesOptions {
        target: name.to_owned(),
        kubeconfig: path(table, "kubeconfig", place, "the path of a kubeconfig on this machine")?,
        context: text(table, "context", place)?,
        namespace: text(table, "namespace", place)?,
        image,
        init_image: text(table, "init_image", place)?,
        program: Some(PROGRAM.into()),
        env: Vec::new(),
        cache: cache(table, place)?,
        insecure_registries: registries(table, place)?,
        docker_config: None,
        file_systems: claims,
        pods: pods(table, place)?,
        types: types(table, place, "gpus = 1", |table, place| {
            known(table, &[&POD], place)?;
            pods(table, place)
        })?,
    };
    Ok(Target {
        name: name.to_owned(),
        instances: instances(table, place)?,
        cache: None,
        shared: None,
        shared_size: None,
        file_systems: OnNodes::Volumes(read_only),
        scheduler: Scheduler::Kubernetes(Box::new(kubernetes)),
    })
}

const VOLUMES: &str = "file_systems is a table of ids (fs- and 8 to 18 of 0-9a-f) with names of PersistentVolumeClaims \
                       (a-z, 0-9, '-' and '.'), such as { fs-0123456a = \"datasets\", fs-0123456b = \"archive:ro\" }";

/// As Kubernetes names objects (RFC 1123).
fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=253).contains(&text.len())
        && text.split('.').all(|label| {
            label.bytes().all(|byte| is_letter(byte) || byte == b'-')
                && [label.bytes().next(), label.bytes().last()].iter().all(|end| end.is_some_and(is_letter))
        })
}

/// By `FileSystemId`.
fn claims(table: &toml::Table, place: &str) -> Result<BTreeMap<String, Claim>, UsageError> {
    let all = texts(table, "file_systems", place).map_err(|_| UsageError(format!("{place}: {VOLUMES}")))?;
    let all = all.into_iter().map(|(id, text)| {
        let claim = text.strip_suffix(":ro").unwrap_or(&text);
        if !is_id(&id) || !is_name(claim) {
            return Err(UsageError(format!("{place}: file_systems has {id} = {text:?}; {VOLUMES}")));
        }
        Ok((id, Claim { name: claim.to_owned(), is_read_only: claim.len() < text.len() }))
    });
    all.collect()
}

fn pods(table: &toml::Table, place: &str) -> Result<PodOptions, UsageError> {
    Ok(PodOptions {
        cpus: number(table, "cpus", place)?,
        memory: memory(table, place)?,
        gpus: number(table, "gpus", place)?,
        gpu_resource: text(table, "gpu_resource", place)?,
        node_selector: texts(table, "node_selector", place)?,
        tolerations: tolerations(table, place)?,
        priority_class: text(table, "priority_class", place)?,
        service_account: text(table, "service_account", place)?,
        queue: text(table, "queue", place)?,
        labels: texts(table, "labels", place)?,
        image_pull_secrets: names(table, "image_pull_secrets", place, "names of Secrets")?,
    })
}

fn memory(table: &toml::Table, place: &str) -> Result<Option<String>, UsageError> {
    let memory = text(table, "memory", place)?;
    let is_quantity = |text: &String| {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = &text[digits.len()..];
        !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && ["", "Ki", "Mi", "Gi", "Ti", "k", "M", "G", "T"].contains(&unit)
    };
    match memory {
        Some(text) if !is_quantity(&text) => {
            Err(UsageError(format!("{place}: memory = {text:?} is not a quantity such as \"14Gi\"")))
        }
        memory => Ok(memory),
    }
}

fn texts(table: &toml::Table, name: &str, place: &str) -> Result<BTreeMap<String, String>, UsageError> {
    let wrong = || UsageError(format!("{place}: {name} is a table of texts, such as {{ key = \"value\" }}"));
    let Some(value) = table.get(name) else { return Ok(BTreeMap::new()) };
    let table = value.as_table().ok_or_else(wrong)?;
    table.iter().map(|(key, value)| Ok((key.clone(), value.as_str().ok_or_else(wrong)?.to_owned()))).collect()
}

fn names(table: &toml::Table, name: &str, place: &str, what: &str) -> Result<Vec<String>, UsageError> {
    let wrong = || UsageError(format!("{place}: {name} is a list of {what}"));
    let Some(value) = table.get(name) else { return Ok(Vec::new()) };
    let names = value.as_array().ok_or_else(wrong)?;
    names.iter().map(|name| Ok(name.as_str().ok_or_else(wrong)?.to_owned())).collect()
}

fn registries(table: &toml::Table, place: &str) -> Result<Vec<String>, UsageError> {
    let what = "hosts without https://, such as [\"registry.local:5000\"]";
    let all = names(table, "insecure_registries", place, what)?;
    match all.iter().any(|host| host.is_empty() || host.contains(['/', ' '])) {
        true => Err(UsageError(format!("{place}: insecure_registries is a list of {what}"))),
        false => Ok(all),
    }
}

fn tolerations(table: &toml::Table, place: &str) -> Result<Vec<Value>, UsageError> {
    let wrong = || UsageError(format!("{place}: tolerations is a list of tables, such as [{{ key = \"gpu\" }}]"));
    let Some(value) = table.get("tolerations") else { return Ok(Vec::new()) };
    let all = value.as_array().ok_or_else(wrong)?.iter().map(|toleration| {
        let toleration = toleration.as_table().ok_or_else(wrong)?;
        let members = ["key", "operator", "value", "effect", "tolerationSeconds"];
        known(toleration, &[&members], &format!("{place}: tolerations"))?;
        serde_json::to_value(toleration).map_err(|_| wrong())
    });
    all.collect()
}

fn cache(table: &toml::Table, place: &str) -> Result<CacheVolume, UsageError> {
    let wrong = || {
        UsageError(format!(
            "{place}: cache is one of {{ claim = \"NAME\" }}, a PersistentVolumeClaim that all nodes can write, and {{ \
             host_path = \"/DIRECTORY\" }}, a directory of each node; without it each pod has its own"
        ))
    };
    let Some(value) = table.get("cache") else { return Ok(CacheVolume::Pod) };
    let table = value.as_table().ok_or_else(wrong)?;
    let text = |name: &str| table.get(name).and_then(toml::Value::as_str).filter(|text| !text.is_empty());
    match (table.len(), text("claim"), text("host_path")) {
        (1, Some(claim), None) => Ok(CacheVolume::Claim(claim.to_owned())),
        (1, None, Some(path)) if path.starts_with('/') => Ok(CacheVolume::Node(PathBuf::from(path))),
        _ => Err(wrong()),
    }
}
