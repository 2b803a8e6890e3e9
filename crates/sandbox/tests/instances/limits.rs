//! Memory, processes, CPU time.

use std::io::{BufRead, BufReader};

use shoal_sandbox::{OutOfMemory, Together};

use crate::Test;
use crate::stage::{Outcome, Stage, groups_with};

pub(crate) const TESTS: &[Test] = &[
    ("memory_is_a_limit_and_its_end_is_told", memory_is_a_limit_and_its_end_is_told),
    (
        "what_is_reached_together_ends_the_one_that_may_go_first",
        what_is_reached_together_ends_the_one_that_may_go_first,
    ),
    ("shared_memory_counts", shared_memory_counts),
    ("processes_are_limited", processes_are_limited),
    ("weights_arrive", weights_arrive),
];

fn memory_is_a_limit_and_its_end_is_told(stage: &Stage) -> Outcome {
    stage.needs_cgroup()?;
    // A child of the program dies, and the program says so in its own way: the kernel's word
    // counts.
    let greedy = "x=$(head -c 300000000 /dev/zero | tr '\\0' x)";
    for script in [greedy, &format!("sh -c \"{greedy}\"; exit 9")] {
        let mut instance = stage.shell(script);
        instance.spec.memory_bytes = 64 << 20;
        let exit = stage.finish(&instance).exit;
        assert_eq!(exit.out_of_memory, Some(OutOfMemory::Own), "{script}: {exit:?}");
        assert!((exit.code, exit.signal) == (None, Some(9)) || exit.code == Some(9), "{script}: {exit:?}");
    }
    let mut instance = stage.shell("tail -c 4000000 /dev/zero | wc -c");
    instance.spec.memory_bytes = 64 << 20;
    let ended = stage.finish(&instance);
    assert_eq!((&*ended.stdout, ended.exit.out_of_memory), ("4000000\n", None));
    Ok(())
}

/// Each stays below its own limit: the kernel looks in their common group alone, and takes the one
/// that it is told to take first.
fn what_is_reached_together_ends_the_one_that_may_go_first(stage: &Stage) -> Outcome {
    stage.needs_cgroup()?;
    let python = stage.python()?;
    let grow = "import os, time; ml = os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml'); print('ready', flush=True)
def wait(name):
    while not os.path.exists(f'{ml}/{name}'): time.sleep(0.01)
wait('grow'); held = bytearray(180 << 20); print('grown', flush=True); wait('end')";
    let start = || {
        let mut instance = stage.shell("");
        instance.spec.command = [python, "-c", grow].map(str::to_owned).to_vec();
        let ml = instance.dir.path().join("ml");
        // Where instances are plain processes, it is nowhere else.
        instance.spec.env.push((
            "SAGEMAKER_BASE_DIR".to_owned(),
            stage.support.path_of(&instance.spec.mounts, "/opt/ml".as_ref()).display().to_string(),
        ));
        instance.spec.together =
            Some(Together { name: format!("test-{}", std::process::id()), memory_bytes: 256 << 20 });
        let mut sandbox = stage.start(&instance).unwrap();
        let stdout = BufReader::new(sandbox.stdout().unwrap()).lines().map(Result::unwrap);
        (instance, sandbox, stdout, move |name: &str| std::fs::write(ml.join(name), "").unwrap())
    };
    let (_older_files, mut older, mut older_says, older_may) = start();
    older_may("grow");
    assert_eq!(older_says.by_ref().take(2).collect::<Vec<_>>(), ["ready", "grown"]);
    let (newer_files, mut newer, mut newer_says, newer_may) = start();
    assert_eq!(newer_says.next().as_deref(), Some("ready"));
    for group in groups_with(&newer_files.spec.id) {
        for pid in std::fs::read_to_string(group.join("cgroup.procs")).unwrap().lines() {
            // A rootless instance's own process 1 is not ours to write.
            let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), "1000");
        }
    }
    newer_may("grow");
    let exit = newer.wait().unwrap();
    let Some(OutOfMemory::Together { used_bytes }) = exit.out_of_memory else { panic!("{exit:?}") };
    assert!(used_bytes < 256 << 20, "{used_bytes}");
    assert_eq!((newer_says.next(), older.out_of_memory()), (None, None));
    older_may("end");
    let exit = older.wait().unwrap();
    assert_eq!((exit.code, exit.out_of_memory), (Some(0), None));
    assert_eq!(groups_with(&format!("together-test-{}", std::process::id())), Vec::<std::path::PathBuf>::new());
    Ok(())
}

fn shared_memory_counts(stage: &Stage) -> Outcome {
    stage.needs_cgroup()?;
    stage.needs_namespaces()?;
    let mut instance = stage.shell("head -c 200000000 /dev/zero >/dev/shm/x");
    instance.spec.memory_bytes = 64 << 20;
    assert_eq!(stage.finish(&instance).exit.out_of_memory, Some(OutOfMemory::Own));
    Ok(())
}

fn processes_are_limited(stage: &Stage) -> Outcome {
    stage.needs_cgroup()?;
    let mut instance = stage.shell("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 & done; echo not reached");
    instance.spec.pids = 8;
    let ended = stage.finish(&instance);
    assert!(ended.stdout.is_empty() && ended.stderr.to_lowercase().contains("fork"), "{ended:?}");
    Ok(())
}

fn weights_arrive(stage: &Stage) -> Outcome {
    stage.needs_cgroup()?;
    let mut instance = stage.shell("sleep 1000");
    instance.spec.cpu_weight = 250;
    let sandbox = stage.start(&instance).unwrap();
    let groups = groups_with(&instance.spec.id);
    assert!(!groups.is_empty());
    let read = |file: &str| groups.iter().find_map(|group| std::fs::read_to_string(group.join(file)).ok());
    let shares = read("cpu.shares").or_else(|| read("cpu.weight")).ok_or("no cpu control group")?;
    assert!(["2560", "250"].contains(&shares.trim()), "{shares}");
    drop(sandbox);
    assert_eq!(groups_with(&instance.spec.id), Vec::<std::path::PathBuf>::new());
    Ok(())
}
