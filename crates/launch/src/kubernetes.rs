//! Instances as pods of a Kubernetes cluster: for each attempt a headless Service that owns a pod
//! for each agent. The cluster decides when and where. Pods are plain ones (retries are the
//! server's), so any scheduler of pods can place them, and Kueue can admit them together.

mod access;
mod checking;
mod entrypoints;
mod names;
mod objects;
mod options;
mod pods;
mod reports;
mod stages;
mod state;

use std::collections::BTreeSet;
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, Node, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::task::JoinSet;

use self::access::{Access, Connected, is_missing};
use self::entrypoints::{Entrypoints, Found, LIMIT};
use self::objects::{JOB_ANNOTATION, MANAGED, NAME_LABEL};
pub use self::options::{CacheVolume, Claim, KubernetesOptions, PodOptions, volume_path};
use self::pods::{Pods, Watched};
use crate::error_chain::chain;
use crate::record::Submitted;
use crate::scheduled::{Scheduled, Scheduler, Stage, allocation_of};
use crate::verdicts::Verdicts;
use crate::{AllocationSpec, HostEnd, LaunchError, Launcher, Wants};

/// For the pods of an instance to be listed after a start.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// For the cluster to end a pod.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// After it, pods of nodes that are not ready are removed without their kubelets.
const FORCE_AFTER: Duration = Duration::from_secs(3);
/// Between two questions whether pods have ended; longer, the longer that takes.
const MIN_POLL: Duration = Duration::from_millis(50);
const MAX_POLL: Duration = Duration::from_secs(1);
/// Services whose pods one call lists.
const MAX_NAMES: usize = 50;
/// Pods that are created at a time.
const MAX_CALLS: usize = 16;
/// Names what of an object is ours.
const MANAGER: &str = "shoal";
/// From SIGTERM to SIGKILL: with 0, the API server would not wait for the kubelet.
const GRACE_SECONDS: u32 = 1;

/// A launcher of pods on this cluster.
#[must_use]
pub fn kubernetes(options: KubernetesOptions) -> impl Launcher {
    Scheduled::on(Cluster {
        access: Access::new(options.clone()),
        entrypoints: Arc::new(Entrypoints::new(&options)),
        options,
        watched: Arc::default(),
        watch: Once::new(),
        verdicts: Verdicts::default(),
    })
}

/// A Kubernetes cluster.
#[derive(Debug)]
struct Cluster {
    options: KubernetesOptions,
    access: Access,
    entrypoints: Arc<Entrypoints>,
    watched: Arc<Watched>,
    /// The watch is started when something is known to be there.
    watch: Once,
    verdicts: Verdicts,
}

impl Cluster {
    fn watched(&self) -> &Watched {
        self.watch.call_once(|| self.access.spawn(|session| pods::keep(self.watched.clone(), session)));
        &self.watched
    }

    fn unavailable(&self, what: String) -> LaunchError {
        LaunchError::Unavailable { target: self.options.target.clone(), what }
    }

    /// The pods of Services, as the API server has them now.
    fn pods_of(&self, services: &[String]) -> Result<Vec<Pod>, LaunchError> {
        let selectors =
            Vec::from_iter(services.chunks(MAX_NAMES).map(|names| format!("{NAME_LABEL} in ({})", names.join(","))));
        self.access.call(|connected| async move {
            let api = Api::<Pod>::namespaced(connected.client, &connected.namespace);
            let mut all = Vec::new();
            for selector in selectors {
                all.extend(api.list(&ListParams::default().labels(&selector)).await?);
            }
            Ok(all)
        })
    }

    /// Deletes pods, those that are already being deleted as well if `grace` is 0.
    fn delete(&self, pods: &[Pod], grace: u32) -> Result<(), LaunchError> {
        let is_new = |pod: &&Pod| grace == 0 || pod.metadata.deletion_timestamp.is_none();
        let names = pods.iter().filter(is_new).map(|pod| (pod.name_any(), pod.metadata.uid.clone()));
        let names = Vec::from_iter(names);
        self.access.call(move |connected| async move {
            let api = Api::<Pod>::namespaced(connected.client, &connected.namespace);
            let mut calls = JoinSet::new();
            for (name, uid) in names {
                let api = api.clone();
                // Not one that has the name by now.
                let params = DeleteParams::default().grace_period(grace);
                let params = params.preconditions(Preconditions { uid, resource_version: None });
                calls.spawn(async move { api.delete(&name, &params).await.map(drop) });
                if calls.len() >= MAX_CALLS
                    && let Some(done) = calls.join_next().await
                {
                    unless_missing(done)?;
                }
            }
            while let Some(done) = calls.join_next().await {
                unless_missing(done)?;
            }
            Ok(())
        })
    }

