//! Functions to minimise, with known least values. The first three are those of
//! ../shared/tuning/harness/problems.py; optima of the others are shifted, so that they lie in no
//! special place.

use std::f64::consts::{E, PI, TAU};

use shoal_tuner::{Config, Space};

/// A space and a function on it.
pub(crate) struct Problem {
    pub(crate) space: Space,
    /// Its least value.
    pub(crate) least: f64,
    pub(crate) value: Box<dyn Fn(&Config) -> f64>,
}

/// Names of the functions here.
pub(crate) const NAMES: [&str; 8] =
    ["branin", "hartmann6", "mixed8", "ackley5", "rosenbrock4", "levy8", "ellipsoid10", "kernels"];

/// The problem of a name.
pub(crate) fn function(name: &str) -> Option<Problem> {
    Some(match name {
        "branin" => Problem {
            space: space(
                r#"[{"name":"x1","type":"continuous","min":-5,"max":10},{"name":"x2","type":"continuous","min":0,"max":15}]"#,
            ),
            least: 0.397_887_357_729_738_16,
            value: Box::new(branin),
        },
        "hartmann6" => {
            Problem { space: cube(1, 6, 0.0, 1.0), least: -3.322_368_011_415_51, value: Box::new(hartmann6) }
        }
        "mixed8" => Problem { space: space(MIXED8), least: 0.0, value: Box::new(mixed8) },
        "ackley5" => Problem { space: cube(0, 5, -10.0, 10.0), least: 0.0, value: Box::new(ackley5) },
        "rosenbrock4" => Problem { space: cube(0, 4, -5.0, 10.0), least: 0.0, value: Box::new(rosenbrock4) },
        "levy8" => Problem { space: cube(0, 8, -10.0, 10.0), least: 0.0, value: Box::new(levy8) },
        "ellipsoid10" => Problem { space: cube(0, 10, -1.0, 1.0), least: 0.0, value: Box::new(ellipsoid10) },
        "kernels" => Problem { space: space(KERNELS), least: 0.0, value: Box::new(kernels) },
        _ => return None,
    })
}

fn space(json: &str) -> Space {
    serde_json::from_str(json).expect("a space")
}

