//! Engines over threads.

#![expect(unsafe_code, reason = "submissions are addresses")]

use std::{
    collections::HashMap,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{Action, Buffer, Engine, Failure, Handle, Part, Reduction, Request};
use crate::DType;

/// Runs a function on each rank of a world of threads.
fn ranks<T: Send + 'static>(
    size: usize,
    variables: &[(&str, &str)],
    then: impl Fn(&Engine) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let variables: HashMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (then, variables) = (Arc::new(then), Arc::new(variables));
    let threads: Vec<_> = crate::threads(size)
        .into_iter()
        .map(|world| {
            let (then, variables) = (Arc::clone(&then), Arc::clone(&variables));
            thread::spawn(move || {
                let engine = Engine::start(world, &|name| variables.get(name).cloned()).unwrap();
                let result = then(&engine);
                engine.shutdown();
                result
            })
        })
        .collect();
    threads.into_iter().map(|it| it.join().unwrap()).collect()
}

pub(super) fn f32s(action: Action, name: &str, shape: &[usize]) -> Request {
    let part = Part { name: name.into(), dtype: DType::F32, shape: shape.to_vec() };
    Request { parts: vec![part], ..Request::new(action, name) }
}

/// Submits a tensor in place; it lives as long as the test.
fn begin(engine: &Engine, request: Request, values: &mut [f32]) -> Result<Handle, Failure> {
    let at: *mut u8 = values.as_mut_ptr().cast();
    // SAFETY: the callers keep the values until they have waited.
    unsafe { engine.submit(0, request, vec![Buffer { send: at, recv: at }], None, None, false) }
}

fn all_reduce(engine: &Engine, name: &str, values: &mut [f32]) -> Result<(), Failure> {
    begin(engine, f32s(Action::AllReduce, name, &[values.len()]), values)?.wait(None).map(drop)
}

fn named(engine: &Engine, action: Action, name: &str) -> Result<Handle, Failure> {
    // SAFETY: there is no tensor.
    unsafe { engine.submit(0, Request::new(action, name), Vec::new(), None, None, false) }
}

/// What the engine allocated, as f32.
fn output(handle: &Handle) -> (Vec<f32>, Vec<usize>) {
    let outcome = handle.result().unwrap().unwrap();
    let (memory, shape) = outcome.outputs[0].as_ref().unwrap();
    let len = shape.iter().product();
    (memory.as_slice::<f32>()[..len].to_vec(), shape.clone())
}

#[test]
fn tensors_are_reduced_whatever_the_order_of_their_submission() {
    let sums = ranks(3, &[], |engine| {
        let sizes = [1, 10, 300, 1000, 70_000, 400_000, 0, 5];
        let mut all: Vec<(usize, Vec<f32>)> = sizes
            .iter()
            .enumerate()
            .map(|(tensor, len)| (tensor, (0..*len).map(|i| (engine.rank() + tensor + i % 7) as f32).collect()))
            .collect();
        // Twice, so that the second round goes by numbers.
        for _ in 0..2 {
            all.rotate_left(engine.rank());
            let handles: Vec<_> = all
                .iter_mut()
                .map(|(tensor, values)| {
                    begin(engine, f32s(Action::AllReduce, &format!("t{tensor}"), &[values.len()]), values).unwrap()
                })
                .collect();
            for handle in handles {
                assert!(handle.wait(None).unwrap());
            }
        }
        all.sort_by_key(|it| it.0);
        all
    });
    for rank in &sums {
        for (tensor, values) in rank {
            for (i, value) in values.iter().enumerate() {
                assert_eq!(*value, (3.0 * (3 * (tensor + i % 7) + 3) as f32), "tensor {tensor}, element {i}");
            }
        }
    }
}