    /// Deletes the pods that this finds and waits until none of them is left.
    fn end_pods(&self, find: impl Fn() -> Result<Vec<Pod>, LaunchError>) -> Result<(), LaunchError> {
        let begun = Instant::now();
        loop {
            let left = find()?;
            let Some(one) = left.first() else { return Ok(()) };
            if begun.elapsed() >= END_TIMEOUT {
                let (name, seconds) = (one.name_any(), END_TIMEOUT.as_secs());
                return Err(self.unavailable(format!("pod {name} was deleted {seconds} s ago and has not ended")));
            }
            self.delete(&left, GRACE_SECONDS)?;
            if begun.elapsed() >= FORCE_AFTER {
                self.delete(&self.on_lost_nodes(left)?, 0)?;
            }
            thread::sleep((begun.elapsed() / 10).clamp(MIN_POLL, MAX_POLL));
        }
    }

    /// Those whose node is gone or not ready, as far as the server may know of nodes.
    fn on_lost_nodes(&self, pods: Vec<Pod>) -> Result<Vec<Pod>, LaunchError> {
        let node = |pod: &Pod| pod.spec.as_ref()?.node_name.clone();
        let nodes = BTreeSet::from_iter(pods.iter().filter_map(node));
        let lost = self.access.call(|connected| async move {
            let mut lost = BTreeSet::new();
            for name in nodes {
                if is_node_lost(&connected, &name).await {
                    lost.insert(name);
                }
            }
            Ok(lost)
        })?;
        Ok(pods.into_iter().filter(|pod| node(pod).is_some_and(|name| lost.contains(&name))).collect())
    }

    fn delete_services(&self, names: Vec<String>) -> Result<(), LaunchError> {
        self.access.call(|connected| async move {
            let api = Api::<Service>::namespaced(connected.client, &connected.namespace);
            for name in names {
                match api.delete(&name, &DeleteParams::background()).await {
                    Err(error) if !is_missing(&error) => return Err(error),
                    // Its pods follow, whatever becomes of this process.
                    _ => {}
                }
            }
            Ok(())
        })
    }

    fn end_services(&self, names: &[String]) -> Result<(), LaunchError> {
        if names.is_empty() {
            return Ok(());
        }
        self.delete_services(names.to_vec())?;
        self.end_pods(|| self.pods_of(names))
    }
}

fn unless_missing(done: Result<Result<(), kube::Error>, tokio::task::JoinError>) -> Result<(), kube::Error> {
    match done {
        // Another one has its name: 409.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(()),
        Ok(done) => done,
        Err(panic) => Err(kube::Error::Service(panic.into())),
    }
}

/// Whether a node is gone or not ready; false where the server may not know of nodes.
async fn is_node_lost(connected: &Connected, name: &str) -> bool {
    match Api::<Node>::all(connected.client.clone()).get_opt(name).await {
        Ok(None) => true,
        Ok(Some(node)) => !reports::is_ready(&node),
        Err(_) => false,
    }
}

/// Creates the Service and the pods of a job, where they are not there yet.
async fn create(
    connected: Connected,
    (service, pods): (Value, impl Fn(&str, &str) -> Vec<Value>),
) -> Result<Vec<Pod>, kube::Error> {
    let Connected { client, namespace } = connected;
    let params = PatchParams::apply(MANAGER).force();
    let services = Api::<Service>::namespaced(client.clone(), &namespace);
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    let owner = services.patch(name, &params, &Patch::Apply(&service)).await?;
    let api = Api::<Pod>::namespaced(client, &namespace);
    let (mut calls, mut created) = (JoinSet::new(), Vec::new());
    for pod in pods(owner.metadata.uid.as_deref().unwrap_or_default(), &namespace) {
        let (api, params) = (api.clone(), params.clone());
        calls.spawn(async move {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            api.patch(name, &params, &Patch::Apply(&pod)).await
        });
        if calls.len() >= MAX_CALLS
            && let Some(done) = calls.join_next().await
        {
            created.push(done.map_err(|panic| kube::Error::Service(panic.into()))??);
        }
    }
    while let Some(done) = calls.join_next().await {
        created.push(done.map_err(|panic| kube::Error::Service(panic.into()))??);
    }
    Ok(created)
}

impl Scheduler for Cluster {
    type Jobs = Arc<Pods>;

    const KIND: &'static str = "kubernetes";

    fn target(&self) -> &str {
        &self.options.target
    }

    fn jobs(&self) -> Result<Arc<Pods>, LaunchError> {
        self.watched().pods(LIST_TIMEOUT).map_err(|problem| self.unavailable(problem))
    }

    fn variables(&self, spec: &AllocationSpec) -> Vec<(String, String)> {
        let wants = &spec.wants;
        let Some(image) = wants.image.clone().filter(|_| wants.starts_image) else { return Vec::new() };
        let (entrypoints, pods, named) = (self.entrypoints.clone(), self.options.of_type(&wants.kind), image.clone());
        let found = self
            .access
            .run(LIMIT, |session| async move { entrypoints.of(&session, &named, &pods, Instant::now).await });
        vec![found.unwrap_or_else(|why| Found::unknown(&image, &why, "try again")).variable()]
    }

