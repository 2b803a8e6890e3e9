//! Cholesky factors and what is solved with them. A factor is kept as U (K = U'U) by rows, so that
//! inner loops run along rows. Every element has its subtractions in the order of the rows,
//! whatever the blocks: a row and column that are appended have the bits that a factor made anew
//! has.

use super::lanes::{Task, run};

/// Doubles in a row of a tile.
pub(super) const LANE: usize = 8;
/// Rows in a tile.
const ROWS: usize = 4;
/// Rows that are eliminated together.
const BLOCK: usize = 32;

/// A matrix by rows; rows begin at multiples of `stride` (a multiple of 8). What stands beyond its
/// columns is zero or of no meaning.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Matrix {
    /// Rows in use.
    pub(super) rows: usize,
    /// Doubles from row to row.
    pub(super) stride: usize,
    /// The elements.
    pub(super) data: Vec<f64>,
}

impl Matrix {
    /// Zeros.
    pub(super) fn zeros(rows: usize, columns: usize) -> Self {
        let stride = columns.div_ceil(LANE) * LANE;
        Self { rows, stride, data: vec![0.0; rows * stride] }
    }

    /// One row, with what is beyond its columns.
    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.data[row * self.stride..][..self.stride]
    }

    /// One row to write to.
    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.data[row * self.stride..][..self.stride]
    }
}

/// `c[i][j] -= sum over k of a(k, i) b[k][j]`, each element from the first k to the last, for 4
/// rows i and columns `from`..`to` (multiples of 8).
#[inline(always)]
fn tiles(c: &mut [f64], stride: usize, a: &[[f64; ROWS]], b: &[f64], b_stride: usize, from: usize, to: usize) {
    let (first, rest) = c.split_at_mut(stride);
    let (second, rest) = rest.split_at_mut(stride);
    let (third, fourth) = rest.split_at_mut(stride);
    let mut at = from;
    while at < to {
        let mut sums = [[0.0_f64; LANE]; ROWS];
        for (sum, row) in sums.iter_mut().zip([&*first, &*second, &*third, &*fourth]) {
            sum.copy_from_slice(&row[at..at + LANE]);
        }
        for (factors, row) in a.iter().zip(b.chunks_exact(b_stride)) {
            let mut lane = [0.0; LANE];
            lane.copy_from_slice(&row[at..at + LANE]);
            for (sum, factor) in sums.iter_mut().zip(factors) {
                for (sum, value) in sum.iter_mut().zip(&lane) {
                    *sum -= factor * value;
                }
            }
        }
        first[at..at + LANE].copy_from_slice(&sums[0]);
        second[at..at + LANE].copy_from_slice(&sums[1]);
        third[at..at + LANE].copy_from_slice(&sums[2]);
        fourth[at..at + LANE].copy_from_slice(&sums[3]);
        at += LANE;
    }
}

/// The same for one row.
#[inline(always)]
fn row_tiles(c: &mut [f64], a: impl Iterator<Item = f64>, b: &[f64], b_stride: usize, from: usize, to: usize) {
    for (factor, row) in a.zip(b.chunks_exact(b_stride)) {
        for (value, other) in c[from..to].iter_mut().zip(&row[from..to]) {
            *value -= factor * other;
        }
    }
}

#[inline(always)]
fn aligned(column: usize) -> usize {
    column / LANE * LANE
}

/// Factors the rows `from`.. of a matrix whose rows before are factored already.
struct Eliminate<'a> {
    data: &'a mut [f64],
    stride: usize,
    rows: usize,
    from: usize,
    /// Reciprocals of the diagonal, to write to.
    scales: &'a mut [f64],
    /// A pivot is never less than this.
    least: f64,
}

