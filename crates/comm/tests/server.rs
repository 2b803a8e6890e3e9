//! A parameter server among threads; the protocol by itself is tested in every order of events
//! where it is (`server/shard.rs`).

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Command, Stdio},
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use shoal_comm::{
    Error, ProcessGroup, join,
    rendezvous::{Config, Meeting},
    server::{Consistency, Outcome, Push, Role, Spec, Worker, start},
    threads,
};

/// Each rank in a thread with its own role; what each gives, by rank, with what its server ended
/// with. A rank that panics gives nothing.
fn play<R: Send>(
    size: usize,
    spec: &Spec,
    part: impl Fn(usize, Worker) -> R + Sync,
) -> Vec<(Option<R>, Option<Outcome>)> {
    let part = &part;
    thread::scope(|scope| {
        let rank = |group: Arc<dyn ProcessGroup>| {
            let Role { worker, server } = start(&*group, spec).expect("a parameter server");
            let rank = group.rank();
            let result = worker.and_then(|worker| {
                // A panic ends this rank's part in it, as the end of a process would.
                scope.spawn(move || part(rank, worker)).join().ok()
            });
            drop(group);
            (result, server.map(|server| server.join()))
        };
        let threads: Vec<_> = threads(size).into_iter().map(|group| scope.spawn(move || rank(group))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic outside a worker")).collect()
    })
}

fn tensors() -> Vec<(String, usize)> {
    [("bias", 3), ("weights", 1000), ("nothing", 0), ("scale", 1)].map(|(name, len)| (name.to_owned(), len)).to_vec()
}

/// Puts the servers' parts together.
fn whole(results: &[(Option<impl Sized>, Option<Outcome>)]) -> Vec<f32> {
    let mut parts: Vec<_> = results.iter().filter_map(|(_, outcome)| outcome.as_ref()).collect();
    parts.sort_by_key(|outcome| outcome.part.start);
    parts.iter().flat_map(|outcome| outcome.values.clone()).collect()
}

#[test]
fn in_step_the_values_are_the_same_bits_in_every_run_on_any_servers() {
    let steps = 5;
    // f32 sums in rank order, step by step.
    let mut expected = vec![0.5_f32; 1000];
    let gradient = |rank: usize, step: usize, i: usize| {
        ((i * 31 + rank * 7 + step) as f32 * 0.37).sin() * 10_f32.powi(rank as i32)
    };
    for step in 0..steps {
        for rank in 0..4 {
            expected.iter_mut().enumerate().for_each(|(i, x)| *x += gradient(rank, step, i));
        }
    }
    for servers in [vec![0], vec![4], vec![2, 0], vec![0, 1, 2, 3, 4], vec![5, 4, 3]] {
        let spec = Spec::new(tensors(), servers.clone(), [0, 1, 2, 3], Consistency::Synchronous);
        let results = play(6, &spec, |rank, mut worker| {
            if rank == 0 {
                worker.push("weights", &[0.5; 1000], Push::Assign).expect("pushed");
            }
            worker.advance().expect("advanced");
            let mut seen = Vec::new();
            for step in 0..steps {
                let mut weights = vec![0.0; 1000];
                worker.pull("weights", &mut weights).expect("pulled");
                let own: Vec<_> = (0..1000).map(|i| gradient(rank, step, i)).collect();
                worker.push("weights", &own, Push::Add).expect("pushed");
                seen.push(weights);
                let advanced = worker.advance().expect("advanced");
                assert_eq!((advanced.clock, advanced.lost.len()), (step as u64 + 2, 0));
            }
            worker.pull("bias", &mut [1.0; 3]).expect("pulled");
            worker.pull("nothing", &mut []).expect("pulled");
            worker.end().expect("ended");
            seen
        });
        let seen: Vec<_> = results.iter().filter_map(|(seen, _)| seen.as_ref()).collect();
        assert_eq!(seen.len(), 4);
        assert!(seen.iter().all(|other| *other == seen[0]), "what is pulled is the same for all, servers {servers:?}");
        assert_eq!(whole(&results)[3..1003], expected, "servers {servers:?}");
    }
}

#[test]
fn nobody_runs_further_ahead_than_the_bound() {
    for bound in [0, 1, 3] {
        let spec = Spec::new(tensors(), [1], [0, 1, 2], Consistency::Bounded(bound));
        let clocks: [AtomicU64; 3] = Default::default();
        let results = play(3, &spec, |rank, mut worker| {
            let mut most = 0;
            for step in 1..=20 {
                if rank == 2 {
                    thread::sleep(Duration::from_millis(2));
                }
                worker.push("scale", &[1.0], Push::Add).expect("pushed");
                clocks[rank].store(step, Ordering::SeqCst);
                worker.advance().expect("advanced");
                let slowest = clocks.iter().map(|clock| clock.load(Ordering::SeqCst)).min().expect("three");
                most = most.max(step - slowest.min(step));
            }
            worker.end().expect("ended");
            most
        });
        let most = results.iter().filter_map(|(most, _)| *most).max().expect("three");
        assert!(most <= bound, "one was {most} ahead");
        assert_eq!(whole(&results)[1003], 60.0, "every push once");
    }
}

#[test]
fn a_worker_that_dies_holds_nobody_up_and_is_named() {
    for (servers, consistency) in [
        (vec![0], Consistency::Synchronous),
        (vec![0, 2], Consistency::Synchronous),
        (vec![2], Consistency::Bounded(1)),
    ] {
        let spec = Spec::new(tensors(), servers.clone(), [0, 1, 2], consistency);
        let results = play(3, &spec, |rank, mut worker| {
            for step in 0..4 {
                worker.push("scale", &[1.0], Push::Add).expect("pushed");
                assert!(rank != 1 || step < 2, "a worker that dies (this panic is meant)");
                worker.advance().expect("the others go on");
            }
            let lost = worker.advance().expect("the others go on").lost;
            worker.end().expect("ended");
            lost
        });
        assert!(results[1].0.is_none());
        for rank in [0, 2] {
            assert_eq!(results[rank].0, Some(vec![1]), "rank {rank} hears of it");
        }
        for (_, outcome) in &results {
            let Some(outcome) = outcome else { continue };
            let [(1, Error::PeerGaveUp { rank: 1, .. })] = &outcome.lost[..] else { panic!("{:?}", outcome.lost) };
        }
        let expected = if consistency == Consistency::Synchronous { 10.0 } else { 11.0 };
        assert_eq!(whole(&results)[1003], expected, "in step, what it pushed in its last clock does not count");
    }
}

/// What each process of the next test does; ranks 1 and 2 serve, 0 and 3 work.
#[test]
#[ignore = "run by the other test, as four processes"]
fn process() {
    let place = |name: &str| std::env::var(name).expect("set by the other test");
    let rank: usize = place("TEST_RANK").parse().expect("a number");
    let directory = std::path::PathBuf::from(place("TEST_DIRECTORY"));
    let config = Config::new(rank, 4, Meeting::Directory(directory.join("meeting"))).secret("a secret");
    let group = join(config).expect("four come");
    let spec = Spec::new([("a".to_owned(), 64), ("b".to_owned(), 64)], [1, 2], [0, 3], Consistency::Synchronous);
    let Role { worker, server } = start(&*group, &spec).expect("a parameter server");
    let said = |name: &str| {
        while !directory.join(name).exists() {
            thread::sleep(Duration::from_millis(2));
        }
    };
    let kill_self = || {
        // Not even a destructor runs.
        let killed = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
        panic!("still here: {killed:?}");
    };
    match (rank, worker, server) {
        (0, Some(mut worker), _) => {
            worker.push("a", &[1.0; 64], Push::Add).expect("all live");
            worker.advance().expect("rank 3 advances before it is killed");
            worker.push("a", &[1.0; 64], Push::Add).expect("the servers live");
            // Rank 3 is killed before its second clock.
            let started = Instant::now();
            assert_eq!(worker.advance().expect("nobody waits for rank 3").lost, [3]);
            assert!(started.elapsed() < Duration::from_secs(60), "known at once, not when a limit is over");
            std::fs::write(directory.join("kill-2"), "").expect("written");
            let mut values = [0.0; 64];
            let error = loop {
                match worker.pull("b", &mut values) {
                    Ok(()) => thread::sleep(Duration::from_millis(2)),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::PeerDied { rank: 2, .. }), "{error}");
            worker.pull("a", &mut values).expect("rank 1 has it");
            assert_eq!(values, [6.0; 64], "1 + 4 of rank 3's whole clock + 1");
            let error = worker.advance().expect_err("rank 2 is gone");
            assert!(matches!(error, Error::PeerDied { rank: 2, .. }), "{error}");
            worker.end().expect_err("rank 2 is gone");
        }
        (3, Some(mut worker), _) => {
            worker.push("a", &[4.0; 64], Push::Add).expect("all live");
            worker.advance().expect("all live");
            worker.push("a", &[1e9; 64], Push::Add).expect("all live");
            kill_self();
        }
        (1, _, Some(server)) => {
            let outcome = server.join();
            assert_eq!((outcome.part, outcome.values), (0..64, vec![6.0; 64]));
            let [(3, Error::PeerDied { rank: 3, .. })] = &outcome.lost[..] else { panic!("{:?}", outcome.lost) };
        }
        _ => {
            said("kill-2");
            kill_self();
        }
    }
}

#[test]
fn killed_processes_are_named_and_the_others_go_on() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("meeting")).expect("a directory");
    let own = std::env::current_exe().expect("this program");
    let ranks: Vec<_> = (0..4)
        .map(|rank| {
            let mut command = Command::new(&own);
            command.args(["process", "--exact", "--ignored", "--nocapture"]);
            command.env("TEST_RANK", rank.to_string()).env("TEST_DIRECTORY", directory.path());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
        })
        .collect();
    let ends: Vec<_> = ranks.into_iter().map(|rank| rank.wait_with_output().expect("it ends")).collect();
    for (rank, end) in ends.iter().enumerate() {
        let text = format!("{}{}", String::from_utf8_lossy(&end.stdout), String::from_utf8_lossy(&end.stderr));
        assert_eq!(end.status.success(), [0, 1].contains(&rank), "rank {rank}: {text}");
        assert_eq!(end.status.signal(), [None, None, Some(9), Some(9)][rank], "rank {rank}: {text}");
    }
}

