//! Memory, processes, CPU time.

use crate::Test;
use crate::stage::{Outcome, Stage, groups_with};

pub(crate) const TESTS: &[Test] = &[
    ("memory_is_a_limit_and_its_end_is_told", memory_is_a_limit_and_its_end_is_told),
    ("shared_memory_counts", shared_memory_counts),
    ("processes_are_limited", processes_are_limited),
    ("weights_arrive", weights_arrive),
];

fn memory_is_a_limit_and_its_end_is_told(stage: &Stage) -> Outcome {
    stage.needs_cgroup()?;
    // A child of the program dies, and the program says so in its own way: the kernel's word counts.
    let greedy = "x=$(head -c 300000000 /dev/zero | tr '\\0' x)";
    for script in [greedy, &format!("sh -c \"{greedy}\"; exit 9")] {
        let mut instance = stage.shell(script);
        instance.spec.memory_bytes = 64 << 20;
        let exit = stage.finish(&instance).exit;
        assert!(exit.out_of_memory, "{script}: {exit:?}");
        assert!((exit.code, exit.signal) == (None, Some(9)) || exit.code == Some(9), "{script}: {exit:?}");
    }
    let mut instance = stage.shell("tail -c 4000000 /dev/zero | wc -c");
    instance.spec.memory_bytes = 64 << 20;
    let ended = stage.finish(&instance);
    assert_eq!((&*ended.stdout, ended.exit.out_of_memory), ("4000000\n", false));
    Ok(())
}

fn shared_memory_counts(stage: &Stage) -> Outcome {
    stage.needs_cgroup()?;
    stage.needs_namespaces()?;
    let mut instance = stage.shell("head -c 200000000 /dev/zero >/dev/shm/x");
    instance.spec.memory_bytes = 64 << 20;
    assert!(stage.finish(&instance).exit.out_of_memory);
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
