//! What the status of a pod means to its instance. Nothing here asks the cluster.

use std::ops::RangeInclusive;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Event, Pod, PodStatus};

use crate::{Ending, HostEnd};

/// How a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PodState {
    /// It needs something that it does not have yet: what, and what to do.
    Waits(String),
    /// Its containers run, or are about to.
    Runs,
    /// It is over, or will never run.
    Over(HostEnd),
}

/// Reasons for which a container waits that stay until its image is changed.
const NEVER: [&str; 2] = ["InvalidImageName", "ErrImageNeverPull"];
/// Words of registries by which an image cannot be pulled, however often that is tried.
const NOT_PULLABLE: [&str; 9] = [
    "not found",
    "manifest unknown",
    "name unknown",
    "does not exist",
    "unauthorized",
    "denied",
    "authentication required",
    "no match for platform",
    "invalid reference format",
];
/// Of containers that are about to start.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Exit codes of a container that a signal has ended, and signals that come from outside.
const SIGNALLED: RangeInclusive<i32> = 129..=192;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// How a pod is, by its status.
pub(super) fn of(pod: &Pod) -> PodState {
    let Some(status) = &pod.status else { return PodState::Waits(NOT_SEEN.to_owned()) };
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    match status.phase.as_deref() {
        Some("Succeeded") => over(Ending::Itself, message_of(status)),
        Some("Failed") => match failure(name, status) {
            // It was killed because it is deleted; why that is shows when it is gone.
            HostEnd { ending: Ending::Itself, .. } if pod.metadata.deletion_timestamp.is_some() => PodState::Runs,
            end => PodState::Over(end),
        },
        // Nothing of a lost node's pods is confirmed any more.
        _ if status.reason.as_deref() == Some("NodeLost") => PodState::Over(failure(name, status)),
        Some("Pending") => pending(status),
        _ => PodState::Runs,
    }
}

/// How a pod that is gone ended, by how it was last, by its events, and by whether its node is
/// there.
pub(super) fn of_deleted(name: &str, last: Option<&Pod>, events: &[Event], is_node_gone: bool) -> HostEnd {
    if let Some(PodState::Over(end)) = last.map(of) {
        return end;
    }
    if let Some(end) = last.and_then(|pod| disruption(name, pod.status.as_ref()?)) {
        return end;
    }
    let of_event = events.iter().rev().find_map(|event| {
        let ending = match event.reason.as_deref()? {
            "Preempted" => Ending::Preempted,
            "TaintManagerEviction" | "NodeNotReady" | "DeletingNode" => Ending::NodeFailed,
            "Evicted" => Ending::Preempted,
            _ => return None,
        };
        Some(HostEnd { ending, text: how(name, ending, event.message.as_deref().unwrap_or_default()) })
    });
    if let Some(end) = of_event {
        return end;
    }
    let ending = if is_node_gone { Ending::NodeFailed } else { Ending::Cancelled };
    HostEnd { ending, text: how(name, ending, "") }
}

impl HostEnd {
    /// The same; of a lost node with its name.
    pub(super) fn on_node(mut self, node: Option<&str>) -> Self {
        if let (Ending::NodeFailed, Some(node)) = (self.ending, node) {
            self.text.push_str(&format!(" (node {node})"));
        }
        self
    }
}

const NOT_SEEN: &str = "the scheduler has not looked at it yet";

fn pending(status: &PodStatus) -> PodState {
    if let Some(why) = waiting(status).find_map(|(container, state)| never_starts(container, state)) {
        return over(Ending::NeverStarted, why);
    }
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let scheduled = conditions.iter().find(|it| it.type_ == "PodScheduled");
    match scheduled {
        Some(condition) if condition.status == "True" => {}
        Some(condition) => {
            let message = condition.message.as_deref().unwrap_or_default();
            return PodState::Waits(unscheduled(condition.reason.as_deref().unwrap_or_default(), message));
        }
        None if status.start_time.is_none() && status.host_ip.is_none() => {
            return PodState::Waits(NOT_SEEN.to_owned());
        }
        None => {}
    }
    match waiting(status).find_map(|(container, state)| cannot_start(container, state)) {
        Some(why) => PodState::Waits(why),
        None => PodState::Runs,
    }
}

fn waiting(status: &PodStatus) -> impl Iterator<Item = (&ContainerStatus, (&str, &str))> {
    let waiting = |container| -> Option<(&ContainerStatus, (&str, &str))> {
        let container: &ContainerStatus = container;
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        Some((container, (waiting.reason.as_deref()?, waiting.message.as_deref().unwrap_or_default())))
    };
    containers(status).filter_map(waiting)
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    lists.into_iter().flatten().flatten()
}

/// Why a container will never start.
fn never_starts(container: &ContainerStatus, (reason, message): (&str, &str)) -> Option<String> {
    let lower = message.to_lowercase();
    let is_pull = matches!(reason, "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName");
    let never = NEVER.contains(&reason) || is_pull && NOT_PULLABLE.iter().any(|words| lower.contains(words));
    never.then(|| {
        format!(
            "the image {:?} cannot be pulled ({reason}): {message}. Check its name and its tag; for a private registry \
             name a Secret in image_pull_secrets of the compute target",
            container.image
        )
    })
}

/// Why a container has not started, if it is not just starting.
fn cannot_start(container: &ContainerStatus, (reason, message): (&str, &str)) -> Option<String> {
    let image = &container.image;
    let text = match reason {
        starting if STARTING.contains(&starting) => return None,
        // The kubelet alternates between these two.
        "ErrImagePull" | "ImagePullBackOff" => {
            return Some(format!("the image {image:?} could not be pulled yet, and is tried again"));
        }
        "CreateContainerConfigError" => "something that its pod names is missing",
        _ => "its container cannot start",
    };
    Some(format!("{reason} ({text}): {message}"))
}

