//! The parts against slow and simple references.

use super::acquire::{LogEi, Surface};
use super::factor::{Factor, Matrix};
use super::fit::{self, Data};
use super::gp::{Cache, FitOptions, Gp};
use super::hyper::{self, Hyper};
use super::kernel::Axis;
use super::lanes::{Task, Width, run_with};
use crate::Rng;

const AXES: [Axis; 4] =
    [Axis::Number { warped: true }, Axis::Number { warped: false }, Axis::Choice, Axis::Number { warped: true }];

fn points(n: usize, rng: &mut Rng) -> Vec<Vec<f64>> {
    let point =
        |rng: &mut Rng| vec![rng.unit(), rng.unit(), f64::from(u32::try_from(rng.below(3)).unwrap()), rng.unit()];
    (0..n).map(|_| point(rng)).collect()
}

fn value(point: &[f64]) -> f64 {
    libm::sin(5.0 * point[0]) + point[1] * point[3] + 0.3 * point[2]
}

fn theta() -> Vec<f64> {
    vec![1.2, -0.5, -0.2, 0.7, 0.1, -4.0, 0.3, -0.2, -0.4, 0.25]
}

/// Kernel of two points, written out.
fn kernel(hyper: &Hyper, a: &[f64], b: &[f64]) -> f64 {
    let mut square = 0.0;
    for axis in 0..a.len() {
        let u = |x: f64| 1.0 - libm::pow(1.0 - libm::pow(x, hyper.warps[axis].a), hyper.warps[axis].b);
        let difference = match AXES[axis] {
            Axis::Choice => f64::from(u8::from(a[axis] != b[axis])),
            Axis::Number { warped: true } => u(a[axis]) - u(b[axis]),
            Axis::Number { warped: false } => a[axis] - b[axis],
        };
        square += hyper.kernel.weights[axis] * difference * difference;
    }
    let r = libm::sqrt(5.0 * square);
    hyper.kernel.scale * (1.0 + r + r * r / 3.0) * libm::exp(-r)
}

/// Gauss and Jordan.
fn inverse(mut a: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let n = a.len();
    for (i, row) in a.iter_mut().enumerate() {
        row.extend((0..n).map(|j| if i == j { 1.0 } else { 0.0 }));
    }
    for i in 0..n {
        let pivot = (i..n).max_by(|x, y| a[*x][i].abs().total_cmp(&a[*y][i].abs())).unwrap();
        a.swap(i, pivot);
        let own = a[i].clone();
        for (j, row) in a.iter_mut().enumerate() {
            let factor = if i == j { (own[i] - 1.0) / own[i] } else { row[i] / own[i] };
            row.iter_mut().zip(&own).for_each(|(x, y)| *x -= factor * y);
        }
    }
    a.into_iter().map(|row| row[n..].to_vec()).collect()
}

#[test]
fn predictions_are_those_of_a_naive_inverse() {
    let mut rng = Rng::new(1, 1);
    for n in [1, 3, 7, 8, 37] {
        let known = points(n, &mut rng);
        let values: Vec<f64> = known.iter().map(|it| value(it)).collect();
        let found =
            Gp::search(&AXES, &known, &values, FitOptions { theta: Some(&theta()), evaluations: 0, afresh: false });
        let gp = Gp::new(&AXES, &known, &values, &found, &[], None, &mut Cache::default());
        let hyper = Hyper::new(&AXES, &theta());
        let row = |a: &Vec<f64>| known.iter().map(|b| kernel(&hyper, a, b)).collect::<Vec<f64>>();
        let mut matrix: Vec<Vec<f64>> = known.iter().map(row).collect();
        matrix.iter_mut().enumerate().for_each(|(i, row)| row[i] += hyper.noise);
        let inverse = inverse(matrix);
        let mean = values.iter().sum::<f64>() / n as f64;
        let deviation = (values.iter().map(|it| (it - mean) * (it - mean)).sum::<f64>() / n as f64).sqrt();
        let deviation = if deviation > 0.0 { deviation } else { 1.0 };
        let asked = points(19, &mut rng);
        let (means, variances) = gp.predict(&asked);
        for (at, point) in asked.iter().enumerate() {
            let k = row(point);
            let solved: Vec<f64> = inverse.iter().map(|row| row.iter().zip(&k).map(|(a, b)| a * b).sum()).collect();
            let expected = mean + solved.iter().zip(&values).map(|(a, b)| a * (b - mean)).sum::<f64>();
            let variance = hyper.kernel.scale - solved.iter().zip(&k).map(|(a, b)| a * b).sum::<f64>();
            assert!((means[at] - expected).abs() < 1e-9, "{n}: {} {expected}", means[at]);
            assert!(
                (variances[at] / (deviation * deviation) - variance).abs() < 1e-9,
                "{n}: {} {variance}",
                variances[at]
            );
        }
    }
}

