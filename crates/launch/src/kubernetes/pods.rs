//! The pods of a namespace as a watch has them, with how those ended that are gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, ResourceExt};

use super::access::Session;
use super::objects::MANAGED;
use super::state::{self, PodState};
use crate::error_chain::chain;

/// How long it is remembered how a pod ended that is gone.
const REMEMBERED: Duration = Duration::from_secs(3600);
const RETRY: Duration = Duration::from_secs(1);

/// A pod.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) pod: Arc<Pod>,
    /// One that is over stays over.
    pub(super) state: PodState,
    /// When it was found to be gone.
    pub(super) gone: Option<Instant>,
}

impl Seen {
    fn new(pod: Pod, before: Option<&Seen>) -> Seen {
        let same = before.filter(|before| before.pod.metadata.uid == pod.metadata.uid);
        let state = match same.map(|before| &before.state) {
            Some(over @ PodState::Over(_)) => over.clone(),
            _ => state::of(&pod),
        };
        Seen { pod: Arc::new(pod), state, gone: None }
    }
}

/// Pods by name.
pub(super) type Pods = BTreeMap<String, Seen>;

/// What the watch knows.
#[derive(Debug, Default)]
struct Known {
    pods: Arc<Pods>,
    /// Pods of a list that is not complete yet.
    listed: Option<Pods>,
    is_complete: bool,
    /// Why it is not, or not up to date.
    problem: Option<String>,
}

/// The pods as the watch has them, shared with it.
#[derive(Debug, Default)]
pub(super) struct Watched {
    known: Mutex<Known>,
    changed: Condvar,
}

