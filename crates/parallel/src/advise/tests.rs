use super::*;
use crate::{
    mesh::{Mesh, Placement},
    random::Rng,
};

fn layer() -> Cost {
    Cost {
        forward: 0.01,
        backward: 0.02,
        overhead: 0.0,
        parameters: 1_000_000,
        activations: 1_000_000,
        output: 100_000,
        tensor: Some(Share { part: 1.0, divides: 4, reduced: 200_000 }),
    }
}

fn question(layers: usize, ranks: usize, batch: usize) -> Question {
    Question {
        layers: vec![layer(); layers],
        machine: Machine {
            ranks,
            ranks_per_host: None,
            memory: 1 << 40,
            reserved: 0,
            at_once: None,
            inside: Link { latency: 1e-5, bandwidth: 1e10 },
            between: None,
        },
        batch,
        precision: Precision::SINGLE_ADAM,
        update: 0.0,
        handover: 0.0,
        overlap: 0.0,
    }
}

#[test]
fn every_layout_is_valid_and_stands_once_best_first() {
    let mut rng = Rng::new(20);
    for _ in 0..40 {
        let mut question = question(rng.from(1, 6), rng.pick(&[1, 2, 3, 4, 6, 8]), rng.pick(&[24, 48]));
        question.machine.memory = rng.from(10, 200) as u64 * 1_000_000;
        question.machine.ranks_per_host = rng.pick(&[None, Some(2)]);
        for layer in &mut question.layers {
            layer.forward *= 1.0 + rng.unit();
            layer.parameters += rng.from(0, 1_000_000) as u64;
        }
        let all = advise(&question).unwrap();
        assert!(!all.is_empty());
        for (number, advice) in all.iter().enumerate() {
            let mesh = Mesh::new(question.machine.ranks, advice.degrees, Placement::default()).unwrap();
            assert_eq!(mesh.world(), question.machine.ranks);
            let copies = advice.degrees.data.unwrap() * advice.degrees.shard;
            assert!(question.batch.is_multiple_of(copies * advice.microbatches));
            assert_eq!(advice.stages.len(), advice.degrees.pipeline * advice.pipeline.map_or(1, Pipeline::chunks));
            assert!(advice.step >= advice.busy && advice.idle >= -1e-12 && advice.idle < 1.0 && advice.exchange >= 0.0);
            assert_eq!(advice.fits, advice.memory <= question.machine.memory);
            let key = |it: &Advice| (it.degrees, it.zero, it.pipeline, it.microbatches);
            assert!(all[number + 1..].iter().all(|other| key(other) != key(advice)), "{advice:?} stands twice");
            if let Some(next) = all.get(number + 1) {
                assert!(advice.fits || !next.fits);
                assert!(if next.fits {
                    advice.step <= next.step * 1.000_002
                } else {
                    advice.fits || advice.memory <= next.memory
                });
            }
        }
        assert_eq!(all, advise(&question).unwrap());
    }
}

fn find(all: &[Advice], wanted: impl Fn(&Advice) -> bool) -> &Advice {
    all.iter().find(|advice| wanted(advice)).unwrap()
}

#[test]
fn predictions_are_the_formulas() {
    let mut question = question(4, 4, 16);
    question.machine.inside = Link { latency: 0.0, bandwidth: 1e9 };
    let all = advise(&question).unwrap();
    // Data parallel: 4 samples on each rank, 16 MB of gradients.
    let it = find(&all, |it| it.degrees.data == Some(4) && it.microbatches == 1);
    assert!((it.step - (4.0 * 4.0 * 0.03 + 2.0 * 16e6 * 3.0 / 4.0 / 1e9)).abs() < 1e-9, "{it:?}");
    assert_eq!(it.memory, 4_000_000 * 16 + 4 * 4 * 1_000_000);
    // ZeRO 1 moves as much, and keeps a quarter of the state.
    let sharded = find(&all, |it| it.degrees.shard == 4 && it.zero == Zero::State && it.microbatches == 1);
    assert!((sharded.step - it.step).abs() < 1e-9);
    assert_eq!(sharded.memory, 4_000_000 * 8 + 1_000_000 * 8 + 16_000_000);
    // ZeRO 3 moves half as much again.
    let whole = find(&all, |it| it.degrees.shard == 4 && it.zero == Zero::Parameters && it.microbatches == 1);
    assert!((whole.step - 4.0 * 4.0 * 0.03 - 3.0 * 16e6 * 3.0 / 4.0 / 1e9).abs() < 1e-9);
    // A quarter of the state, the activations, and one layer whole with its gradient.
    assert_eq!(whole.memory, 4_000_000 * 16 / 4 + 16_000_000 + 1_000_000 * 8);
    // Tensor parallel: a quarter of each, two all-reduces of 16 samples a layer.
    let tensor = find(&all, |it| it.degrees.tensor == 4 && it.microbatches == 1);
    assert!((tensor.step - 4.0 * (16.0 * 0.03 / 4.0 + 2.0 * 2.0 * 3.2e6 * 3.0 / 4.0 / 1e9)).abs() < 1e-9);
    assert_eq!(tensor.memory, 1_000_000 * 16 + 16 * 1_000_000);
    // A pipeline of 4 stages and 8 micro-batches of 2 is idle for 3 / 11.
    question.machine.inside.bandwidth = 1e30;
    let all = advise(&question).unwrap();
    let pipe =
        find(&all, |it| it.pipeline == Some(Pipeline::Gpipe) && it.degrees.pipeline == 4 && it.microbatches == 8);
    assert!((pipe.idle - 3.0 / 11.0).abs() < 1e-9 && (pipe.step - 11.0 * 0.06).abs() < 1e-9);
    question.handover = 0.01;
    let slower = advise(&question).unwrap();
    let found =
        find(&slower, |it| it.pipeline == Some(Pipeline::Gpipe) && it.degrees.pipeline == 4 && it.microbatches == 8);
    // There and back, the first micro-batch crosses all three boundaries and the others follow as
    // an inner stage receives and sends them.
    assert!(
        (found.step - pipe.step - 2.0 * (2.0 * 3.0 + 7.0 * 2.0) * 0.01).abs() < 1e-9,
        "{} {}",
        found.step,
        pipe.step
    );
    assert_eq!((pipe.stages.as_slice(), pipe.memory), ([0, 1, 2, 3].as_slice(), 16_000_000 + 8 * 2_000_000));
}

