//! Of a cluster, on a controller of their own.

use super::*;

/// Jobs, one in a line: `ID|STATE|REASON|START|NODES|NAME|USER|UID|COMMENT`.
fn listed(text: &str) -> BTreeMap<u64, Job> {
    let record = |line: &str| {
        let fields = Vec::from_iter(line.splitn(9, '|'));
        let [id, state, reason, start, nodes, name, user, uid, comment] = fields[..] else { panic!("{line}") };
        format!("@|{id}|{state}|{start}|{nodes}|{user}|{uid}|{reason}@{name}@{comment}@\n")
    };
    queue::jobs(&text.lines().map(record).collect::<String>(), "@").expect("an answer")
}

#[test]
fn a_job_that_ends_has_no_ends_of_hosts_yet() {
    let of = |state: &str| {
        let all = listed(&format!("7|{state}|None|N/A|n1|shoal-a|root|0|arn:a|2:killed"));
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
    /// As whom.
    users: Arc<Mutex<Vec<Option<String>>>>,
    grace: Duration,
}

fn silent<T>() -> Result<T, LaunchError> {
    Err(LaunchError::Unavailable { target: "a".to_owned(), what: "no answer".to_owned() })
}

impl Controller for Fake {
    fn jobs(&self) -> Result<BTreeMap<u64, Job>, LaunchError> {
        *self.asked.lock().expect("a count") += 1;
        self.jobs.lock().expect("jobs").as_ref().map_or_else(silent, |text| Ok(listed(text)))
    }
    fn submit(&self, _: &Request) -> Result<u64, LaunchError> {
        silent()
    }
    fn test(&self, _: &Request) -> Result<(), LaunchError> {
        silent()
    }
    fn cancel(&self, jobs: &[u64], user: Option<&str>) -> Result<(), LaunchError> {
        self.cancelled.lock().expect("jobs").extend(jobs);
        self.users.lock().expect("users").push(user.map(str::to_owned));
        Ok(())
    }
    fn kill_steps(&self, _: u64, _: &BTreeSet<String>, _: Option<&str>) -> Result<Vec<String>, LaunchError> {
        silent()
    }
    fn partitions(&self) -> Result<Vec<partitions::Partition>, LaunchError> {
        silent()
    }
    fn nodes_down(&self, _: &str) -> Result<Vec<String>, LaunchError> {
        *self.asked_for_nodes.lock().expect("a count") += 1;
        silent()
    }
    fn try_user(&self, user: &str) -> Result<(), LaunchError> {
        let what = format!("unknown user {user}");
        if user == "anna" {
            Ok(())
        } else {
            Err(LaunchError::Refused { scheduler: "Slurm", target: "a".to_owned(), what })
        }
    }
    fn uid_of(&self, user: Option<&str>) -> Option<u32> {
        match user {
            None => Some(0),
            Some("anna") => Some(1001),
            Some("ben") => Some(1002),
            Some("mallory") => Some(1003),
            Some(_) => None,
        }
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
    Submitted { id, name: "shoal-a".to_owned(), hosts: (1..=hosts).collect(), user: None }
}

#[test]
fn a_controller_that_does_not_answer_is_asked_once_for_all_allocations() {
    let fake = Fake::default();
    let cluster = cluster(&fake, Duration::from_secs(60));
    for _ in 0..3 {
        let error = cluster.jobs().expect_err("it is silent").to_string();
        assert_eq!(error, "the compute target a does not answer: no answer");
        cluster.find(&submitted(0, 1), &[]).expect_err("it is silent");
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
        let cluster = cluster(&with_jobs(&format!("7|{state}|None|N/A|n1|shoal-a|root|0|arn:a")), Duration::ZERO);
        assert_eq!(cluster.stage(&cluster.jobs().expect("jobs"), &submitted(7, 1)), expected);
    }
}

#[test]
fn a_nodes_failure_is_asked_about_once_for_all_hosts() {
    let fake = with_jobs("7|NODE_FAIL|None|N/A|n[1-3]|shoal-a|root|0|arn:a");
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
    let fake = with_jobs("7|RUNNING|None|N/A|n1|shoal-a|root|0|arn:a");
    let cluster = cluster(&fake, Duration::from_secs(1));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| cluster.end(&[submitted(7, 1)]).expect("it ends"));
        }
        thread::sleep(Duration::from_millis(2500));
        *fake.jobs.lock().expect("jobs") = Some("7|CANCELLED|None|N/A|n1|shoal-a|root|0|arn:a".to_owned());
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
    let named = |name: &str| Submitted { name: name.to_owned(), ..submitted(0, 1) };
    let find = |name: &str| cluster.find(&named(name), &[]);
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
    cluster.submit(&spec, &named("shoal-a")).expect_err("it is silent");
    let error = find("shoal-a").expect_err("it may come").to_string();
    assert!(error.contains("looked for for 1 s before it is submitted again"), "{error}");
    thread::sleep(fake.grace);
    assert_eq!(find("shoal-a").expect("an answer"), None);

    *fake.jobs.lock().expect("jobs") =
        Some(["5", "6", "7"].map(|id| format!("{id}|PENDING|None|N/A||shoal-a|root|0|")).join("\n"));
    assert_eq!(find("shoal-a").expect("an answer"), Some(7));
    cluster.stage(&cluster.jobs().expect("jobs"), &submitted(7, 1));
    assert_eq!(*fake.cancelled.lock().expect("jobs"), [5, 6]);
    let other = Submitted { name: "shoal-c".to_owned(), ..submitted(7, 1) };
    cluster.stage(&cluster.jobs().expect("jobs"), &other);
    assert_eq!(fake.cancelled.lock().expect("jobs").len(), 2, "a name that was answered for is left alone");
}

