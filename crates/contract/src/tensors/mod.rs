//! Tensors that a training program saves for the Debugger, in the layout of AWS's `smdebug`
//! library: bytes in, typed values out and back.
//!
//! [`Location`] has the names of the files. A worker saves a step as an event file ([`Records`] of
//! [`Event`]s, each with one [`Tensor`]) and an index file ([`Index`]) that locates each tensor in
//! it; the index is the later of the two, so what it names is complete. [`Collections`] groups
//! tensors by name. Whatever is torn, damaged or absurd is a [`TensorError`], and nothing is
//! allocated for a length that the bytes do not have.

mod collections;
mod element;
mod error;
mod event;
mod index;
mod location;
mod mode;
mod protobuf;
mod record;
mod reduction;
mod tensor;

pub use collections::{Collection, Collections, SaveSteps};
pub use element::ElementType;
pub use error::TensorError;
pub use event::Event;
pub use index::{Index, IndexEntry, ShapeEntry};
pub use location::{CLAIM_FILE, END_FILE, Location};
pub use mode::Mode;
pub use record::{MAX_RECORD_BYTES, Records, write_record};
pub use reduction::{Reduction, ReductionKind};
pub use tensor::Tensor;
