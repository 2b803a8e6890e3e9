//! The most probable hyperparameters. Rasmussen and Williams (2006), 5.4.1, with priors.

use super::factor::{Factor, Matrix};
use super::hyper::{self, Hyper};
use super::kernel::{Axis, Columns, moments};
use super::lbfgs::{Limits, Search};
use super::warp::Warped;

/// What is fitted: points by row, standardised values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) axes: &'a [Axis],
    pub(super) points: &'a [Vec<f64>],
    pub(super) values: &'a [f64],
}

/// The points after warping, by axis.
pub(super) fn warped(axes: &[Axis], hyper: &Hyper, points: &[Vec<f64>]) -> Columns {
    let mut columns = Columns::new(axes.len());
    for point in points {
        columns.push(warped_point(axes, hyper, point));
    }
    columns
}

/// One point after warping.
pub(super) fn warped_point<'a>(axes: &'a [Axis], hyper: &'a Hyper, point: &'a [f64]) -> impl Iterator<Item = f64> {
    axes.iter().zip(&hyper.warps).zip(point).map(|((axis, warp), x)| match axis {
        Axis::Number { warped: true } => warp.at(*x).value,
        _ => *x,
    })
}

/// A pivot of a factor is never less than this part of the noise.
pub(super) const LEAST_PIVOT: f64 = 1e-2;

/// Minus the logarithm of the posterior density of hyperparameters, but for a constant.
pub(super) fn loss(data: &Data<'_>, theta: &[f64]) -> f64 {
    let hyper = Hyper::new(data.axes, theta);
    let columns = warped(data.axes, &hyper, data.points);
    let factor = factored(data.axes, &hyper, &columns);
    let alpha = factor.solve(data.values);
    let mut ignored = vec![0.0; theta.len()];
    0.5 * dot(data.values, &alpha) + factor.half_log_determinant() + hyper::prior(data.axes, theta, &mut ignored)
}

/// The factor of kernel plus noise.
pub(super) fn factored(axes: &[Axis], hyper: &Hyper, columns: &Columns) -> Factor {
    let mut factor = Factor::default();
    grow(&mut factor, axes, hyper, columns);
    factor
}

/// Adds the points that a factor lacks.
pub(super) fn grow(factor: &mut Factor, axes: &[Axis], hyper: &Hyper, columns: &Columns) {
    let mut point = vec![0.0; axes.len()];
    factor.grow(columns.len, LEAST_PIVOT * hyper.noise, |i, from, row| {
        point.iter_mut().enumerate().for_each(|(axis, x)| *x = columns.at(axis, i));
        hyper.kernel.row(axes, columns, &point, from, row, None);
        if i >= from {
            row[i] = hyper.kernel.scale + hyper.noise;
        }
    });
}

/// [`loss`] and its gradient.
pub(super) fn loss_with_gradient(data: &Data<'_>, theta: &[f64]) -> (f64, Vec<f64>) {
    let Data { axes, points, values } = *data;
    let (n, d) = (points.len(), axes.len());
    let hyper = Hyper::new(axes, theta);
    // By axis and point, with derivatives; empty where an axis is not warped.
    let bends: Vec<Vec<Warped>> = axes
        .iter()
        .enumerate()
        .map(|(axis, kind)| match kind {
            Axis::Number { warped: true } => points.iter().map(|point| hyper.warps[axis].at(point[axis])).collect(),
            _ => Vec::new(),
        })
        .collect();
    let mut columns = Columns::new(d);
    for (index, point) in points.iter().enumerate() {
        columns.push(point.iter().zip(&bends).map(|(x, bends)| bends.get(index).map_or(*x, |bend| bend.value)));
    }
    let mut slopes = Matrix::zeros(n, n);
    let mut point = vec![0.0; d];
    let factor = Factor::new(n, LEAST_PIVOT * hyper.noise, |i, from, row| {
        point.iter_mut().enumerate().for_each(|(axis, x)| *x = columns.at(axis, i));
        hyper.kernel.row(axes, &columns, &point, from, row, Some(slopes.row_mut(i)));
        row[i] = hyper.kernel.scale + hyper.noise;
    });
    let alpha = factor.solve(values);
    let fit = dot(values, &alpha);
    let negative_inverse = factor.negative_inverse();
    let moments = moments(axes, &columns, &negative_inverse, &slopes, &alpha);
    let mut gradient = vec![0.0; theta.len()];
    // Derivatives of the logarithm of the likelihood are half of tr((alpha alpha' - K^-1) dK); of
    // the loss, minus that.
    let trace: f64 = (0..n).map(|i| alpha[i] * alpha[i] + negative_inverse.row(i)[i]).sum();
    #[expect(clippy::cast_precision_loss, reason = "a count of trials")]
    let whole = fit - n as f64;
    gradient[d] = -0.5 * (whole - hyper.noise * trace);
    gradient[d + 1] = -0.5 * hyper.noise * trace;
    let mut next_warp = d + 2;
    for (axis, moment) in moments.iter().enumerate() {
        let weight = hyper.kernel.weights[axis];
        match axes[axis] {
            Axis::Choice => gradient[axis] = -weight * moment[0],
            Axis::Number { warped } => {
                gradient[axis] = -weight * dot(&columns.columns[axis][..n], &moment[..n]);
                if warped {
                    let (mut by_a, mut by_b) = (0.0, 0.0);
                    for (at, moment) in bends[axis].iter().zip(moment) {
                        by_a += at.by_log_a * moment;
                        by_b += at.by_log_b * moment;
                    }
                    gradient[next_warp] = -2.0 * weight * by_a;
                    gradient[next_warp + 1] = -2.0 * weight * by_b;
                    next_warp += 2;
                }
            }
        }
    }
    let prior = hyper::prior(axes, theta, &mut gradient);
    (0.5 * fit + factor.half_log_determinant() + prior, gradient)
}

/// The best of several searches, and its loss.
pub(super) fn most_probable(data: &Data<'_>, starts: &[Vec<f64>], evaluations: usize) -> Vec<f64> {
    let bounds = hyper::bounds(data.axes);
    let mut best: Option<(f64, Vec<f64>)> = None;
    for start in starts {
        let mut search = Search::new(start, bounds.clone(), Limits { evaluations, gradient: 1e-2, gain: 1e-3 });
        while let Some(theta) = search.next() {
            let (value, gradient) = loss_with_gradient(data, theta);
            search.tell(value, &gradient);
        }
        let (theta, value) = search.best();
        if best.as_ref().is_none_or(|(least, _)| value < *least) {
            best = Some((value, theta.to_vec()));
        }
    }
    best.map_or_else(|| hyper::start(data.axes), |(_, theta)| theta)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
