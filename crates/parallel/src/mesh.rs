//! Ranks in a mesh of parallel degrees: which coordinates a rank has, and with whom it forms which
//! group.
//!
//! One equation holds: data x shard x context x pipeline x tensor = ranks (torchtitan's
//! `ParallelDims`). In the words of SageMaker's model parallel library: its MP group is [`MODEL`],
//! its DP group [`BATCH`] with the tensor axis, its RDP group [`BATCH`], with one order of axes for
//! each of its placement strategies.

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, at_least_one, nearest_divisors};

/// One kind of parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Whole copies of the model that get different samples.
    Data,
    /// Copies that get different samples and keep a part of the model's state each (ZeRO, FSDP).
    Shard,
    /// Parts of a sample's sequence.
    Context,
    /// Stages of layers.
    Pipeline,
    /// Parts of each layer's tensors.
    Tensor,
}

use Axis::{Context, Data, Pipeline, Shard, Tensor};

/// All axes, in the order of the fields of [`Degrees`].
pub const AXES: [Axis; 5] = [Data, Shard, Context, Pipeline, Tensor];
/// The axes along which ranks hold different parts of the model; smp's MP group.
pub const MODEL: [Axis; 2] = [Pipeline, Tensor];
/// The axes along which gradients are averaged; smp's RDP group.
pub const BATCH: [Axis; 3] = [Data, Shard, Context];

impl Axis {
    /// Its name, as the field of [`Degrees`] has it.
    pub fn name(self) -> &'static str {
        ["data", "shard", "context", "pipeline", "tensor"][self as usize]
    }
}

/// How many ranks along each axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Degrees {
    /// `None`: as many as the other degrees leave.
    pub data: Option<usize>,
    /// Ranks among which the state of a copy is sharded.
    pub shard: usize,
    /// Ranks that share a sequence.
    pub context: usize,
    /// Stages.
    pub pipeline: usize,
    /// Parts of a layer.
    pub tensor: usize,
}

impl Default for Degrees {
    fn default() -> Self {
        Self { data: None, shard: 1, context: 1, pipeline: 1, tensor: 1 }
    }
}

/// The order of the axes in the numbers of ranks: neighbours along the last one have consecutive
/// ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement([Axis; 5]);

impl Default for Placement {
    /// `cluster`.
    fn default() -> Self {
        Self([Data, Shard, Context, Pipeline, Tensor])
    }
}

impl Placement {
    /// By the name that smp gives it, `cluster` (DPT) or `spread` (TPD); or by a word of the
    /// letters D, P and T in which the last varies fastest with the rank. S (shard) and C (context)
    /// follow D where the word does not name them.
    ///
    /// # Errors
    /// Another word.
    pub fn named(name: &str) -> Result<Self, Invalid> {
        let word = match name {
            "cluster" => "DPT",
            "spread" => "TPD",
            word => word,
        };
        let axis = |letter| {
            Some(match letter {
                'D' => Data,
                'S' => Shard,
                'C' => Context,
                'P' => Pipeline,
                'T' => Tensor,
                _ => return None,
            })
        };
        let wrong = || {
            Invalid::new(
                "placement_strategy",
                format!(
                    "{name:?} is neither \"cluster\", \"spread\" nor an order of the letters D, P and T (and S, C)"
                ),
            )
        };
        let mut axes: Vec<Axis> = word.chars().map(axis).collect::<Option<_>>().ok_or_else(wrong)?;
        for (missing, after) in [(Shard, Data), (Context, Shard)] {
            if !axes.contains(&missing) {
                let at = axes.iter().position(|axis| *axis == after).ok_or_else(wrong)?;
                axes.insert(at + 1, missing);
            }
        }
        let order: [Axis; 5] = axes.try_into().map_err(|_| wrong())?;
        if AXES.iter().all(|axis| order.contains(axis)) { Ok(Self(order)) } else { Err(wrong()) }
    }
}

/// A rank's place along each axis, in the order of [`AXES`].
pub type Coordinates = [usize; 5];

