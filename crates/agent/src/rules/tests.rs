//! Rules over a real directory, written as hooks write it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use shoal_contract::tensors::{
    Collection, Collections, Event, Index, IndexEntry, Location, Mode, Tensor, write_record,
};
use shoal_rules::Status;

use super::*;

struct Training {
    directory: tempfile::TempDir,
    rules: Rules,
    events: Receiver<RuleEvent>,
}

impl Training {
    fn start(ranks: usize, rules: &[(&str, &[(&str, &str)])]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::start_in(directory, ranks, rules)
    }

    fn start_in(directory: tempfile::TempDir, ranks: usize, rules: &[(&str, &[(&str, &str)])]) -> Self {
        let place = Place {
            base: directory.path().to_owned(),
            root: "output/tensors".into(),
            marks: directory.path().join("marks"),
        };
        let configurations = Vec::from_iter(rules.iter().map(|(rule, parameters)| {
            RuleConfiguration {
                name: format!("my-{rule}"),
                parameters: [("rule_to_invoke", *rule)]
                    .iter()
                    .chain(*parameters)
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
                other_runs: Vec::from_iter((*rule == "SimilarAcrossRuns").then(|| directory.path().join("other"))),
            }
        }));
        let (sender, events) = channel();
        let rules = Rules::start(&place, ranks, configurations, move |event| drop(sender.send(event))).unwrap();
        Self { directory, rules, events }
    }

    fn tensors(&self) -> PathBuf {
        self.directory.path().join("output/tensors")
    }

    /// The next conclusion: rule, status, details.
    fn conclusion(&self) -> (String, Status, String) {
        loop {
            match self.events.recv_timeout(Duration::from_secs(10)).unwrap() {
                RuleEvent::Concluded { configuration, conclusion, .. } => {
                    return (configuration, conclusion.status, conclusion.details);
                }
                RuleEvent::Note(_) => {}
                RuleEvent::Ended => panic!("no conclusion came"),
            }
        }
    }

    /// Ends; the conclusions and notes.
    fn finish(self) -> (Vec<(String, Status, String)>, Vec<String>) {
        self.rules.finish();
        let (mut conclusions, mut notes) = (Vec::new(), Vec::new());
        loop {
            match self.events.recv_timeout(Duration::from_secs(60)).unwrap() {
                RuleEvent::Concluded { configuration, conclusion, .. } => {
                    conclusions.push((configuration, conclusion.status, conclusion.details));
                }
                RuleEvent::Note(note) => notes.push(note),
                RuleEvent::Ended => return (conclusions, notes),
            }
        }
    }
}

/// As hooks do: a temporary file gets its name when it is complete.
fn place(root: &Path, location: &Location, bytes: &[u8]) {
    let path = root.join(location.path());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, bytes).unwrap();
    fs::rename(temporary, path).unwrap();
}

fn collections(root: &Path, worker: &str, workers: u64) {
    let collections = Collections::new(workers, [Collection::new("weights", &["weight"], &["fc.weight"])]);
    place(root, &Location::Collections { worker: worker.into() }, &collections.to_bytes());
}

fn save(root: &Path, worker: &str, step: u64, tensors: &[(&str, &[f32])]) {
    let (mut events, mut entries) = (Vec::new(), Vec::new());
    for (name, values) in tensors {
        let tensor = Tensor::of_f32(name, &[values.len() as u64], values);
        let event = Event { wall_time: 1.0, step, mode: Mode::Train, mode_step: step, tensor };
        let start = events.len() as u64;
        write_record(&mut events, &event.to_bytes(), false);
        entries.push(IndexEntry { name: (*name).to_owned(), start, length: events.len() as u64 - start });
    }
    let location = Location::Events { step, worker: worker.into() };
    place(root, &location, &events);
    let (event_file, mode) = (Some(location.path()), Mode::Train);
    let index = Index { mode, mode_step: step, event_file, tensors: entries, shapes: Vec::new() };
    place(root, &Location::Index { step, worker: worker.into() }, &index.to_bytes());
}