#[test]
fn an_all_reduce_has_factors_and_averages_whole_numbers_toward_zero() {
    ranks(2, &[], |engine| {
        let rank = engine.rank() as f32;
        for len in [3, 5000, 200_000] {
            let mut values = vec![rank + 1.0; len];
            let request = Request {
                prescale: 2.0,
                postscale: 0.25,
                reduction: Reduction::Average,
                ..f32s(Action::AllReduce, "scaled", &[len])
            };
            begin(engine, request, &mut values).unwrap().wait(None).unwrap();
            assert!(values.iter().all(|it| *it == 0.75), "{:?}", &values[..3]);
            let mut whole = vec![engine.rank() as i32 * -5 - 2; len];
            let at: *mut u8 = whole.as_mut_ptr().cast();
            let part = Part { name: "whole".into(), dtype: DType::I32, shape: vec![len] };
            let request = Request {
                parts: vec![part],
                reduction: Reduction::Average,
                ..Request::new(Action::AllReduce, "whole")
            };
            // SAFETY: `whole` lives until the wait is over.
            unsafe { engine.submit(0, request, vec![Buffer { send: at, recv: at }], None, None, true) }
                .unwrap()
                .wait(None)
                .unwrap();
            assert!(whole.iter().all(|it| *it == -4), "{:?}", &whole[..3]);
        }
    });
}

#[test]
fn gathers_broadcasts_and_exchanges_have_the_shapes_of_all_ranks() {
    ranks(3, &[], |engine| {
        let rank = engine.rank();
        // Little, and too much to come along.
        for row in [2, 600] {
            let mut values = vec![rank as f32; rank * row];
            let mut request = f32s(Action::AllGather, "gathered", &[rank, row]);
            request.parts[0].shape = vec![rank, row];
            let handle = begin(engine, request, &mut values).unwrap();
            handle.wait(None).unwrap();
            let (all, shape) = output(&handle);
            assert_eq!(shape, [3, row]);
            assert!(all[..row].iter().all(|it| *it == 1.0) && all[row..].iter().all(|it| *it == 2.0), "{all:?}");
            let mut values = vec![rank as f32; row];
            let request = Request { root: 2, ..f32s(Action::Broadcast, "sent", &[row]) };
            begin(engine, request, &mut values).unwrap().wait(None).unwrap();
            assert_eq!(values, vec![2.0; row]);
            // Rank r gives r + 1 rows to each other rank and none to itself.
            let splits: Vec<_> = (0..3).map(|to| if to == rank { 0 } else { rank + 1 }).collect();
            let rows = 2 * (rank + 1);
            let mut values = vec![rank as f32; rows * row];
            let request = Request { splits: Some(splits), ..f32s(Action::AllToAll, "exchanged", &[rows, row]) };
            let handle = begin(engine, request, &mut values).unwrap();
            handle.wait(None).unwrap();
            let received: Vec<_> = (0..3).map(|from| if from == rank { 0 } else { from + 1 }).collect();
            assert_eq!(handle.result().unwrap().unwrap().received.as_ref(), Some(&received));
            let (all, shape) = output(&handle);
            assert_eq!(shape, [received.iter().sum::<usize>(), row]);
            let expected: Vec<_> = (0..3).flat_map(|from| vec![from as f32; received[from] * row]).collect();
            assert_eq!(all, expected);
            let mut values: Vec<_> = (0..7 * row).map(|i| (i / row) as f32).collect();
            let at: *mut u8 = values.as_mut_ptr().cast();
            let request = f32s(Action::ReduceScatter, "scattered", &[7, row]);
            // SAFETY: the values live until the wait is over.
            let handle = unsafe {
                engine.submit(0, request, vec![Buffer { send: at, recv: ptr::null_mut() }], None, None, false)
            }
            .unwrap();
            handle.wait(None).unwrap();
            let (own, shape) = output(&handle);
            let first = [0, 3, 5][rank];
            assert_eq!(shape, [[3, 2, 2][rank], row]);
            assert!(own.iter().enumerate().all(|(i, it)| *it == 3.0 * (first + i / row) as f32), "{own:?}");
            // To memory that ends where the tensor begins.
            let own = [3, 2, 2][rank] * row;
            let mut values: Vec<_> = (0..own).map(|_| 0.0).chain((0..7 * row).map(|i| (i / row) as f32)).collect();
            let at = values.as_mut_ptr();
            // SAFETY: as above, and within the vector.
            let buffer = unsafe { Buffer { send: at.add(own).cast(), recv: at.cast() } };
            let request = f32s(Action::ReduceScatter, "beside", &[7, row]);
            // SAFETY: as above.
            unsafe { engine.submit(0, request, vec![buffer], None, None, false) }.unwrap().wait(None).unwrap();
            assert!(
                values[..own].iter().enumerate().all(|(i, it)| *it == 3.0 * (first + i / row) as f32),
                "{values:?}"
            );
        }
        named(engine, Action::Barrier, "barrier").unwrap().wait(None).unwrap();
    });
}

