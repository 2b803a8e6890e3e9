//! For fuzzing: what reads strangers' bytes.

use crate::{rendezvous, watch::message};

/// Whatever bytes come, they are read or refused, and what was read can be said again; and nobody
/// who says them instead of his part of the handshake is let in. How many messages they were.
pub fn read_anything(bytes: &[u8]) -> usize {
    message::read_control(bytes) + rendezvous::read_anything(bytes)
}