#[test]
fn the_gradient_of_the_fit_is_that_of_finite_differences() {
    let mut rng = Rng::new(2, 1);
    let known = points(45, &mut rng);
    let values = super::gp::standardised(&known.iter().map(|it| value(it)).collect::<Vec<_>>());
    let data = Data { axes: &AXES, points: &known, values: &values };
    let (loss, gradient) = fit::loss_with_gradient(&data, &theta());
    assert!((loss - fit::loss(&data, &theta())).abs() < 1e-10);
    assert_eq!(gradient.len(), hyper::count(&AXES));
    for index in 0..gradient.len() {
        let at = |h: f64| {
            let mut moved = theta();
            moved[index] += h;
            fit::loss(&data, &moved)
        };
        let numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
        assert!(
            (gradient[index] - numeric).abs() < 1e-5 * (1.0 + numeric.abs()),
            "{index}: {} {numeric}",
            gradient[index]
        );
    }
}

#[test]
fn the_gradient_of_the_acquisition_is_that_of_finite_differences() {
    let mut rng = Rng::new(3, 1);
    let known = points(30, &mut rng);
    let values: Vec<f64> = known.iter().map(|it| value(it)).collect();
    for pending in [Vec::new(), points(3, &mut rng)] {
        let mut other = theta();
        other[0] += 0.5;
        let models = [theta(), other].map(|theta| {
            Gp::new(&AXES, &known, &values, &theta, &pending, Some(&mut Rng::new(9, 9)), &mut Cache::default())
        });
        let surface = LogEi::new(&models);
        let asked = points(13, &mut rng);
        for (point, (at, slopes)) in asked.iter().zip(surface.slopes(&asked)) {
            assert_eq!(at.to_bits(), surface.values(std::slice::from_ref(point))[0].to_bits());
            for axis in [0, 1, 3] {
                let value = |h: f64| {
                    let mut moved = point.clone();
                    moved[axis] += h;
                    surface.values(&[moved])[0]
                };
                let numeric = (value(1e-6) - value(-1e-6)) / 2e-6;
                assert!(
                    (slopes[axis] - numeric).abs() < 1e-4 * (1.0 + numeric.abs()),
                    "{axis}: {} {numeric}",
                    slopes[axis]
                );
            }
        }
    }
}

#[test]
fn a_factor_that_grew_has_the_bits_of_one_made_anew() {
    let mut rng = Rng::new(4, 1);
    for (first, then) in [(1, 2), (7, 9), (30, 31), (33, 100), (64, 65), (90, 141)] {
        let all = points(then, &mut rng);
        let values: Vec<f64> = all.iter().map(|it| value(it)).collect();
        let mut cache = Cache::default();
        // What was there and has gone leaves nothing behind.
        for n in [then, first, first + 1] {
            Gp::new(&AXES, &all[..n], &values[..n], &theta(), &[], None, &mut cache);
        }
        let grown = Gp::new(&AXES, &all, &values, &theta(), &[], None, &mut cache);
        let anew = Gp::new(&AXES, &all, &values, &theta(), &[], None, &mut Cache::default());
        for row in 0..then {
            for column in row..then {
                assert_eq!(
                    grown.factor.at(row, column).to_bits(),
                    anew.factor.at(row, column).to_bits(),
                    "{first} {then}: {row} {column}"
                );
            }
            assert_eq!(grown.alpha.row(row)[0].to_bits(), anew.alpha.row(row)[0].to_bits());
        }
    }
}