impl Task for Eliminate<'_> {
    type Out = ();

    #[inline(always)]
    fn work(self) {
        let Self { data, stride, rows: n, from: start, scales, least } = self;
        let width = n.div_ceil(LANE) * LANE;
        let mut packed: Vec<[f64; ROWS]> = Vec::with_capacity(BLOCK.max(start));
        // What the factored rows take away from the others.
        subtract(data, stride, 0..start, start..n, width, &mut packed);
        let mut from = start;
        while from < n {
            let to = (from + BLOCK).min(n);
            for k in from..to {
                let (upper, lower) = data[from * stride..to * stride].split_at_mut((k + 1 - from) * stride);
                let row = &mut upper[(k - from) * stride..];
                let pivot = row[k];
                let root = (if pivot > least { pivot } else { least }).sqrt();
                let scale = 1.0 / root;
                scales[k] = scale;
                row[k] = root;
                for value in &mut row[k + 1..width] {
                    *value *= scale;
                }
                for (i, target) in (k + 1..to).zip(lower.chunks_exact_mut(stride)) {
                    let factor = row[i];
                    let at = aligned(i);
                    for (value, other) in target[at..width].iter_mut().zip(&row[at..width]) {
                        *value -= factor * other;
                    }
                }
            }
            subtract(data, stride, from..to, to..n, width, &mut packed);
            from = to;
        }
    }
}

/// Rows `targets` lose what the factored rows `sources` take from them, right of the diagonal.
#[inline(always)]
fn subtract(
    data: &mut [f64],
    stride: usize,
    sources: std::ops::Range<usize>,
    targets: std::ops::Range<usize>,
    width: usize,
    packed: &mut Vec<[f64; ROWS]>,
) {
    if sources.is_empty() {
        return;
    }
    let (upper, lower) = data.split_at_mut(targets.start * stride);
    let upper = &upper[sources.start * stride..sources.end * stride];
    let mut i = targets.start;
    for rows in lower[..targets.len() * stride].chunks_mut(ROWS * stride) {
        let at = aligned(i);
        if rows.len() == ROWS * stride {
            packed.clear();
            packed.extend(upper.chunks_exact(stride).map(|row| [row[i], row[i + 1], row[i + 2], row[i + 3]]));
            tiles(rows, stride, packed, upper, stride, at, width);
        } else {
            for (offset, row) in rows.chunks_exact_mut(stride).enumerate() {
                row_tiles(row, upper.chunks_exact(stride).map(|row| row[i + offset]), upper, stride, at, width);
            }
        }
        i += ROWS;
    }
}

/// A Cholesky factor that can grow.
#[derive(Debug, Clone, Default)]
pub(super) struct Factor {
    matrix: Matrix,
    scales: Vec<f64>,
}

impl Factor {
    /// Of a symmetric matrix of `n` rows: `fill(row, from, to)` writes the columns `from`.. of a
    /// row. Pivots below `least` are taken for that.
    pub(super) fn new(n: usize, least: f64, fill: impl FnMut(usize, usize, &mut [f64])) -> Self {
        let mut factor = Self::default();
        factor.grow(n, least, fill);
        factor
    }

    /// Forgets the rows and columns from `n` on.
    pub(super) fn truncate(&mut self, n: usize) {
        if n < self.matrix.rows {
            self.matrix.rows = n;
            self.scales.truncate(n);
        }
    }

    /// Rows and columns up to `n`; `fill` is asked for new columns only.
    pub(super) fn grow(&mut self, n: usize, least: f64, mut fill: impl FnMut(usize, usize, &mut [f64])) {
        let old = self.matrix.rows;
        let stride = n.div_ceil(LANE) * LANE;
        if stride > self.matrix.stride {
            // Room for some more, so that growing by ones copies seldom.
            let room = if old == 0 { stride } else { (stride + stride / 8).div_ceil(LANE) * LANE };
            let mut data = vec![0.0; room * room];
            for row in 0..old {
                data[row * room..row * room + old]
                    .copy_from_slice(&self.matrix.data[row * self.matrix.stride..][..old]);
            }
            self.matrix = Matrix { rows: old, stride: room, data };
        }
        let stride = self.matrix.stride;
        self.matrix.rows = n;
        self.scales.resize(n, 0.0);
        let mut row = vec![0.0; stride];
        for i in 0..n {
            let from = i.max(old);
            fill(i, from, &mut row);
            self.matrix.data[i * stride + from..i * stride + n].copy_from_slice(&row[from..n]);
        }
        run(Extend { factor: self, old, n });
        run(Eliminate { data: &mut self.matrix.data, stride, rows: n, from: old, scales: &mut self.scales, least });
    }