    fn submit(&self, spec: &AllocationSpec, job: &Submitted) -> Result<u64, LaunchError> {
        let watched = self.watched();
        let service = objects::service(&job.name, spec);
        let (options, spec, Submitted { name, hosts, .. }) = (self.options.clone(), spec.clone(), job.clone());
        let pods = move |owner: &str, namespace: &str| -> Vec<Value> {
            let pod = |host: &u32| objects::pod(&options, &name, &spec, (*host, &hosts), owner, namespace);
            hosts.iter().map(pod).collect()
        };
        match self.access.call(|connected| create(connected, (service, pods))) {
            Ok(created) => {
                created.into_iter().for_each(|pod| watched.created(pod));
                // Jobs are known by their names alone.
                Ok(0)
            }
            Err(error @ (LaunchError::Refused { .. } | LaunchError::Full { .. })) => {
                // All or none.
                self.clear(&job.name)?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn find(&self, job: &Submitted, _: &[Submitted]) -> Result<Option<u64>, LaunchError> {
        let pods = self.pods_of(&[names::service(&job.name)])?;
        Ok((pods.len() == job.hosts.len()).then_some(0))
    }

    fn clear(&self, name: &str) -> Result<(), LaunchError> {
        self.end_services(&[names::service(name)])
    }

    fn check(&self, wants: &Wants) -> Result<(), LaunchError> {
        let refused = |what| Err(access::refused(self.options.target.clone(), what));
        self.refusal(wants).map_or(Ok(()), refused)
    }

    fn stage(&self, pods: &Arc<Pods>, job: &Submitted) -> Stage {
        stages::of(&self.options.target, pods, job)
    }

    fn end_of(&self, pods: &Arc<Pods>, job: &Submitted, host: u32) -> Option<HostEnd> {
        let name = names::pod(&names::service(&job.name), host);
        let seen = pods.get(&name);
        let node = self.node_of(pods, job, host);
        if let Some(state::PodState::Over(end)) = seen.map(|seen| &seen.state) {
            return Some(end.clone().on_node(node.as_deref()));
        }
        let named = node.clone();
        let of_pod = format!("involvedObject.kind=Pod,involvedObject.name={name}");
        let known = self.access.call(move |connected| async move {
            let api = Api::<Event>::namespaced(connected.client.clone(), &connected.namespace);
            // Rights to read events and nodes are optional.
            let events =
                api.list(&ListParams::default().fields(&of_pod)).await.map(|list| list.items).unwrap_or_default();
            let is_node_lost = match node {
                Some(node) => is_node_lost(&connected, &node).await,
                None => false,
            };
            Ok((events, is_node_lost))
        });
        let (events, is_node_lost) = known.unwrap_or_default();
        let end = state::of_deleted(&name, seen.map(|seen| &*seen.pod), &events, is_node_lost);
        Some(end.on_node(named.as_deref()))
    }

    fn node_of(&self, pods: &Arc<Pods>, job: &Submitted, host: u32) -> Option<String> {
        let seen = pods.get(&names::pod(&names::service(&job.name), host))?;
        seen.pod.spec.as_ref()?.node_name.clone()
    }

    fn end(&self, jobs: &[Submitted]) -> Result<(), LaunchError> {
        self.end_services(&Vec::from_iter(jobs.iter().map(|job| names::service(&job.name))))
    }

    fn end_hosts(&self, job: &Submitted, hosts: &BTreeSet<u32>) -> Result<(), LaunchError> {
        let service = names::service(&job.name);
        let ending = BTreeSet::from_iter(hosts.iter().map(|host| names::pod(&service, *host)));
        self.end_pods(|| {
            let mut pods = self.pods_of(std::slice::from_ref(&service))?;
            pods.retain(|pod| ending.contains(&pod.name_any()));
            Ok(pods)
        })
    }

    fn end_others(&self, is_other: &dyn Fn(&str) -> bool) -> Result<(), LaunchError> {
        let services = self.access.call(|connected| async move {
            let api = Api::<Service>::namespaced(connected.client, &connected.namespace);
            api.list(&ListParams::default().labels(&format!("{}={}", MANAGED.0, MANAGED.1))).await
        })?;
        let is_other = |service: &Service| {
            let job = service.annotations().get(JOB_ANNOTATION);
            job.and_then(|name| allocation_of(name)).is_some_and(is_other)
        };
        let others = services.iter().filter(|service| is_other(service));
        self.end_services(&Vec::from_iter(others.map(ResourceExt::name_any)))
    }

    fn details(&self, _: &[String]) -> Result<Vec<String>, String> {
        let options = self.options.clone();
        let asked = self.access.call(|connected| async move {
            let found = reports::ask(connected.clone()).await?;
            let missing = checking::missing(&connected, &options).await;
            Ok((connected.namespace, found, missing))
        });
        let (namespace, found, missing) = asked.map_err(|error| error.to_string())?;
        let mut details = reports::sentences(&namespace, &found)?;
        details.extend(
            missing.unwrap_or_else(|error| vec![format!("claims and queues cannot be looked up: {}", chain(&error))]),
        );
        Ok(details)
    }
}
