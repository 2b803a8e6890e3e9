use super::*;
use crate::random::Rng;

fn leaf(time: f64, parameters: &[usize]) -> Module {
    Module { time, parameters: parameters.to_vec(), ..Module::default() }
}

fn node(children: Vec<Module>) -> Module {
    Module { children, ..Module::default() }
}

#[test]
fn equal_layers_come_out_equal() {
    let model = node((0..8).map(|layer| leaf(1.0, &[layer])).collect());
    for weight in [0.0, 0.2, 0.8, 1.0] {
        assert_eq!(tree(&model, &[10; 8], 4, weight).unwrap(), [0, 0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(tree(&model, &[10; 8], 1, weight).unwrap(), [0; 9]);
    }
    // Nested as models are: an embedding, a stack of blocks, a head.
    let stack = node((0..4).map(|block| node(vec![leaf(1.0, &[block]), leaf(1.0, &[])])).collect());
    let model = node(vec![leaf(0.0, &[]), stack, leaf(0.0, &[])]);
    let of = tree(&model, &[10; 4], 2, 0.2).unwrap();
    assert_eq!(of[3..15], [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn a_heavy_embedding_has_a_stage_with_fewer_layers() {
    let mut children = vec![leaf(0.1, &[0])];
    children.extend((1..9).map(|layer| leaf(1.0, &[layer])));
    let mut sizes = vec![100; 9];
    sizes[0] = 400;
    let by_memory = tree(&node(children.clone()), &sizes, 2, 1.0).unwrap();
    assert_eq!(by_memory, [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
    let by_time = tree(&node(children), &sizes, 2, 0.0).unwrap();
    assert_eq!(by_time, [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
}

/// GPT's head has the weights of its embedding; it lies outside of the part that is cut.
#[test]
fn tied_modules_share_a_stage_and_the_rest_is_still_cut() {
    let blocks = (1..7).map(|layer| leaf(1.0, &[layer])).collect();
    let transformer = node(vec![leaf(0.2, &[0]), node(blocks)]);
    let model = node(vec![transformer, leaf(1.0, &[0])]);
    let of = tree(&model, &[100; 7], 3, 0.5).unwrap();
    // root, transformer, embedding, stack, six blocks, head
    assert_eq!(of[2], of[10], "{of:?}");
    let blocks = &of[4..10];
    assert!(blocks.is_sorted() && blocks[0] < blocks[5] && blocks.contains(&1) && blocks.contains(&2), "{of:?}");
    // A module that shares with what is in it stays whole.
    let mut inner = node(vec![leaf(1.0, &[0]), leaf(1.0, &[1])]);
    inner.parameters = vec![1];
    assert_eq!(tree(&inner, &[5, 5], 2, 0.5).unwrap(), [0, 0, 0]);
}

#[test]
fn seats_are_dealt_in_proportion() {
    assert_eq!(dhondt(&[100.0, 80.0, 30.0, 20.0], 8), [4, 3, 1, 0]);
    assert_eq!(dhondt(&[1.0, 1.0, 1.0], 5), [2, 2, 1]);
    assert_eq!(dhondt(&[0.0, 0.0], 3), [3, 0]);
}

fn random(rng: &mut Rng, depth: usize, parameters: usize) -> Module {
    let children = if depth == 0 { 0 } else { rng.from(0, 4) };
    Module {
        time: rng.unit(),
        activations: rng.from(0, 100) as u64,
        parameters: (0..rng.from(0, 2)).map(|_| rng.from(0, parameters - 1)).collect(),
        children: (0..children).map(|_| random(rng, depth - 1, parameters)).collect(),
    }
}

fn walk<'a>(module: &'a Module, all: &mut Vec<&'a Module>) {
    all.push(module);
    module.children.iter().for_each(|child| walk(child, all));
}

#[test]
fn every_module_has_a_stage_and_tied_ones_the_same() {
    let mut rng = Rng::new(11);
    for round in 0..400 {
        // Many parameters: few ties, mostly a tree that is cut; few: everything hangs together.
        let parameters = rng.pick(&[8, 40, 1000]);
        let model = random(&mut rng, 3, parameters);
        let sizes: Vec<u64> = (0..parameters).map(|_| rng.from(1, 100) as u64).collect();
        let stages = rng.from(1, 6);
        let of = tree(&model, &sizes, stages, rng.unit()).unwrap();
        let mut modules = Vec::new();
        walk(&model, &mut modules);
        assert_eq!(of.len(), modules.len());
        assert!(of.iter().all(|stage| *stage < stages), "{round}: {of:?}");
        assert_eq!(of[0], 0);
        for (one, a) in modules.iter().enumerate() {
            for (other, b) in modules.iter().enumerate() {
                let tied = a.parameters.iter().any(|it| b.parameters.contains(it));
                assert!(!tied || of[one] == of[other], "{round}: {one} and {other} of {of:?}\n{model:?}");
            }
        }
    }
}

#[test]
fn what_has_no_meaning_is_refused() {
    let model = leaf(1.0, &[3]);
    let error = tree(&model, &[1, 1], 2, 0.5).unwrap_err();
    assert_eq!((error.field, error.nearest.as_slice()), ("parameters", [1].as_slice()));
    assert_eq!(tree(&model, &[1; 4], 2, 1.5).unwrap_err().field, "memory_weight");
    assert_eq!(tree(&model, &[1; 4], 0, 0.5).unwrap_err().field, "stages");
    assert_eq!(tree(&leaf(-1.0, &[]), &[], 1, 0.5).unwrap_err().field, "time");
}