#[test]
fn a_planted_nan_is_reported_at_once() {
    let training = Training::start(1, &[("ExplodingTensor", &[]), ("AllZero", &[])]);
    let root = training.tensors();
    collections(&root, "worker_0", 1);
    for step in 0..5 {
        save(&root, "worker_0", 1500 * step, &[("fc.weight", &[1.0, step as f32])]);
    }
    assert!(training.events.recv_timeout(Duration::from_millis(300)).is_err());
    let begin = Instant::now();
    save(&root, "worker_0", 7500, &[("fc.weight", &[1.0, f32::NAN])]);
    let (rule, status, details) = training.conclusion();
    let waited = begin.elapsed();
    assert!(waited < Duration::from_millis(200), "{waited:?}");
    assert_eq!((rule.as_str(), status), ("my-ExplodingTensor", Status::IssuesFound));
    assert!(details.contains("at step 7500 resulted in the condition being met: in fc.weight 1 of 2"), "{details}");
    let (conclusions, notes) = training.finish();
    assert_eq!(conclusions, [("my-AllZero".to_owned(), Status::NoIssuesFound, String::new())]);
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn a_step_waits_for_the_workers_of_the_host() {
    let steps = [("num_steps", "2"), ("collection_names", "weights")];
    let training = Training::start(2, &[("UnchangedTensor", &steps)]);
    let root = training.tensors();
    collections(&root, "worker_0", 16);
    save(&root, "worker_0", 0, &[("fc.weight", &[1.0])]);
    collections(&root, "worker_1", 16);
    save(&root, "worker_1", 0, &[("fc.weight", &[5.0])]);
    save(&root, "worker_1", 1, &[("fc.weight", &[5.0])]);
    save(&root, "worker_0", 1, &[("fc.weight", &[2.0])]);
    let (_, status, details) = training.conclusion();
    assert_eq!(status, Status::IssuesFound);
    assert!(details.contains("at step 1 ") && details.contains("fc.weight of worker_1 is the same"), "{details}");
}

#[test]
fn what_was_saved_before_the_start_and_at_the_end_is_judged() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("output/tensors");
    collections(&root, "worker_0", 1);
    for step in 0..3 {
        save(&root, "worker_0", step, &[("loss", &[1.0])]);
    }
    let rules: &[(&str, &[(&str, &str)])] = &[("LossNotDecreasing", &[("num_steps", "4")]), ("VanishingGradient", &[])];
    let training = Training::start_in(directory, 1, rules);
    for step in 3..5 {
        save(&root, "worker_0", step, &[("loss", &[1.0])]);
    }
    let (conclusions, _) = training.finish();
    assert_eq!((conclusions[0].0.as_str(), conclusions[0].1), ("my-LossNotDecreasing", Status::IssuesFound));
    assert!(conclusions[0].2.contains("at step 4 "), "{conclusions:?}");
    assert_eq!((conclusions[1].0.as_str(), conclusions[1].1), ("my-VanishingGradient", Status::Error));
    assert!(conclusions[1].2.contains("saved 1 tensors in collections weights (loss)"), "{conclusions:?}");
}

#[test]
fn damaged_files_are_reported_and_the_others_judged() {
    let training = Training::start(1, &[("ExplodingTensor", &[])]);
    let root = training.tensors();
    collections(&root, "worker_0", 1);
    fs::write(training.directory.path().join("secret"), [0; 64]).unwrap();
    // An index that is no JSON, one that leads out of the directory, and a torn event.
    place(&root, &Location::Index { step: 0, worker: "worker_0".into() }, b"{");
    let entry = IndexEntry { name: "w".into(), start: 0, length: 20 };
    let index = |file: &str| Index {
        mode: Mode::Train,
        mode_step: 0,
        event_file: Some(file.into()),
        tensors: vec![entry.clone()],
        shapes: Vec::new(),
    };
    place(&root, &Location::Index { step: 1, worker: "worker_0".into() }, &index("../../secret").to_bytes());
    let torn = Location::Events { step: 2, worker: "worker_0".into() };
    place(&root, &torn, &[1; 20]);
    place(&root, &Location::Index { step: 2, worker: "worker_0".into() }, &index(&torn.path()).to_bytes());
    place(&root, &torn, &[1; 19]);
    save(&root, "worker_0", 3, &[("w", &[f32::NAN])]);
    let (conclusions, notes) = training.finish();
    assert_eq!(conclusions[0].1, Status::IssuesFound);
    assert!(conclusions[0].2.contains("at step 3 "), "{conclusions:?}");
    assert_eq!(notes.len(), 3, "{notes:?}");
    for (note, expected) in notes.iter().zip([
        "Debugger rules: index/000000000/000000000000_worker_0.json: the index file cannot be read",
        "Debugger rules: ../../secret is not the name of an event file",
        "Debugger rules: events/000000000002/000000000002_worker_0.tfevents",
    ]) {
        assert!(note.starts_with(expected), "{note}");
    }
}

