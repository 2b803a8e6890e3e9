//! Plans that are made once: pipelines, partitions, buckets, shards, optimizers' formulas, advice.

#![expect(clippy::needless_pass_by_value, reason = "Python's lists come as values")]

use pyo3::{exceptions::PyValueError, prelude::*};
use shoal_parallel::{
    BucketOptions, Durations, Exchange, Gradient, Lamb, Lars, Meetings, Outer, Pipeline, Precision, Schedule,
    Streaming, Tensor, Turn, Zero, advise,
    partition::{self, Layer, Module},
    squares,
};

use super::{OrInvalid, read, write};

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(schedule, module)?)?;
    module.add_function(wrap_pyfunction!(check_schedule, module)?)?;
    module.add_function(wrap_pyfunction!(chain, module)?)?;
    module.add_function(wrap_pyfunction!(tree, module)?)?;
    module.add_function(wrap_pyfunction!(buckets, module)?)?;
    module.add_function(wrap_pyfunction!(tensor_part, module)?)?;
    module.add_function(wrap_pyfunction!(zero_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(lars_ratio, module)?)?;
    module.add_function(wrap_pyfunction!(lars_step, module)?)?;
    module.add_function(wrap_pyfunction!(lamb_ratio, module)?)?;
    module.add_function(wrap_pyfunction!(lamb_step, module)?)?;
    module.add_function(wrap_pyfunction!(meeting, module)?)?;
    module.add_function(wrap_pyfunction!(turns, module)?)?;
    module.add_function(wrap_pyfunction!(outer_step, module)?)?;
    module.add_function(wrap_pyfunction!(advice, module)?)
}

#[pyfunction]
fn schedule(py: Python<'_>, pipeline: &str, ranks: usize, micros: usize) -> PyResult<String> {
    let pipeline: Pipeline = read(pipeline)?;
    write(&pipeline.schedule(ranks, micros).or_invalid(py)?)
}

#[pyfunction]
fn check_schedule(schedule: &str, durations: &str) -> PyResult<String> {
    let (schedule, durations): (Schedule, Durations) = (read(schedule)?, read(durations)?);
    write(&schedule.check(&durations).map_err(|fault| PyValueError::new_err(fault.to_string()))?)
}

#[pyfunction]
fn chain(py: Python<'_>, costs: Vec<f64>, memory: Vec<u64>, stages: usize, limit: Option<u64>) -> PyResult<Vec<usize>> {
    let layers: Vec<Layer> = costs.into_iter().zip(memory).map(|(cost, memory)| Layer { cost, memory }).collect();
    partition::chain(&layers, stages, limit).or_invalid(py)
}

#[pyfunction]
fn tree(py: Python<'_>, root: &str, sizes: Vec<u64>, stages: usize, memory_weight: f64) -> PyResult<Vec<usize>> {
    let root: Module = read(root)?;
    partition::tree(&root, &sizes, stages, memory_weight).or_invalid(py)
}

#[pyfunction]
fn buckets(py: Python<'_>, gradients: Vec<(u64, u32)>, cap: u64, first_cap: u64, align: u64) -> PyResult<String> {
    let gradients: Vec<Gradient> = gradients.into_iter().map(|(bytes, kind)| Gradient { bytes, kind }).collect();
    write(&shoal_parallel::buckets(&gradients, BucketOptions { cap, first_cap, align }).or_invalid(py)?)
}

/// Ranges of the whole tensor, in bytes.
#[pyfunction]
fn tensor_part(
    py: Python<'_>,
    shape: Vec<u64>,
    element: u64,
    split: Option<usize>,
    degree: usize,
    index: usize,
) -> PyResult<Vec<(u64, u64)>> {
    let index = super::mesh::below(py, "index", index, degree)?;
    let part = Tensor { shape, element }.part(split, degree, index).or_invalid(py)?;
    Ok(part.into_iter().map(|run| (run.start, run.end)).collect())
}

#[pyfunction]
fn zero_bytes(py: Python<'_>, level: usize, parameters: u64, sizes: (u64, u64, u64), shards: usize) -> PyResult<u64> {
    let precision = Precision { parameter: sizes.0, gradient: sizes.1, state: sizes.2 };
    super::mesh::below(py, "shards", 0, shards)?;
    Ok(Zero::level(level).or_invalid(py)?.bytes(parameters, precision, shards))
}

