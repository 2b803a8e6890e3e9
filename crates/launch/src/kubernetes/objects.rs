//! The objects of a job: a headless Service, by which its pods find each other and which owns them,
//! and a pod for each host.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::names;
use super::options::{CacheVolume, Claim, KubernetesOptions, PodOptions, volume_path};
use crate::AllocationSpec;

/// On all objects of ours, in any server's name.
pub(super) const MANAGED: (&str, &str) = ("app.kubernetes.io/managed-by", "shoal");
/// The Service's name, on its pods too.
pub(super) const NAME_LABEL: &str = "shoal/name";
/// The host's number.
pub(super) const HOST_LABEL: &str = "shoal/host";
/// The name of the job, which names the allocation.
pub(super) const JOB_ANNOTATION: &str = "shoal/job";
/// The ARN, for people.
const LABEL_ANNOTATION: &str = "shoal/arn";

/// Kueue's: which queue admits a pod, and which pods it admits together.
pub(super) const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
const GROUP_LABEL: &str = "kueue.x-k8s.io/pod-group-name";
const GROUP_SIZE: &str = "kueue.x-k8s.io/pod-group-total-count";

const GPU: &str = "nvidia.com/gpu";
/// Where a pod with another image has the program.
const BROUGHT: &str = "/shoal/shoal";
/// A node that is unreachable for this long has lost its pods.
const UNREACHABLE_SECONDS: u32 = 60;

/// The Service of a job.
pub(super) fn service(job_name: &str, spec: &AllocationSpec) -> Value {
    let name = names::service(job_name);
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "labels": {MANAGED.0: MANAGED.1, NAME_LABEL: name},
            "annotations": {JOB_ANNOTATION: job_name, LABEL_ANNOTATION: spec.wants.label},
        },
        // Names resolve before the programs are ready: they look for each other then.
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {NAME_LABEL: name}},
    })
}

/// The pod of a host. `owner` is the Service's UID.
pub(super) fn pod(
    options: &KubernetesOptions,
    job_name: &str,
    spec: &AllocationSpec,
    (host, hosts): (u32, &BTreeSet<u32>),
    owner: &str,
    namespace: &str,
) -> Value {
    let service = names::service(job_name);
    let of_type = options.of_type(&spec.wants.kind);
    let mut labels: Map<String, Value> =
        of_type.labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let mut annotations = json!({JOB_ANNOTATION: job_name, LABEL_ANNOTATION: spec.wants.label});
    if let Some(queue) = &of_type.queue {
        labels.insert(QUEUE_LABEL.to_owned(), json!(queue));
    }
    if labels.contains_key(QUEUE_LABEL) && hosts.len() > 1 {
        labels.insert(GROUP_LABEL.to_owned(), json!(service));
        annotations[GROUP_SIZE] = json!(hosts.len().to_string());
    }
    labels.extend([
        (MANAGED.0.to_owned(), json!(MANAGED.1)),
        (NAME_LABEL.to_owned(), json!(service)),
        (HOST_LABEL.to_owned(), json!(host.to_string())),
    ]);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names::pod(&service, host),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": service, "uid": owner}],
        },
        "spec": pod_spec(options, &of_type, spec, host, &format!("{service}.{namespace}.svc.cluster.local")),
    })
}

fn pod_spec(
    options: &KubernetesOptions,
    of_type: &PodOptions,
    spec: &AllocationSpec,
    host: u32,
    domain: &str,
) -> Value {
    let own_image = spec.wants.image.as_ref();
    let subdomain = domain.split('.').next();
    let tolerations = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"].map(|key| {
        json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": UNREACHABLE_SECONDS})
    });
    let tolerations = [&tolerations[..], &of_type.tolerations].concat();
    let mut pod = json!({
        // Retries are the server's.
        "restartPolicy": "Never",
        "hostname": format!("algo-{host}"),
        "subdomain": subdomain,
        "dnsConfig": {"searches": [domain]},
        "enableServiceLinks": false,
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 1,
        "tolerations": tolerations,
        "containers": [container(options, of_type, spec, host)],
    });
    // An image of ours has nothing in /opt, where /opt/ml is put by whatever user it runs as.
    let own = json!({"name": if own_image.is_some() { "shoal" } else { "opt" }, "emptyDir": {}});
    pod["volumes"] = Vec::from_iter([cache(options), own].into_iter().chain(claims(options, spec))).into();
    if own_image.is_some() {
        pod["initContainers"] = json!([{
            "name": "shoal",
            "image": options.init_image(),
            "command": [options.program(spec), "agent-binary", BROUGHT],
            "volumeMounts": [{"name": "shoal", "mountPath": "/shoal"}],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }]);
    }
    let mut put = |name: &str, value: Option<Value>| value.into_iter().for_each(|value| pod[name] = value);
    put("activeDeadlineSeconds", spec.wants.seconds.map(|seconds| json!(seconds)));
    put("priorityClassName", of_type.priority_class.as_ref().map(|name| json!(name)));
    put("serviceAccountName", of_type.service_account.as_ref().map(|name| json!(name)));
    put("nodeSelector", Some(&of_type.node_selector).filter(|all| !all.is_empty()).map(|all| json!(all)));
    let secrets = of_type.image_pull_secrets.iter().map(|name| json!({"name": name}));
    put("imagePullSecrets", Some(Vec::from_iter(secrets)).filter(|all| !all.is_empty()).map(Value::Array));
    pod
}

