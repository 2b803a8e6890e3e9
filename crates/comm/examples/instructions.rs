//! Runs each hot loop a fixed number of times, for callgrind to count its instructions:
//! `cargo xtask instructions` does so, and compares the counts with
//! `crates/comm/instructions.json`. A count depends on the code, the compiler and the processor's
//! instructions, not on how busy the machine is.
//!
//! The first line names the instructions that the kernels use here (valgrind knows no AVX-512).
//! Then a line for each count, in the order of callgrind's dumps: the loop's name and how many
//! times it ran within. What a loop needs is made, and the loop has run once, before it is counted.
//! Operations of two ranks are counted on a rank whose peer has come before it, so that it waits
//! for nobody; where the peer comes late after all, the count is higher. The least of several
//! counts is the loop's own.

use std::{
    error::Error,
    hint::black_box,
    sync::{Arc, mpsc::channel},
    thread,
    time::Duration,
};

use half::bf16;
use shoal_comm::{
    ProcessGroup, ProcessGroupExt, ReduceOp,
    bench::kernels::{Recording, copy_past_caches, sum, width},
    compress::Int8,
    join,
    rendezvous::{Carrier, Config, LocalStore, Meeting},
    shared_memory, threads,
};

/// How often a loop is counted.
const COUNTS: usize = 5;
/// Bytes of the vectors that the kernels work on.
const BYTES: usize = 1 << 16;
/// Until a peer that was told to come has come.
const COMING: Duration = Duration::from_millis(20);

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", width());
    let floats: Vec<_> = (0..BYTES / 4).map(|i| (i as f32 * 0.37).sin()).collect();
    let mut target = floats.clone();
    alone("sum of 2 sources, f32, 64 KiB", 1, &mut || sum(black_box(&mut target), &[&floats[..]; 2]));
    alone("sum of 4 sources, f32, 64 KiB", 1, &mut || sum(black_box(&mut target), &[&floats[..]; 4]));
    let halves: Vec<_> = (0..BYTES / 2).map(|i| bf16::from_f32((i as f32 * 0.37).sin())).collect();
    let mut half_target = halves.clone();
    alone("sum of 2 sources, bf16, 64 KiB", 1, &mut || sum(black_box(&mut half_target), &[&halves[..]; 2]));
    let bytes = vec![1_u8; BYTES];
    let mut copy = vec![0_u8; BYTES];
    alone("copy past the caches, 64 KiB", 1, &mut || copy_past_caches(black_box(&mut copy), &bytes));
    let mut compressor = Int8::new(1);
    alone("int8 there and back, 64 KiB of f32", 1, &mut || compressor.round_trip(black_box(&mut target)));
    let recording = Recording::new();
    alone("an event of the timeline", 100, &mut || recording.record(100));

    let one = threads(1).pop().ok_or("a world of one has a rank")?;
    let mut element = [1.0_f32];
    let mut result = Ok(());
    alone("all-reduce, 4 B, one rank", 1, &mut || result = one.all_reduce(black_box(&mut element), ReduceOp::Sum));
    result?;
    for bytes in [4, 1024] {
        beside_a_peer(&format!("all-reduce, {bytes} B, shared memory"), bytes, shared_memory(2)?)?;
    }
    for bytes in [4, 1024] {
        beside_a_peer(&format!("all-reduce, {bytes} B, TCP"), bytes, connected()?)?;
    }
    Ok(())
}

/// What callgrind counts.
#[inline(never)]
fn counted(body: &mut dyn FnMut()) {
    body();
}

/// A loop that needs nobody else.
fn alone(name: &str, times: usize, body: &mut dyn FnMut()) {
    body();
    for _ in 0..COUNTS {
        counted(body);
        println!("{name}\t{times}");
    }
}

/// An all-reduce of rank 0 of two.
fn beside_a_peer(name: &str, bytes: usize, ranks: Vec<Arc<dyn ProcessGroup>>) -> Result<(), Box<dyn Error>> {
    let [here, peer] = <[_; 2]>::try_from(ranks).map_err(|_| "two ranks")?;
    let (come, told) = channel();
    let their_part = thread::spawn(move || {
        told.iter().try_for_each(|()| peer.all_reduce(&mut vec![1.0_f32; bytes / 4], ReduceOp::Sum))
    });
    let mut values = vec![1.0_f32; bytes / 4];
    for count in 0..=COUNTS {
        come.send(())?;
        thread::sleep(COMING);
        let mut result = Ok(());
        let mut body = || result = here.all_reduce(black_box(&mut values), ReduceOp::Sum);
        if count == 0 {
            body();
        } else {
            counted(&mut body);
            println!("{name}\t1");
        }
        result?;
    }
    drop(come);
    their_part.join().map_err(|_| "the peer panicked")??;
    Ok(())
}

/// Two ranks with connections over loopback.
fn connected() -> Result<Vec<Arc<dyn ProcessGroup>>, Box<dyn Error>> {
    let store = Arc::new(LocalStore::default());
    let ranks: Vec<_> = (0..2)
        .map(|rank| {
            let config = Config::new(rank, 2, Meeting::Store(store.clone()))
                .carrier(Carrier::Tcp)
                .address([127, 0, 0, 1].into());
            // Valgrind is slow; nothing here is about heartbeats.
            thread::spawn(move || join(config.heartbeat(Duration::from_secs(60))))
        })
        .collect();
    ranks.into_iter().map(|rank| Ok(rank.join().map_err(|_| "a rank panicked")??)).collect()
}