/// Ranks 0..world, each at its coordinates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mesh {
    /// In the order of [`AXES`].
    degrees: Coordinates,
    /// How much the rank grows by a step along each axis.
    strides: Coordinates,
}

impl Mesh {
    /// The mesh of `world` ranks.
    ///
    /// # Errors
    /// A degree that is 0 or does not divide what the degrees before it leave of `world`, checked
    /// in the order tensor, pipeline, context, shard, data; with the nearest degrees that do.
    pub fn new(world: usize, degrees: Degrees, placement: Placement) -> Result<Self, Invalid> {
        at_least_one("world", world)?;
        let mut left = world;
        for (axis, degree) in
            [(Tensor, degrees.tensor), (Pipeline, degrees.pipeline), (Context, degrees.context), (Shard, degrees.shard)]
        {
            let field = axis.name();
            at_least_one(field, degree)?;
            if !left.is_multiple_of(degree) {
                let of = if left == world {
                    format!("{world} ranks")
                } else {
                    format!("the {left} that the other degrees leave of {world} ranks")
                };
                return Err(Invalid::new(field, format!("{degree} does not divide {of}"))
                    .nearest(nearest_divisors(left, degree)));
            }
            left /= degree;
        }
        let data = degrees.data.unwrap_or(left);
        if data != left {
            let taken = world / left;
            return Err(Invalid::new(
                Data.name(),
                format!("{data} x {taken} (the other degrees) is not {world} ranks"),
            )
            .nearest([left]));
        }
        let degrees = [data, degrees.shard, degrees.context, degrees.pipeline, degrees.tensor];
        let mut strides = [0; 5];
        let mut stride = 1;
        for axis in placement.0.into_iter().rev() {
            strides[axis as usize] = stride;
            stride *= degrees[axis as usize];
        }
        Ok(Self { degrees, strides })
    }

    /// How many ranks there are.
    pub fn world(&self) -> usize {
        self.degrees.iter().product()
    }

    /// How many ranks lie along an axis.
    pub fn degree(&self, axis: Axis) -> usize {
        self.degrees[axis as usize]
    }

    /// How many ranks a group along these axes has.
    pub fn size(&self, axes: &[Axis]) -> usize {
        axes.iter().map(|axis| self.degree(*axis)).product()
    }

    /// Where a rank below [`Mesh::world`] stands.
    pub fn coordinates(&self, rank: usize) -> Coordinates {
        std::array::from_fn(|axis| rank / self.strides[axis] % self.degrees[axis])
    }

    /// The rank at these coordinates, each below its degree.
    pub fn rank(&self, at: Coordinates) -> usize {
        at.iter().zip(self.strides).map(|(place, stride)| place * stride).sum()
    }

    /// The ranks that differ from this one along the given axes only, itself among them, ascending.
    pub fn group(&self, rank: usize, axes: &[Axis]) -> Vec<usize> {
        let own = self.coordinates(rank);
        let is_peer = |other: &usize| {
            let other = self.coordinates(*other);
            AXES.iter().all(|axis| axes.contains(axis) || other[*axis as usize] == own[*axis as usize])
        };
        (0..self.world()).filter(is_peer).collect()
    }

    /// A rank's place in its group along these axes.
    pub fn position(&self, rank: usize, axes: &[Axis]) -> usize {
        self.group(rank, axes).iter().take_while(|peer| **peer < rank).count()
    }