#[test]
fn a_mismatch_is_told_to_all_and_others_go_on() {
    let texts = ranks(2, &[], |engine| {
        let rank = engine.rank();
        let mut texts = Vec::new();
        let mut refused = |request: Request, values: &mut [f32]| {
            let result = begin(engine, request, values).unwrap().wait(None);
            let Err(failure @ Failure::Mismatch { .. }) = result else { panic!("{result:?}") };
            texts.push(failure.to_string());
            let mut fine = [1.0];
            all_reduce(engine, "fine", &mut fine).unwrap();
            assert_eq!(fine, [2.0]);
        };
        let mut values = vec![0.0; 6];
        refused(f32s(Action::AllReduce, "shape", if rank == 0 { &[6] } else { &[2, 3] }), &mut values);
        refused(f32s(if rank == 0 { Action::AllReduce } else { Action::AllGather }, "kind", &[6]), &mut values);
        refused(Request { root: rank, ..f32s(Action::Broadcast, "root", &[6]) }, &mut values);
        refused(Request { prescale: rank as f64, ..f32s(Action::AllReduce, "factor", &[6]) }, &mut values);
        let reduction = [Reduction::Sum, Reduction::Min][rank];
        refused(Request { reduction, ..f32s(Action::AllReduce, "fine", &[1]) }, &mut values);
        texts
    });
    assert_eq!(texts[0], texts[1]);
    let parts = [
        "rank 0: allreduce (sum) of f32 [6]; rank 1: allreduce (sum) of f32 [2, 3]",
        "rank 1: allgather",
        "broadcast (root 1)",
        "factors 0 and 1",
        "(min)",
    ];
    for (text, part) in texts[0].iter().zip(parts) {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn joined_ranks_give_zeros_and_hear_who_was_last() {
    let last = ranks(3, &[], |engine| {
        let rank = engine.rank();
        for step in 0..=rank {
            for len in [2, 5000, 100_000] {
                let mut values = vec![6.0; len];
                let request = Request { reduction: Reduction::Average, ..f32s(Action::AllReduce, "gradient", &[len]) };
                begin(engine, request, &mut values).unwrap().wait(None).unwrap();
                assert_eq!(values[len - 1], 2.0 * (3 - step) as f32);
            }
        }
        if rank == 2 {
            let failure =
                begin(engine, f32s(Action::AllGather, "gathered", &[1]), &mut [0.0]).unwrap().wait(None).unwrap_err();
            assert!(failure.to_string().contains("not supported with Join"), "{failure}");
        }
        let handle = named(engine, Action::Join, "join").unwrap();
        handle.wait(None).unwrap();
        let mut values = [1.0];
        all_reduce(engine, "after", &mut values).unwrap();
        assert_eq!(values, [3.0]);
        handle.result().unwrap().unwrap().last_joined
    });
    assert_eq!(last, [Some(2); 3]);
}

#[test]
fn sets_are_of_some_ranks_and_need_no_others() {
    ranks(3, &[], |engine| {
        let set = engine.add_set(&[2, 0]).unwrap();
        assert_eq!(engine.sets()[&set], [0, 2]);
        let mut values = [engine.rank() as f32 + 1.0];
        let at: *mut u8 = values.as_mut_ptr().cast();
        // SAFETY: `values` lives until the wait is over.
        let submitted = unsafe {
            engine.submit(
                set,
                f32s(Action::AllReduce, "x", &[1]),
                vec![Buffer { send: at, recv: at }],
                None,
                None,
                false,
            )
        };
        if engine.rank() == 1 {
            assert!(submitted.unwrap_err().to_string().contains("rank 1 is not in process set 1"));
        } else {
            submitted.unwrap().wait(None).unwrap();
            assert_eq!(values, [4.0]);
        }
        engine.remove_set(set).unwrap();
        assert!(engine.remove_set(set).is_err());
        let failure = engine.add_set(if engine.rank() == 0 { &[0] } else { &[1] }).unwrap_err();
        assert!(matches!(failure, Failure::Mismatch { .. }), "{failure}");
    });
}

#[test]
fn a_name_is_taken_until_its_operation_is_done() {
    let refused = Arc::new(std::sync::Barrier::new(2));
    ranks(2, &[], move |engine| {
        let (mut one, mut two) = ([1.0], [1.0]);
        if engine.rank() == 1 {
            refused.wait();
            all_reduce(engine, "twice", &mut one).unwrap();
            all_reduce(engine, "twice", &mut two).unwrap();
            return;
        }
        let first = begin(engine, f32s(Action::AllReduce, "twice", &[1]), &mut one).unwrap();
        let failure = begin(engine, f32s(Action::AllReduce, "twice", &[1]), &mut two).unwrap_err();
        assert!(failure.to_string().contains("Requested to allreduce a tensor with the same name"), "{failure}");
        refused.wait();
        first.wait(None).unwrap();
        begin(engine, f32s(Action::AllReduce, "twice", &[1]), &mut two).unwrap().wait(None).unwrap();
        assert_eq!((one, two), ([2.0], [2.0]));
    });
}

#[test]
fn a_rank_that_leaves_ends_what_waits_for_it() {
    let failures =
        ranks(2, &[], |engine| (engine.rank() == 0).then(|| all_reduce(engine, "alone", &mut [1.0]).unwrap_err()));
    let text = failures[0].as_ref().unwrap().to_string();
    assert!(text.contains("\"alone\"") && text.contains("rank 1"), "{text}");
}

#[test]
fn a_shutdown_ends_what_is_outstanding() {
    let barrier = Arc::new(std::sync::Barrier::new(2));
    ranks(2, &[], move |engine| {
        let mut values = [1.0];
        let handle =
            (engine.rank() == 0).then(|| begin(engine, f32s(Action::AllReduce, "alone", &[1]), &mut values).unwrap());
        thread::sleep(Duration::from_millis(20));
        if engine.rank() == 0 {
            engine.shutdown();
        }
        barrier.wait();
        if let Some(handle) = handle {
            let failure = handle.wait(None).unwrap_err();
            assert!(failure.to_string().contains("\"alone\""), "{failure}");
            assert!(matches!(
                begin(engine, f32s(Action::AllReduce, "later", &[1]), &mut [0.0]),
                Err(Failure::ShutDown { .. })
            ));
        }
    });
}

#[test]
fn a_stalled_operation_ends_after_the_time_that_was_set() {
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let failures = ranks(
        2,
        &[("HOROVOD_STALL_CHECK_TIME_SECONDS", "1"), ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2")],
        move |engine| {
            let begun = Instant::now();
            let failure = (engine.rank() == 0).then(|| all_reduce(engine, "alone", &mut [1.0]).unwrap_err());
            barrier.wait();
            assert!(begun.elapsed() < Duration::from_secs(8));
            failure
        },
    );
    let text = failures[0].as_ref().unwrap().to_string();
    assert!(text.contains("\"alone\"") && text.contains("rank 1"), "{text}");
}

#[test]
fn operations_of_the_callers_run_in_one_order() {
    let calls = Arc::new(AtomicUsize::new(0));
    let orders = ranks(2, &[], move |engine| {
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut names = ["a", "b", "c", "d"];
        if engine.rank() == 1 {
            names.reverse();
        }
        let handles: Vec<_> = names
            .into_iter()
            .map(|name| {
                let (order, calls) = (Arc::clone(&order), Arc::clone(&calls));
                let callback = Box::new(move || {
                    order.lock().unwrap().push(name);
                    calls.fetch_add(1, Ordering::Relaxed);
                    if name == "c" { Err("it broke".to_owned()) } else { Ok(()) }
                });
                // SAFETY: there is no tensor.
                unsafe {
                    engine.submit(0, Request::new(Action::External, name), Vec::new(), Some(callback), None, false)
                }
                .unwrap()
            })
            .collect();
        for (handle, name) in handles.into_iter().zip(names) {
            assert_eq!(handle.wait(None).is_err(), name == "c");
        }
        std::mem::take(&mut *order.lock().unwrap())
    });
    assert_eq!(orders[0].len(), 4);
    assert_eq!(orders[0], orders[1]);
}
