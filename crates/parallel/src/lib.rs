//! Plans of distributed training, as data: who computes what in which order, what lies where, and
//! what is sent when. Pure: no I/O, no tensors, no threads, no clock; the same arguments give the
//! same plan on every rank and machine, so that ranks need not talk to agree.
//!
//! ```
//! use shoal_parallel::{Accumulation, Degrees, Durations, Mesh, Pipeline, Placement};
//!
//! // Eight ranks as two copies of a pipeline of two stages, each shared by two tensor ranks.
//! let degrees = Degrees { pipeline: 2, tensor: 2, ..Degrees::default() };
//! let mesh = Mesh::new(8, degrees, Placement::default())?;
//! assert_eq!(mesh.group(5, &shoal_parallel::BATCH), [1, 5]);
//!
//! // Two ranks train as eight workers.
//! let plan = Accumulation::new(8, 2)?;
//! assert!(!plan.pass(1, 2).communicates && plan.pass(1, 3).communicates);
//!
//! // Four stages are idle for 3 / 11 of the time with eight micro-batches.
//! let timing = Pipeline::OneForwardOneBackward.schedule(4, 8)?.check(&Durations::uniform(1.0, 1.0, 1.0)).unwrap();
//! assert!((timing.idle - 3.0 / 11.0).abs() < 1e-9);
//!
//! // What cannot be names the field and the nearest values that can.
//! let error = Mesh::new(8, Degrees { tensor: 3, ..Degrees::default() }, Placement::default()).unwrap_err();
//! assert_eq!(error.to_string(), "tensor: 3 does not divide 8 ranks; nearest valid: 2 or 4");
//! # Ok::<(), shoal_parallel::Invalid>(())
//! ```
//!
//! One idea a file, each with its source. Who: `mesh` (degrees and groups). When and how often:
//! `accumulation` (large batch simulation), `loss_scale`, `learning_rate`, `cursor` (samples),
//! `local` (little communication), `layerwise` (LARS and LAMB). In which order: `schedule`
//! (pipelines), [`partition`] (layers to stages), `bucket` (fusion of gradients). Where: `shard`
//! (ZeRO and tensor shards), [`reshard()`] (from one layout to another). [`mod@advise`] puts them
//! together: what each layout of a model would cost, with `network` for what is sent.
//! `docs/parallel.md` shows each from Python.

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
