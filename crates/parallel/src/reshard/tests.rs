use super::*;
use crate::{
    mesh::{Degrees, Placement},
    random::Rng,
};

/// Each byte of the whole tensors is another one, as far as bytes go.
fn content(tensor: usize, byte: u64) -> u8 {
    1 + (crate::random::mix(tensor as u64 * 1_000_003 + byte) % 255) as u8
}

/// The memories of all ranks, as the layout says: zeros where nothing lies.
fn memories(tensors: &[Tensor], layout: &Layout) -> Vec<Vec<u8>> {
    let memory = |rank| {
        let mut memory = vec![0; layout.bytes(tensors, rank).unwrap() as usize];
        for piece in layout.pieces(tensors, rank).unwrap() {
            for byte in 0..piece.bytes {
                let place = &mut memory[(piece.at + byte) as usize];
                assert_eq!(*place, 0, "two pieces in one place");
                *place = content(piece.tensor, piece.from + byte);
            }
        }
        memory
    };
    (0..layout.mesh.world()).map(memory).collect()
}

fn moved(from: &[Vec<u8>], copies: &[Transfer], tensors: &[Tensor], to: &Layout) -> Vec<Vec<u8>> {
    let mut new: Vec<Vec<u8>> =
        (0..to.mesh.world()).map(|rank| vec![0; to.bytes(tensors, rank).unwrap() as usize]).collect();
    for copy in copies {
        let source = &from[copy.from_rank][copy.from_at as usize..][..copy.bytes as usize];
        let target = &mut new[copy.to_rank][copy.to_at as usize..][..copy.bytes as usize];
        assert!(copy.bytes > 0 && target.iter().all(|byte| *byte == 0), "written twice");
        target.copy_from_slice(source);
    }
    new
}

fn layout(rng: &mut Rng, tensors: &[Tensor]) -> Layout {
    let (data, shard, pipeline, tensor) = (rng.from(1, 2), rng.from(1, 4), rng.from(1, 4), rng.pick(&[1, 2, 3]));
    let world = data * shard * pipeline * tensor;
    let placement = Placement::named(rng.pick(&["cluster", "spread", "PTD"])).unwrap();
    Layout {
        mesh: Mesh::new(world, Degrees { data: Some(data), shard, pipeline, tensor, context: 1 }, placement).unwrap(),
        stages: tensors.iter().map(|_| rng.from(0, pipeline - 1)).collect(),
        splits: tensors.iter().map(|tensor| rng.pick(&[None, Some(0), Some(tensor.shape.len() - 1)])).collect(),
        sharded: rng.unit() < 0.7,
        align: rng.pick(&[4, 16, 64]),
    }
}

fn tensors(rng: &mut Rng) -> Vec<Tensor> {
    // All dimensions are multiples of all tensor degrees.
    let shape = |rng: &mut Rng| (0..rng.from(1, 3)).map(|_| 6 * rng.from(1, 2) as u64).collect();
    (0..rng.from(1, 6)).map(|_| Tensor { shape: shape(rng), element: rng.pick(&[1, 2, 4]) }).collect()
}

#[test]
fn any_layout_becomes_any_other_and_comes_back_the_same() {
    let mut rng = Rng::new(14);
    for _ in 0..120 {
        let tensors = tensors(&mut rng);
        let (one, other) = (layout(&mut rng, &tensors), layout(&mut rng, &tensors));
        let before = memories(&tensors, &one);
        let there = moved(&before, &reshard(&tensors, &one, &other, &Change::default()).unwrap(), &tensors, &other);
        assert_eq!(there, memories(&tensors, &other));
        let back = moved(&there, &reshard(&tensors, &other, &one, &Change::default()).unwrap(), &tensors, &one);
        assert_eq!(back, before);
        // Nothing moves between ranks where nothing changes.
        let same = reshard(&tensors, &one, &one, &Change::default()).unwrap();
        assert!(same.iter().all(|copy| copy.from_rank == copy.to_rank && copy.from_at == copy.to_at));
    }
}

/// Of two copies of a sharded model, some ranks are lost: what is left makes the state of a smaller
/// world, or the error says what is gone.
#[test]
fn survivors_bring_the_state_unless_all_copies_are_lost() {
    let mut rng = Rng::new(15);
    let mut gone = 0;
    for _ in 0..150 {
        let tensors = tensors(&mut rng);
        let degrees = Degrees { data: Some(2), shard: 2, ..Degrees::default() };
        let one = Layout {
            mesh: Mesh::new(4, degrees, Placement::default()).unwrap(),
            stages: vec![0; tensors.len()],
            splits: vec![None; tensors.len()],
            sharded: true,
            align: 4,
        };
        let lost: Vec<usize> = (0..4).filter(|_| rng.unit() < 0.4).collect();
        let left: Vec<usize> = (0..4).filter(|rank| !lost.contains(rank)).collect();
        if left.is_empty() {
            continue;
        }
        let degrees = Degrees { data: Some(1), shard: left.len(), ..Degrees::default() };
        let mesh = Mesh::new(left.len(), degrees, Placement::default()).unwrap();
        let other = Layout { mesh, ..one.clone() };
        let change = Change { lost: lost.clone(), was: left.iter().copied().map(Some).collect() };
        // Ranks 0 and 2 have the first shard, 1 and 3 the second.
        let is_whole = [[0, 2], [1, 3]].iter().all(|copies| copies.iter().any(|rank| left.contains(rank)));
        match reshard(&tensors, &one, &other, &change) {
            Ok(copies) => {
                assert!(is_whole && copies.iter().all(|copy| !lost.contains(&copy.from_rank)));
                assert_eq!(moved(&memories(&tensors, &one), &copies, &tensors, &other), memories(&tensors, &other));
            }
            Err(error) => {
                assert!(!is_whole && error.field == "lost", "{error}");
                gone += 1;
            }
        }
    }
    assert!(gone > 20);
}

#[test]
fn wrong_layouts_are_refused() {
    let tensors = [Tensor { shape: vec![4, 6], element: 4 }];
    let mesh = |tensor| Mesh::new(tensor, Degrees { tensor, ..Degrees::default() }, Placement::default()).unwrap();
    let right = Layout { mesh: mesh(1), stages: vec![0], splits: vec![Some(1)], sharded: false, align: 64 };
    assert_eq!(right.bytes(&tensors, 0), Ok(128));
    assert_eq!(Layout { stages: vec![], ..right.clone() }.bytes(&tensors, 0).unwrap_err().field, "stages");
    assert_eq!(Layout { stages: vec![1], ..right.clone() }.bytes(&tensors, 0).unwrap_err().nearest, [0]);
    assert_eq!(Layout { align: 2, ..right.clone() }.bytes(&tensors, 0).unwrap_err().field, "align");
    let error = Layout { mesh: mesh(4), ..right }.bytes(&tensors, 0).unwrap_err();
    assert_eq!((error.field, error.nearest.as_slice()), ("tensor", [3, 6].as_slice()));
}