    /// All groups along these axes, by their first rank: every rank is in one of them.
    pub fn groups(&self, axes: &[Axis]) -> Vec<Vec<usize>> {
        (0..self.world())
            .map(|rank| self.group(rank, axes))
            .enumerate()
            .filter(|(rank, group)| group[0] == *rank)
            .map(|(_, group)| group)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    fn mesh(world: usize, pipeline: usize, tensor: usize, placement: &str) -> Mesh {
        Mesh::new(world, Degrees { pipeline, tensor, ..Degrees::default() }, Placement::named(placement).unwrap())
            .unwrap()
    }

    /// The documentation of smp v1: rank = 4 rdp + 2 pp + tp for DPT, and so on.
    #[test]
    fn placements_are_those_of_smp() {
        for (word, weights) in
            [("DPT", [4, 2, 1]), ("PTD", [1, 4, 2]), ("TPD", [1, 2, 4]), ("cluster", [4, 2, 1]), ("spread", [1, 2, 4])]
        {
            let mesh = mesh(8, 2, 2, word);
            for rank in 0..8 {
                let [data, _, _, pipeline, tensor] = mesh.coordinates(rank);
                assert_eq!(weights[0] * data + weights[1] * pipeline + weights[2] * tensor, rank, "{word}");
            }
        }
        assert_eq!(mesh(8, 2, 1, "cluster").groups(&MODEL), [[0, 1], [2, 3], [4, 5], [6, 7]]);
        assert_eq!(mesh(8, 2, 1, "cluster").groups(&BATCH), [[0, 2, 4, 6], [1, 3, 5, 7]]);
        assert_eq!(mesh(8, 2, 1, "spread").groups(&MODEL), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(mesh(8, 2, 1, "spread").groups(&BATCH), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        for wrong in ["", "DP", "DDT", "DPTX", "cluster ", "DPTSCD"] {
            assert_eq!(Placement::named(wrong).unwrap_err().field, "placement_strategy", "{wrong}");
        }
    }

    #[test]
    fn ranks_and_coordinates_are_one_to_one_and_groups_cut_the_world() {
        let mut rng = Rng::new(1);
        for _ in 0..300 {
            let [data, shard, context, pipeline, tensor] = std::array::from_fn(|_| rng.from(1, 3));
            let world = data * shard * context * pipeline * tensor;
            let placement = Placement::named(rng.pick(&["cluster", "spread", "PDT", "TDP", "SPCTD"])).unwrap();
            let mesh =
                Mesh::new(world, Degrees { data: Some(data), shard, context, pipeline, tensor }, placement).unwrap();
            let axes: Vec<Axis> = AXES.into_iter().filter(|_| rng.unit() < 0.5).collect();
            let others: Vec<Axis> = AXES.into_iter().filter(|axis| !axes.contains(axis)).collect();
            let mut seen = vec![0; world];
            for group in mesh.groups(&axes) {
                assert_eq!(group.len(), mesh.size(&axes));
                for (position, &rank) in group.iter().enumerate() {
                    seen[rank] += 1;
                    assert_eq!(mesh.rank(mesh.coordinates(rank)), rank);
                    assert_eq!(mesh.position(rank, &axes), position);
                    // A group along the other axes meets this one in one rank.
                    let across = mesh.group(rank, &others);
                    assert_eq!(across.iter().filter(|other| group.contains(other)).count(), 1);
                }
            }
            assert!(seen.iter().all(|times| *times == 1));
        }
    }

    #[test]
    fn a_wrong_degree_is_named_with_one_that_is_right() {
        let mut rng = Rng::new(2);
        for _ in 0..500 {
            let world = rng.from(1, 48);
            let mut degrees = Degrees {
                data: rng.pick(&[None, Some(2)]),
                shard: rng.from(0, 4),
                context: rng.from(1, 3),
                pipeline: rng.from(1, 5),
                tensor: rng.from(1, 5),
            };
            // Whoever follows the advice arrives, in a step for each field.
            let mut steps = 0;
            while let Err(error) = Mesh::new(world, degrees, Placement::default()) {
                let value = rng.pick(&error.nearest) as usize;
                match error.field {
                    "tensor" => degrees.tensor = value,
                    "pipeline" => degrees.pipeline = value,
                    "context" => degrees.context = value,
                    "shard" => degrees.shard = value,
                    "data" => degrees.data = Some(value),
                    other => panic!("{other}"),
                }
                steps += 1;
                assert!(steps <= 6, "{error}");
            }
        }
        let error = Mesh::new(8, Degrees { tensor: 3, ..Degrees::default() }, Placement::default()).unwrap_err();
        assert_eq!(error.to_string(), "tensor: 3 does not divide 8 ranks; nearest valid: 2 or 4");
    }
}
