//! How a cluster stands: its nodes, what its user may do, the pods of all servers.

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use super::access::{Connected, is_missing};
use super::objects::MANAGED;
use super::state::{self, PodState};

/// Rights that jobs need: verb and resource. Server-side apply is `patch`, and `create` where there
/// is no such object.
const NEEDED: [(&str, &str); 9] = [
    ("create", "pods"),
    ("patch", "pods"),
    ("list", "pods"),
    ("watch", "pods"),
    ("delete", "pods"),
    ("create", "services"),
    ("patch", "services"),
    ("list", "services"),
    ("delete", "services"),
];

/// What the API server answers.
#[derive(Debug, Default)]
pub(super) struct Found {
    version: String,
    is_namespace_missing: bool,
    /// Of [`NEEDED`], in words.
    missing_rights: Vec<String>,
    /// None: they may not be listed.
    nodes: Option<Vec<Node>>,
    pods: Vec<Pod>,
}

/// Asks the API server.
pub(super) async fn ask(connected: Connected) -> Result<Found, kube::Error> {
    let Connected { client, namespace } = connected;
    let version = client.apiserver_version().await?.git_version;
    let named = Api::<Namespace>::all(client.clone()).get_opt(&namespace).await;
    let mut missing_rights = Vec::new();
    for (verb, resource) in NEEDED {
        let attributes = json!({"verb": verb, "resource": resource, "namespace": namespace});
        let review = json!({"metadata": {}, "spec": {"resourceAttributes": attributes}});
        let review: SelfSubjectAccessReview = serde_json::from_value(review).map_err(kube::Error::SerdeError)?;
        let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
        if !answer.status.is_some_and(|status| status.allowed) {
            missing_rights.push(format!("{verb} {resource}"));
        }
    }
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    let ours = ListParams::default().labels(&format!("{}={}", MANAGED.0, MANAGED.1));
    Ok(Found {
        version,
        // One that may not be looked at may be there.
        is_namespace_missing: matches!(&named, Ok(None)) || named.is_err_and(|error| is_missing(&error)),
        nodes: Api::<Node>::all(client).list(&ListParams::default()).await.ok().map(|list| list.items),
        pods: if missing_rights.is_empty() { pods.list(&ours).await?.items } else { Vec::new() },
        missing_rights,
    })
}

/// In sentences; or what is missing.
pub(super) fn sentences(namespace: &str, found: &Found) -> Result<Vec<String>, String> {
    if found.is_namespace_missing {
        return Err(format!("there is no namespace {namespace}: `kubectl create namespace {namespace}`"));
    }
    if !found.missing_rights.is_empty() {
        let rights = found.missing_rights.join(", ");
        return Err(format!(
            "the server's user may not {rights} in namespace {namespace}: grant it the rights of deploy/"
        ));
    }
    let mut all = vec![format!("Kubernetes {}, namespace {namespace}", found.version)];
    match &found.nodes {
        None => all.push("its nodes may not be listed (the right is optional)".to_owned()),
        Some(nodes) => all.push(capacity(nodes)),
    }
    let states = Vec::from_iter(found.pods.iter().map(state::of));
    let waits = states.iter().filter(|state| matches!(state, PodState::Waits(_))).count();
    let runs = states.iter().filter(|state| matches!(state, PodState::Runs)).count();
    all.push(format!("pods of Shoal: {runs} run, {waits} wait"));
    Ok(all)
}

fn capacity(nodes: &[Node]) -> String {
    let is_open = |node: &Node| node.spec.as_ref().is_none_or(|it| it.unschedulable != Some(true));
    let usable = |node: &&Node| is_ready(node) && is_open(node);
    let usable = Vec::from_iter(nodes.iter().filter(usable));
    let total = |name: &str| usable.iter().map(|node| allocatable(node, name)).sum::<u64>();
    let mut text = format!(
        "{} of {} nodes ready, {} processors, {} GiB",
        usable.len(),
        nodes.len(),
        total("cpu") / 1000,
        (total("memory") / 1000) >> 30
    );
    let mut others = std::collections::BTreeSet::new();
    for node in &usable {
        let resources = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        // Devices have the name of a domain.
        others.extend(resources.into_iter().flat_map(|all| all.keys()).filter(|name| name.contains('/')));
    }
    let others = others.into_iter().filter(|name| !name.starts_with("attachable-volumes"));
    others.for_each(|name| text.push_str(&format!(", {} {name}", total(name) / 1000)));
    text
}

/// Whether a node's kubelet answers.
pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Thousandths of what a node has to give of a resource.
fn allocatable(node: &Node, name: &str) -> u64 {
    let resources = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    resources.and_then(|all| all.get(name)).and_then(|quantity| thousandths(&quantity.0)).unwrap_or(0)
}

/// Thousandths of a quantity as Kubernetes writes it: `4`, `3920m`, `16Gi`.
fn thousandths(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: u64 = match unit {
        "" => 1000,
        "m" => 1,
        "k" => 1000 * 1000,
        "M" => 1000 * 1000 * 1000,
        "G" => 1000 * 1000 * 1000 * 1000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let part = part.get(..part.len().min(3)).unwrap_or_default();
    let parts: u64 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let scale = 10_u64.pow(u32::try_from(part.len()).ok()?);
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(parts.checked_mul(factor)? / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_numbers() {
        for (text, expected) in [
            ("4", 4000),
            ("3920m", 3920),
            ("1.5", 1500),
            ("16Gi", 1000 << 34),
            ("32786Mi", 32_786_000 << 20),
            ("2k", 2_000_000),
        ] {
            assert_eq!(thousandths(text), Some(expected), "{text}");
        }
        assert_eq!((thousandths("x"), thousandths("1Xi")), (None, None));
    }

    #[test]
    fn a_cluster_is_described_or_what_is_missing_is_named() {
        let node = |ready: &str, cordoned: bool| -> Node {
            let allocatable = json!({"cpu": "7910m", "memory": "62Gi", "pods": "110", "nvidia.com/gpu": "2"});
            let status = json!({"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]});
            let node = json!({"metadata": {}, "spec": {"unschedulable": cordoned}, "status": status});
            serde_json::from_value(node).expect("a node")
        };
        let pod =
            |phase: &str| serde_json::from_value(json!({"metadata": {}, "status": {"phase": phase}})).expect("a pod");
        let mut found = Found {
            version: "v1.20.2".into(),
            nodes: Some(vec![node("True", false), node("True", false), node("Unknown", false), node("True", true)]),
            pods: vec![pod("Running"), pod("Pending"), pod("Succeeded")],
            ..Found::default()
        };
        assert_eq!(
            sentences("ml", &found).expect("all is well"),
            [
                "Kubernetes v1.20.2, namespace ml",
                "2 of 4 nodes ready, 15 processors, 124 GiB, 4 nvidia.com/gpu",
                "pods of Shoal: 1 run, 1 wait"
            ]
        );
        found.nodes = None;
        assert!(sentences("ml", &found).expect("all is well")[1].contains("may not be listed"));
        found.missing_rights = vec!["create pods".into(), "watch pods".into()];
        let problem = sentences("ml", &found).expect_err("rights are missing");
        assert!(problem.contains("may not create pods, watch pods in namespace ml"), "{problem}");
        found.is_namespace_missing = true;
        assert_eq!(
            sentences("ml", &found).expect_err("no namespace"),
            "there is no namespace ml: `kubectl create namespace ml`"
        );
    }
}
