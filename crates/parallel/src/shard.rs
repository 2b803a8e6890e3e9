//! State in flat memory, and who keeps which part of it: shards of ZeRO (Rajbhandari et al., "ZeRO:
//! Memory Optimizations Toward Training Trillion Parameter Models", 2020) and of tensor parallelism
//! (Shoeybi et al., "Megatron-LM", 2019). All positions and sizes are in bytes.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, at_least_one, nearest_divisors};

/// A whole tensor, row by row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensor {
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// Bytes of an element.
    pub element: u64,
}

impl Tensor {
    /// Of the whole.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.element
    }

    /// Where the part of one tensor rank lies in the whole tensor, in the order in which the part
    /// keeps it. `split`: the dimension that is cut into `degree` equal parts; `None`: every rank
    /// has all. Columns of a linear layer's weight are its dimension 0 (Megatron's column-parallel,
    /// of [out, in]), rows 1.
    ///
    /// # Errors
    /// There is no such dimension, or the degree does not divide it.
    pub fn part(&self, split: Option<usize>, degree: usize, index: usize) -> Result<Vec<Range<u64>>, Invalid> {
        let Some(dimension) = split.filter(|_| degree > 1) else {
            return Ok(std::iter::once(0..self.bytes()).collect());
        };
        let Some(&length) = self.shape.get(dimension) else {
            let problem = format!("there is no dimension {dimension} in {:?}", self.shape);
            return Err(Invalid::new("split", problem).nearest(self.shape.len().checked_sub(1)));
        };
        if !length.is_multiple_of(degree as u64) {
            let whole = usize::try_from(length).unwrap_or(usize::MAX);
            let problem = format!("{degree} does not divide dimension {dimension} of {:?}", self.shape);
            return Err(Invalid::new("tensor", problem).nearest(nearest_divisors(whole, degree)));
        }
        let outer: u64 = self.shape[..dimension].iter().product();
        let row = length * self.shape[dimension + 1..].iter().product::<u64>() * self.element;
        let own = row / degree as u64;
        let run = |number: u64| number * row + index as u64 * own..number * row + (index as u64 + 1) * own;
        // Of the first dimension there is one run.
        Ok((0..outer).map(run).filter(|run| !run.is_empty()).collect())
    }
}

/// What tensors of some sizes look like in one flat memory that is cut into equal shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flat {
    /// Of each tensor, where it begins.
    pub offsets: Vec<u64>,
    /// Of each tensor.
    pub sizes: Vec<u64>,
    /// Of the whole, with what fills it up to equal shards.
    pub bytes: u64,
    /// How many.
    pub shards: usize,
}

impl Flat {
    /// Tensors one after the other, each at a multiple of `align`; so is each shard.
    ///
    /// # Errors
    /// No shards, or no alignment.
    pub fn new(sizes: &[u64], align: u64, shards: usize) -> Result<Self, Invalid> {
        at_least_one("shard", shards)?;
        at_least_one("align", usize::try_from(align).unwrap_or(usize::MAX))?;
        let mut end = 0_u64;
        let place = |size: &u64| {
            let offset = end;
            end += size.next_multiple_of(align);
            offset
        };
        let offsets = sizes.iter().map(place).collect();
        Ok(Self { offsets, sizes: sizes.to_vec(), bytes: end.next_multiple_of(align * shards as u64), shards })
    }

    /// What a shard has of the flat memory.
    pub fn shard(&self, index: usize) -> Range<u64> {
        let each = self.bytes / self.shards as u64;
        each * index as u64..each * (index as u64 + 1)
    }

    /// The tensors of which something lies in a range of the flat memory: the tensor, what of it,
    /// and where this begins in the range.
    pub fn within(&self, range: Range<u64>) -> Vec<(usize, Range<u64>, u64)> {
        let first = self.offsets.partition_point(|offset| *offset <= range.start).saturating_sub(1);
        let overlap = |tensor: usize| {
            let offset = self.offsets[tensor];
            let (from, to) = (range.start.max(offset), range.end.min(offset + self.sizes[tensor]));
            (from < to).then(|| (tensor, from - offset..to - offset, from - range.start))
        };
        (first..self.offsets.len()).take_while(|tensor| self.offsets[*tensor] < range.end).filter_map(overlap).collect()
    }
}

/// How much of the state is sharded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zero {
    /// Nothing: every rank has all.
    None,
    /// Moments and master weights (ZeRO 1).
    State,
    /// And gradients (ZeRO 2).
    Gradients,
    /// And parameters (ZeRO 3, FSDP).
    Parameters,
}

/// What a rank keeps for each parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precision {
    /// Bytes of a parameter.
    pub parameter: u64,
    /// Bytes of its gradient.
    pub gradient: u64,
    /// Bytes of its state in the optimizer, with a master weight where there is one.
    pub state: u64,
}

impl Precision {
    /// Half precision with Adam: 2 + 2 + 12 (master weight and two moments).
    pub const MIXED_ADAM: Self = Self { parameter: 2, gradient: 2, state: 12 };
    /// Single precision with Adam: 4 + 4 + 8.
    pub const SINGLE_ADAM: Self = Self { parameter: 4, gradient: 4, state: 8 };
    /// Single precision with SGD and momentum: 4 + 4 + 4.
    pub const SINGLE_MOMENTUM: Self = Self { parameter: 4, gradient: 4, state: 4 };
}

