//! Compressed all-reduces among threads: what they give, what they lose, what they cost.

use std::{sync::Arc, thread};

use half::{bf16, f16};
use shoal_comm::{
    Error, ProcessGroup, ProcessGroupExt as _, ReduceOp,
    compress::{Cast, Compressor, Int8, PowerSgd, Report, TopK},
    threads,
};

/// Each rank in a thread; what each gives, by rank.
fn play<R: Send>(size: usize, part: impl Fn(Arc<dyn ProcessGroup>) -> R + Sync) -> Vec<R> {
    let part = &part;
    thread::scope(|scope| {
        let threads: Vec<_> = threads(size).into_iter().map(|group| scope.spawn(move || part(group))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

type Make = dyn Fn() -> Box<dyn Compressor> + Sync;

fn all() -> Vec<(&'static str, Box<Make>)> {
    vec![
        ("f16", Box::new(|| Box::new(Cast::<f16>::new()))),
        ("bf16", Box::new(|| Box::new(Cast::<bf16>::new()))),
        ("int8", Box::new(|| Box::new(Int8::new(7)))),
        ("top-k", Box::new(|| Box::new(TopK::new(0.01).expect("a share")))),
        ("PowerSGD", Box::new(|| Box::new(PowerSgd::new(2).expect("a rank")))),
    ]
}

/// What rank `rank` has in step `step`: smooth with some noise, different on each rank.
fn gradient(rank: usize, step: usize, len: usize) -> Vec<f32> {
    let noise = |i: usize| ((i.wrapping_mul(2_654_435_761) ^ (rank * 77 + step * 1013)) % 1001) as f32 / 1001.0 - 0.5;
    (0..len).map(|i| (i as f32 * 0.01 + rank as f32).sin() + noise(i) + if i % 97 == 0 { 5.0 } else { 0.0 }).collect()
}

fn exact_sum(n: usize, step: usize, len: usize) -> Vec<f64> {
    let gradients: Vec<_> = (0..n).map(|rank| gradient(rank, step, len)).collect();
    (0..len).map(|i| gradients.iter().map(|gradient| f64::from(gradient[i])).sum()).collect()
}

fn distance(a: &[f32], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn all_ranks_get_the_same_bits_in_every_run() {
    for (name, make) in all() {
        for (n, len) in [(2, 0), (3, 1), (2, 255), (5, 1000), (3, 20_001)] {
            let run = || {
                play(n, |group| {
                    let mut compressor = make();
                    let mut bits = Vec::new();
                    for (step, op) in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Sum].into_iter().enumerate() {
                        let mut values = gradient(group.rank(), step, len);
                        compressor.all_reduce(&*group, &mut values, op).expect("all is well");
                        bits.extend(values.into_iter().map(f32::to_bits));
                    }
                    bits
                })
            };
            let first = run();
            assert_eq!(first[0].len(), 3 * len);
            assert!(first.iter().chain(&run()).all(|bits| *bits == first[0]), "{name}, {n} ranks, {len} elements");
        }
    }
}

#[test]
fn one_rank_keeps_its_values() {
    for (name, make) in all() {
        let group = threads(1).remove(0);
        let mut values = gradient(0, 0, 1000);
        let report = make().all_reduce(&*group, &mut values, ReduceOp::Avg).expect("all is well");
        assert_eq!(values, gradient(0, 0, 1000), "{name}");
        assert_eq!((report.wire_bytes, report.lost), (0, 0.0), "{name}");
    }
}

#[test]
fn what_is_lost_is_what_the_report_says() {
    let (n, len) = (4, 50_000);
    for (name, make) in all() {
        let results = play(n, |group| {
            let mut values = gradient(group.rank(), 0, len);
            let report = make().all_reduce(&*group, &mut values, ReduceOp::Sum).expect("all is well");
            (values, report)
        });
        let off = distance(&results[0].0, &exact_sum(n, 0, len));
        let told = results.iter().map(|(_, report)| report.lost).sum::<f64>() + results[0].1.rounding;
        // f32 sums are not exact themselves.
        assert!(off <= told * 1.001 + 1e-2, "{name}: off by {off}, told {told}");
        for (values, report) in &results {
            assert_eq!(values, &results[0].0);
            assert_eq!(report.rounding, results[0].1.rounding, "{name}: the same on all ranks");
            assert!(report.relative_error() < 1.0, "{name}: {report:?}");
        }
    }
}

#[test]
fn casts_round_twice_and_no_more() {
    fn check<E: shoal_comm::compress::Half>(roundoff: f64) {
        let (n, len) = (4, 3000);
        let results = play(n, |group| {
            let mut values = gradient(group.rank(), 0, len);
            let report = Cast::<E>::new().all_reduce(&*group, &mut values, ReduceOp::Sum).expect("all is well");
            assert_eq!((report.wire_bytes, report.plain_bytes), (2 * 3 * 2 * 3000 / 4, 2 * 3 * 4 * 3000 / 4));
            values
        });
        for (i, sum) in exact_sum(n, 0, len).into_iter().enumerate() {
            let magnitudes: f64 = (0..n).map(|rank| f64::from(gradient(rank, 0, len)[i].abs())).sum();
            let bound = roundoff * (magnitudes * (1.0 + roundoff) + sum.abs()) + 1e-6;
            assert!((f64::from(results[0][i]) - sum).abs() <= bound, "element {i}: {}, not {sum}", results[0][i]);
        }
    }
    check::<f16>(1.0 / 2048.0);
    check::<bf16>(1.0 / 256.0);
}

#[test]
fn int8_is_unbiased_from_end_to_end() {
    let (n, len, rounds) = (3, 1500, 600);
    let exact = exact_sum(n, 0, len);
    let results = play(n, |group| {
        let mut compressor = Int8::new(11);
        let (mut mean, mut off) = (vec![0.0; len], 0.0);
        for _ in 0..rounds {
            let mut values = gradient(group.rank(), 0, len);
            compressor.all_reduce(&*group, &mut values, ReduceOp::Sum).expect("all is well");
            off += distance(&values, &exact).powi(2) / f64::from(rounds);
            values
                .iter()
                .zip(&mut mean)
                .for_each(|(x, mean): (_, &mut f64)| *mean += f64::from(*x) / f64::from(rounds));
        }
        (mean, off.sqrt())
    });
    let (mean, off) = &results[0];
    let left = mean.iter().zip(&exact).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    // The mean of independent unbiased results is nearer by the root of their number; a bias would
    // stay.
    let expected = off / f64::from(rounds).sqrt();
    assert!(
        (0.9..1.1).contains(&(left / expected)),
        "off by {off} each, by {left} in the mean; {expected} if unbiased"
    );
    let drift: f64 = mean.iter().zip(&exact).map(|(a, b)| a - b).sum();
    assert!(drift.abs() < 4.0 * expected, "all elements together drift by {drift}");
}

#[test]
fn error_feedback_makes_the_sum_over_steps_true() {
    let (n, len, steps) = (3, 8100, 120);
    let makes: [(&str, Box<Make>); 2] = [
        ("top-k", Box::new(|| Box::new(TopK::new(0.02).expect("a share")))),
        ("PowerSGD", Box::new(|| Box::new(PowerSgd::new(8).expect("a rank")))),
    ];
    for (name, make) in &makes {
        let follow = |forgets: bool| {
            play(n, |group| {
                let mut compressor = make();
                let mut total = vec![0.0_f64; len];
                let mut history = Vec::new();
                let mut exact = vec![0.0_f64; len];
                for step in 0..steps {
                    if forgets {
                        compressor.reset();
                    }
                    let mut values = gradient(group.rank(), step % 5, len);
                    let report = compressor.all_reduce(&*group, &mut values, ReduceOp::Sum).expect("all is well");
                    total.iter_mut().zip(&values).for_each(|(total, x)| *total += f64::from(*x));
                    exact.iter_mut().zip(exact_sum(n, step % 5, len)).for_each(|(exact, x)| *exact += x);
                    let off = total.iter().zip(&exact).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                    let size = exact.iter().map(|x| x * x).sum::<f64>().sqrt();
                    history.push((off, off / size, report.lost));
                }
                history
            })
        };
        let kept = follow(false);
        for step in 0..steps {
            let told: f64 = kept.iter().map(|history| history[step].2).sum();
            let (off, ..) = kept[0][step];
            assert!(
                off <= told * 1.001 + 0.05,
                "{name}, step {step}: the sums are off by {off}, but only {told} was left out"
            );
        }
        let (early, late) = (kept[0][9].1, kept[0][steps - 1].1);
        let forgotten = follow(true)[0][steps - 1].1;
        assert!(late < 0.35 * early, "{name}: {early} of the sum is missing after 10 steps, {late} after {steps}");
        assert!(late < 0.35 * forgotten, "{name}: {late} of the sum is missing, {forgotten} without feedback");
    }
}

#[test]
fn power_sgd_is_exact_for_matrices_of_its_rank() {
    let (rows, columns) = (60, 80);
    let results = play(2, |group| {
        let rank = group.rank() as f32;
        // One on each rank, so two in the sum.
        let mut values: Vec<_> = (0..rows * columns)
            .map(|i| ((i / columns) as f32 * 0.3 + rank).sin() * ((i % columns) as f32 * 0.2 - rank).cos())
            .collect();
        let own = values.clone();
        let mut compressor = PowerSgd::new(2).expect("a rank").with_shape(rows, columns);
        let report = compressor.all_reduce(&*group, &mut values, ReduceOp::Sum).expect("all is well");
        assert!(report.relative_error() < 1e-4, "{report:?}");
        assert_eq!(report.wire_bytes, 4 * 2 * (60 + 80));
        (own, values)
    });
    for i in 0..rows * columns {
        assert!((results[0].1[i] - results[0].0[i] - results[1].0[i]).abs() < 1e-4, "element {i}");
    }
    // Steps with nothing in them end no power iteration.
    play(2, |group| {
        let mut compressor = PowerSgd::new(1).expect("a rank").with_shape(rows, columns);
        compressor.all_reduce(&*group, &mut vec![0.0; rows * columns], ReduceOp::Avg).expect("all is well");
        let mut values: Vec<_> = (0..rows * columns).map(|i| (i / columns) as f32).collect();
        let report = compressor.all_reduce(&*group, &mut values, ReduceOp::Avg).expect("all is well");
        assert!(report.relative_error() < 1e-4, "{report:?}");
        assert!((values[59 * columns] - 59.0).abs() < 1e-3);
    });
}

#[test]
fn bytes_on_the_wire() {
    let (n, len) = (4_u64, 1 << 20);
    let report = |make: &Make| -> Report {
        let reports = play(n as usize, |group| {
            let mut values = gradient(group.rank(), 0, len);
            make().all_reduce(&*group, &mut values, ReduceOp::Avg).expect("all is well")
        });
        reports[0]
    };
    let reports: Vec<_> = all().iter().map(|(_, make)| report(&**make)).collect();
    let bytes = len as u64;
    assert_eq!(reports[0].wire_bytes, 2 * (n - 1) * 2 * bytes / n);
    assert_eq!(reports[0].ratio(), 2.0);
    assert_eq!(reports[2].wire_bytes, 2 * (n - 1) * (bytes + 4 * bytes / 256) / n);
    assert!((reports[2].ratio() - 1024.0 / 260.0).abs() < 1e-9);
    assert_eq!(reports[3].wire_bytes, 8 * bytes.div_ceil(100) * (n - 1));
    assert_eq!(reports[4].wire_bytes, 2 * (n - 1) * 4 * 2 * (1024 + 1024) / n);
}

#[test]
fn a_failed_step_can_be_tried_again() {
    for (name, make) in all() {
        let results = play(3, |group| {
            let rank = group.rank();
            let mut compressor = make();
            let mut values = gradient(rank, 0, 5000);
            compressor.all_reduce(&*group, &mut values, ReduceOp::Sum).expect("all is well");
            if rank == 2 {
                return None;
            }
            let mut values = gradient(rank, 1, 5000);
            let error = compressor.all_reduce(&*group, &mut values, ReduceOp::Sum).expect_err("rank 2 is gone");
            assert!(matches!(error, Error::PeerDied { rank: 2, .. }), "{name}: {error}");
            assert_eq!(values, gradient(rank, 1, 5000), "{name}: the input is as it was");
            let living = group.shrink().expect("two are left");
            let report = compressor.all_reduce(&*living, &mut values, ReduceOp::Sum).expect("all is well");
            Some((values, report))
        });
        let [Some((first, one)), Some((second, other)), None] = &results[..] else { panic!("{name}") };
        assert_eq!(first, second, "{name}");
        let told = one.lost + other.lost + one.rounding;
        let told = if matches!(name, "top-k" | "PowerSGD") { told + one.input + other.input } else { told };
        assert!(distance(first, &exact_sum(2, 1, 5000)) <= told * 1.001 + 1e-2, "{name}");
    }
}

#[test]
fn what_is_not_a_number_is_seen_by_all_and_does_not_stay() {
    for (name, make) in all() {
        for odd in [f32::NAN, f32::INFINITY] {
            play(2, |group| {
                let mut compressor = make();
                let mut values = gradient(group.rank(), 0, 4000);
                if group.rank() == 1 {
                    values[1234] = odd;
                }
                compressor.all_reduce(&*group, &mut values, ReduceOp::Sum).expect("all is well");
                assert!(!values[1234].is_finite(), "{name}: {odd} became {}", values[1234]);
                for _ in 0..2 {
                    let mut values = gradient(group.rank(), 1, 4000);
                    let report = compressor.all_reduce(&*group, &mut values, ReduceOp::Sum).expect("all is well");
                    assert!(values.iter().all(|x| x.is_finite()) && report.lost.is_finite(), "{name}: {odd} stayed");
                }
            });
        }
    }
}

#[test]
fn impossible_settings_are_refused() {
    for share in [0.0, -1.0, 1.5, f64::NAN] {
        assert!(matches!(TopK::new(share), Err(Error::Config { .. })), "{share}");
    }
    assert!(matches!(PowerSgd::new(0), Err(Error::Config { .. })));
    play(2, |group| {
        for (name, make) in all() {
            let error = make().all_reduce(&*group, &mut [1.0], ReduceOp::Max).expect_err("no maximum");
            assert!(error.to_string().contains("a sum or an average, not max"), "{name}: {error}");
        }
        let mut compressor = PowerSgd::new(1).expect("a rank").with_shape(3, 5);
        let error = compressor.all_reduce(&*group, &mut [1.0; 14], ReduceOp::Sum).expect_err("14 is not 3 x 5");
        assert!(error.to_string().contains("no matrix of 3 x 5"), "{error}");
        group.barrier().expect("the group goes on");
    });
}
