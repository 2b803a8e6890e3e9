//! All jobs at once, as `squeue` prints them. A job's name and comment are words of its user, and
//! `squeue` prints them as they are, with lines and separators in them: a fence, a random word that
//! is another one at each call, separates them from Slurm's own words.

use std::collections::{BTreeMap, BTreeSet};

use crate::Ending;

/// What `squeue` is to print of each job: Slurm's own words, then the job's name and its comment.
/// The reason is the last of the first, as others may have written it.
pub(super) fn format(fence: &str) -> String {
    format!("{fence}|%i|%T|%S|%N|%u|%U|%r{fence}%j{fence}%k{fence}")
}

/// The same of each step: its number, and its name.
pub(super) fn format_of_steps(fence: &str) -> String {
    format!("{fence}|%i{fence}%j{fence}")
}

/// A job as Slurm has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) state: State,
    /// Why it waits, or why it ended.
    pub(super) reason: String,
    /// When it began, or is expected to: `2026-11-27T08:00:00`, in UTC, with a `Z` or
    /// without.
    pub(super) start: Option<String>,
    /// Which nodes it has or had, as a list of Slurm's; empty: none.
    pub(super) nodes: String,
    pub(super) name: String,
    /// Whose it is, by name.
    pub(super) user: String,
    /// The same, by number, where that is known.
    pub(super) uid: Option<u32>,
    pub(super) comment: String,
}

/// What a state means to an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for nodes.
    Waits,
    /// Has nodes, which are being started: power saving, nodes of a cloud.
    Boots,
    /// Has nodes.
    Runs,
    /// Has nodes, and its processes are stopped.
    Paused,
    /// Has ended, and something of it may still be on its nodes.
    Ends,
    /// Is over.
    Over(Ending),
}

/// Jobs by number; none: this is no answer in that format. Of a number that has two different jobs
/// nothing is believed.
pub(super) fn jobs(text: &str, fence: &str) -> Option<BTreeMap<u64, Job>> {
    let (mut jobs, mut doubtful) = (BTreeMap::new(), BTreeSet::new());
    for (id, job) in records::<4>(text, fence)?.into_iter().filter_map(job) {
        if jobs.get(&id).is_some_and(|other| *other != job) {
            doubtful.insert(id);
        }
        jobs.insert(id, job);
    }
    jobs.retain(|id, _| !doubtful.contains(id));
    Some(jobs)
}

/// Steps of a job with their names; none: this is no answer in that format.
pub(super) fn steps<'a>(text: &'a str, fence: &str, job: u64) -> Option<Vec<(&'a str, &'a str)>> {
    let of_job = format!("|{job}.");
    let steps = records::<3>(text, fence)?.into_iter();
    Some(steps.filter(|[id, ..]| id.starts_with(&of_job)).map(|[id, name, _]| (&id[1..], name)).collect())
}

/// What is between fences, of which each record has `N`: its parts, and what follows the last.
fn records<'a, const N: usize>(text: &'a str, fence: &str) -> Option<Vec<[&'a str; N]>> {
    let mut parts = text.split(fence);
    // Of several clusters, the name of each.
    let is_answer = |line: &str| line.trim().is_empty() || line.starts_with("CLUSTER:");
    if !parts.next().is_some_and(|before| before.lines().all(is_answer)) {
        return None;
    }
    let parts = Vec::from_iter(parts);
    Some(parts.as_chunks::<N>().0.to_vec())
}

fn job([of_slurm, name, comment, _]: [&str; 4]) -> Option<(u64, Job)> {
    let mut fields = of_slurm.strip_prefix('|')?.splitn(7, '|');
    let mut next = || fields.next().map(str::trim);
    let (id, state, start, nodes) = (next()?.parse().ok()?, next()?, next()?, next()?);
    let (user, uid, reason) = (next()?, next()?, next()?);
    let known = |text: &&str| !matches!(*text, "" | "(null)" | "N/A" | "None");
    Some((
        id,
        Job {
            state: state_of(state),
            reason: reason.to_owned(),
            start: Some(start).filter(known).map(str::to_owned),
            nodes: Some(nodes).filter(known).unwrap_or_default().to_owned(),
            name: name.to_owned(),
            user: user.to_owned(),
            uid: uid.parse().ok(),
            comment: Some(comment.trim()).filter(known).unwrap_or_default().to_owned(),
        },
    ))
}

/// What one of Slurm's words for a state means.
pub(super) fn state_of(word: &str) -> State {
    match word {
        "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => State::Waits,
        "CONFIGURING" | "POWER_UP_NODE" => State::Boots,
        "SUSPENDED" | "STOPPED" => State::Paused,
        "COMPLETING" | "STAGE_OUT" | "SIGNALING" => State::Ends,
        "COMPLETED" | "FAILED" => State::Over(Ending::Itself),
        "NODE_FAIL" | "BOOT_FAIL" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => State::Over(Ending::NodeFailed),
        "PREEMPTED" | "REVOKED" => State::Over(Ending::Preempted),
        "TIMEOUT" | "DEADLINE" => State::Over(Ending::TimeLimit),
        "OUT_OF_MEMORY" => State::Over(Ending::OutOfMemory),
        "CANCELLED" => State::Over(Ending::Cancelled),
        // RUNNING, RESIZING
        _ => State::Runs,
    }
}

