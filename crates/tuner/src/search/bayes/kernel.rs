//! The kernel: Matern-5/2 over weighted squared distances, a weight per axis (automatic relevance
//! determination). Choices are 0 or 1 apart. Rasmussen and Williams, "Gaussian Processes for
//! Machine Learning" (2006), 4.2.1.

use super::factor::LANE;
use super::lanes::{Task, run};
use crate::exp::exp;

/// What one coordinate of a point is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    /// A number in [0, 1]. `warped`: its scale is bent by two learnt exponents.
    Number {
        /// Whether it is.
        warped: bool,
    },
    /// A whole number that names something.
    Choice,
}

/// Points by axis: `columns[axis][point]`, padded with zeros to whole lanes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Columns {
    /// How many points.
    pub(super) len: usize,
    /// By axis.
    pub(super) columns: Vec<Vec<f64>>,
}

impl Columns {
    /// None yet.
    pub(super) fn new(axes: usize) -> Self {
        Self { len: 0, columns: vec![Vec::new(); axes] }
    }

    /// One coordinate.
    #[inline(always)]
    pub(super) fn at(&self, axis: usize, point: usize) -> f64 {
        self.columns[axis][point]
    }

    /// Appends a point.
    pub(super) fn push(&mut self, point: impl Iterator<Item = f64>) {
        let padded = (self.len + 1).div_ceil(LANE) * LANE;
        for (column, value) in self.columns.iter_mut().zip(point) {
            column.resize(padded, 0.0);
            column[self.len] = value;
        }
        self.len += 1;
    }

    /// Forgets the points from `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.len = len;
            let padded = len.div_ceil(LANE) * LANE;
            for column in &mut self.columns {
                column.truncate(padded);
                column[len..].fill(0.0);
            }
        }
    }
}

/// The kernel's own parameters.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Kernel {
    /// By axis: the inverse square of its length scale.
    pub(super) weights: Vec<f64>,
    /// The variance of the function.
    pub(super) scale: f64,
}

/// Kernel and its derivative with respect to the squared distance, for variance 1.
#[inline(always)]
fn matern(square: f64) -> (f64, f64) {
    let z = (5.0 * square).sqrt();
    let decay = exp(-z);
    ((1.0 + z + z * z * (1.0 / 3.0)) * decay, (-5.0 / 6.0) * (1.0 + z) * decay)
}

/// A row of the kernel matrix.
struct Row<'a> {
    kernel: &'a Kernel,
    axes: &'a [Axis],
    columns: &'a Columns,
    point: &'a [f64],
    /// From this column on (a multiple of 8).
    from: usize,
    values: &'a mut [f64],
    slopes: Option<&'a mut [f64]>,
}

impl Task for Row<'_> {
    type Out = ();

    #[inline(always)]
    fn work(self) {
        let Self { kernel, axes, columns, point, from, values, mut slopes } = self;
        let end = columns.len.div_ceil(LANE) * LANE;
        let mut at = from;
        while at < end {
            let mut squares = [0.0; LANE];
            for (((axis, column), weight), value) in axes.iter().zip(&columns.columns).zip(&kernel.weights).zip(point) {
                let column = &column[at..at + LANE];
                match axis {
                    Axis::Number { .. } => {
                        for (square, other) in squares.iter_mut().zip(column) {
                            let difference = value - other;
                            *square += weight * (difference * difference);
                        }
                    }
                    Axis::Choice => {
                        for (square, other) in squares.iter_mut().zip(column) {
                            *square += if value == other { 0.0 } else { *weight };
                        }
                    }
                }
            }
            let mut kernels = [0.0; LANE];
            let mut derivatives = [0.0; LANE];
            for ((square, value), slope) in squares.iter().zip(&mut kernels).zip(&mut derivatives) {
                (*value, *slope) = matern(*square);
            }
            for (into, value) in values[at..at + LANE].iter_mut().zip(kernels) {
                *into = kernel.scale * value;
            }
            if let Some(slopes) = slopes.as_deref_mut() {
                for (into, value) in slopes[at..at + LANE].iter_mut().zip(derivatives) {
                    *into = kernel.scale * value;
                }
            }
            at += LANE;
        }
    }
}

impl Kernel {
    /// Between a point and the points from number `from` (or a little before) on; with slopes also
    /// its derivatives with respect to the squared distance.
    pub(super) fn row(
        &self,
        axes: &[Axis],
        columns: &Columns,
        point: &[f64],
        from: usize,
        values: &mut [f64],
        slopes: Option<&mut [f64]>,
    ) {
        run(Row { kernel: self, axes, columns, point, from: from / LANE * LANE, values, slopes });
    }
}

/// For the gradient with respect to everything that moves distances.
struct Moments<'a> {
    axes: &'a [Axis],
    columns: &'a Columns,
    /// -K^-1 and the kernel's slopes, right of the diagonal.
    negative_inverse: &'a super::factor::Matrix,
    slopes: &'a super::factor::Matrix,
    alpha: &'a [f64],
}

/// With G = (alpha alpha' - K^-1) * slopes: for numbers
/// `h[i] = sum over j of G[i][j] (u[i] - u[j])`; for choices `h[0] = sum over i < j of G[i][j]`
/// where they differ.
impl Task for Moments<'_> {
    type Out = Vec<Vec<f64>>;

    #[inline(always)]
    fn work(self) -> Vec<Vec<f64>> {
        let Self { axes, columns, negative_inverse, slopes, alpha } = self;
        let n = columns.len;
        let width = n.div_ceil(LANE) * LANE;
        let mut moments = vec![vec![0.0; width]; axes.len()];
        let mut weights = vec![0.0; width];
        let mut padded = alpha.to_vec();
        padded.resize(width, 0.0);
        for i in 0..n {
            let start = i / LANE * LANE;
            let (inverse, slope) = (negative_inverse.row(i), slopes.row(i));
            let own = alpha[i];
            for j in start..width {
                weights[j] = (own * padded[j] + inverse[j]) * slope[j];
            }
            weights[start..=i].fill(0.0);
            weights[n..].fill(0.0);
            for ((axis, column), moment) in axes.iter().zip(&columns.columns).zip(&mut moments) {
                let value = column[i];
                let mut sums = [0.0; LANE];
                let lanes = weights[start..width].chunks_exact(LANE).zip(column[start..width].chunks_exact(LANE));
                match axis {
                    Axis::Number { .. } => {
                        for ((weights, others), moment) in lanes.zip(moment[start..width].chunks_exact_mut(LANE)) {
                            for (((sum, weight), other), moment) in sums.iter_mut().zip(weights).zip(others).zip(moment)
                            {
                                let pull = weight * (value - other);
                                *sum += pull;
                                *moment -= pull;
                            }
                        }
                        moment[i] += total(sums);
                    }
                    Axis::Choice => {
                        for (weights, others) in lanes {
                            for ((sum, weight), other) in sums.iter_mut().zip(weights).zip(others) {
                                *sum += if value == *other { 0.0 } else { *weight };
                            }
                        }
                        moment[0] += total(sums);
                    }
                }
            }
        }
        moments
    }
}

/// The lanes' sum in a fixed order.
#[inline(always)]
fn total(s: [f64; LANE]) -> f64 {
    ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

/// See [`Moments`].
pub(super) fn moments(
    axes: &[Axis],
    columns: &Columns,
    negative_inverse: &super::factor::Matrix,
    slopes: &super::factor::Matrix,
    alpha: &[f64],
) -> Vec<Vec<f64>> {
    run(Moments { axes, columns, negative_inverse, slopes, alpha })
}
