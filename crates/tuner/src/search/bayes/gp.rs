//! A Gaussian process over points: what is believed of a function after some of its values.
//!
//! [`Gp::search`] finds hyperparameters, [`Gp::new`] takes in the values; [`Gp::predict`] gives
//! mean and variance anywhere. Values are standardised inside and told in the units that they came
//! in. Points are rows of coordinates, one per [`Axis`]; a learner over several fidelities adds an
//! axis for the resource.

use super::factor::{Factor, Matrix};
use super::fit::{self, Data};
use super::hyper::{self, Hyper};
use super::kernel::{Axis, Columns};
use crate::Rng;

/// How to fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FitOptions<'a> {
    /// Hyperparameters that [`Gp::search`] found before: where it begins.
    pub(crate) theta: Option<&'a [f64]>,
    /// Evaluations of the likelihood per search; 0 takes `theta` as it is.
    pub(crate) evaluations: usize,
    /// Whether to search from the usual place too.
    pub(crate) afresh: bool,
}

/// A factor that may serve again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cache {
    axes: Vec<Axis>,
    theta: Vec<f64>,
    points: Vec<Vec<f64>>,
    columns: Columns,
    factor: Factor,
}

/// The process after the values of some points. Several sets of values for the pending ones
/// ("fantasies") stand side by side.
#[derive(Debug, Clone)]
pub(crate) struct Gp {
    pub(super) axes: Vec<Axis>,
    pub(super) hyper: Hyper,
    pub(super) columns: Columns,
    pub(super) factor: Factor,
    /// K^-1 (values), a column per fantasy.
    pub(super) alpha: Matrix,
    /// How many fantasies there are; 1 without pending points.
    pub(super) fantasies: usize,
    /// By fantasy: the least of what is believed of the known and pending points, standardised.
    pub(super) best: Vec<f64>,
    mean: f64,
    deviation: f64,
}

/// Mean and deviation; a deviation of nothing counts as 1.
fn moments(values: &[f64]) -> (f64, f64) {
    #[expect(clippy::cast_precision_loss, reason = "a count of trials")]
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / n;
    let deviation = variance.sqrt();
    (mean, if deviation > 1e-12 * mean.abs() && deviation > 0.0 { deviation } else { 1.0 })
}

/// Values with mean 0 and variance 1.
pub(super) fn standardised(values: &[f64]) -> Vec<f64> {
    let (mean, deviation) = moments(values);
    values.iter().map(|value| (value - mean) / deviation).collect()
}

impl Gp {
    /// The most probable hyperparameters for values.
    pub(crate) fn search(axes: &[Axis], points: &[Vec<f64>], values: &[f64], options: FitOptions<'_>) -> Vec<f64> {
        let known = options.theta.filter(|theta| theta.len() == hyper::count(axes));
        if points.is_empty() || options.evaluations == 0 {
            return known.map_or_else(|| hyper::start(axes), <[f64]>::to_vec);
        }
        let mut starts: Vec<Vec<f64>> = known.map(<[f64]>::to_vec).into_iter().collect();
        if options.afresh || starts.is_empty() {
            starts.push(hyper::start(axes));
        }
        let values = standardised(values);
        fit::most_probable(&Data { axes, points, values: &values }, &starts, options.evaluations)
    }