fn container(options: &KubernetesOptions, of_type: &PodOptions, spec: &AllocationSpec, host: u32) -> Value {
    let brought = spec.wants.image.as_ref().map(|_| BROUGHT.to_owned());
    let program = brought.clone().unwrap_or_else(|| options.program(spec));
    let command = std::iter::once(program).chain(spec.args.iter().cloned());
    let command = Vec::from_iter(command.chain(["--host".to_owned(), host.to_string()]));
    let cache = options.cache_path().to_string_lossy();
    let mut env: BTreeMap<&str, &str> = BTreeMap::from([("SHOAL_CACHE", &*cache)]);
    // Its image knows where its programs are.
    let given = spec.env.iter().chain(&options.env).filter(|(name, _)| name != "PATH");
    env.extend(given.map(|(name, value)| (&**name, &**value)));
    // `$(NAME)` in a value would be replaced.
    let env = env.iter().map(|(name, value)| json!({"name": name, "value": value.replace("$(", "$$(")}));
    let node =
        json!({"name": "SHOAL_NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}});
    let mut mounts = vec![json!({"name": "cache", "mountPath": cache})];
    mounts.push(match brought {
        Some(_) => json!({"name": "shoal", "mountPath": "/shoal", "readOnly": true}),
        None => json!({"name": "opt", "mountPath": "/opt"}),
    });
    mounts.extend(file_systems(options, spec).map(|(id, claim, is_writable)| {
        let mut mount = json!({"name": volume(options, claim), "mountPath": volume_path(id, is_writable)});
        if !is_writable {
            mount["readOnly"] = json!(true);
        }
        mount
    }));
    json!({
        "name": "instance",
        "image": spec.wants.image.as_ref().unwrap_or(&options.image),
        "command": command.into_iter().map(|word| word.replace("$(", "$$(")).collect::<Vec<_>>(),
        "env": Vec::from_iter(env.chain([node])),
        "resources": resources(of_type, spec),
        "volumeMounts": mounts,
        // The last lines of an agent that failed are then in the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

/// File systems that the instance wants: each with its claim and whether it is written.
fn file_systems<'a>(
    options: &'a KubernetesOptions,
    spec: &AllocationSpec,
) -> impl Iterator<Item = (&'a str, &'a Claim, bool)> {
    let both = options.file_systems.iter().flat_map(|it| [(it, false), (it, true)]);
    both.filter(|((id, _), is_writable)| spec.wants.directories.contains(&volume_path(id, *is_writable)))
        .map(|((id, claim), is_writable)| (id.as_str(), claim, is_writable))
}

/// A volume for each claim: a kubelet does not start a pod that has two of one claim. One that all
/// names have as read-only is attached so.
fn claims(options: &KubernetesOptions, spec: &AllocationSpec) -> impl Iterator<Item = Value> {
    let mut claims = BTreeMap::<&str, bool>::new();
    for (_, claim, _) in file_systems(options, spec) {
        *claims.entry(&claim.name).or_insert(true) &= claim.is_read_only;
    }
    claims.into_iter().map(|(name, is_read_only)| {
        let claim = Claim { name: name.to_owned(), is_read_only };
        let mut source = json!({"claimName": name});
        if is_read_only {
            source["readOnly"] = json!(true);
        }
        json!({"name": volume(options, &claim), "persistentVolumeClaim": source})
    })
}

/// The volume's name in pods: the first id that has the claim, whose own name may be too long.
fn volume<'a>(options: &'a KubernetesOptions, claim: &Claim) -> Option<&'a str> {
    options.file_systems.iter().find(|(_, it)| it.name == claim.name).map(|(id, _)| id.as_str())
}

fn resources(of_type: &PodOptions, spec: &AllocationSpec) -> Value {
    let wants = &spec.wants;
    let (mut requests, mut limits) = (Map::new(), Map::new());
    let cpus = of_type.cpus.unwrap_or(wants.cpus);
    if cpus > 0 {
        requests.insert("cpu".to_owned(), json!(cpus.to_string()));
    }
    let megabytes = wants.memory_bytes.div_ceil(1 << 20);
    let memory = of_type.memory.clone().or_else(|| (megabytes > 0).then(|| format!("{megabytes}Mi")));
    if let Some(memory) = memory {
        for of in [&mut requests, &mut limits] {
            of.insert("memory".to_owned(), json!(memory));
        }
    }
    let gpus = of_type.gpus.unwrap_or(wants.gpus);
    if gpus > 0 {
        let name = of_type.gpu_resource.clone().unwrap_or_else(|| GPU.to_owned());
        limits.insert(name, json!(gpus.to_string()));
    }
    json!({"requests": requests, "limits": limits})
}

fn cache(options: &KubernetesOptions) -> Value {
    match &options.cache {
        CacheVolume::Pod => json!({"name": "cache", "emptyDir": {}}),
        CacheVolume::Claim(name) => json!({"name": "cache", "persistentVolumeClaim": {"claimName": name}}),
        CacheVolume::Node(path) => {
            json!({"name": "cache", "hostPath": {"path": path, "type": "DirectoryOrCreate"}})
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, Service};

    use super::*;
    use crate::Wants;

    fn options() -> KubernetesOptions {
        KubernetesOptions {
            image: "registry/shoal:1".to_owned(),
            program: Some("/usr/local/bin/shoal".into()),
            file_systems: [
                ("fs-1", "data", false),
                ("fs-2", "scratch", false),
                ("fs-3", "data", true),
                ("fs-4", "old", true),
            ]
            .map(|(id, name, is_read_only)| (id.to_owned(), Claim { name: name.to_owned(), is_read_only }))
            .into(),
            pods: PodOptions { labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]), ..PodOptions::default() },
            types: BTreeMap::from([(
                "ml.g5.xlarge".to_owned(),
                PodOptions {
                    queue: Some("gpus".to_owned()),
                    gpus: Some(2),
                    node_selector: BTreeMap::from([("gpu".to_owned(), "a10g".to_owned())]),
                    ..PodOptions::default()
                },
            )]),
            ..KubernetesOptions::default()
        }
    }

    fn spec(image: Option<&str>, kind: &str) -> AllocationSpec {
        AllocationSpec {
            id: "data-train-1".to_owned(),
            instances: 2,
            program: "/here/shoal".into(),
            args: vec!["agent".to_owned()],
            env: vec![("TOKEN".to_owned(), "a$(b)".to_owned()), ("PATH".to_owned(), "/here".to_owned())],
            nodes: Vec::new(),
            wants: Wants {
                kind: kind.to_owned(),
                cpus: 4,
                memory_bytes: 16 << 30,
                gpus: 1,
                seconds: Some(60),
                label: "arn".to_owned(),
                creator: None,
                image: image.map(str::to_owned),
                starts_image: image.is_some(),
                directories: BTreeSet::new(),
            },
            dir: "/nowhere".into(),
        }
    }

    /// What the API has no member for would be dropped by it, or refused.
    fn checked<T: serde::Serialize + serde::de::DeserializeOwned>(value: Value) -> Value {
        let typed: T = serde_json::from_value(value.clone()).expect("the API's type");
        assert_eq!(serde_json::to_value(typed).expect("JSON"), value);
        value
    }

    #[test]
    fn a_pod_has_what_its_type_says() {
        let hosts = BTreeSet::from([1, 2]);
        let pod = |spec: &AllocationSpec| pod(&options(), "shoal-data-Train-1", spec, (2, &hosts), "uid", "ns");
        checked::<Service>(service("shoal-data-Train-1", &spec(None, "")));
        let plain = checked::<Pod>(pod(&spec(None, "ml.m5.xlarge")));
        let container = &plain["spec"]["containers"][0];
        assert_eq!(container["command"], json!(["/usr/local/bin/shoal", "agent", "--host", "2"]));
        assert_eq!(container["image"], "registry/shoal:1");
        assert_eq!(
            container["resources"],
            json!({"requests": {"cpu": "4", "memory": "16384Mi"}, "limits": {"memory": "16384Mi", "nvidia.com/gpu": "1"}})
        );
        let env = json!([{"name": "SHOAL_CACHE", "value": "/var/cache/shoal"}, {"name": "TOKEN", "value": "a$$(b)"},
            {"name": "SHOAL_NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}]);
        assert_eq!(container["env"], env);
        assert_eq!(plain["metadata"]["labels"]["team"], "a");
        assert_eq!(plain["spec"]["activeDeadlineSeconds"], 60);
        assert_eq!(
            (&plain["spec"]["initContainers"], &plain["metadata"]["labels"][QUEUE_LABEL]),
            (&Value::Null, &Value::Null)
        );

        let queued = checked::<Pod>(pod(&spec(None, "ml.g5.xlarge")));
        assert_eq!(queued["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "2");
        assert_eq!(queued["spec"]["nodeSelector"], json!({"gpu": "a10g"}));
        let labels = &queued["metadata"]["labels"];
        assert_eq!((&labels[QUEUE_LABEL], &labels["team"]), (&json!("gpus"), &json!("a")));
        assert_eq!(labels[GROUP_LABEL], labels[NAME_LABEL]);
        assert_eq!(queued["metadata"]["annotations"][GROUP_SIZE], "2");
    }

    #[test]
    fn a_pod_has_the_file_systems_that_its_job_reads_or_writes() {
        let of = |directories: &[(&str, bool)]| {
            let mut spec = spec(None, "");
            spec.wants.directories =
                directories.iter().map(|(id, is_writable)| volume_path(id, *is_writable)).collect();
            let pod = checked::<Pod>(pod(&options(), "shoal-data-a", &spec, (1, &BTreeSet::from([1])), "uid", "ns"));
            let text = |value: &Value| value.to_string();
            (text(&pod["spec"]["volumes"]), text(&pod["spec"]["containers"][0]["volumeMounts"]))
        };
        let (volumes, mounts) = of(&[]);
        assert!(!volumes.contains("persistentVolumeClaim") && !mounts.contains("/mnt/shoal"));
        let (volumes, mounts) =
            of(&[("fs-1", false), ("fs-1", true), ("fs-3", false), ("fs-4", false), ("fs-5", true)]);
        // One of each claim.
        assert_eq!(volumes.matches("claimName").count(), 2, "{volumes}");
        assert!(volumes.contains(r#"{"name":"fs-1","persistentVolumeClaim":{"claimName":"data"}}"#), "{volumes}");
        let old = r#"{"name":"fs-4","persistentVolumeClaim":{"claimName":"old","readOnly":true}}"#;
        assert!(volumes.contains(old), "{volumes}");
        for mount in [
            r#"{"name":"fs-1","mountPath":"/mnt/shoal/ro/fs-1","readOnly":true}"#,
            r#"{"name":"fs-1","mountPath":"/mnt/shoal/rw/fs-1"}"#,
            r#"{"name":"fs-1","mountPath":"/mnt/shoal/ro/fs-3","readOnly":true}"#,
        ] {
            assert!(mounts.contains(mount), "{mounts}");
        }
        assert!(!mounts.contains("fs-2") && !mounts.contains("fs-5"), "{mounts}");
    }

    #[test]
    fn an_image_of_the_jobs_own_is_brought_the_program() {
        let hosts = BTreeSet::from([1]);
        let spec = spec(Some("registry/mine:2"), "");
        let pod = checked::<Pod>(pod(&options(), "shoal-data-a", &spec, (1, &hosts), "uid", "ns"));
        let (init, container) = (&pod["spec"]["initContainers"][0], &pod["spec"]["containers"][0]);
        assert_eq!((&container["image"], &container["command"][0]), (&json!("registry/mine:2"), &json!(BROUGHT)));
        assert_eq!(init["image"], "registry/shoal:1");
        assert_eq!(init["command"], json!(["/usr/local/bin/shoal", "agent-binary", "/shoal/shoal"]));
        assert_eq!(
            pod["spec"]["volumes"],
            json!([{"name": "cache", "emptyDir": {}}, {"name": "shoal", "emptyDir": {}}])
        );
    }
}
