//! What the server does, as state machines without I/O: the core loop, and what is around an
//! attempt. Pure: no clock, no thread, no file, no socket.
//!
//! Machines around an attempt have one form. `handle(event, now)` takes what happened and returns
//! what is to be done; the outputs of one call are independent of each other, and what must come
//! later is returned when the completion of the earlier one is handled. `deadline()` is when the
//! machine wants `Event::Timeout` next. A machine reads nothing: the driver (`server`) performs
//! outputs and brings the answers as events. Every event is legal in every state; one that is too
//! late is ignored.
//!
//! [`Control`] has a form of its own, as its driver waits for the journal within a turn.

pub mod alarm;
pub mod control;
pub mod file_receiver;
pub mod host_link;
pub mod ingestion;
pub mod input_claims;
pub mod lanes;
mod liveness;
mod now;
pub mod outbox;
#[cfg(test)]
mod random;
pub mod recovery;
pub mod steps;
pub mod tuner_queue;
pub mod visit;
pub mod warm_pool;

pub use control::Control;
pub use file_receiver::FileReceiver;
pub use host_link::{ConnId, HostLink, NoVisit};
pub use ingestion::Ingestion;
pub use input_claims::InputClaims;
pub use liveness::{Liveness, Loss, losses, sign_interval};
pub use now::{Mono, Now};
pub use outbox::Outbox;
pub use tuner_queue::TunerQueue;
pub use visit::Visit;
pub use warm_pool::WarmPool;
