//! What a cluster would refuse, or never start, whenever it is asked: names that it does not have.
//! A dry run of a pod shows which priority class or service account is missing, and what is no
//! valid pod; claims and queues of Kueue's are not looked up then, so they are asked for by name.

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
                let missing = Named::default().and(&pod).missing(&connected).await?;
                Ok(try_out(&connected, &pod).await?.or(missing.sentences.into_iter().next()))
            })?;
            found.map_or(Ok(()), |what| Err(refused(self.options.target.clone(), what)))
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

/// Has the API server check a pod without creating it; gives why it is refused, if it always is.
async fn try_out(connected: &Connected, pod: &Value) -> Result<Option<String>, kube::Error> {
    let api = Api::<Pod>::namespaced(connected.client.clone(), &connected.namespace);
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    match api.patch(name, &PatchParams::apply(MANAGER).force().dry_run(), &Patch::Apply(pod)).await {
        Err(kube::Error::Api(status)) => Ok(is_lasting(status.code, &status.message).then_some(status.message)),
        answer => answer.map(|_| None),
    }
}

/// Whether only another configuration changes it, of the cluster or of the target, whatever pod of
/// this type is asked for. This one has no processors, memory or image of a job's: a quota, or a
/// policy of the cluster's, may refuse it and no other.
fn is_lasting(code: u16, message: &str) -> bool {
    code == 422
        || message.contains("no PriorityClass with name")
        || message.contains("error looking up service account")
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
        let sentence = |kind: &str, name: &str| {
            format!("there is no {kind} {name} in namespace {namespace}, which shoal.toml names")
        };
        let mut sentences = Vec::new();
        let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
        for name in &self.claims {
            if is_missing(claims.get(name).await, name)? {
                sentences.push(sentence("PersistentVolumeClaim", name));
            }
        }
        let kueue = if self.queues.is_empty() { None } else { version_of_kueue(connected).await? };
        if let Some(version) = &kueue {
            let kind = GroupVersionKind::gvk(KUEUE, version, "LocalQueue");
            let kind = ApiResource::from_gvk_with_plural(&kind, "localqueues");
            let queues = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &kind);
            for name in &self.queues {
                if is_missing(queues.get(name).await, name)? {
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

/// What may not be read, or is not served, is taken to be there.
fn is_missing<T>(found: Result<T, kube::Error>, name: &str) -> Result<bool, kube::Error> {
    match found {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) => {
            let named = status.details.as_ref().map(|details| details.name.as_str());
            Ok(status.reason == "NotFound" && named == Some(name))
        }
        Err(error) => Err(error),
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
    fn what_may_pass_or_is_of_this_pod_alone_refuses_no_job() {
        for (code, message, is_refused) in [
            (403, "pods \"a\" is forbidden: no PriorityClass with name none was found", true),
            (403, "pods \"a\" is forbidden: error looking up service account shoal/none: not found", true),
            (422, "Pod \"a\" is invalid: metadata.labels: Invalid value", true),
            (403, "pods \"a\" is forbidden: failed quota: q: must specify requests.cpu for: instance", false),
            (403, "pods \"a\" is forbidden: exceeded quota: q, requested: pods=1", false),
            (403, "pods is forbidden: User \"x\" cannot patch resource \"pods\"", false),
            (403, "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\"", false),
            (400, "admission webhook \"policy.example\" does not support dry run", false),
            (403, "admission webhook \"policy.example\" denied the request: no such registry", false),
        ] {
            assert_eq!(is_lasting(code, message), is_refused, "{message}");
        }
    }

    #[test]
    fn what_cannot_be_looked_up_is_there() {
        let answer = |status: Value| {
            let status = serde_json::from_value(status).expect("a status");
            is_missing(Err::<(), _>(kube::Error::Api(Box::new(status))), "data").expect("an answer")
        };
        let details = serde_json::json!({"name": "data", "kind": "persistentvolumeclaims"});
        let missing = serde_json::json!({"code": 404, "reason": "NotFound", "message": "", "details": details});
        assert!(answer(missing));
        // No such path, no right, a conversion that fails.
        assert!(!answer(serde_json::json!({"code": 404, "reason": "", "message": "404 page not found"})));
        assert!(!answer(serde_json::json!({"code": 403, "reason": "Forbidden", "message": "", "details": details})));
        assert!(!answer(serde_json::json!({"code": 500, "reason": "InternalError", "message": ""})));
        assert!(!is_missing(Ok(()), "data").expect("an answer"));
    }
}