impl Zero {
    /// By its usual number, 0 to 3.
    ///
    /// # Errors
    /// Another number.
    pub fn level(level: usize) -> Result<Self, Invalid> {
        let levels = [Self::None, Self::State, Self::Gradients, Self::Parameters];
        levels.get(level).copied().ok_or_else(|| Invalid::new("zero", format!("there is no ZeRO {level}")).nearest([3]))
    }

    /// Whether parameters, gradients and state are sharded.
    pub fn shards(self) -> [bool; 3] {
        [self >= Self::Parameters, self >= Self::Gradients, self >= Self::State]
    }

    /// Bytes that a rank keeps of so many parameters (the paper, figure 1; shards are rounded up).
    pub fn bytes(self, parameters: u64, precision: Precision, shards: usize) -> u64 {
        let sizes = [precision.parameter, precision.gradient, precision.state];
        let own = parameters.div_ceil(shards as u64);
        self.shards()
            .into_iter()
            .zip(sizes)
            .map(|(is_sharded, size)| size * if is_sharded { own } else { parameters })
            .sum()
    }

    /// How many times the size of the gradients, less an N-th, a rank sends in each step (section
    /// 7): reduce-scatter, then one all-gather, or two of parameters that nobody keeps whole.
    pub fn volume(self) -> u64 {
        if self == Self::Parameters { 3 } else { 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    /// The paper, figure 1: 7.5 billion parameters on 64 ranks.
    #[test]
    fn memory_is_that_of_the_paper() {
        for (zero, gigabytes) in
            [(Zero::None, 120.0), (Zero::State, 31.4), (Zero::Gradients, 16.6), (Zero::Parameters, 1.9)]
        {
            let bytes = zero.bytes(7_500_000_000, Precision::MIXED_ADAM, 64);
            assert!((bytes as f64 / 1e9 - gigabytes).abs() < 0.05, "{zero:?}: {bytes}");
        }
        assert_eq!(Zero::level(3), Ok(Zero::Parameters));
        assert_eq!(Zero::level(4).unwrap_err().nearest, [3]);
    }

    #[test]
    fn shards_are_equal_and_have_every_byte_once() {
        let mut rng = Rng::new(12);
        for _ in 0..300 {
            let sizes: Vec<u64> = (0..rng.from(0, 12)).map(|_| rng.from(0, 300) as u64).collect();
            let (align, shards) = (rng.pick(&[1, 4, 64]), rng.from(1, 7));
            let flat = Flat::new(&sizes, align, shards).unwrap();
            let mut seen: Vec<Vec<u32>> = sizes.iter().map(|size| vec![0; *size as usize]).collect();
            for index in 0..shards {
                let shard = flat.shard(index);
                assert!(shard.start.is_multiple_of(align) && shard.end - shard.start == flat.bytes / shards as u64);
                for (tensor, part, at) in flat.within(shard.clone()) {
                    assert_eq!(flat.offsets[tensor] + part.start, shard.start + at);
                    part.for_each(|byte| seen[tensor][byte as usize] += 1);
                }
            }
            assert!(seen.concat().iter().all(|times| *times == 1));
            assert!(
                flat.bytes < sizes.iter().map(|size| size.next_multiple_of(align)).sum::<u64>() + align * shards as u64
            );
        }
    }

    #[test]
    fn parts_of_a_tensor_are_its_columns_or_rows() {
        let weight = Tensor { shape: vec![4, 6], element: 2 };
        let bytes = |split, degree, index| weight.part(split, degree, index).unwrap().into_iter().flatten();
        assert!(bytes(Some(0), 2, 1).eq(24..48) && bytes(None, 3, 1).eq(0..48));
        assert_eq!(weight.part(Some(1), 3, 1), Ok(vec![4..8, 16..20, 28..32, 40..44]));
        let error = weight.part(Some(1), 4, 0).unwrap_err();
        assert_eq!((error.field, error.nearest.as_slice()), ("tensor", [3, 6].as_slice()));
        assert_eq!(weight.part(Some(2), 2, 0).unwrap_err().nearest, [1]);
    }

    #[test]
    fn parts_of_all_ranks_are_the_whole() {
        let mut rng = Rng::new(13);
        for _ in 0..200 {
            let degree = rng.from(1, 4);
            let dimensions = rng.from(1, 4);
            let split = rng.from(0, dimensions - 1);
            let shape =
                (0..dimensions).map(|at| (rng.from(1, 4) * if at == split { degree } else { 1 }) as u64).collect();
            let tensor = Tensor { shape, element: rng.pick(&[1, 2, 4]) };
            let mut seen = vec![0; tensor.bytes() as usize];
            for index in 0..degree {
                let part = tensor.part(Some(split), degree, index).unwrap();
                assert_eq!(part.iter().map(|run| run.end - run.start).sum::<u64>() * degree as u64, tensor.bytes());
                part.into_iter().flatten().for_each(|byte| seen[byte as usize] += 1);
            }
            assert!(seen.iter().all(|times| *times == 1));
        }
    }
}