    /// Rows.
    pub(super) fn len(&self) -> usize {
        self.matrix.rows
    }

    /// Half the logarithm of the determinant.
    pub(super) fn half_log_determinant(&self) -> f64 {
        (0..self.len()).map(|row| libm::log(self.matrix.data[row * self.matrix.stride + row])).sum()
    }

    /// Solves U'v = b for every column of b, in place; b may have the first rows only.
    pub(super) fn solve_forward(&self, b: &mut Matrix) {
        run(Forward { factor: self, b, is_lower: false });
    }

    /// An element of U, not below the diagonal.
    pub(super) fn at(&self, row: usize, column: usize) -> f64 {
        self.matrix.data[row * self.matrix.stride + column]
    }

    /// Solves U w = v for every column of v, in place.
    pub(super) fn solve_backward(&self, v: &mut Matrix) {
        run(Backward { factor: self, v });
    }

    /// K^-1 b of one vector.
    pub(super) fn solve(&self, b: &[f64]) -> Vec<f64> {
        let mut matrix = Matrix::zeros(self.len(), 1);
        for (row, value) in b.iter().enumerate() {
            matrix.data[row * matrix.stride] = *value;
        }
        self.solve_forward(&mut matrix);
        self.solve_backward(&mut matrix);
        (0..self.len()).map(|row| matrix.data[row * matrix.stride]).collect()
    }

    /// -K^-1, right of the diagonal (and the diagonal).
    pub(super) fn negative_inverse(&self) -> Matrix {
        let n = self.len();
        let mut root = Matrix::zeros(n, n);
        for row in 0..n {
            root.row_mut(row)[row] = 1.0;
        }
        run(Forward { factor: self, b: &mut root, is_lower: true });
        let mut inverse = Matrix::zeros(n, n);
        run(Square { root: &root, into: &mut inverse });
        inverse
    }
}

/// The new columns of the old rows.
struct Extend<'a> {
    factor: &'a mut Factor,
    old: usize,
    n: usize,
}

impl Task for Extend<'_> {
    type Out = ();

    #[inline(always)]
    fn work(self) {
        let Self { factor, old, n } = self;
        if old == 0 || old == n {
            return;
        }
        let stride = factor.matrix.stride;
        let data = &mut factor.matrix.data;
        for k in 0..old {
            let (upper, lower) = data[..old * stride].split_at_mut((k + 1) * stride);
            let row = &mut upper[k * stride..];
            for value in &mut row[old..n] {
                *value *= factor.scales[k];
            }
            for (i, target) in (k + 1..old).zip(lower.chunks_exact_mut(stride)) {
                let factor = row[i];
                for (value, other) in target[old..n].iter_mut().zip(&row[old..n]) {
                    *value -= factor * other;
                }
            }
        }
    }
}

/// Solves U'v = b. `is_lower`: b is lower triangular, and so is v.
struct Forward<'a> {
    factor: &'a Factor,
    b: &'a mut Matrix,
    is_lower: bool,
}

