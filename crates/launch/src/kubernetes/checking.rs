//! What a cluster would refuse, or never start, whenever it is asked. A dry run of a pod shows what
//! the API server refuses (priority classes, service accounts, security standards); claims and
//! queues of Kueue's are not looked up then, so they are asked for by name.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::Value;

use super::access::{Connected, refused};
use super::options::{KubernetesOptions, volume_path};
use super::{Cluster, MANAGER, objects};
use crate::{AllocationSpec, Wants};

/// For a check, which the request that creates a job waits for.
const TIMEOUT: Duration = Duration::from_secs(5);

const KUEUE: &str = "kueue.x-k8s.io";
/// Not the name of any job's Service.
const NAME: &str = "shoal-check";

impl Cluster {
    /// Why such instances are refused whenever they are asked for, if they are.
    pub(super) fn refusal(&self, wants: &Wants) -> Option<String> {
        // What is free changes; names do not.
        let wants = Wants {
            kind: wants.kind.clone(),
            gpus: wants.gpus,
            directories: wants.directories.clone(),
            ..Wants::default()
        };
        let directories = wants.directories.iter().map(|path| path.display().to_string());
        let key = Vec::from_iter([wants.kind.clone(), wants.gpus.to_string()].into_iter().chain(directories));
        let options = self.options.clone();
        self.verdicts.of(&key, Instant::now(), || {
            let found = self.access.call_within(TIMEOUT, move |connected| async move {
                let pod = pod(&options, wants, &connected.namespace);
                try_out(&connected, &pod).await?;
                Named::default().and(&pod).missing(&connected).await
            })?;
            let missing = found.sentences.into_iter().next();
            missing.map_or(Ok(()), |what| Err(refused(self.options.target.clone(), what)))
        })
    }
}

/// What the options of a target name that is not there, in sentences.
pub(super) async fn missing(connected: &Connected, options: &KubernetesOptions) -> Result<Vec<String>, kube::Error> {
    let both = options.file_systems.keys().flat_map(|id| [volume_path(id, false), volume_path(id, true)]);
    let directories = BTreeSet::from_iter(both);
    let mut named = Named::default();
    for kind in options.types.keys().map(String::as_str).chain([""]) {
        let wants = Wants { kind: kind.to_owned(), directories: directories.clone(), ..Wants::default() };
        named = named.and(&pod(options, wants, &connected.namespace));
    }
    let Missing { mut sentences, has_kueue } = named.missing(connected).await?;
    if !has_kueue {
        let queues = Vec::from_iter(named.queues).join(", ");
        sentences.push(format!("Kueue is not installed, so queue = {queues} has no effect"));
    }
    Ok(sentences)
}

/// A pod of an instance that wants this.
fn pod(options: &KubernetesOptions, wants: Wants, namespace: &str) -> Value {
    let spec = AllocationSpec {
        id: NAME.to_owned(),
        instances: 1,
        program: "shoal".into(),
        args: Vec::new(),
        env: Vec::new(),
        nodes: Vec::new(),
        wants,
        dir: std::path::PathBuf::new(),
    };
    objects::pod(options, NAME, &spec, (1, &BTreeSet::from([1])), NAME, namespace)
}

/// Has the API server check a pod without creating it.
async fn try_out(connected: &Connected, pod: &Value) -> Result<(), kube::Error> {
    let api = Api::<Pod>::namespaced(connected.client.clone(), &connected.namespace);
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    match api.patch(name, &PatchParams::apply(MANAGER).force().dry_run(), &Patch::Apply(pod)).await {
        Err(kube::Error::Api(status)) if is_of_dry_run(status.code, &status.message) => Ok(()),
        answer => answer.map(drop),
    }
}

/// Whether an admission webhook of the cluster's refuses dry runs alone.
fn is_of_dry_run(code: u16, message: &str) -> bool {
    code == 400 && message.contains("does not support dry run")
}