#[test]
fn patience_ends_with_the_slowest_named_and_waiting_goes_on() {
    let spec =
        Spec { patience: Duration::from_millis(50), ..Spec::new(tensors(), [1], [0, 2], Consistency::Bounded(0)) };
    let late = Barrier::new(2);
    play(3, &spec, |rank, mut worker| {
        if rank == 2 {
            late.wait();
            worker.advance().expect("rank 0 waits");
            return;
        }
        let error = worker.advance().expect_err("rank 2 has not come");
        let Error::Deadline { waiting_for, milliseconds: 50, .. } = &error else { panic!("{error}") };
        assert_eq!(*waiting_for, [2], "{error}");
        late.wait();
        let advanced = loop {
            match worker.advance() {
                Ok(advanced) => break advanced,
                Err(Error::Deadline { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(advanced.clock, 1, "it waited on");
    });
}

#[test]
fn mistakes_are_refused_by_all() {
    thread::scope(|scope| {
        for group in threads(2) {
            scope.spawn(move || {
                let spec = |servers: &[usize], workers: &[usize]| {
                    Spec::new(tensors(), servers, workers, Consistency::Unbounded)
                };
                for (bad, says) in [
                    (spec(&[], &[0]), "there is no server"),
                    (spec(&[0], &[]), "there is no worker"),
                    (spec(&[2], &[0]), "server 2 is not in this group; its ranks are 0 to 1"),
                    (spec(&[0], &[1, 1]), "rank 1 is named twice as worker"),
                    (
                        Spec::new([("a".to_owned(), 1), ("a".to_owned(), 1)], [0], [1], Consistency::Unbounded),
                        "two tensors are named \"a\"",
                    ),
                    (spec(&[group.rank()], &[0]), "ranks [1] gave another specification than rank 0"),
                ] {
                    let error = start(&*group, &bad).expect_err("refused").to_string();
                    assert!(error.contains(says), "{error}");
                }
                // One that only rank 1 sees: the other is told.
                let huge = Spec::new([("a".to_owned(), 1 << 60)], [1], [0], Consistency::Unbounded);
                let error = start(&*group, &huge).expect_err("no room").to_string();
                let says = ["ranks [1] found that it cannot be", "no room for this server's part"][group.rank()];
                assert!(error.contains(says), "{error}");
                let role = start(&*group, &spec(&[1], &[0])).expect("the group goes on");
                if let Some(mut worker) = role.worker {
                    assert!(matches!(worker.push("weight", &[0.0], Push::Add), Err(Error::Config { .. })));
                    assert!(matches!(worker.pull("bias", &mut [0.0]), Err(Error::Config { .. })));
                    worker.push("bias", &[1.0; 3], Push::Add).expect("it goes on");
                }
                if let Some(server) = role.server {
                    assert_eq!(server.join().values[..3], [1.0; 3]);
                }
            });
        }
    });
}