/// Why a pod has no node.
fn unscheduled(reason: &str, message: &str) -> String {
    let meaning = match reason {
        "Unschedulable" if message.contains("didn't match") => {
            " (no node has the labels, or tolerates what the type's node_selector and tolerations name: `kubectl get \
             nodes --show-labels`)"
        }
        "Unschedulable" if message.contains("nsufficient") => {
            " (it waits for capacity; if no node is that large, give the type less by cpus, memory or gpus)"
        }
        "SchedulingGated" => return "Kueue has not admitted it yet (SchedulingGated): `kubectl get localqueues,workloads` in the namespace shows its queue, and why it waits"
                .to_owned(),
        _ => "",
    };
    match message {
        "" => format!("{reason}{meaning}"),
        message => format!("{reason}: {message}{meaning}"),
    }
}

/// How a pod failed.
fn failure(name: &str, status: &PodStatus) -> HostEnd {
    if let Some(end) = disruption(name, status) {
        return end;
    }
    let message = status.message.as_deref().unwrap_or_default();
    let ending = match status.reason.as_deref().unwrap_or_default() {
        "Evicted" | "Preempting" => Ending::Preempted,
        "DeadlineExceeded" => Ending::TimeLimit,
        "NodeLost" | "NodeShutdown" | "Shutdown" | "Terminated" | "NodeAffinity" | "UnexpectedAdmissionError" => {
            Ending::NodeFailed
        }
        // The kubelet had less left than the scheduler thought: OutOfcpu, OutOfmemory, OutOfpods.
        refused if refused.starts_with("OutOf") => Ending::NodeFailed,
        _ => return container_failure(name, status, message),
    };
    HostEnd { ending, text: how(name, ending, message) }
}

fn container_failure(name: &str, status: &PodStatus, message: &str) -> HostEnd {
    let ended = |container| -> Option<_> {
        let container: &ContainerStatus = container;
        let terminated = container.state.as_ref().and_then(|state: &ContainerState| state.terminated.as_ref())?;
        (terminated.exit_code != 0).then_some((container, terminated))
    };
    let Some((container, terminated)) = containers(status).find_map(ended) else {
        return HostEnd { ending: Ending::Itself, text: message.to_owned() };
    };
    let last = last_line(terminated.message.as_deref().unwrap_or_default());
    match terminated.reason.as_deref() {
        Some("OOMKilled") => HostEnd { ending: Ending::OutOfMemory, text: how(name, Ending::OutOfMemory, "") },
        Some("StartError" | "ContainerCannotRun" | "RunContainerError") => HostEnd {
            ending: Ending::NeverStarted,
            text: format!("the container of image {:?} could not be started: {last}", container.image),
        },
        // How it ended is not known, and its exit code is the kubelet's.
        Some("Unknown" | "ContainerStatusUnknown") => HostEnd { ending: Ending::Itself, text: last.to_owned() },
        _ if SIGNALLED.contains(&terminated.exit_code) => {
            let signal = terminated.exit_code - 128;
            // Of one that kills from outside the last line is from before.
            let last = Some(last).filter(|last| !last.is_empty() && ![SIGKILL, SIGTERM].contains(&signal));
            let last = last.map_or_else(String::new, |last| format!(": {last}"));
            let text = format!("its container was ended by signal {signal} (exit code {}){last}", terminated.exit_code);
            HostEnd { ending: Ending::Itself, text }
        }
        // The agent's own last words are the reason.
        _ => HostEnd { ending: Ending::Itself, text: last.to_owned() },
    }
}

/// What the control plane did to a pod; clusters from 1.26 on tell it.
fn disruption(name: &str, status: &PodStatus) -> Option<HostEnd> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let condition = conditions.iter().find(|it| it.type_ == "DisruptionTarget" && it.status == "True")?;
    let ending = match condition.reason.as_deref().unwrap_or_default() {
        "DeletionByTaintManager" | "DeletionByPodGC" => Ending::NodeFailed,
        _ => Ending::Preempted,
    };
    Some(HostEnd { ending, text: how(name, ending, condition.message.as_deref().unwrap_or_default()) })
}

fn message_of(status: &PodStatus) -> String {
    let of = |container: &ContainerStatus| container.state.clone()?.terminated?.message;
    containers(status).filter_map(of).map(|text| last_line(&text).to_owned()).last().unwrap_or_default()
}

fn last_line(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

fn over(ending: Ending, text: String) -> PodState {
    PodState::Over(HostEnd { ending, text })
}

/// How a pod ended, for people.
fn how(name: &str, ending: Ending, message: &str) -> String {
    let more = if message.is_empty() { String::new() } else { format!(": {message}") };
    match ending {
        Ending::Itself | Ending::NeverStarted => message.to_owned(),
        Ending::NodeFailed => format!("the node of pod {name} was lost{more}"),
        Ending::Preempted => format!(
            "Kubernetes evicted or preempted pod {name}{more}; with managed spot training and checkpoints the training \
             job is resumed"
        ),
        Ending::TimeLimit => format!("pod {name} reached its time limit (DeadlineExceeded){more}"),
        Ending::OutOfMemory => format!(
            "Kubernetes ended pod {name} for want of memory (OOMKilled): choose an instance type that has more of it"
        ),
        Ending::Cancelled => format!("pod {name} was deleted on the cluster{more}"),
    }
}

#[cfg(test)]
mod tests;