#[test]
fn another_run_is_compared() {
    let directory = tempfile::tempdir().unwrap();
    save(&directory.path().join("other"), "worker_0", 3, &[("fc.weight", &[1.0, 2.0])]);
    let training = Training::start_in(directory, 1, &[("SimilarAcrossRuns", &[])]);
    let root = training.tensors();
    collections(&root, "worker_0", 1);
    save(&root, "worker_0", 2, &[("fc.weight", &[1.0, 2.0])]);
    save(&root, "worker_0", 3, &[("fc.weight", &[1.0, 2.0])]);
    let (_, status, details) = training.conclusion();
    assert_eq!(status, Status::IssuesFound);
    assert!(details.contains("at step 3 "), "{details}");
}

/// `SHOAL_TENSORS=1000000 cargo test -p shoal-agent --release many -- --nocapture` measures.
#[test]
fn many_tensors_are_judged_once_each_in_bounded_memory() {
    let wanted: u64 = std::env::var("SHOAL_TENSORS").ok().and_then(|count| count.parse().ok()).unwrap_or(5_000);
    let names = Vec::from_iter((0..100).map(|number| format!("gradient/layer{number}.weight")));
    let values = [0.5_f32; 256];
    let tensors = Vec::from_iter(names.iter().map(|name| (name.as_str(), &values[..])));
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("output/tensors");
    collections(&root, "worker_0", 1);
    let steps = wanted / 100;
    for step in 0..steps {
        save(&root, "worker_0", step, &tensors);
    }
    let before = resident_kib();
    let begin = Instant::now();
    let rules: &[(&str, &[(&str, &str)])] =
        &[("VanishingGradient", &[]), ("ExplodingTensor", &[]), ("UnchangedTensor", &[("num_steps", "1000000")])];
    let (conclusions, notes) = Training::start_in(directory, 1, rules).finish();
    let (seconds, more) = (begin.elapsed().as_secs_f64(), resident_kib().saturating_sub(before));
    let rate = (steps * 100) as f64 / seconds;
    println!("{} tensors of 1 KiB, 3 rules: {seconds:.2} s, {rate:.0} per second, {more} KiB more", steps * 100);
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!(
        conclusions.iter().filter(|(_, status, _)| *status == Status::NoIssuesFound).count(),
        3,
        "{conclusions:?}"
    );
    assert!(more < 200 << 10, "{more} KiB");
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn nothing_follows_when_it_is_given_up() {
    let training = Training::start(1, &[("ExplodingTensor", &[])]);
    training.rules.give_up();
    // The thread ends and drops its end of the channel.
    assert!(
        training.events.recv_timeout(Duration::from_secs(10)).is_err_and(|error| error != RecvTimeoutError::Timeout)
    );
}

/// Files that AWS's own library wrote (crates/contract/tests/tensors/make.py).
#[test]
fn tensors_of_awss_library_are_judged() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("output/tensors");
    let aws = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contract/tests/tensors/aws");
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        fs::create_dir_all(root.join(&path)).unwrap();
        for entry in fs::read_dir(aws.join(&path)).unwrap().map(Result::unwrap) {
            let path = path.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                waiting.push(path);
            } else {
                fs::copy(aws.join(&path), root.join(&path)).unwrap();
            }
        }
    }
    let rules: &[(&str, &[(&str, &str)])] = &[
        ("ExplodingTensor", &[]),
        ("WeightUpdateRatio", &[]),
        ("VanishingGradient", &[("threshold", "10")]),
        ("LossNotDecreasing", &[("num_steps", "1"), ("mode", "TRAIN")]),
    ];
    let (conclusions, notes) = Training::start_in(directory, 1, rules).finish();
    assert!(notes.is_empty(), "{notes:?}");
    let found =
        BTreeMap::from_iter(conclusions.iter().map(|(name, status, details)| (name.as_str(), (*status, details))));
    assert_eq!(found["my-ExplodingTensor"].0, Status::NoIssuesFound);
    assert_eq!(found["my-WeightUpdateRatio"].0, Status::NoIssuesFound);
    assert!(found["my-VanishingGradient"].1.contains("at step 0 "), "{conclusions:?}");
    // From 0.573 at step 1 of training to 0.634 at its step 2, which is step 3 of the job.
    let loss = found["my-LossNotDecreasing"].1;
    assert!(loss.contains("at step 3 ") && loss.contains("CrossEntropyLoss_output_0 rose by 10.6 %"), "{loss}");
}
