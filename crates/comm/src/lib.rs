//! Process groups: ranks that reduce, gather and exchange memory together, and survive each other.
//!
//! A [`ProcessGroup`] is a fixed set of ranks, in threads, processes or hosts, that call the same
//! operations in the same order. [`ProcessGroupExt`] has the safe, typed calls; [`Call`] is what
//! they become at the seam. Results are the same bits on every rank and from run to run, whatever
//! the timing. An operation has a deadline; one that fails says with which rank, and the living
//! re-form the group ([`ProcessGroup::shrink`]).
//!
//! ```
//! use shoal_comm::{ProcessGroupExt, ReduceOp};
//!
//! let threads: Vec<_> = shoal_comm::threads(2)
//!     .into_iter()
//!     .map(|group| {
//!         std::thread::spawn(move || {
//!             let mut gradient = vec![group.rank() as f32; 4];
//!             group.all_reduce(&mut gradient, ReduceOp::Sum).map(|()| gradient)
//!         })
//!     })
//!     .collect();
//! for thread in threads {
//!     assert_eq!(thread.join().expect("no panic")?, [1.0; 4]);
//! }
//! # Ok::<(), shoal_comm::Error>(())
//! ```
//!
//! # How it is made
//!
//! `front` gives a group its order: operations wait for their turn, those that progress by
//! themselves have a thread, and receives get the messages that they name. It knows no medium.
//! `transport` moves data, one implementation a folder; `guard` is what all their wait loops ask:
//! is everybody there, is there time left? `reduce` has the kernels. `wireup` makes groups of
//! processes, each of which is a `node` among the others; `threads` makes groups of threads. The
//! suite of feature `conformance` holds every transport to one naive reference.
//!
//! On the seam only, over any transport: [`compress`] sends less; [`server`] is a parameter server;
//! [`named`] does operations by name, in whatever order each rank submits them. [`timeline`] says
//! what each rank did and when.
//!
//! This crate depends on no other of ours.

#[cfg(feature = "bench")]
pub mod bench;
mod call;
pub mod compress;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod cost;
mod dtype;
mod error;
mod ext;
mod front;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod group;
mod guard;
mod memory;
pub mod named;
mod node;
mod observer;
mod op;
mod reduce;
pub mod rendezvous;
pub mod server;
mod staging;
mod threads;
pub mod timeline;
mod transport;
mod watch;
mod wireup;
mod work;

#[cfg(feature = "nccl")]
pub use crate::transport::nccl::gpus;
pub use crate::{
    call::Call,
    dtype::{DType, Element, Plain},
    error::{At, Error, IoError},
    ext::{Buffer, Pending, ProcessGroupExt},
    group::ProcessGroup,
    memory::Memory,
    op::{Kind, ReduceOp},
    threads::{shared_memory, threads},
    wireup::join,
    work::Work,
};
