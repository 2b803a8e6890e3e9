//! Layers to pipeline stages: [`chain()`] for a list of layers, optimal; [`tree()`] for nested
//! modules with tied parameters, as SageMaker's model parallel library does it.

mod chain;
mod tree;

pub use chain::{Layer, chain};
pub use tree::{Module, tree};