/// What pods name that is not looked up when they are created.
#[derive(Debug, Default, PartialEq, Eq)]
struct Named {
    claims: BTreeSet<String>,
    queues: BTreeSet<String>,
}

/// What of it is not there.
struct Missing {
    sentences: Vec<String>,
    /// True if no queue is named.
    has_kueue: bool,
}

impl Named {
    /// And what this pod names.
    fn and(mut self, pod: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        self.claims.extend(volumes.filter_map(|volume| text(&volume["persistentVolumeClaim"]["claimName"])));
        self.queues.extend(text(&pod["metadata"]["labels"][objects::QUEUE_LABEL]));
        self
    }

    async fn missing(&self, connected: &Connected) -> Result<Missing, kube::Error> {
        let Connected { client, namespace } = connected;
        let sentence = |kind: &str, name: &str| format!("there is no {kind} {name} in namespace {namespace}");
        let mut sentences = Vec::new();
        let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
        for name in &self.claims {
            if !is_there(claims.get_opt(name).await)? {
                sentences.push(sentence("PersistentVolumeClaim", name));
            }
        }
        let kueue = if self.queues.is_empty() { None } else { version_of_kueue(connected).await? };
        if let Some(version) = &kueue {
            let kind = GroupVersionKind::gvk(KUEUE, version, "LocalQueue");
            let kind = ApiResource::from_gvk_with_plural(&kind, "localqueues");
            let queues = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &kind);
            for name in &self.queues {
                if !is_there(queues.get_opt(name).await)? {
                    sentences.push(sentence("LocalQueue", name));
                }
            }
        }
        Ok(Missing { sentences, has_kueue: kueue.is_some() || self.queues.is_empty() })
    }
}

/// None: it is not installed.
async fn version_of_kueue(connected: &Connected) -> Result<Option<String>, kube::Error> {
    let groups = connected.client.list_api_groups().await?.groups;
    let kueue = groups.into_iter().find(|group| group.name == KUEUE);
    Ok(kueue.and_then(|group| group.preferred_version.or(group.versions.into_iter().next())).map(|it| it.version))
}

/// What may not be read is taken to be there: the right is optional.
fn is_there<T>(found: Result<Option<T>, kube::Error>) -> Result<bool, kube::Error> {
    match found {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(true),
        found => Ok(found?.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::{CacheVolume, Claim, PodOptions};

    #[test]
    fn claims_and_queues_of_a_pod_are_found() {
        let claim = |name: &str| Claim { name: name.to_owned(), is_read_only: false };
        let options = KubernetesOptions {
            cache: CacheVolume::Claim("cache".to_owned()),
            file_systems: [("fs-1".to_owned(), claim("data")), ("fs-2".to_owned(), claim("old"))].into(),
            types: [(
                "ml.g5.xlarge".to_owned(),
                PodOptions { queue: Some("gpus".to_owned()), ..PodOptions::default() },
            )]
            .into(),
            ..KubernetesOptions::default()
        };
        let named = |kind: &str, directories: &[std::path::PathBuf]| {
            let directories = directories.iter().cloned().collect();
            Named::default().and(&pod(
                &options,
                Wants { kind: kind.to_owned(), directories, ..Wants::default() },
                "shoal",
            ))
        };
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(named("", &[]), Named { claims: names(&["cache"]), queues: names(&[]) });
        let expected = Named { claims: names(&["cache", "old"]), queues: names(&["gpus"]) };
        assert_eq!(named("ml.g5.xlarge", &[volume_path("fs-2", true)]), expected);
    }

    #[test]
    fn a_webhook_without_dry_runs_refuses_no_job() {
        let message = "admission webhook \"policy.example\" does not support dry run";
        assert!(is_of_dry_run(400, message) && !is_of_dry_run(403, message));
        assert!(!is_of_dry_run(400, "admission webhook \"policy.example\" denied the request"));
    }
}