impl Watched {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All pods, once they are known; or why they are not within this time.
    pub(super) fn pods(&self, timeout: Duration) -> Result<Arc<Pods>, String> {
        let known = self.known();
        let waited = self.changed.wait_timeout_while(known, timeout, |it| !it.is_complete && it.problem.is_none());
        let (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (known.is_complete, &known.problem) {
            (true, _) => Ok(known.pods.clone()),
            (false, Some(problem)) => Err(problem.clone()),
            (false, None) => Err("its pods are not listed yet".to_owned()),
        }
    }

    /// Takes in a pod that was just created: the watch may be late.
    pub(super) fn created(&self, pod: Pod) {
        let mut known = self.known();
        let known = &mut *known;
        let name = pod.name_any();
        // What the watch has of it is newer.
        if known.pods.get(&name).is_none_or(|it| it.pod.metadata.uid != pod.metadata.uid) {
            Arc::make_mut(&mut known.pods).insert(name.clone(), Seen::new(pod.clone(), None));
        }
        if let Some(listed) = &mut known.listed {
            listed.entry(name).or_insert_with(|| Seen::new(pod, None));
        }
    }

    fn note(&self, event: Event<Pod>, now: Instant) {
        let mut known = self.known();
        let known = &mut *known;
        known.problem = None;
        match event {
            Event::Init => known.listed = Some(Pods::new()),
            Event::InitApply(pod) => {
                let name = pod.name_any();
                let seen = Seen::new(pod, known.pods.get(&name));
                known.listed.get_or_insert_default().insert(name, seen);
            }
            Event::InitDone => {
                let mut listed = known.listed.take().unwrap_or_default();
                for (name, seen) in &*known.pods {
                    if !listed.contains_key(name) {
                        listed.insert(name.clone(), Seen { gone: seen.gone.or(Some(now)), ..seen.clone() });
                    }
                }
                known.pods = Arc::new(listed);
                known.is_complete = true;
            }
            Event::Apply(pod) => {
                let name = pod.name_any();
                let seen = Seen::new(pod, known.pods.get(&name));
                Arc::make_mut(&mut known.pods).insert(name, seen);
            }
            Event::Delete(pod) => {
                let name = pod.name_any();
                let seen = Seen { gone: Some(now), ..Seen::new(pod, known.pods.get(&name)) };
                let pods = Arc::make_mut(&mut known.pods);
                pods.insert(name, seen);
                pods.retain(|_, it| it.gone.is_none_or(|gone| now.saturating_duration_since(gone) < REMEMBERED));
            }
        }
        self.changed.notify_all();
    }

    fn fail(&self, problem: String) {
        self.known().problem = Some(problem);
        self.changed.notify_all();
    }
}

/// Keeps the pods up to date, for as long as the task is not ended. A watch that breaks resumes
/// where it was; where the server cannot do that, all are listed again.
pub(super) async fn keep(watched: Arc<Watched>, session: Arc<Session>) {
    let connected = loop {
        match session.connect().await {
            Ok(connected) => break connected,
            Err(error) => watched.fail(chain(&error)),
        }
        tokio::time::sleep(RETRY).await;
    };
    let api = Api::<Pod>::namespaced(connected.client, &connected.namespace);
    let ours = watcher::Config::default().labels(&format!("{}={}", MANAGED.0, MANAGED.1));
    let mut events = std::pin::pin!(watch(api, ours).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => watched.note(event, Instant::now()),
            Err(error) => watched.fail(chain(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Ending, HostEnd};

    fn pod(name: &str, uid: &str, phase: &str) -> Pod {
        let pod = json!({"metadata": {"name": name, "uid": uid}, "status": {"phase": phase}});
        serde_json::from_value(pod).expect("a pod")
    }

    fn known(watched: &Watched) -> Vec<(String, bool, bool)> {
        let pods = watched.pods(Duration::ZERO).expect("a complete list");
        let over = |seen: &Seen| matches!(seen.state, PodState::Over(_));
        pods.iter().map(|(name, seen)| (name.clone(), over(seen), seen.gone.is_some())).collect()
    }

    #[test]
    fn pods_are_known_when_they_are_listed() {
        let (watched, now) = (Watched::default(), Instant::now());
        watched.note(Event::Init, now);
        watched.note(Event::InitApply(pod("a", "1", "Running")), now);
        assert_eq!(watched.pods(Duration::ZERO).expect_err("not complete"), "its pods are not listed yet");
        watched.fail("connection refused".to_owned());
        assert_eq!(
            watched.pods(Duration::from_secs(9)).expect_err("no wait for a server that is gone"),
            "connection refused"
        );
        watched.created(pod("b", "2", "Pending"));
        watched.note(Event::InitDone, now);
        assert_eq!(known(&watched), [("a".into(), false, false), ("b".into(), false, false)]);
        // What is known stays so while the server is gone.
        watched.fail("connection refused".to_owned());
        assert_eq!(known(&watched).len(), 2);
    }

    #[test]
    fn a_new_list_lacks_what_is_gone() {
        let (watched, now) = (Watched::default(), Instant::now());
        for names in [&["a", "b"][..], &["b", "c"]] {
            watched.note(Event::Init, now);
            names.iter().for_each(|name| watched.note(Event::InitApply(pod(name, name, "Running")), now));
            watched.note(Event::InitDone, now);
        }
        assert_eq!(
            known(&watched),
            [("a".into(), false, true), ("b".into(), false, false), ("c".into(), false, false)]
        );
        watched.note(Event::Delete(pod("b", "b", "Running")), now + 2 * REMEMBERED);
        let left = [("b".to_owned(), false, true), ("c".to_owned(), false, false)];
        assert_eq!(known(&watched), left, "what is gone is forgotten after some time");
    }

    #[test]
    fn one_that_is_over_stays_over_until_another_has_its_name() {
        let (watched, now) = (Watched::default(), Instant::now());
        watched.note(Event::Init, now);
        watched.note(Event::InitDone, now);
        watched.note(Event::Apply(pod("a", "1", "Failed")), now);
        watched.note(Event::Apply(pod("a", "1", "Running")), now);
        watched.note(Event::Delete(pod("a", "1", "Running")), now);
        assert_eq!(known(&watched), [("a".into(), true, true)]);
        let pods = watched.pods(Duration::ZERO).expect("complete");
        assert_eq!(pods["a"].state, PodState::Over(HostEnd { ending: Ending::Itself, text: String::new() }));
        watched.created(pod("a", "1", "Pending"));
        assert_eq!(known(&watched), [("a".into(), true, true)], "the watch knows more");
        watched.note(Event::Apply(pod("a", "2", "Pending")), now);
        assert_eq!(known(&watched), [("a".into(), false, false)]);
    }
}
