//! A vector sent as the product of two thin matrices.

use super::{
    Compressor, Report, all_reduce_bytes, is_average, lanes,
    matrix::{Shape, add_product, orthonormalize, times, transposed_times},
    random::Stream,
    resume,
};
use crate::{Error, ProcessGroup, ProcessGroupExt, ReduceOp};

/// Sends an approximation of low rank: the vector is looked at as a matrix M, row by row, and
/// reduced as P·Qᵀ with `rank` columns each. Two small all-reduces, 4·r·(rows + columns) bytes
/// instead of 4·rows·columns.
///
/// One step of power iteration a call: P = M·Q reduced, its columns made orthonormal; Q = Mᵀ·P
/// reduced. Q is kept for the next call (warm start), and what P·Qᵀ misses of this rank's M is
/// added to the next input (error feedback). Where the thin matrices would be no smaller than the
/// vector, it is reduced as it is.
///
/// If any rank has a NaN or an infinity, all get NaN, and what the compressor remembers stays as it
/// was.
///
/// Source: Vogels, Karimireddy, Jaggi: PowerSGD, 2019, algorithms 1 and 2.
#[derive(Debug, Clone)]
pub struct PowerSgd {
    rank: usize,
    shape: Option<(usize, usize)>,
    /// Columns, one after the other; empty before the first step.
    q: Vec<f32>,
    residual: Vec<f32>,
    corrected: Vec<f32>,
}

impl PowerSgd {
    /// Of this rank, at least 1; the vector is looked at as a matrix that is as square as can be.
    ///
    /// # Errors
    /// [`Error::Config`] for rank 0.
    pub fn new(rank: usize) -> Result<Self, Error> {
        if rank == 0 {
            return Err(Error::Config { problem: "PowerSGD: rank 0 would send nothing; take 1 or more".to_owned() });
        }
        Ok(Self { rank, shape: None, q: Vec::new(), residual: Vec::new(), corrected: Vec::new() })
    }

    /// The same for vectors that are matrices of this shape, row by row: a layer's weights compress
    /// better so.
    pub fn with_shape(self, rows: usize, columns: usize) -> Self {
        Self { shape: Some((rows, columns)), q: Vec::new(), residual: Vec::new(), ..self }
    }

    fn shape(&self, len: usize) -> Result<Shape, Error> {
        match self.shape {
            None => Ok(Shape::square(len)),
            Some((rows, columns)) if rows.checked_mul(columns) == Some(len) => Ok(Shape { rows, columns }),
            Some((rows, columns)) => Err(Error::Config {
                problem: format!("PowerSGD: {len} elements are no matrix of {rows} x {columns}, as with_shape said"),
            }),
        }
    }
}

/// Where the power iteration begins, the same on all ranks.
fn first_guess(len: usize) -> Vec<f32> {
    let stream = Stream::new(&[0x5067]);
    (0..len).map(|i| stream.block(i / 256).uniform(i as u32 % 256) - 0.5).collect()
}

/// Columns of zeros, in which the next step could find nothing, begin anew.
fn refreshed(mut q: Vec<f32>, rows: usize) -> Vec<f32> {
    let guess = first_guess(q.len());
    for (column, guess) in
        q.chunks_mut(rows).zip(guess.chunks(rows)).filter(|(column, _)| column.iter().all(|x| *x == 0.0))
    {
        column.copy_from_slice(guess);
    }
    q
}

impl Compressor for PowerSgd {
    fn all_reduce(&mut self, group: &dyn ProcessGroup, values: &mut [f32], op: ReduceOp) -> Result<Report, Error> {
        let is_average = is_average(op)?;
        let len = values.len();
        let shape = self.shape(len)?;
        let thin = self.rank * (shape.rows + shape.columns);
        if group.size() == 1 || thin >= len {
            self.corrected.resize(len, 0.0);
            group.all_reduce_into(values, &mut self.corrected, op)?;
            let report = Report::lossless(group, values);
            values.copy_from_slice(&self.corrected);
            return Ok(report);
        }
        resume(&mut self.residual, len);
        if self.q.len() != self.rank * shape.columns {
            self.q = first_guess(self.rank * shape.columns);
        }
        self.corrected.resize(len, 0.0);
        lanes::add(&mut self.corrected, values, &self.residual);
        let mut p = vec![0.0; self.rank * shape.rows];
        times(&self.corrected, shape, &self.q, &mut p);
        group.all_reduce(&mut p, ReduceOp::Avg)?;
        orthonormalize(&mut p, shape.rows);
        let mut own_q = vec![0.0; self.rank * shape.columns];
        transposed_times(&self.corrected, shape, &p, &mut own_q);
        let mut q = own_q.clone();
        group.all_reduce(&mut q, ReduceOp::Avg)?;

        let input = lanes::norm(&self.corrected);
        let is_finite = p.iter().chain(&q).all(|x| x.is_finite());
        let mut lost = f64::NAN;
        if is_finite {
            values.fill(0.0);
            add_product(values, shape, if is_average { 1.0 } else { group.size() as f32 }, &p, &q);
            add_product(&mut self.corrected, shape, -1.0, &p, &own_q);
            std::mem::swap(&mut self.residual, &mut self.corrected);
            lost = lanes::norm(&self.residual);
            self.q = refreshed(q, shape.columns);
        } else {
            values.fill(f32::NAN);
        }
        let plain_bytes = all_reduce_bytes(group, 4 * len);
        Ok(Report { wire_bytes: all_reduce_bytes(group, 4 * thin), plain_bytes, input, lost, rounding: 0.0 })
    }

    fn reset(&mut self) {
        self.residual.clear();
        self.q.clear();
    }
}
