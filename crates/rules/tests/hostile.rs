//! Every rule over tensors of any shape, type and value: none panics, and what rules remember is
//! bounded.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::borrow::Cow;
use std::collections::BTreeMap;

use shoal_contract::tensors::{ElementType, Mode, Tensor};
use shoal_rules::{
    Catalogue, Evaluation, Groups, Reading, Spent, Step, StepTime, Subject, SystemEvaluation, declarations,
};

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.bits() % choices.len() as u64) as usize]
    }
}

/// Names that some rule reads.
const NAMES: [&str; 16] = [
    "gradient/fc.weight",
    "fc.weight",
    "fc.bias",
    "relu_output",
    "relu_input:0",
    "tanh_input",
    "sigmoid_input",
    "loss",
    "val_loss",
    "labels",
    "predictions",
    "feature_importance/weight/f0",
    "trees/Node",
    "embedding0_input_0",
    "hybridsequential0_input_0",
    "train-auc",
];

const SHAPES: [&[u64]; 9] =
    [&[], &[0], &[1], &[7], &[3, 2], &[2, 0, 5], &[2, 3, 2, 2], &[0, 1 << 40, 1 << 40], &[1, 1, 1, 1, 1]];

fn tensor(random: &mut Random, name: &'static str) -> Tensor<'static> {
    let element = random.of(&[
        ElementType::Float32,
        ElementType::Float16,
        ElementType::Float64,
        ElementType::Int64,
        ElementType::UInt8,
        ElementType::Bool,
        ElementType::Complex64,
        ElementType::Text,
    ]);
    let shape = random.of(&SHAPES);
    let count = shape.iter().try_fold(1_u64, |count, size| if *size == 0 { Some(0) } else { count.checked_mul(*size) });
    let count = if shape.contains(&0) { 0 } else { count.unwrap() };
    let bytes = Vec::from_iter((0..count as usize * element.bytes()).map(|_| random.of(&[0, 1, 0x7f, 0x80, 0xff])));
    let texts = if element == ElementType::Text { vec![Cow::Borrowed("a"); count as usize] } else { Vec::new() };
    Tensor { name: Cow::Borrowed(name), element, shape: shape.to_vec(), bytes: Cow::Owned(bytes), texts }
}

fn evaluations() -> Vec<Evaluation> {
    let of_tensors = declarations().filter(|declared| declared.subject() == Subject::Tensors);
    let make =
        |name: &str| Evaluation::new(name, &BTreeMap::from([("rule_to_invoke".to_owned(), name.to_owned())])).unwrap();
    of_tensors.map(|declared| make(declared.name)).collect()
}

#[test]
fn no_tensor_makes_a_rule_panic() {
    let mut concluded = 0;
    for seed in 0..100 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut evaluations = evaluations();
        let groups = Groups::default();
        let mut number = 0;
        for _ in 0..20 {
            number += random.of(&[1, 1, 1, 500, 1 << 50]);
            let mode = random.of(&Mode::ALL);
            let workers = random.of(&[&["worker_0"][..], &["worker_0", "worker_1"]]);
            let mut tensors = Vec::new();
            for worker in workers {
                for name in NAMES {
                    if !random.bits().is_multiple_of(3) {
                        tensors.push((*worker, tensor(&mut random, name)));
                    }
                }
            }
            let step = Step::new(&groups, (number, mode, number), tensors);
            for evaluation in &mut evaluations {
                if random.bits().is_multiple_of(4) {
                    evaluation.observe_other(0, &step);
                }
                concluded += u32::from(evaluation.observe(&step).is_some());
                concluded += u32::from(evaluation.pass_time(number).is_some());
            }
        }
        for evaluation in &mut evaluations {
            let conclusion = evaluation.end(&groups, &Catalogue::default());
            assert!(conclusion.is_none_or(|conclusion| conclusion.details.chars().count() <= 1024));
        }
    }
    assert!(concluded > 300, "{concluded}");
}

#[test]
fn no_reading_makes_a_rule_panic() {
    let values = [0.0, -1.0, 50.0, 100.0, 1e300, f64::NAN, f64::INFINITY];
    for seed in 0..30 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let parameters = BTreeMap::from([("rule_to_invoke".to_owned(), "ProfilerReport".to_owned())]);
        let mut report = SystemEvaluation::new("report", &parameters).unwrap();
        for at_ms in 0..1500 {
            let several = |random: &mut Random| Vec::from_iter((0..random.bits() % 3).map(|_| random.of(&values)));
            let reading = Reading {
                at_ms,
                host: random.of(&["algo-1", "algo-2"]).to_owned(),
                cpu: several(&mut random),
                io_wait: Some(random.of(&values)).filter(|value| *value != 0.0),
                memory: random.of(&values),
                gpu: several(&mut random),
                gpu_memory: several(&mut random),
                data_loaders: random.of(&[None, Some(0), Some(u32::MAX)]),
            };
            let (host, mode, duration_ms) = (reading.host.clone(), random.of(&Mode::ALL), random.of(&values));
            assert_eq!(report.observe(&reading), None);
            assert_eq!(
                report.observe_step(&StepTime { host, step: at_ms, mode, duration_ms, spent: Spent::default() }),
                None
            );
            assert_eq!(report.pass_time(random.bits()), None);
        }
        assert!(report.end().is_some());
    }
}