impl Task for Forward<'_> {
    type Out = ();

    #[inline(always)]
    fn work(self) {
        let Self { factor, b, is_lower } = self;
        let n = b.rows;
        let stride = b.stride;
        let mut packed: Vec<[f64; ROWS]> = Vec::with_capacity(n);
        let mut from = 0;
        while from < n {
            let to = (from + ROWS).min(n);
            let width = if is_lower { to.div_ceil(LANE) * LANE } else { stride };
            let (above, rest) = b.data.split_at_mut(from * stride);
            let block = &mut rest[..(to - from) * stride];
            if to - from == ROWS {
                packed.clear();
                let rows = factor.matrix.data.chunks_exact(factor.matrix.stride).take(from);
                packed.extend(rows.map(|row| [row[from], row[from + 1], row[from + 2], row[from + 3]]));
                tiles(block, stride, &packed, above, stride, 0, width);
            } else {
                for (offset, row) in block.chunks_exact_mut(stride).enumerate() {
                    let factors =
                        factor.matrix.data.chunks_exact(factor.matrix.stride).take(from).map(|row| row[from + offset]);
                    row_tiles(row, factors, above, stride, 0, width);
                }
            }
            for k in from..to {
                let (upper, lower) = block.split_at_mut((k + 1 - from) * stride);
                let row = &mut upper[(k - from) * stride..];
                for value in &mut row[..width] {
                    *value *= factor.scales[k];
                }
                for (i, target) in (k + 1..to).zip(lower.chunks_exact_mut(stride)) {
                    let factor = factor.matrix.data[k * factor.matrix.stride + i];
                    for (value, other) in target[..width].iter_mut().zip(&row[..width]) {
                        *value -= factor * other;
                    }
                }
            }
            from = to;
        }
    }
}

/// Solves U w = v.
struct Backward<'a> {
    factor: &'a Factor,
    v: &'a mut Matrix,
}

impl Task for Backward<'_> {
    type Out = ();

    #[inline(always)]
    fn work(self) {
        let Self { factor, v } = self;
        let n = factor.len();
        let stride = v.stride;
        let mut packed: Vec<[f64; ROWS]> = Vec::with_capacity(n);
        let mut to = n;
        while to > 0 {
            // The first block that is solved is the short one.
            let from = if to % ROWS == 0 { to - ROWS } else { to - to % ROWS };
            let (rest, below) = v.data.split_at_mut(to * stride);
            let block = &mut rest[from * stride..];
            let row = |i: usize| &factor.matrix.data[i * factor.matrix.stride..][to..n];
            if to - from == ROWS {
                packed.clear();
                let columns = row(from).iter().zip(row(from + 1)).zip(row(from + 2).iter().zip(row(from + 3)));
                packed.extend(columns.map(|((a, b), (c, d))| [*a, *b, *c, *d]));
                tiles(block, stride, &packed, below, stride, 0, stride);
            }
            for k in (from..to).rev() {
                let (upper, lower) = block.split_at_mut((k - from + 1) * stride);
                let target = &mut upper[(k - from) * stride..];
                let factors = factor.matrix.data[k * factor.matrix.stride + k + 1..].iter().take(to - k - 1);
                for (factor, other) in factors.zip(lower.chunks_exact(stride)) {
                    for (value, other) in target.iter_mut().zip(other) {
                        *value -= factor * other;
                    }
                }
                for value in target {
                    *value *= factor.scales[k];
                }
            }
            to = from;
        }
    }
}

/// -(V'V) of a lower triangular V, right of the diagonal.
struct Square<'a> {
    root: &'a Matrix,
    into: &'a mut Matrix,
}

impl Task for Square<'_> {
    type Out = ();

    #[inline(always)]
    fn work(self) {
        let Self { root, into } = self;
        let (n, stride) = (root.rows, root.stride);
        let mut packed: Vec<[f64; ROWS]> = Vec::with_capacity(BLOCK);
        // Blocks of rows of V stay in the cache.
        for from in (0..n).step_by(BLOCK) {
            let to = (from + BLOCK).min(n);
            let width = to.div_ceil(LANE) * LANE;
            let source = &root.data[from * stride..to * stride];
            for (block, rows) in into.data[..to * stride].chunks_mut(ROWS * stride).enumerate() {
                let i = block * ROWS;
                if rows.len() == ROWS * stride {
                    packed.clear();
                    packed.extend(source.chunks_exact(stride).map(|row| [row[i], row[i + 1], row[i + 2], row[i + 3]]));
                    tiles(rows, stride, &packed, source, stride, aligned(i), width);
                } else {
                    for (offset, row) in rows.chunks_exact_mut(stride).enumerate() {
                        let factors = source.chunks_exact(stride).map(|row| row[i + offset]);
                        row_tiles(row, factors, source, stride, aligned(i), width);
                    }
                }
            }
        }
    }
}