    /// With these hyperparameters. `pending` points get `FANTASIES` sets of values, drawn by `rng`
    /// from what is believed of them. The cache makes it faster where only points were added, and
    /// changes no bit.
    pub(crate) fn new(
        axes: &[Axis],
        points: &[Vec<f64>],
        values: &[f64],
        theta: &[f64],
        pending: &[Vec<f64>],
        rng: Option<&mut Rng>,
        cache: &mut Cache,
    ) -> Self {
        let (mean, deviation) = moments(values);
        let hyper = Hyper::new(axes, theta);
        if cache.axes != axes || cache.theta != theta {
            *cache = Cache {
                axes: axes.to_vec(),
                theta: theta.to_vec(),
                columns: Columns::new(axes.len()),
                ..Cache::default()
            };
        }
        let all = || points.iter().chain(pending);
        let kept = cache.points.iter().zip(all()).take_while(|(old, new)| old == new).count();
        cache.points.truncate(kept);
        cache.columns.truncate(kept);
        cache.factor.truncate(kept);
        for point in all().skip(kept) {
            cache.points.push(point.clone());
            cache.columns.push(fit::warped_point(axes, &hyper, point));
        }
        fit::grow(&mut cache.factor, axes, &hyper, &cache.columns);
        let factor = cache.factor.clone();
        let (n, total) = (points.len(), points.len() + pending.len());
        let fantasies = if pending.is_empty() { 1 } else { FANTASIES };
        // L^-1 of the values; what stands there for pending points is standard normal.
        let mut alpha = Matrix::zeros(n, fantasies);
        for (row, value) in values.iter().enumerate() {
            alpha.row_mut(row)[..fantasies].fill((value - mean) / deviation);
        }
        let mut targets = alpha.clone();
        factor.solve_forward(&mut alpha);
        alpha.data.resize(total * alpha.stride, 0.0);
        alpha.rows = total;
        targets.data.resize(total * targets.stride, 0.0);
        targets.rows = total;
        if let Some(rng) = rng {
            for row in n..total {
                alpha.row_mut(row)[..fantasies].iter_mut().for_each(|value| *value = rng.normal());
            }
        }
        for row in n..total {
            for fantasy in 0..fantasies {
                let value = (0..=row).map(|k| factor.at(k, row) * alpha.row(k)[fantasy]).sum();
                targets.row_mut(row)[fantasy] = value;
            }
        }
        factor.solve_backward(&mut alpha);
        let believed = |row: usize, fantasy: usize| targets.row(row)[fantasy] - hyper.noise * alpha.row(row)[fantasy];
        let best = (0..fantasies)
            .map(|fantasy| (0..total).map(|row| believed(row, fantasy)).fold(f64::INFINITY, f64::min))
            .collect();
        Self {
            axes: axes.to_vec(),
            hyper,
            columns: cache.columns.clone(),
            factor,
            alpha,
            fantasies,
            best,
            mean,
            deviation,
        }
    }

    /// By axis: how many length scales the unit interval has.
    pub(crate) fn steepness(&self) -> Vec<f64> {
        self.hyper.kernel.weights.iter().map(|weight| weight.sqrt()).collect()
    }

    /// Mean and variance of the function (without noise) at points, in the units of the values;
    /// averaged over fantasies.
    pub(crate) fn predict(&self, points: &[Vec<f64>]) -> (Vec<f64>, Vec<f64>) {
        let beliefs = self.beliefs(points, false);
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let count = self.fantasies as f64;
        let means = (0..points.len()).map(|at| {
            let sum: f64 = (0..self.fantasies).map(|fantasy| beliefs.means.row(fantasy)[at]).sum();
            self.mean + self.deviation * (sum / count)
        });
        let variances = beliefs.variances.iter().map(|variance| variance * self.deviation * self.deviation);
        (means.collect(), variances.collect())
    }

    /// At points, standardised; with what gradients need if they are wanted.
    pub(super) fn beliefs(&self, points: &[Vec<f64>], with_slopes: bool) -> Beliefs {
        let n = self.columns.len;
        let columns = fit::warped(&self.axes, &self.hyper, points);
        let mut kernel = Matrix::zeros(n, points.len());
        let mut slopes = if with_slopes { Matrix::zeros(n, points.len()) } else { Matrix::default() };
        let mut point = vec![0.0; self.axes.len()];
        for i in 0..n {
            point.iter_mut().enumerate().for_each(|(axis, x)| *x = self.columns.at(axis, i));
            let slopes = with_slopes.then(|| slopes.row_mut(i));
            self.hyper.kernel.row(&self.axes, &columns, &point, 0, kernel.row_mut(i), slopes);
        }
        let mut means = Matrix::zeros(self.fantasies, points.len());
        super::lanes::run(Weigh { kernel: &kernel, alpha: &self.alpha, means: &mut means });
        self.factor.solve_forward(&mut kernel);
        let mut explained = vec![0.0; kernel.stride];
        super::lanes::run(Squares { solved: &kernel, sums: &mut explained });
        let scale = self.hyper.kernel.scale;
        let least = 1e-14 * scale;
        let variances = explained[..points.len()]
            .iter()
            .map(|part| if scale - part > least { scale - part } else { least })
            .collect();
        Beliefs { columns, means, variances, solved: kernel, slopes }
    }

