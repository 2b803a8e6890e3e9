//! Meshes, and layouts of state over them.

#![expect(clippy::needless_pass_by_value, reason = "Python's lists come as values")]

use pyo3::prelude::*;
use shoal_parallel::{AXES, Axis, Change, Degrees, Placement, Tensor};

use super::{Invalid, OrInvalid};

/// Ranks in a mesh of degrees.
#[pyclass(frozen)]
pub(super) struct Mesh(shoal_parallel::Mesh);

/// Where ranks keep tensors.
#[pyclass(frozen)]
pub(super) struct Layout(shoal_parallel::Layout);

/// Shape and size of an element.
type Shape = (Vec<u64>, u64);
/// Tensor, place in it, place in the rank's memory, bytes.
type Piece = (usize, u64, u64, u64);
/// Old rank and place, new rank and place, bytes.
type Transfer = (usize, u64, usize, u64, u64);

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Mesh>()?;
    module.add_class::<Layout>()?;
    module.add_function(wrap_pyfunction!(reshard, module)?)
}

fn axes(names: &[String]) -> PyResult<Vec<Axis>> {
    let axis = |name: &String| {
        let found = AXES.into_iter().find(|axis| axis.name() == name);
        found.ok_or_else(|| {
            Invalid::new_err(format!("there is no axis {name:?}; the axes are {}", AXES.map(Axis::name).join(", ")))
        })
    };
    names.iter().map(axis).collect()
}

fn tensors(shapes: Vec<Shape>) -> Vec<Tensor> {
    shapes.into_iter().map(|(shape, element)| Tensor { shape, element }).collect()
}

#[pymethods]
impl Mesh {
    #[new]
    fn new(py: Python<'_>, world: usize, degrees: &str, placement: &str) -> PyResult<Self> {
        let degrees: Degrees = super::read(degrees)?;
        let placement = Placement::named(placement).or_invalid(py)?;
        shoal_parallel::Mesh::new(world, degrees, placement).map(Self).or_invalid(py)
    }

    fn world(&self) -> usize {
        self.0.world()
    }

    fn size(&self, names: Vec<String>) -> PyResult<usize> {
        Ok(self.0.size(&axes(&names)?))
    }

    fn coordinates(&self, py: Python<'_>, rank: usize) -> PyResult<[usize; 5]> {
        Ok(self.0.coordinates(self.known(py, rank)?))
    }

    fn rank(&self, py: Python<'_>, at: [usize; 5]) -> PyResult<usize> {
        for (axis, place) in AXES.into_iter().zip(at) {
            below(py, axis.name(), place, self.0.degree(axis))?;
        }
        Ok(self.0.rank(at))
    }

    fn group(&self, py: Python<'_>, rank: usize, names: Vec<String>) -> PyResult<Vec<usize>> {
        Ok(self.0.group(self.known(py, rank)?, &axes(&names)?))
    }

    fn groups(&self, names: Vec<String>) -> PyResult<Vec<Vec<usize>>> {
        Ok(self.0.groups(&axes(&names)?))
    }

    fn position(&self, py: Python<'_>, rank: usize, names: Vec<String>) -> PyResult<usize> {
        Ok(self.0.position(self.known(py, rank)?, &axes(&names)?))
    }
}

impl Mesh {
    fn known(&self, py: Python<'_>, rank: usize) -> PyResult<usize> {
        below(py, "rank", rank, self.0.world())
    }
}

/// An index; what is too large is the caller's mistake, as there is no plan for it.
pub(super) fn below(py: Python<'_>, field: &'static str, index: usize, count: usize) -> PyResult<usize> {
    if index < count {
        return Ok(index);
    }
    let nearest = vec![count.saturating_sub(1) as u64];
    Err(super::invalid(py, &shoal_parallel::Invalid { field, problem: format!("{index} of {count}"), nearest }))
}

#[pymethods]
impl Layout {
    #[new]
    fn new(mesh: &Mesh, stages: Vec<usize>, splits: Vec<Option<usize>>, sharded: bool, align: u64) -> Self {
        Self(shoal_parallel::Layout { mesh: mesh.0.clone(), stages, splits, sharded, align })
    }

    fn bytes(&self, py: Python<'_>, shapes: Vec<Shape>, rank: usize) -> PyResult<u64> {
        let rank = below(py, "rank", rank, self.0.mesh.world())?;
        self.0.bytes(&tensors(shapes), rank).or_invalid(py)
    }

    fn pieces(&self, py: Python<'_>, shapes: Vec<Shape>, rank: usize) -> PyResult<Vec<Piece>> {
        let rank = below(py, "rank", rank, self.0.mesh.world())?;
        let pieces = self.0.pieces(&tensors(shapes), rank).or_invalid(py)?;
        Ok(pieces.into_iter().map(|it| (it.tensor, it.from, it.at, it.bytes)).collect())
    }
}

#[pyfunction]
fn reshard(
    py: Python<'_>,
    shapes: Vec<Shape>,
    from: &Layout,
    to: &Layout,
    lost: Vec<usize>,
    was: Vec<Option<usize>>,
) -> PyResult<Vec<Transfer>> {
    let tensors = tensors(shapes);
    let change = Change { lost, was };
    let found = py.detach(|| shoal_parallel::reshard(&tensors, &from.0, &to.0, &change)).or_invalid(py)?;
    Ok(found.into_iter().map(|it| (it.from_rank, it.from_at, it.to_rank, it.to_at, it.bytes)).collect())
}