#[test]
fn little_memory_asks_for_shards_and_slow_hosts_for_little_between_them() {
    let mut question = question(8, 4, 16);
    let best = |question: &Question| advise(question).unwrap().remove(0);
    assert_eq!(best(&question).zero, Zero::None);
    // 128 MB of state and 32 of activations do not fit.
    question.machine.memory = 60_000_000;
    let advice = best(&question);
    assert!(
        advice.fits && (advice.zero != Zero::None || advice.degrees.pipeline * advice.degrees.tensor > 1),
        "{advice:?}"
    );
    question.machine.memory = 1_000_000;
    assert!(advise(&question).unwrap().iter().all(|advice| !advice.fits));
    question.machine.memory = 1 << 40;
    // Two hosts with a slow wire between them: no tensor group spans it in what is best.
    question.machine.ranks_per_host = Some(2);
    question.machine.between = Some(Link { latency: 1e-4, bandwidth: 1e7 });
    assert!(best(&question).degrees.tensor <= 2, "{:?}", best(&question));
}

#[test]
fn ranks_that_share_cores_are_no_faster_together() {
    let mut question = question(4, 4, 16);
    question.machine.inside = Link { latency: 0.0, bandwidth: 1e30 };
    question.machine.at_once = Some(2.0);
    // All of the work by two ranks' cores, however it is shared.
    let least = 16.0 * 4.0 * 0.03 / 2.0;
    let all = advise(&question).unwrap();
    assert!(all.iter().all(|advice| advice.step >= least - 1e-9) && (all[0].step - least).abs() < 1e-9);
    // Neither is the optimizer; what a rank waits for takes no core.
    question.update = 1e-9;
    question.machine.inside = Link { latency: 1e-3, bandwidth: 1e30 };
    let all = advise(&question).unwrap();
    let update = 4.0 * 4.0 * 1_000_000.0 * 1e-9 / 2.0;
    let data = find(&all, |it| it.degrees.data == Some(4) && it.microbatches == 1);
    assert!((data.step - (least + update + 6e-3)).abs() < 1e-9, "{data:?}");
    let tensor = find(&all, |it| it.degrees.tensor == 4 && it.microbatches == 1);
    assert!((tensor.step - (least + update / 4.0 + 4.0 * 2.0 * 6e-3)).abs() < 1e-9, "{tensor:?}");
    // A pipeline is slowed down only while more of its ranks compute than there are cores: not at
    // its ends.
    question.machine.inside.latency = 0.0;
    let all = advise(&question).unwrap();
    let pipe =
        find(&all, |it| it.pipeline == Some(Pipeline::Gpipe) && it.degrees.pipeline == 4 && it.microbatches == 4);
    // 4 samples a micro-batch: forward 1, 2, 3, 4, 3, 2, 1 stages compute at once, backward the
    // same.
    let slots = 1.0 + 1.0 + 1.5 + 2.0 + 1.5 + 1.0 + 1.0;
    assert!((pipe.step - (slots * 4.0 * 0.03 + update / 4.0)).abs() < 1e-9, "{pipe:?}");
}

#[test]
fn questions_without_meaning_are_refused() {
    let refused = |change: &dyn Fn(&mut Question)| {
        let mut question = question(2, 2, 4);
        change(&mut question);
        advise(&question).unwrap_err().field
    };
    assert_eq!(refused(&|it| it.layers.clear()), "layers");
    assert_eq!(refused(&|it| it.machine.ranks = 0), "ranks");
    assert_eq!(refused(&|it| it.machine.inside.bandwidth = 0.0), "bandwidth");
    assert_eq!(refused(&|it| it.overlap = 1.5), "overlap");
    assert_eq!(refused(&|it| it.layers[0].forward = f64::NAN), "forward");
    // A batch of 1 on 2 ranks: only ways that do not share samples.
    let mut small = question(2, 2, 1);
    assert!(advise(&small).unwrap().iter().all(|advice| advice.degrees.data == Some(1) && advice.degrees.shard == 1));
    small.layers = vec![Cost { tensor: None, ..layer() }];
    let error = advise(&small).unwrap_err();
    assert_eq!((error.field, error.nearest.as_slice()), ("batch", [2].as_slice()));
}