    /// Derivatives of a quantity with respect to the coordinates of points, from its derivatives
    /// with respect to means (a row per fantasy) and variances. Choices have none.
    pub(super) fn slopes(
        &self,
        points: &[Vec<f64>],
        beliefs: Beliefs,
        by_means: &Matrix,
        by_variances: &[f64],
    ) -> Vec<Vec<f64>> {
        let Beliefs { columns, mut solved, slopes, .. } = beliefs;
        self.factor.solve_backward(&mut solved);
        let mut sums = Matrix::zeros(self.axes.len(), points.len());
        let task = Slopes {
            gp: self,
            columns: &columns,
            solved: &solved,
            slopes: &slopes,
            by_means,
            by_variances,
            sums: &mut sums,
        };
        super::lanes::run(task);
        let slope = |at: usize, axis: usize| match self.axes[axis] {
            Axis::Choice => 0.0,
            Axis::Number { warped } => {
                let bend = if warped { self.hyper.warps[axis].at(points[at][axis]).slope } else { 1.0 };
                2.0 * self.hyper.kernel.weights[axis] * bend * sums.row(axis)[at]
            }
        };
        (0..points.len()).map(|at| (0..self.axes.len()).map(|axis| slope(at, axis)).collect()).collect()
    }
}

/// Sets of values for pending points.
pub(super) const FANTASIES: usize = 8;

/// What is believed of points.
#[derive(Debug)]
pub(super) struct Beliefs {
    columns: Columns,
    /// A row per fantasy, a column per point; standardised.
    pub(super) means: Matrix,
    /// By point.
    pub(super) variances: Vec<f64>,
    /// L^-1 of the kernel between known points and these.
    solved: Matrix,
    slopes: Matrix,
}

/// Means: kernel' alpha.
struct Weigh<'a> {
    kernel: &'a Matrix,
    alpha: &'a Matrix,
    means: &'a mut Matrix,
}

impl super::lanes::Task for Weigh<'_> {
    type Out = ();

    #[inline(always)]
    fn work(self) {
        let Self { kernel, alpha, means } = self;
        for i in 0..kernel.rows {
            let (row, weights) = (kernel.row(i), alpha.row(i));
            for (fantasy, weight) in weights.iter().enumerate().take(means.rows) {
                for (mean, value) in means.row_mut(fantasy).iter_mut().zip(row) {
                    *mean += weight * value;
                }
            }
        }
    }
}

/// Sums of squares down the columns.
struct Squares<'a> {
    solved: &'a Matrix,
    sums: &'a mut [f64],
}

impl super::lanes::Task for Squares<'_> {
    type Out = ();

    #[inline(always)]
    fn work(self) {
        for i in 0..self.solved.rows {
            for (sum, value) in self.sums.iter_mut().zip(self.solved.row(i)) {
                *sum += value * value;
            }
        }
    }
}

/// See [`Gp::slopes`].
struct Slopes<'a> {
    gp: &'a Gp,
    columns: &'a Columns,
    solved: &'a Matrix,
    slopes: &'a Matrix,
    by_means: &'a Matrix,
    by_variances: &'a [f64],
    sums: &'a mut Matrix,
}

impl super::lanes::Task for Slopes<'_> {
    type Out = ();

    #[inline(always)]
    fn work(self) {
        let Self { gp, columns, solved, slopes, by_means, by_variances, sums } = self;
        let width = solved.stride;
        let mut pulls = vec![0.0; width];
        let mut by_variances = by_variances.to_vec();
        by_variances.resize(width, 0.0);
        for i in 0..gp.columns.len {
            for ((pull, by_variance), value) in pulls.iter_mut().zip(&by_variances).zip(solved.row(i)) {
                *pull = -2.0 * by_variance * value;
            }
            for (fantasy, weight) in gp.alpha.row(i).iter().enumerate().take(by_means.rows) {
                for (pull, by_mean) in pulls.iter_mut().zip(by_means.row(fantasy)) {
                    *pull += by_mean * weight;
                }
            }
            for (pull, slope) in pulls.iter_mut().zip(slopes.row(i)) {
                *pull *= slope;
            }
            for axis in 0..gp.axes.len() {
                if gp.axes[axis] == Axis::Choice {
                    continue;
                }
                let own = gp.columns.at(axis, i);
                for ((sum, pull), other) in sums.row_mut(axis).iter_mut().zip(&pulls).zip(&columns.columns[axis]) {
                    *sum += pull * (other - own);
                }
            }
        }
    }
}