#[test]
fn jobs_are_looked_for_and_ended_as_their_users() {
    let names = [("boss", "anna"), ("ben", "ben")].map(|(key, user)| (key.to_owned(), user.to_owned()));
    let users = SlurmUsers { submit_as: vec!["{user}".to_owned()], names: names.into() };
    let line = |id: u64, user: &str, uid: u32| format!("{id}|RUNNING|None|N/A|n1|shoal-a|{user}|{uid}|");
    let fake = with_jobs(&[line(7, "anna", 1001), line(8, "mallory", 1003), line(9, "root", 0)].join("\n"));
    let options = SlurmOptions { target: "a".to_owned(), users: Some(users), ..SlurmOptions::default() };
    let cluster = Cluster::of(options, Box::new(fake.clone()));
    let of = |user: Option<&str>| Submitted { user: user.map(str::to_owned), ..submitted(0, 1) };
    let find = |user| cluster.find(&of(user), &[]).expect("an answer");
    assert_eq!((find(Some("anna")), find(None), find(Some("ben"))), (Some(7), Some(9), None));
    // A user without a number here is recognised by name.
    assert_eq!(find(Some("carl")), None);

    // What is in no record: as who has it.
    let over = || *fake.jobs.lock().expect("jobs") = Some(String::new());
    thread::scope(|scope| {
        scope.spawn(|| cluster.end_others(&|id| id == "a").expect("they end"));
        thread::sleep(Duration::from_millis(50));
        over();
    });
    assert_eq!(*fake.cancelled.lock().expect("jobs"), [9, 7, 8]);
    let as_whom = [None, Some("anna".to_owned()), Some("mallory".to_owned())];
    assert_eq!(*fake.users.lock().expect("users"), as_whom);

    let user_of = |creator: Option<&str>| {
        cluster.user_of(&Wants { creator: creator.map(str::to_owned), ..Wants::default() }).map_err(|it| it.to_string())
    };
    assert_eq!(user_of(None), Ok(None), "the owner's are the caller's");
    assert_eq!(user_of(Some("boss")), Ok(Some("anna".to_owned())));
    let check = |creator: &str| cluster.check(&Wants { creator: Some(creator.to_owned()), ..Wants::default() });
    check("boss").expect("Slurm does not answer, and refuses nothing");
    let words = "the compute target a takes no jobs of ben: unknown user ben";
    assert_eq!(check("ben").expect_err("there is none").to_string(), words);
    assert_eq!(
        cluster.missing_users(&["anna".to_owned(), "1".to_owned()]),
        [
            "no jobs of 1 are taken: \"1\" is not taken for the name of a user of the cluster; name one in `users`",
            "no jobs of ben are taken: unknown user ben"
        ]
    );
}

#[test]
fn a_job_is_its_users_by_number_or_by_name() {
    let cluster = cluster(&with_jobs(""), Duration::ZERO);
    let is_of = |user: Option<&str>, whose: &str| {
        let submitted = Submitted { user: user.map(str::to_owned), ..submitted(7, 1) };
        cluster.is_of(&submitted, &listed(&format!("7|RUNNING|None|N/A|n1|shoal-a|{whose}|"))[&7])
    };
    // Of all targets, those without users, too.
    assert!(is_of(None, "root|0") && !is_of(None, "mallory|1003"));
    assert!(is_of(Some("anna"), "anna|1001") && !is_of(Some("anna"), "anna|1003"));
    // `id -u` does not know carl, or slurmrestd has names alone.
    assert!(is_of(Some("carl"), "carl|1004") && is_of(Some("Carl"), "carl|") && !is_of(Some("carl"), "mallory|1003"));
    assert!(is_of(Some("carl"), "1004|1004") && is_of(Some("carl"), "|"), "Slurm has no name of it");
    assert!(!is_of(None, "1004|1004"), "the number is known");

    let options = SlurmOptions { args: vec!["--uid=anna".to_owned()], ..SlurmOptions::default() };
    let cluster = Cluster::of(options, Box::new(Fake::default()));
    let of_anna = &listed("7|RUNNING|None|N/A|n1|shoal-a|anna|1001|")[&7];
    assert!(cluster.is_of(&submitted(7, 1), of_anna), "the settings say whose jobs are");
}

#[test]
fn what_is_no_users_name_is_in_no_words_of_the_settings() {
    let user_of = |whose: &str| Fake::default().user_of(&listed(&format!("7|RUNNING|None|N/A|n1|a|{whose}|"))[&7]);
    assert_eq!(user_of("anna|1001").as_deref(), Some("anna"));
    for user in ["-u", "1001", "#0", "a b", "", "../a"] {
        assert_eq!(user_of(&format!("{user}|1001")), None, "{user}");
    }
}

#[test]
fn expected_starts_have_their_time_zone() {
    for start in ["2026-11-27T08:00:59", "2026-11-27T08:00:59Z"] {
        let jobs = listed(&format!("7|PENDING|Priority|{start}||shoal-a|root|0|"));
        let text = cluster(&with_jobs(""), Duration::ZERO).queued(7, &jobs[&7]);
        assert!(text.ends_with("; expected to start at 2026-11-27 08:00 UTC"), "{text}");
    }
}