#[test]
fn what_is_believed_of_a_pending_point_is_fantasised() {
    let mut rng = Rng::new(5, 1);
    let known = points(25, &mut rng);
    let values: Vec<f64> = known.iter().map(|it| value(it)).collect();
    let pending = points(2, &mut rng);
    let gp = Gp::new(&AXES, &known, &values, &theta(), &pending, Some(&mut rng), &mut Cache::default());
    let (_, variances) = gp.predict(&pending);
    let without = Gp::new(&AXES, &known, &values, &theta(), &[], None, &mut Cache::default());
    let (_, before) = without.predict(&pending);
    for (after, before) in variances.iter().zip(before) {
        assert!(*after < 0.5 * before, "{after} {before}");
    }
    let model = [gp];
    let values = LogEi::new(&model).values(&pending);
    let elsewhere = LogEi::new(&model).values(&points(200, &mut rng)).into_iter().fold(f64::NEG_INFINITY, f64::max);
    assert!(values.iter().all(|value| *value < elsewhere));
}

/// All of the arithmetic, compiled for one kind of register.
struct Everything {
    matrix: Matrix,
}

impl Task for Everything {
    type Out = Vec<u64>;

    #[inline(always)]
    fn work(self) -> Vec<u64> {
        let mut bits: Vec<u64> = (0..2000).map(|step| crate::exp::exp(-0.37 * f64::from(step)).to_bits()).collect();
        bits.extend(self.matrix.data.iter().map(|value| value.sqrt().to_bits()));
        bits
    }
}

#[test]
fn all_registers_give_the_same_bits() {
    let mut rng = Rng::new(6, 1);
    let known = points(83, &mut rng);
    let values: Vec<f64> = known.iter().map(|it| value(it)).collect();
    let asked = points(70, &mut rng);
    let all = |width: Width| {
        super::lanes::with_width(width, || {
            let data = Data { axes: &AXES, points: &known, values: &values };
            let (loss, gradient) = fit::loss_with_gradient(&data, &theta());
            let model = [Gp::new(
                &AXES,
                &known[..80],
                &values[..80],
                &theta(),
                &known[80..],
                Some(&mut Rng::new(1, 2)),
                &mut Cache::default(),
            )];
            let mut bits = vec![loss.to_bits()];
            bits.extend(gradient.iter().map(|it| it.to_bits()));
            for (value, slopes) in LogEi::new(&model).slopes(&asked) {
                bits.push(value.to_bits());
                bits.extend(slopes.iter().map(|it| it.to_bits()));
            }
            bits
        })
    };
    let plain = all(Width::Plain);
    for width in Width::all() {
        assert_eq!(all(*width), plain, "{width:?}");
        let mut matrix = Matrix::zeros(5, 9);
        matrix.data.iter_mut().for_each(|value| *value = rng.unit());
        let bits = run_with(*width, Everything { matrix: matrix.clone() });
        assert_eq!(bits, run_with(Width::Plain, Everything { matrix }), "{width:?}");
    }
}

#[test]
fn a_factor_solves() {
    let mut rng = Rng::new(7, 1);
    let n = 70;
    let half: Vec<Vec<f64>> = (0..n).map(|_| (0..n).map(|_| rng.normal()).collect()).collect();
    let matrix =
        |i: usize, j: usize| (0..n).map(|k| half[i][k] * half[j][k]).sum::<f64>() + if i == j { 1.0 } else { 0.0 };
    let factor = Factor::new(n, 1e-12, |i, from, row| (from..n).for_each(|j| row[j] = matrix(i, j)));
    let expected: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
    let b: Vec<f64> = (0..n).map(|i| (0..n).map(|j| matrix(i, j) * expected[j]).sum()).collect();
    for (found, expected) in factor.solve(&b).iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
    let inverse = factor.negative_inverse();
    for i in 0..n {
        for j in 0..n {
            let product: f64 = (0..n).map(|k| -inverse.row(i.min(k))[i.max(k)] * matrix(k, j)).sum();
            assert!((product - if i == j { 1.0 } else { 0.0 }).abs() < 1e-6, "{i} {j}: {product}");
        }
    }
}