/// Parameters x`first`, x`first+1` and so on.
fn cube(first: usize, dimensions: usize, min: f64, max: f64) -> Space {
    let parameter = |index| format!(r#"{{"name":"x{index}","type":"continuous","min":{min},"max":{max}}}"#);
    space(&format!("[{}]", (first..first + dimensions).map(parameter).collect::<Vec<_>>().join(",")))
}

/// All values as numbers, in the space's order; choices as their indices, inactive ones as NaN.
fn numbers(config: &Config) -> Vec<f64> {
    config.0.iter().map(|value| value.map_or(f64::NAN, |value| value.number())).collect()
}

fn branin(config: &Config) -> f64 {
    let x = numbers(config);
    (x[1] - 5.1 / (4.0 * PI * PI) * x[0] * x[0] + 5.0 / PI * x[0] - 6.0).powi(2)
        + 10.0 * (1.0 - 1.0 / (8.0 * PI)) * x[0].cos()
        + 10.0
}

fn hartmann6(config: &Config) -> f64 {
    const A: [[f64; 6]; 4] = [
        [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
        [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
        [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
        [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
    ];
    const P: [[f64; 6]; 4] = [
        [1312.0, 1696.0, 5569.0, 124.0, 8283.0, 5886.0],
        [2329.0, 4135.0, 8307.0, 3736.0, 1004.0, 9991.0],
        [2348.0, 1451.0, 3522.0, 2883.0, 3047.0, 6650.0],
        [4047.0, 8828.0, 8732.0, 5743.0, 1091.0, 381.0],
    ];
    const ALPHA: [f64; 4] = [1.0, 1.2, 3.0, 3.2];
    let x = numbers(config);
    let exponent = |i: usize| (0..6).map(|j| A[i][j] * (x[j] - P[i][j] * 1e-4).powi(2)).sum::<f64>();
    -(0..4).map(|i| ALPHA[i] * (-exponent(i)).exp()).sum::<f64>()
}

const MIXED8: &str = r#"[
    {"name":"opt","type":"categorical","values":["sgd","adam","rmsprop","adagrad"]},
    {"name":"act","type":"categorical","values":["relu","tanh","gelu"]},
    {"name":"lr","type":"continuous","min":1e-6,"max":1.0,"scaling":"Logarithmic"},
    {"name":"wd","type":"continuous","min":1e-8,"max":1e-1,"scaling":"Logarithmic"},
    {"name":"layers","type":"integer","min":1,"max":12},
    {"name":"units","type":"integer","min":16,"max":2048,"scaling":"Logarithmic"},
    {"name":"dropout","type":"continuous","min":0.0,"max":0.7},
    {"name":"momentum","type":"continuous","min":0.0,"max":0.999,"scaling":"ReverseLogarithmic","condition":{"parent":"opt","in":["sgd"]}}]"#;

/// Best: adam, gelu, lr 1e-3, wd 1e-4, 4 layers of 256 units, dropout 0.15.
fn mixed8(config: &Config) -> f64 {
    let x = numbers(config);
    let (best, offset) = [(-1.2, 0.06), (-3.0, 0.0), (-3.4, 0.04), (-2.0, 0.09)][x[0] as usize];
    let rate = x[2].log10() - best;
    let mut value = offset + [0.02, 0.05, 0.0][x[1] as usize];
    value += 0.25 * (1.0 - (-0.5 * (rate / 0.6).powi(2)).exp()) + 0.01 * rate * rate;
    value += 0.15 * (rate - 1.0).max(0.0);
    let decay = x[3].log10() + 4.0;
    value += 0.012 * decay * decay + 0.03 * (1.0 - (1.5 * decay).cos()) * 0.5;
    let layers = x[4] - 4.0;
    value += 0.015 * layers.abs() + if layers.abs() > 3.0 { 0.02 } else { 0.0 };
    let units = (x[5] / 256.0).log2();
    value += 0.01 * units * units + 0.004 * (units * layers).max(0.0);
    value += 0.4 * (x[6] - 0.15).powi(2) * (1.0 + 0.3 * units.abs());
    if x[0] == 0.0 {
        value += 0.03 * ((1.0 - x[7]).log10() + 1.0).powi(2);
    }
    value
}

fn ackley5(config: &Config) -> f64 {
    let z: Vec<f64> = numbers(config).iter().zip([0.7, -3.1, 5.3, 1.9, -7.7]).map(|(x, shift)| x - shift).collect();
    let squares = z.iter().map(|z| z * z).sum::<f64>() / 5.0;
    let waves = z.iter().map(|z| (TAU * z).cos()).sum::<f64>() / 5.0;
    -20.0 * (-0.2 * squares.sqrt()).exp() - waves.exp() + 20.0 + E
}

/// The logarithm of 1 + Rosenbrock's function: a curved valley.
fn rosenbrock4(config: &Config) -> f64 {
    numbers(config).windows(2).map(|x| 100.0 * (x[1] - x[0] * x[0]).powi(2) + (1.0 - x[0]).powi(2)).sum::<f64>().ln_1p()
}

fn levy8(config: &Config) -> f64 {
    let shifts = [1.3, -2.7, 4.1, 0.2, -5.9, 7.3, -0.8, 3.6];
    let w: Vec<f64> = numbers(config).iter().zip(shifts).map(|(x, shift)| 1.0 + (x - shift) / 4.0).collect();
    let middle = w[..7].iter().map(|w| (w - 1.0).powi(2) * (1.0 + 10.0 * (PI * w + 1.0).sin().powi(2))).sum::<f64>();
    (PI * w[0]).sin().powi(2) + middle + (w[7] - 1.0).powi(2) * (1.0 + (TAU * w[7]).sin().powi(2))
}

fn ellipsoid10(config: &Config) -> f64 {
    let shifts = [0.3, -0.6, 0.1, 0.75, -0.25, 0.5, -0.85, 0.05, 0.65, -0.45];
    let term = |(index, (x, shift)): (usize, (&f64, f64))| 100_f64.powf(index as f64 / 9.0) * (x - shift).powi(2);
    numbers(config).iter().zip(shifts).enumerate().map(term).sum()
}

const KERNELS: &str = r#"[
    {"name":"kernel","type":"categorical","values":["linear","rbf","poly"]},
    {"name":"C","type":"continuous","min":1e-3,"max":1e4,"scaling":"Logarithmic"},
    {"name":"gamma","type":"continuous","min":1e-6,"max":10.0,"scaling":"Logarithmic","condition":{"parent":"kernel","in":["rbf","poly"]}},
    {"name":"degree","type":"integer","min":1,"max":8,"condition":{"parent":"kernel","in":["poly"]}},
    {"name":"shrink","type":"categorical","values":["yes","no"]}]"#;

/// Conditional parameters, as of a support vector machine. Best: rbf, C 10, gamma 0.01, shrink yes.
fn kernels(config: &Config) -> f64 {
    let x = numbers(config);
    let (offset, best_c, best_gamma) = [(0.10, 0.5, 0.0), (0.0, 1.0, -2.0), (0.04, -0.5, -1.0)][x[0] as usize];
    let c = x[1].log10() - best_c;
    let mut value = offset + 0.04 * c * c + if x[4] == 0.0 { 0.0 } else { 0.01 };
    if x[0] > 0.0 {
        value += 0.06 * (x[2].log10() - best_gamma + 0.3 * c).powi(2);
    }
    if x[0] == 2.0 {
        value += 0.03 * (x[3] - 3.0).abs();
    }
    value
}
