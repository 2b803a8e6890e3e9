//! Sobol's low-discrepancy points, scrambled by Owen's method: they fill a box more evenly than
//! random points, and any of them can be asked for by itself.
//!
//! Direction numbers: S. Joe and F. Y. Kuo, "Constructing Sobol sequences with better
//! two-dimensional projections", SIAM J. Sci. Comput. 30 (2008), table new-joe-kuo-6.21201 (BSD
//! licence). Scrambling: the hash of S. Laine and T. Karras, "Stratified sampling for stochastic
//! transparency", EGSR 2011, with the constants of N. Vegdahl (2021).

use crate::Rng;

/// A scrambled sequence of points in [0, 1)^d.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sobol {
    /// By coordinate: its matrix, the seed of its scrambling, the seed that shuffles the order of
    /// the points of its block.
    coordinates: Vec<Coordinate>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Coordinate {
    directions: [u32; 32],
    scramble: u32,
    /// None in the first block: the table's coordinates as they are.
    shuffle: Option<u32>,
}

impl Sobol {
    /// The sequence of a seed. Up to 64 dimensions are one sequence; further blocks of 64 have the
    /// same coordinates in other orders ("padding").
    pub fn new(dimensions: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed, 0x50b0_1000);
        let mut word = || (rng.bits() >> 32) as u32;
        let mut coordinates = Vec::with_capacity(dimensions);
        let mut shuffle = None;
        for index in 0..dimensions {
            let place = index % (TABLE.len() + 1);
            if index > 0 && place == 0 {
                shuffle = Some(word());
            }
            coordinates.push(Coordinate { directions: directions(place), scramble: word(), shuffle });
        }
        Self { coordinates }
    }

    /// How many coordinates a point has.
    pub fn dimensions(&self) -> usize {
        self.coordinates.len()
    }

    /// One coordinate of the point number `index` (from 0), in [0, 1).
    ///
    /// # Panics
    /// There is no such dimension.
    pub fn coordinate(&self, index: u32, dimension: usize) -> f64 {
        let Coordinate { directions, scramble, shuffle } = &self.coordinates[dimension];
        let index = shuffle.map_or(index, |seed| owen(index, seed));
        // The middle of the cell, so that 0 does not come.
        (f64::from(owen(digits(directions, index), *scramble)) + 0.5) * (1.0 / 4_294_967_296.0)
    }

    /// The point number `index` (from 0).
    pub fn point(&self, index: u32) -> Vec<f64> {
        (0..self.dimensions()).map(|dimension| self.coordinate(index, dimension)).collect()
    }
}

fn digits(directions: &[u32; 32], index: u32) -> u32 {
    let mut rest = index;
    let mut sum = 0;
    for direction in directions {
        if rest == 0 {
            break;
        }
        // All ones where the bit is set.
        sum ^= direction & (rest & 1).wrapping_neg();
        rest >>= 1;
    }
    sum
}

/// Swaps the halves of every interval of a binary partition at random: the digit after a prefix is
/// flipped by a hash of the prefix.
fn owen(value: u32, seed: u32) -> u32 {
    let mut x = value.reverse_bits();
    x ^= x.wrapping_mul(0x3d20_adea);
    x = x.wrapping_add(seed);
    x = x.wrapping_mul((seed >> 16) | 1);
    x ^= x.wrapping_mul(0x0552_6c56);
    x ^= x.wrapping_mul(0x53a2_2864);
    x.reverse_bits()
}

/// The matrix of a coordinate, column by column.
fn directions(coordinate: usize) -> [u32; 32] {
    let mut columns = [0_u32; 32];
    let Some(&(polynomial, first)) = coordinate.checked_sub(1).map(|place| &TABLE[place]) else {
        for (bit, column) in columns.iter_mut().enumerate() {
            *column = 1 << (31 - bit);
        }
        return columns;
    };
    let degree = first.len();
    for bit in 0..32 {
        columns[bit] = if bit < degree {
            first[bit] << (31 - bit)
        } else {
            let mut column = columns[bit - degree] ^ (columns[bit - degree] >> degree);
            for term in 1..degree {
                if polynomial >> (degree - term) & 1 == 1 {
                    column ^= columns[bit - term];
                }
            }
            column
        };
    }
    columns
}