/// How a job ended, for people.
pub(super) fn how(id: u64, ending: Ending, last: &str) -> String {
    match ending {
        Ending::Itself | Ending::NeverStarted => last.to_owned(),
        Ending::NodeFailed => node_failure(id, &[], &[]),
        Ending::Preempted => format!(
            "Slurm took the nodes of job {id} for a job of a higher priority (PREEMPTED); with managed spot training and \
             checkpoints the training job is resumed"
        ),
        Ending::TimeLimit => format!("Slurm job {id} reached its time limit (TIMEOUT)"),
        Ending::OutOfMemory => format!(
            "Slurm ended job {id} for want of memory (OUT_OF_MEMORY): choose an instance type that has more of it"
        ),
        Ending::Cancelled => format!("Slurm job {id} was cancelled on the cluster (CANCELLED)"),
    }
}

/// Which node of a job failed, for people. `nodes`: what it had; `down`: those of them that are
/// down now.
pub(super) fn node_failure(id: u64, nodes: &[String], down: &[String]) -> String {
    match (nodes, down) {
        ([node], _) | (_, [node]) => format!("node {node} of Slurm job {id} failed (NODE_FAIL)"),
        ([], []) => format!("a node of Slurm job {id} failed (NODE_FAIL)"),
        (nodes, []) => format!("one of the nodes {} of Slurm job {id} failed (NODE_FAIL)", nodes.join(", ")),
        (_, down) => format!("nodes {} of Slurm job {id} failed (NODE_FAIL)", down.join(", ")),
    }
}

