//! Ranks that are told by the environment to write what they did. The variable is read once, so a
//! process of its own does the operations.

use std::{collections::HashSet, fs, process::Command, thread};

use serde_json::Value;
use shoal_comm::{ProcessGroupExt as _, ReduceOp, threads, timeline};

/// What the ranks do when this process is the child.
#[test]
#[ignore = "run by the other test, with the environment that it needs"]
fn child() {
    let ranks: Vec<_> = threads(3)
        .into_iter()
        .map(|group| {
            thread::spawn(move || {
                let rank = group.rank();
                let pending: Vec<_> =
                    (0..4).map(|_| group.start_all_reduce(vec![1_f32; 1000], ReduceOp::Max).expect("begun")).collect();
                pending.into_iter().for_each(|one| one.wait().1.expect("all is well"));
                group.barrier().expect("all is well");
                if rank == 0 {
                    group.send(&[1_u8; 5], 2, 9).expect("all is well");
                } else if rank == 2 {
                    group.recv(&mut [0_u8; 5], 0, 9).expect("all is well");
                }
                let pair = group.split(&[2, 1]).expect("all is well");
                if let Some(pair) = &pair {
                    pair.broadcast(&mut [1_i64; 7], 0).expect("all is well");
                }
                group.barrier().expect("all is well");
                if rank == 0 {
                    return;
                }
                group.barrier().expect_err("rank 0 is gone");
                group.shrink().expect("two live").barrier().expect("all is well");
            })
        })
        .collect();
    ranks.into_iter().for_each(|rank| rank.join().expect("no panic"));
}

#[test]
fn every_operation_is_in_the_trace() {
    let directory = tempfile::tempdir().expect("a directory");
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own);
    command.args(["child", "--exact", "--ignored"]).env("SHOAL_COMM_TIMELINE", directory.path());
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));

    let merged = timeline::merge(directory.path()).expect("three files");
    let text = fs::read_to_string(merged).expect("written");
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let of = |rank: u64, name: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["ph"] == "X" && event["pid"] == rank && event["name"] == name).collect()
    };
    for rank in 0..3 {
        let path = directory.path().join(format!("rank-{rank}.json"));
        let single: Value = serde_json::from_str(&fs::read_to_string(path).expect("written")).expect("JSON");
        assert_eq!((single["otherData"]["rank"].as_u64(), single["otherData"]["lost"].as_u64()), (Some(rank), Some(0)));
        let reduced = of(rank, "all-reduce");
        assert_eq!(reduced.len(), 4);
        for (number, event) in reduced.iter().enumerate() {
            let args = &event["args"];
            assert_eq!(args["number"].as_u64(), Some(number as u64));
            assert_eq!(args["call"], "all-reduce (max)");
            assert_eq!((args["bytes"].as_u64(), args["dtype"].as_str()), (Some(4000), Some("f32")));
            assert_eq!(
                (args["algorithm"].as_str(), args["group"].as_str(), args["epoch"].as_u64()),
                (Some("direct"), Some("0"), Some(0))
            );
            assert_eq!(args["failed"], false);
            assert!(event["dur"].as_f64().expect("a time") > 0.0);
        }
        // Those that were begun together waited for each other.
        let waits = events.iter().filter(|event| event["pid"] == rank && event["cat"] == "wait");
        let (begins, ends): (Vec<_>, Vec<_>) = waits.partition(|event| event["ph"] == "b");
        assert!(
            begins.len() >= 4 && begins.len() == ends.len(),
            "rank {rank}: {} waits begin, {} end",
            begins.len(),
            ends.len()
        );
        let barriers = of(rank, "barrier");
        assert_eq!(barriers.len(), if rank == 0 { 2 } else { 4 }, "rank {rank}");
        if rank > 0 {
            assert_eq!(barriers[2]["args"]["failed"], true, "rank 0 was gone");
            assert_eq!(
                (barriers[3]["args"]["failed"].as_bool(), barriers[3]["args"]["epoch"].as_u64()),
                (Some(false), Some(1))
            );
            let broadcast = of(rank, "broadcast");
            assert_eq!((broadcast.len(), broadcast[0]["args"]["group"].as_str()), (1, Some("0/1")));
        }
    }
    assert_eq!(of(0, "send")[0]["args"]["call"], "send (to 2, tag 9)");
    assert_eq!((of(2, "recv").len(), of(1, "send").len()), (1, 0));
    // On one clock: no rank leaves the first barrier before the last has come.
    let first: Vec<_> = (0..3).map(|rank| of(rank, "barrier")[0]).collect();
    let begin = |event: &Value| event["ts"].as_f64().expect("a time");
    let last = first.iter().map(|event| begin(event)).fold(f64::MIN, f64::max);
    for event in first {
        assert!(begin(event) + event["dur"].as_f64().expect("a time") >= last - 1.0, "{event}");
    }
    let tracks: HashSet<_> = events.iter().map(|event| event["pid"].as_u64()).collect();
    assert_eq!(tracks.len(), 3);
}
