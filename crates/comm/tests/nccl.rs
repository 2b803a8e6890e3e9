//! Groups over NCCL: what is missing is said; where there are GPUs, the conformance suite and
//! memory of theirs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cudarc::driver::{CudaContext, DevicePtrMut};
use shoal_comm::{
    Call, DType, Error, Kind, ProcessGroup, ProcessGroupExt, ReduceOp, conformance, gpus, join,
    rendezvous::{Carrier, Config, LocalStore, Meeting},
};

fn world(size: usize) -> Vec<Arc<dyn ProcessGroup>> {
    // A heartbeat that no loaded machine misses.
    conformance::joined(size, &|rank, config| {
        config.heartbeat(Duration::from_secs(60)).carrier(Carrier::Nccl { device: rank }).address([127, 0, 0, 1].into())
    })
}

/// How many GPUs there are, if at least `needed`; else says why the test is skipped.
fn gpus_here(needed: usize) -> Option<usize> {
    match gpus() {
        Ok(count) if count >= needed => return Some(count),
        Ok(count) => println!("skipped: needs {needed} GPUs, and this machine has {count}"),
        Err(error) => println!("skipped: needs a GPU and NCCL: {error}"),
    }
    None
}

/// What NCCL has: no 16-bit integers, and of NaN its own notion of the least and the greatest.
fn has(kind: Kind, dtype: DType) -> bool {
    let nan_counts = matches!(kind.op(), Some(ReduceOp::Min | ReduceOp::Max)) && dtype.is_float();
    kind.op().is_none() || dtype != DType::I16 && !nan_counts
}

/// Nobody else comes: what this process lacks is found before it waits for others.
#[test]
fn what_is_missing_is_said_before_anybody_is_met() {
    let available = gpus().unwrap_or(0);
    let meeting = Meeting::Store(Arc::new(LocalStore::default()));
    let begun = Instant::now();
    let error = join(Config::new(0, 2, meeting).carrier(Carrier::Nccl { device: available })).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(60), "it waited");
    let Error::Config { problem } = &error else { panic!("{error}") };
    match gpus() {
        Ok(count) => assert!(
            problem.contains(&format!("GPU {count} is asked for")) && problem.contains("LOCAL_RANK"),
            "{problem}"
        ),
        Err(missing) => {
            assert_eq!(error, missing);
            let names = ["libnccl.so.2", "libcuda.so.1", "needs a GPU"];
            assert!(
                names.iter().any(|name| problem.contains(name)) && problem.contains("SHOAL_COMM_TRANSPORT=auto"),
                "{problem}"
            );
        }
    }
}

#[test]
fn inputs_are_not_kept() {
    let config = Config::new(0, 1, Meeting::Store(Arc::new(LocalStore::default())));
    let error = join(config.carrier(Carrier::Nccl { device: 0 }).keep_input(true)).unwrap_err();
    assert!(error.to_string().contains("out of place"), "{error}");
}

#[test]
fn results() {
    let Some(count) = gpus_here(1) else { return };
    for size in 1..=count.min(4) {
        conformance::results_of(&world, size, &has);
    }
}

#[test]
fn order() {
    let Some(count) = gpus_here(1) else { return };
    for size in [1, 2, 4].into_iter().filter(|size| *size <= count) {
        conformance::order_in(&world, size);
    }
}

#[test]
fn failures() {
    if gpus_here(4).is_some() {
        conformance::failures(&world);
    }
}

/// Addresses of a GPU's memory, in a world of one rank and of two.
#[test]
fn memory_of_the_gpu_is_used_where_it_is() {
    let Some(count) = gpus_here(1) else { return };
    for size in 1..=count.min(2) {
        std::thread::scope(|scope| {
            for group in world(size) {
                scope.spawn(move || on_device(&*group));
            }
        });
    }
}

fn on_device(group: &dyn ProcessGroup) {
    const LEN: usize = 100_003;
    let (rank, size) = (group.rank(), group.size());
    let stream = CudaContext::new(rank).unwrap().default_stream();
    let host: Vec<f32> = (0..LEN).map(|i| (i % 1000 + rank) as f32).collect();
    let mut vector = stream.clone_htod(&host).unwrap();
    let mut all = stream.alloc_zeros::<f32>(LEN * size).unwrap();
    stream.synchronize().unwrap();
    let address = vector.device_ptr_mut(&stream).0 as *mut u8;
    let gathered = all.device_ptr_mut(&stream).0 as *mut u8;
    let in_place = Call::new(Kind::AllReduce(ReduceOp::Avg), DType::F32, address, address, LEN);
    let gather = Call::new(Kind::AllGather, DType::F32, address, gathered, LEN);
    #[expect(unsafe_code, reason = "memory of a GPU has no slices")]
    // SAFETY: both allocations outlive the calls and have their lengths; the stream's work on them
    // is done.
    unsafe {
        group.run(&in_place).unwrap();
        group.run(&gather).unwrap();
        // Off by a byte: through a copy.
        group
            .run(&Call::new(Kind::Broadcast { root: 0 }, DType::F32, gathered.add(1), gathered.add(1), LEN - 1))
            .unwrap();
    }
    let mean: Vec<f32> = (0..LEN).map(|i| (i % 1000) as f32 + (size - 1) as f32 / 2.0).collect();
    assert_eq!(stream.clone_dtoh(&vector).unwrap(), mean);
    assert_eq!(stream.clone_dtoh(&all).unwrap(), mean.repeat(size));
    // What the group gives is reached by both.
    let mut memory = group.alloc(4 * LEN).unwrap();
    assert!(memory.as_slice::<f32>().iter().all(|x| *x == 0.0));
    memory.as_mut_slice::<f32>().copy_from_slice(&host);
    group.all_reduce(memory.as_mut_slice::<f32>(), ReduceOp::Avg).unwrap();
    assert_eq!(memory.as_slice::<f32>(), mean);
    let refused = group.all_reduce(&mut [1_i16, 2], ReduceOp::Sum).unwrap_err();
    assert!(matches!(&refused, Error::Config { problem } if problem.contains("i16")), "{refused}");
    group.barrier().unwrap();
}