/// Why a job waits, for people: Slurm's word, and what it means where that helps.
pub(super) fn why(reason: &str) -> String {
    let meaning = match reason {
        "None" | "" => return "it was just submitted".to_owned(),
        "Priority" => "jobs of a higher priority are before it",
        "Resources" => "it is the next one, and waits for resources",
        "ReqNodeNotAvail" | "ReqNodeNotAvail, May be reserved for other job" => "nodes that it needs are not available",
        "PartitionDown" | "PartitionInactive" => "the partition is down",
        "PartitionNodeLimit" => "the partition has or allows fewer nodes",
        "PartitionConfig" | "BadConstraints" => {
            "no node of the partition is large enough for it or has the features that it asks for, so that it waits for \
             ever: choose another instance type, or correct the target's partition or its types in shoal.toml"
        }
        "PartitionTimeLimit" => "the partition allows a shorter time",
        "JobHeldUser" | "JobHeldAdmin" => "it is held; `scontrol release` lets it go on",
        "BeginTime" => "its earliest start has not come",
        "Licenses" => "it waits for a licence",
        limit if limit.starts_with("QOS") || limit.starts_with("Assoc") => {
            "a limit of the account or the QOS is reached"
        }
        _ => return reason.to_owned(),
    };
    format!("{reason} ({meaning})")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `squeue` of Slurm 22.05 prints it.
    fn printed(of_slurm: &str, name: &str, comment: &str) -> String {
        format!("@7f|{of_slurm}@7f{name}@7f{comment}@7f\n")
    }

    #[test]
    fn records_are_jobs() {
        let text = [
            printed("12|RUNNING|2026-11-27T08:00:00|n[1-2]|anna|1001|None", "shoal-a", "arn:x|2:no | space"),
            printed("13|PENDING|N/A||root|0|Resources", "shoal-b", "(null)"),
            printed("15_[1-9]|PENDING|N/A||root|0|Resources", "array", "(null)"),
            printed("14|NODE_FAIL|2026-11-27T08:00:00|n1|root|0|a|b", "c", ""),
        ]
        .concat();
        let jobs = jobs(&text, "@7f").expect("an answer");
        assert_eq!(jobs.keys().copied().collect::<Vec<_>>(), [12, 13, 14]);
        assert_eq!((jobs[&12].state, &*jobs[&12].comment), (State::Runs, "arn:x|2:no | space"));
        assert_eq!((&*jobs[&12].user, jobs[&12].uid), ("anna", Some(1001)));
        assert_eq!((&*jobs[&12].nodes, &*jobs[&13].nodes), ("n[1-2]", ""));
        assert_eq!((jobs[&13].state, &jobs[&13].start, &*jobs[&13].comment), (State::Waits, &None, ""));
        assert_eq!((jobs[&14].state, &*jobs[&14].name), (State::Over(Ending::NodeFailed), "c"));
        assert_eq!(&*jobs[&14].reason, "a|b");
    }

    #[test]
    fn no_name_and_no_comment_is_taken_for_slurms_own_words() {
        let lines = "\n4712|FAILED|None|N/A|n1|shoal-vic-1|root|0|\n|4712|FAILED|N/A|n1|root|0|None\n";
        let whole = printed("4712|FAILED|N/A|n1|root|0|None", "shoal-vic-1", "").replace("@7f", "@7e");
        let victim = printed("4712|RUNNING|N/A|n1|anna|1001|None", "shoal-vic-1", "arn:x");
        for forged in ["shoal-aaa-1|root|0|", lines, &whole, "\n\n", "|", "(null)", "@7", "7f|4712|"] {
            let mallory = "7|RUNNING|N/A|n2|mallory|1003|None";
            for text in [printed(mallory, forged, "arn:y"), printed(mallory, "job", forged)] {
                let jobs = jobs(&format!("{text}{victim}{text}"), "@7f").expect("an answer");
                assert_eq!(Vec::from_iter(jobs.keys().copied()), [7, 4712], "{forged:?}");
                let (of_slurm, victim) = (&jobs[&7], &jobs[&4712]);
                assert_eq!((&*of_slurm.user, of_slurm.uid, of_slurm.state), ("mallory", Some(1003), State::Runs));
                assert!(of_slurm.name == forged || of_slurm.name == "job", "{of_slurm:?}");
                assert_eq!((victim.state, victim.uid, &*victim.comment), (State::Runs, Some(1001), "arn:x"));
            }
        }
    }

    #[test]
    fn a_number_with_two_jobs_is_not_believed() {
        let [one, other] = ["0", "1003"].map(|uid| printed(&format!("7|RUNNING|N/A|n1|root|{uid}|None"), "a", ""));
        let count = |text: &str| jobs(text, "@7f").expect("an answer").len();
        assert_eq!((count(&one), count(&format!("{one}{one}")), count(&format!("{one}{other}{one}"))), (1, 1, 0));
    }

    #[test]
    fn another_answer_is_none() {
        assert_eq!(jobs("", "@7f"), Some(BTreeMap::new()));
        assert_eq!(jobs("CLUSTER: a\n", "@7f"), Some(BTreeMap::new()));
        let job = printed("7|RUNNING|N/A|n1|root|0|None", "a", "");
        assert_eq!(jobs(&job, "@7e"), None);
        assert_eq!(jobs(&format!("7 main a root\n{job}"), "@7f"), None);
        assert_eq!(jobs(&job[..job.len() - 4], "@7f"), Some(BTreeMap::new()), "it is cut");
    }

    #[test]
    fn steps_have_names_and_are_the_jobs() {
        let step = |id: &str, name: &str| format!("@7f|{id}@7f{name}@7f\n");
        let text = [step("9.0", "host-1"), step("9.batch", "a\n8.0|host-1\n|8.0"), step("8.0", "host-1")].concat();
        let expected = vec![("9.0", "host-1"), ("9.batch", "a\n8.0|host-1\n|8.0")];
        assert_eq!((steps(&text, "@7f", 9), steps("", "@7f", 9)), (Some(expected), Some(Vec::new())));
        assert_eq!(steps("9.0|host-1\n", "@7f", 9), None);
    }

    #[test]
    fn ends_have_their_cause() {
        let of = |words: &[&str], ending| words.iter().all(|word| state_of(word) == State::Over(ending));
        assert!(of(&["TIMEOUT", "DEADLINE"], Ending::TimeLimit) && of(&["OUT_OF_MEMORY"], Ending::OutOfMemory));
        assert!(of(&["PREEMPTED"], Ending::Preempted) && of(&["CANCELLED"], Ending::Cancelled));
        assert!(of(&["NODE_FAIL", "BOOT_FAIL"], Ending::NodeFailed) && of(&["FAILED", "COMPLETED"], Ending::Itself));
        assert_eq!(["PENDING", "COMPLETING", "CONFIGURING"].map(state_of), [State::Waits, State::Ends, State::Boots]);
        assert_eq!(["RUNNING", "SUSPENDED", "STOPPED"].map(state_of), [State::Runs, State::Paused, State::Paused]);
        assert!(how(7, Ending::OutOfMemory, "").contains("choose an instance type that has more of it"));
    }

    #[test]
    fn a_node_that_failed_is_named() {
        let names = |names: &[&str]| Vec::from_iter(names.iter().map(|name| (*name).to_owned()));
        let of = |nodes: &[&str], down: &[&str]| node_failure(7, &names(nodes), &names(down));
        assert_eq!(of(&["n1"], &[]), "node n1 of Slurm job 7 failed (NODE_FAIL)");
        assert_eq!(of(&["n1", "n2"], &["n2"]), "node n2 of Slurm job 7 failed (NODE_FAIL)");
        assert_eq!(of(&["n1", "n2", "n3"], &["n2", "n3"]), "nodes n2, n3 of Slurm job 7 failed (NODE_FAIL)");
        assert_eq!(of(&["n1", "n2"], &[]), "one of the nodes n1, n2 of Slurm job 7 failed (NODE_FAIL)");
    }

    #[test]
    fn reasons_are_explained_where_that_helps() {
        assert_eq!(why("Priority"), "Priority (jobs of a higher priority are before it)");
        assert_eq!(why("QOSMaxGRESPerUser"), "QOSMaxGRESPerUser (a limit of the account or the QOS is reached)");
        assert!(why("BadConstraints").contains("choose another instance type"));
        assert_eq!(why("Cleaning"), "Cleaning");
        assert_eq!(why("None"), "it was just submitted");
    }
}
