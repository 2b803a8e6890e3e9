//! What the states of a job's pods are together.

use super::names;
use super::pods::{Pods, Seen};
use super::state::PodState;
use crate::record::Submitted;
use crate::scheduled::Stage;

/// How a job is, by its pods.
pub(super) fn of(target: &str, pods: &Pods, job: &Submitted) -> Stage {
    let service = names::service(&job.name);
    let of_host = |host: &u32| (*host, pods.get(&names::pod(&service, *host)));
    let all = Vec::from_iter(job.hosts.iter().map(of_host));
    // A pod that was deleted is not there, however it was before.
    let is_over =
        |seen: &Option<&Seen>| seen.is_none_or(|seen| seen.gone.is_some() || matches!(seen.state, PodState::Over(_)));
    let ended = || all.iter().filter(|(_, seen)| is_over(seen)).map(|(host, _)| *host).collect();
    let over = all.iter().filter(|(_, seen)| is_over(seen)).count();
    let waiting = Vec::from_iter(all.iter().filter_map(|(host, seen)| match &(*seen)?.state {
        PodState::Waits(why) => Some((*host, &**why)),
        PodState::Runs | PodState::Over(_) => None,
    }));
    match (over, waiting.first()) {
        (count, _) if count == all.len() => Stage::Over,
        // A caller that waits for all of them need not wait any more.
        (1.., _) | (0, None) => Stage::Runs { ended: ended() },
        (0, Some((host, why))) => Stage::Waits { reason: reason(target, (*host, why), waiting.len(), all.len()) },
    }
}

fn reason(target: &str, (host, why): (u32, &str), waiting: usize, all: usize) -> String {
    if all == 1 {
        return format!("Waiting on compute target {target}: {why}");
    }
    if waiting == all {
        return format!("Waiting on compute target {target}, all {all} pods; algo-{host}: {why}");
    }
    format!(
        "Waiting on compute target {target}: {waiting} of {all} pods have no place, and the others hold theirs; algo-{host}: \
         {why}. Pods are placed one by one; a queue of Kueue's places all or none (queue = \"..\")"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::{Ending, HostEnd};

    fn stage(states: &[Option<PodState>], gone: bool) -> Stage {
        let job = Submitted { id: 0, name: "shoal-a".into(), hosts: (1..).take(states.len()).collect(), user: None };
        let seen = |state: &PodState| Seen { pod: Arc::default(), state: state.clone(), gone: gone.then(Instant::now) };
        let named =
            (1..).zip(states).filter_map(|(host, state)| Some((format!("shoal-a-{host}"), seen(state.as_ref()?))));
        of("k8s", &named.collect(), &job)
    }

    fn waits(why: &str) -> Option<PodState> {
        Some(PodState::Waits(why.to_owned()))
    }

    #[test]
    fn a_job_waits_until_all_of_its_pods_have_a_node() {
        let runs = || Some(PodState::Runs);
        let over = || Some(PodState::Over(HostEnd { ending: Ending::Itself, text: String::new() }));
        let of = |states: &[Option<PodState>]| stage(states, false);
        let ended = |hosts: &[u32]| Stage::Runs { ended: BTreeSet::from_iter(hosts.iter().copied()) };
        assert_eq!(of(&[runs(), runs()]), ended(&[]));
        assert_eq!(of(&[waits("no cpu")]), Stage::Waits { reason: "Waiting on compute target k8s: no cpu".into() });
        let Stage::Waits { reason } = of(&[runs(), waits("no cpu"), runs()]) else { panic!("it waits") };
        assert!(reason.contains("1 of 3 pods have no place") && reason.contains("algo-2: no cpu"), "{reason}");
        let Stage::Waits { reason } = of(&[waits("a"), waits("b")]) else { panic!("it waits") };
        assert!(reason.ends_with("all 2 pods; algo-1: a"), "{reason}");
        assert_eq!(of(&[waits("a"), over()]), ended(&[2]));
        assert_eq!(of(&[over(), over()]), Stage::Over);
        assert_eq!(of(&[runs(), None]), ended(&[2]), "it was deleted, and nothing is known of it");
        assert_eq!(of(&[None, None]), Stage::Over);
        assert_eq!(stage(&[runs(), waits("a")], true), Stage::Over, "what is gone is over");
    }
}
