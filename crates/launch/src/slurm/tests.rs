//! Of a cluster, on a controller of their own.

use super::*;

#[test]
fn a_job_that_ends_has_no_ends_of_hosts_yet() {
    let of = |state: &str| {
        let all = queue::jobs(&format!("7|{state}|None|N/A|n1|shoal-a|arn:a|2:killed"));
        hosts_that_ended(&all[&7])
    };
    assert_eq!(of("RUNNING"), BTreeSet::from([2]));
    assert_eq!(of("COMPLETING"), BTreeSet::new());
}

/// Counts how often it is asked for jobs, which it has or does not answer for, and for nodes.
#[derive(Debug, Default, Clone)]
struct Fake {
    jobs: Arc<Mutex<Option<String>>>,
    asked: Arc<Mutex<u32>>,
    asked_for_nodes: Arc<Mutex<u32>>,
    cancelled: Arc<Mutex<Vec<u64>>>,
    grace: Duration,
}

fn silent<T>() -> Result<T, LaunchError> {
    Err(LaunchError::Unavailable { target: "a".to_owned(), what: "no answer".to_owned() })
}

impl Controller for Fake {
    fn jobs(&self) -> Result<BTreeMap<u64, Job>, LaunchError> {
        *self.asked.lock().expect("a count") += 1;
        self.jobs.lock().expect("jobs").as_ref().map_or_else(silent, |text| Ok(queue::jobs(text)))
    }
    fn submit(&self, _: &Request) -> Result<u64, LaunchError> {
        silent()
    }
    fn test(&self, _: &Request) -> Result<(), LaunchError> {
        silent()
    }
    fn cancel(&self, jobs: &[u64]) -> Result<(), LaunchError> {
        self.cancelled.lock().expect("jobs").extend(jobs);
        Ok(())
    }
    fn kill_steps(&self, _: u64, _: &BTreeSet<String>) -> Result<Vec<String>, LaunchError> {
        silent()
    }
    fn partitions(&self) -> Result<Vec<partitions::Partition>, LaunchError> {
        silent()
    }
    fn nodes_down(&self, _: &str) -> Result<Vec<String>, LaunchError> {
        *self.asked_for_nodes.lock().expect("a count") += 1;
        silent()
    }
    fn grace(&self) -> Duration {
        self.grace
    }
}

fn cluster(fake: &Fake, interval: Duration) -> Cluster {
    let options = SlurmOptions { target: "a".to_owned(), interval, ..SlurmOptions::default() };
    Cluster::of(options, Box::new(fake.clone()))
}

fn with_jobs(text: &str) -> Fake {
    Fake { jobs: Arc::new(Mutex::new(Some(text.to_owned()))), ..Fake::default() }
}

fn submitted(id: u64, hosts: u32) -> Submitted {
    Submitted { id, name: "shoal-a".to_owned(), hosts: (1..=hosts).collect() }
}

#[test]
fn a_controller_that_does_not_answer_is_asked_once_for_all_allocations() {
    let fake = Fake::default();
    let cluster = cluster(&fake, Duration::from_secs(60));
    for _ in 0..3 {
        let error = cluster.jobs().expect_err("it is silent").to_string();
        assert_eq!(error, "the compute target a does not answer: no answer");
        cluster.find("shoal-a", &BTreeSet::new(), &[]).expect_err("it is silent");
    }
    assert_eq!(*fake.asked.lock().expect("a count"), 1);
}

#[test]
fn nodes_that_are_started_are_waited_for_and_suspended_jobs_are_paused() {
    for (state, expected) in [
        ("CONFIGURING", Stage::Waits { reason: "Compute target a, job 7: its nodes are being started".to_owned() }),
        ("SUSPENDED", Stage::Paused),
        ("RUNNING", Stage::Runs { ended: BTreeSet::new() }),
    ] {
        let cluster = cluster(&with_jobs(&format!("7|{state}|None|N/A|n1|shoal-a|arn:a")), Duration::ZERO);
        assert_eq!(cluster.stage(&cluster.jobs().expect("jobs"), &submitted(7, 1)), expected);
    }
}

#[test]
fn a_nodes_failure_is_asked_about_once_for_all_hosts() {
    let fake = with_jobs("7|NODE_FAIL|None|N/A|n[1-3]|shoal-a|arn:a");
    let cluster = cluster(&fake, Duration::ZERO);
    let jobs = cluster.jobs().expect("jobs");
    for host in 1..=3 {
        let end = cluster.end_of(&jobs, &submitted(7, 3), host).expect("an end");
        assert_eq!(end.text, "one of the nodes n1, n2, n3 of Slurm job 7 failed (NODE_FAIL)");
    }
    assert_eq!(*fake.asked_for_nodes.lock().expect("a count"), 1);
}

#[test]
fn jobs_that_end_are_looked_for_once_for_all_who_wait() {
    let fake = with_jobs("7|RUNNING|None|N/A|n1|shoal-a|arn:a");
    let cluster = cluster(&fake, Duration::from_secs(1));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| cluster.end(&[submitted(7, 1)]).expect("it ends"));
        }
        thread::sleep(Duration::from_millis(2500));
        *fake.jobs.lock().expect("jobs") = Some("7|CANCELLED|None|N/A|n1|shoal-a|arn:a".to_owned());
    });
    // One before each is cancelled, and after that at most one for each of the seconds.
    let asked = *fake.asked.lock().expect("a count");
    assert!((9..=8 + 6).contains(&asked), "{asked}");
}

#[test]
fn what_was_submitted_without_an_answer_is_looked_for_and_exists_once() {
    let fake = Fake { grace: Duration::from_secs(1), ..with_jobs("") };
    let cluster = cluster(&fake, Duration::ZERO);
    thread::sleep(fake.grace);
    let find = |name: &str| cluster.find(name, &BTreeSet::new(), &[]);
    assert_eq!(find("shoal-b").expect("an answer"), None, "of a process that ended before");
    let spec = AllocationSpec {
        id: "a".to_owned(),
        instances: 1,
        program: PathBuf::from("/bin/true"),
        args: Vec::new(),
        env: Vec::new(),
        nodes: Vec::new(),
        wants: Wants::default(),
        dir: PathBuf::new(),
    };
    cluster.submit(&spec, "shoal-a", &BTreeSet::from([1])).expect_err("it is silent");
    let error = find("shoal-a").expect_err("it may come").to_string();
    assert!(error.contains("looked for for 1 s before it is submitted again"), "{error}");
    thread::sleep(fake.grace);
    assert_eq!(find("shoal-a").expect("an answer"), None);

    *fake.jobs.lock().expect("jobs") =
        Some(["5", "6", "7"].map(|id| format!("{id}|PENDING|None|N/A||shoal-a|")).join("\n"));
    assert_eq!(find("shoal-a").expect("an answer"), Some(7));
    cluster.stage(&cluster.jobs().expect("jobs"), &submitted(7, 1));
    assert_eq!(*fake.cancelled.lock().expect("jobs"), [5, 6]);
    let other = Submitted { name: "shoal-c".to_owned(), ..submitted(7, 1) };
    cluster.stage(&cluster.jobs().expect("jobs"), &other);
    assert_eq!(fake.cancelled.lock().expect("jobs").len(), 2, "a name that was answered for is left alone");
}
