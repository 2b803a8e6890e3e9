//! Plans of distributed training, as data: who computes what in which order, what lies where, and what is sent when. Pure: no I/O, no tensors, no threads, no
//! clock; the same arguments give the same plan on every rank and machine, so that ranks need not talk to agree.
//!
//! One idea a file, each with its source: `mesh` (degrees and groups), `accumulation` (large batch simulation), `loss_scale`, `learning_rate`, `cursor` (samples), `bucket` (fusion of gradients),
//! `schedule` (pipelines), [`partition`] (layers to stages), `shard` (ZeRO and tensor shards), [`reshard()`] (from
//! one layout to another), `layerwise` (LARS and LAMB), `local` (little communication).
//! [`mod@advise`] puts them together: what each layout of a model would cost, with `network` for what is sent.

mod accumulation;
pub mod advise;
mod bucket;
mod cursor;
mod error;
mod layerwise;
mod learning_rate;
mod local;
mod loss_scale;
mod mesh;
mod network;
pub mod partition;
mod random;
mod reshard;
mod schedule;
mod shard;

pub use accumulation::{Accumulation, Pass, Reduction};
pub use bucket::{Bucket, BucketOptions, Gradient, Launches, buckets};
pub use cursor::{Cursor, Position, Readers, Samples, Tail};
pub use error::Invalid;
pub use layerwise::{Lamb, Lars, squares};
pub use learning_rate::{Decay, Rate, Scaling};
pub use local::{Exchange, Meetings, Outer, Streaming, Turn};
pub use loss_scale::{Decision, LossScale, ScaleOptions};
pub use mesh::{AXES, Axis, BATCH, Coordinates, Degrees, MODEL, Mesh, Placement};
pub use network::Link;
pub use random::Permutation;
pub use reshard::{Change, Layout, Piece, Transfer, reshard};
pub use schedule::{Action, Durations, Fault, Pipeline, Schedule, Timing, Work};
pub use shard::{Flat, Precision, Tensor, Zero};
