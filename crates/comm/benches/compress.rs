//! Speed of what compressors compute: `cargo bench -p shoal-comm --bench compress [ELEMENTS]`. One
//! rank's work between its operations, on one core: two ranks are threads that take turns, so the
//! time of a step is that of both and of the copies between them.

use std::time::Instant;

use half::{bf16, f16};
use shoal_comm::{
    ProcessGroup, ReduceOp,
    compress::{Cast, Compressor, Int8, PowerSgd, TopK},
    threads,
};

fn main() {
    let elements = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(4 << 20);
    for elements in [4096, 1 << 20, elements] {
        round_trips(elements);
    }
    println!("{elements} elements, 2 ranks in turns on one machine; GB/s of f32 input of one rank");
    println!("| compressor | wire bytes | ratio | relative error | best | median |");
    println!("|---|---|---|---|---|---|");
    let share = || Box::new(TopK::new(0.01).expect("a share"));
    let rank = || Box::new(PowerSgd::new(2).expect("a rank"));
    measure("f16", elements, &|| Box::new(Cast::<f16>::new()));
    measure("bf16", elements, &|| Box::new(Cast::<bf16>::new()));
    measure("int8", elements, &|| Box::new(Int8::new(1)));
    measure("top-k 1 %", elements, &|| share());
    measure("PowerSGD rank 2", elements, &|| rank());
}

/// Quantising and dequantising alone, on one core.
fn round_trips(elements: usize) {
    let mut values: Vec<_> = (0..elements).map(|i| (i as f32 * 0.37).sin()).collect();
    let mut compressor = Int8::new(1);
    let mut seconds: Vec<_> = (0..401)
        .map(|_| {
            // Short enough that some fall between two turns of other programs.
            let repeats = (1 << 16) / elements + 1;
            let started = Instant::now();
            (0..repeats).for_each(|_| compressor.round_trip(std::hint::black_box(&mut values)));
            started.elapsed().as_secs_f64() / repeats as f64
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let speed = |seconds: f64| elements as f64 * 4.0 / seconds / 1e9;
    println!(
        "int8, {elements} elements there and back: {:.2} GB/s best, {:.2} median",
        speed(seconds[0]),
        speed(seconds[200])
    );
}

fn measure(name: &str, elements: usize, make: &(dyn Fn() -> Box<dyn Compressor> + Sync)) {
    let part = |group: &dyn ProcessGroup| {
        let mut compressor = make();
        let input: Vec<_> =
            (0..elements).map(|i| ((i.wrapping_mul(2_654_435_761) >> 7) % 4096) as f32 / 2048.0 - 1.0).collect();
        let mut seconds = Vec::new();
        let mut last = None;
        for _ in 0..9 {
            let mut values = input.clone();
            let started = Instant::now();
            last = Some(compressor.all_reduce(group, &mut values, ReduceOp::Avg).expect("all is well"));
            seconds.push(started.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        (seconds, last.expect("nine rounds"))
    };
    let (seconds, report) = std::thread::scope(|scope| {
        let ranks: Vec<_> = threads(2).into_iter().map(|group| scope.spawn(move || part(&*group))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).next().expect("two ranks")
    });
    let speed = |seconds: f64| elements as f64 * 4.0 / seconds / 1e9;
    let (best, median) = (speed(seconds[0]), speed(seconds[seconds.len() / 2]));
    println!(
        "| {name} | {} | {:.2} | {:.2e} | {best:.2} | {median:.2} |",
        report.wire_bytes,
        report.ratio(),
        report.relative_error()
    );
}