#[pyfunction]
fn lars_ratio(options: &str, weights: f64, gradient: f64) -> PyResult<f64> {
    Ok(read::<Lars>(options)?.ratio(weights, gradient))
}

/// A whole layer; returns weights and velocity.
#[pyfunction]
fn lars_step(
    options: &str,
    rate: f64,
    mut weights: Vec<f32>,
    gradient: Vec<f32>,
    mut velocity: Vec<f32>,
) -> PyResult<(Vec<f32>, Vec<f32>)> {
    same_length(&[&weights, &gradient, &velocity])?;
    let lars: Lars = read(options)?;
    lars.step(rate, lars.ratio(squares(&weights), squares(&gradient)), &mut weights, &gradient, &mut velocity);
    Ok((weights, velocity))
}

#[pyfunction]
fn lamb_ratio(options: &str, weights: f64, direction: f64) -> PyResult<f64> {
    Ok(lamb(options)?.ratio(weights, direction))
}

/// A whole layer; returns weights and both moments.
#[pyfunction]
fn lamb_step(
    options: &str,
    rate: f64,
    step: u64,
    mut weights: Vec<f32>,
    gradient: Vec<f32>,
    moments: (Vec<f32>, Vec<f32>),
) -> PyResult<(Vec<f32>, Vec<f32>, Vec<f32>)> {
    let (mut first, mut second) = moments;
    same_length(&[&weights, &gradient, &first, &second])?;
    let lamb = lamb(options)?;
    let mut direction = vec![0.0; weights.len()];
    lamb.direction(step, &weights, &gradient, &mut first, &mut second, &mut direction);
    let ratio = lamb.ratio(squares(&weights), squares(&direction));
    lamb.step(rate, ratio, &mut weights, &direction);
    Ok((weights, first, second))
}

/// JSON has no infinity: without `highest` there is none.
fn lamb(options: &str) -> PyResult<Lamb> {
    let mut fields: serde_json::Map<String, serde_json::Value> = read(options)?;
    let highest = fields.remove("highest").and_then(|value| value.as_f64());
    fields.insert("highest".to_owned(), 0.0.into());
    let lamb: Lamb = read(&write(&fields)?)?;
    Ok(Lamb { highest: highest.unwrap_or(f64::INFINITY), ..lamb })
}

fn same_length(slices: &[&Vec<f32>]) -> PyResult<()> {
    let lengths: Vec<usize> = slices.iter().map(|slice| slice.len()).collect();
    if lengths.iter().all(|length| *length == lengths[0]) {
        Ok(())
    } else {
        Err(PyValueError::new_err(format!("the lists must have one length, and have {lengths:?}")))
    }
}

#[pyfunction]
fn meeting(py: Python<'_>, period: u64, synchronous: u64, step: u64) -> PyResult<&'static str> {
    let meetings = Meetings { period, synchronous };
    meetings.check().or_invalid(py)?;
    Ok(match meetings.at(step) {
        Exchange::Nothing => "nothing",
        Exchange::Gradients => "gradients",
        Exchange::Weights => "weights",
    })
}

#[pyfunction]
fn turns(py: Python<'_>, options: &str, step: u64) -> PyResult<Vec<(&'static str, u64)>> {
    let streaming: Streaming = read(options)?;
    streaming.check().or_invalid(py)?;
    let said = |turn| match turn {
        Turn::Send(fragment) => ("send", fragment),
        Turn::Receive(fragment) => ("receive", fragment),
    };
    Ok(streaming.at(step).into_iter().map(said).collect())
}

/// Returns what is common, and the velocity.
#[pyfunction]
fn outer_step(
    py: Python<'_>,
    options: &str,
    mut common: Vec<f32>,
    mean: Vec<f32>,
    mut velocity: Vec<f32>,
) -> PyResult<(Vec<f32>, Vec<f32>)> {
    same_length(&[&common, &mean, &velocity])?;
    let outer: Outer = read(options)?;
    outer.check().or_invalid(py)?;
    outer.step(&mut common, &mean, &mut velocity);
    Ok((common, velocity))
}

#[pyfunction]
fn advice(py: Python<'_>, question: &str) -> PyResult<String> {
    let question: advise::Question = read(question)?;
    write(&py.detach(|| advise::advise(&question)).or_invalid(py)?)
}
