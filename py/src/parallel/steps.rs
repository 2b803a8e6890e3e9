//! What goes along with training, step by step: accumulation, loss scale, learning rate, samples,
//! buckets.

use pyo3::prelude::*;
use shoal_parallel::{Decision, Position, Readers, Reduction};

use super::{OrInvalid, mesh::below};

/// X workers on Y ranks.
#[pyclass(frozen)]
pub(super) struct Accumulation(shoal_parallel::Accumulation);

/// The dynamic loss scale of one rank.
#[pyclass]
pub(super) struct LossScale(shoal_parallel::LossScale);

/// A schedule of the learning rate.
#[pyclass(frozen)]
pub(super) struct Rate(shoal_parallel::Rate);

/// A place in the data.
#[pyclass]
pub(super) struct Cursor(shoal_parallel::Cursor);

/// Which buckets may be sent.
#[pyclass]
pub(super) struct Launches(shoal_parallel::Launches);

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Accumulation>()?;
    module.add_class::<LossScale>()?;
    module.add_class::<Rate>()?;
    module.add_class::<Cursor>()?;
    module.add_class::<Launches>()
}

#[pymethods]
impl Accumulation {
    #[new]
    fn new(py: Python<'_>, workers: usize, ranks: usize, uneven: bool) -> PyResult<Self> {
        let make = if uneven { shoal_parallel::Accumulation::uneven } else { shoal_parallel::Accumulation::new };
        make(workers, ranks).map(Self).or_invalid(py)
    }

    fn passes(&self, py: Python<'_>, rank: usize) -> PyResult<usize> {
        Ok(self.0.passes(self.known(py, rank)?))
    }

    /// Step, pass, worker, whether it communicates.
    #[pyo3(name = "pass_")]
    fn pass(&self, py: Python<'_>, rank: usize, number: u64) -> PyResult<(u64, usize, usize, bool)> {
        let it = self.0.pass(self.known(py, rank)?, number);
        Ok((it.step, it.pass, it.worker, it.communicates))
    }

    fn factor(&self, py: Python<'_>, reduction: &str) -> PyResult<f64> {
        let reduction: Reduction = super::read(&format!("{reduction:?}"))?;
        self.0.factor(reduction).or_invalid(py)
    }

    fn steps_per_epoch(&self, py: Python<'_>, samples: u64, batch: usize, drop_last: bool) -> PyResult<u64> {
        self.0.steps_per_epoch(samples, batch, drop_last).or_invalid(py)
    }
}

impl Accumulation {
    fn known(&self, py: Python<'_>, rank: usize) -> PyResult<usize> {
        below(py, "rank", rank, self.0.ranks())
    }
}

#[pymethods]
impl LossScale {
    #[new]
    fn new(py: Python<'_>, options: &str, passes: usize) -> PyResult<Self> {
        shoal_parallel::LossScale::new(super::read(options)?, passes).map(Self).or_invalid(py)
    }

    fn scale(&self) -> f64 {
        self.0.scale()
    }

    fn found(&self) -> bool {
        self.0.found()
    }

    #[pyo3(name = "pass_")]
    fn pass(&mut self, py: Python<'_>, finite: bool) -> PyResult<bool> {
        self.0.pass(finite).or_invalid(py)
    }

    /// Whether the step is applied.
    fn step(&mut self, py: Python<'_>, found: bool) -> PyResult<bool> {
        Ok(self.0.step(found).or_invalid(py)? == Decision::Apply)
    }

    fn restart(&mut self, py: Python<'_>, passes: usize) -> PyResult<()> {
        self.0.restart(passes).or_invalid(py)
    }

    fn state(&self) -> PyResult<String> {
        super::write(&self.0)
    }

    /// The world may have changed since: the number of passes stays this one's.
    fn load(&mut self, py: Python<'_>, state: &str) -> PyResult<()> {
        let mut stored: shoal_parallel::LossScale = super::read(state)?;
        stored.restart(self.0.passes()).or_invalid(py)?;
        self.0 = stored;
        Ok(())
    }
}

#[pymethods]
impl Rate {
    #[new]
    fn new(py: Python<'_>, options: &str) -> PyResult<Self> {
        let rate: shoal_parallel::Rate = super::read(options)?;
        rate.check().or_invalid(py)?;
        Ok(Self(rate))
    }

    fn at(&self, step: u64) -> f64 {
        self.0.at(step)
    }

    fn momentum_correction(&self, step: u64) -> f64 {
        self.0.momentum_correction(step)
    }
}

#[pymethods]
impl Cursor {
    #[new]
    fn new(py: Python<'_>, samples: &str, epoch: u64, read: u64) -> PyResult<Self> {
        shoal_parallel::Cursor::new(super::read(samples)?, Position { epoch, read }).map(Self).or_invalid(py)
    }

    /// Epoch, and samples of it that are read.
    fn position(&self) -> (u64, u64) {
        let Position { epoch, read } = self.0.position();
        (epoch, read)
    }

    fn steps_left(&self, py: Python<'_>, workers: usize, batch: usize) -> PyResult<u64> {
        self.0.steps_left(Readers { workers, batch }).or_invalid(py)
    }

    fn positions(&self, py: Python<'_>, workers: usize, batch: usize, worker: usize) -> PyResult<Vec<u64>> {
        self.0.positions(Readers { workers, batch }, worker).or_invalid(py)
    }

    fn batch(&self, py: Python<'_>, workers: usize, batch: usize, worker: usize) -> PyResult<Vec<u64>> {
        self.0.batch(Readers { workers, batch }, worker).or_invalid(py)
    }

    fn finish(&mut self, py: Python<'_>, workers: usize, batch: usize) -> PyResult<bool> {
        self.0.finish(Readers { workers, batch }).or_invalid(py)
    }
}

#[pymethods]
impl Launches {
    #[new]
    fn new(buckets: &str) -> PyResult<Self> {
        let buckets: Vec<shoal_parallel::Bucket> = super::read(buckets)?;
        Ok(Self(shoal_parallel::Launches::new(&buckets)))
    }

    fn ready(&mut self, py: Python<'_>, gradient: usize) -> PyResult<Vec<usize>> {
        Ok(self.0.ready(gradient).or_invalid(py)?.collect())
    }

    fn unready(&self) -> Vec<usize> {
        self.0.unready()
    }
}