/// From the second coordinate on: the primitive polynomial's coefficients as bits, and the first
/// direction numbers.
const TABLE: [(u32, &[u32]); 63] = [
    (3, &[1]),
    (7, &[1, 3]),
    (11, &[1, 3, 1]),
    (13, &[1, 1, 1]),
    (19, &[1, 1, 3, 3]),
    (25, &[1, 3, 5, 13]),
    (37, &[1, 1, 5, 5, 17]),
    (41, &[1, 1, 5, 5, 5]),
    (47, &[1, 1, 7, 11, 19]),
    (55, &[1, 1, 5, 1, 1]),
    (59, &[1, 1, 1, 3, 11]),
    (61, &[1, 3, 5, 5, 31]),
    (67, &[1, 3, 3, 9, 7, 49]),
    (91, &[1, 1, 1, 15, 21, 21]),
    (97, &[1, 3, 1, 13, 27, 49]),
    (103, &[1, 1, 1, 15, 7, 5]),
    (109, &[1, 3, 1, 15, 13, 25]),
    (115, &[1, 1, 5, 5, 19, 61]),
    (131, &[1, 3, 7, 11, 23, 15, 103]),
    (137, &[1, 3, 7, 13, 13, 15, 69]),
    (143, &[1, 1, 3, 13, 7, 35, 63]),
    (145, &[1, 3, 5, 9, 1, 25, 53]),
    (157, &[1, 3, 1, 13, 9, 35, 107]),
    (167, &[1, 3, 1, 5, 27, 61, 31]),
    (171, &[1, 1, 5, 11, 19, 41, 61]),
    (185, &[1, 3, 5, 3, 3, 13, 69]),
    (191, &[1, 1, 7, 13, 1, 19, 1]),
    (193, &[1, 3, 7, 5, 13, 19, 59]),
    (203, &[1, 1, 3, 9, 25, 29, 41]),
    (211, &[1, 3, 5, 13, 23, 1, 55]),
    (213, &[1, 3, 7, 3, 13, 59, 17]),
    (229, &[1, 3, 1, 3, 5, 53, 69]),
    (239, &[1, 1, 5, 5, 23, 33, 13]),
    (241, &[1, 1, 7, 7, 1, 61, 123]),
    (247, &[1, 1, 7, 9, 13, 61, 49]),
    (253, &[1, 3, 3, 5, 3, 55, 33]),
    (285, &[1, 3, 1, 15, 31, 13, 49, 245]),
    (299, &[1, 3, 5, 15, 31, 59, 63, 97]),
    (301, &[1, 3, 1, 11, 11, 11, 77, 249]),
    (333, &[1, 3, 1, 11, 27, 43, 71, 9]),
    (351, &[1, 1, 7, 15, 21, 11, 81, 45]),
    (355, &[1, 3, 7, 3, 25, 31, 65, 79]),
    (357, &[1, 3, 1, 1, 19, 11, 3, 205]),
    (361, &[1, 1, 5, 9, 19, 21, 29, 157]),
    (369, &[1, 3, 7, 11, 1, 33, 89, 185]),
    (391, &[1, 3, 3, 3, 15, 9, 79, 71]),
    (397, &[1, 3, 7, 11, 15, 39, 119, 27]),
    (425, &[1, 1, 3, 1, 11, 31, 97, 225]),
    (451, &[1, 1, 1, 3, 23, 43, 57, 177]),
    (463, &[1, 3, 7, 7, 17, 17, 37, 71]),
    (487, &[1, 3, 1, 5, 27, 63, 123, 213]),
    (501, &[1, 1, 3, 5, 11, 43, 53, 133]),
    (529, &[1, 3, 5, 5, 29, 17, 47, 173, 479]),
    (539, &[1, 3, 3, 11, 3, 1, 109, 9, 69]),
    (545, &[1, 1, 1, 5, 17, 39, 23, 5, 343]),
    (557, &[1, 3, 1, 5, 25, 15, 31, 103, 499]),
    (563, &[1, 1, 1, 11, 11, 17, 63, 105, 183]),
    (601, &[1, 1, 5, 11, 9, 29, 97, 231, 363]),
    (607, &[1, 1, 5, 15, 19, 45, 41, 7, 383]),
    (617, &[1, 3, 7, 7, 31, 19, 83, 137, 221]),
    (623, &[1, 1, 1, 3, 23, 15, 111, 223, 83]),
    (631, &[1, 1, 5, 13, 31, 15, 55, 25, 161]),
    (637, &[1, 1, 3, 13, 25, 47, 39, 87, 257]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_those_of_the_table() {
        // SciPy 1.17, qmc.Sobol(64, scramble=False, bits=32), point 13 in its Gray order: 11 in
        // ours.
        let expected =
            [3_489_660_928, 2_952_790_016, 3_489_660_928, 268_435_456, 1_879_048_192, 4_026_531_840, 2_415_919_104];
        let found: Vec<u32> = (0..7).map(|coordinate| digits(&directions(coordinate), 11)).collect();
        assert_eq!(found, expected);
        let last: Vec<u32> = (60..64).map(|coordinate| digits(&directions(coordinate), 11)).collect();
        assert_eq!(last, [805_306_368, 4_026_531_840, 268_435_456, 268_435_456]);
    }

    #[test]
    fn every_dimension_is_stratified_and_dimensions_differ() {
        let sobol = Sobol::new(140, 5);
        for dimension in 0..140 {
            let mut cells = [0_u8; 256];
            for index in 0..256 {
                let place = sobol.coordinate(index, dimension);
                assert!((0.0..1.0).contains(&place));
                cells[(place * 256.0) as usize] += 1;
            }
            assert!(cells.iter().all(|&count| count == 1), "dimension {dimension}");
        }
        assert!((0..64).any(|index| sobol.coordinate(index, 0) != sobol.coordinate(index, 64)));
    }

    #[test]
    fn pairs_of_dimensions_are_more_even_than_random_points() {
        // Points in 16 x 16 cells, 1,024 of them: a net in the first two dimensions has exactly 4
        // in each.
        let sobol = Sobol::new(8, 9);
        let mut rng = Rng::new(9, 0);
        let squares = |counts: &[u32]| counts.iter().map(|&count| (f64::from(count) - 4.0).powi(2)).sum::<f64>();
        let mut random = vec![0_u32; 256];
        for _ in 0..1024 {
            random[rng.index(256)] += 1;
        }
        for (one, other) in [(0, 1), (2, 3), (3, 6), (5, 7)] {
            let mut counts = vec![0_u32; 256];
            for index in 0..1024 {
                let (x, y) = (sobol.coordinate(index, one), sobol.coordinate(index, other));
                counts[(x * 16.0) as usize * 16 + (y * 16.0) as usize] += 1;
            }
            assert!(squares(&counts) < squares(&random) / 2.0, "{one} and {other}");
            assert!((one, other) != (0, 1) || squares(&counts) == 0.0);
        }
    }

    #[test]
    fn a_seed_is_one_sequence() {
        assert_eq!(Sobol::new(3, 1).point(7), Sobol::new(3, 1).point(7));
        assert_ne!(Sobol::new(3, 1).point(7), Sobol::new(3, 2).point(7));
        let mut mean = [0.0; 3];
        for seed in 0..2000 {
            for (sum, value) in mean.iter_mut().zip(Sobol::new(3, seed).point(0)) {
                *sum += value / 2000.0;
            }
        }
        assert!(mean.iter().all(|mean| (mean - 0.5).abs() < 0.03), "the first point is anywhere: {mean:?}");
    }
}
