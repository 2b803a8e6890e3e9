//! What a peer's least time over ours is held to.

use shoal_comm::bench::Operation;

use super::{Medium, contender::Family};

const MIB: usize = 1 << 20;

/// The goal for this peer, if there is one, in times; of two ranks or of more ranks than cores.
pub(super) fn goal(
    medium: Medium,
    ranks: usize,
    (operation, bytes): (Operation, usize),
    registered: bool,
    peer: Family,
) -> Option<f64> {
    let of = |intel, open, gloo| match peer {
        Family::IntelMpi => intel,
        Family::OpenMpi => open,
        Family::Gloo => gloo,
        Family::Mpi => None,
    };
    if medium == Medium::Tcp {
        return None;
    }
    match (ranks, operation, registered) {
        (4, Operation::AllReduce, true) if bytes >= 64 << 10 => of(Some(1.2), None, Some(4.0)),
        (2, Operation::AllReduce, true) => match bytes {
            // Within 1.1 times the best MPI's time.
            0..=1024 => of(Some(0.91), Some(0.91), None),
            0x1_0000..=0x40_0000 => of(Some(2.2), Some(5.0), Some(15.0)),
            0x100_0000.. => of(Some(2.0), Some(3.5), Some(6.0)),
            _ => None,
        },
        (2, Operation::AllReduce, false) if bytes >= 64 << 10 => of(Some(1.15), None, Some(4.5)),
        (2, Operation::ReduceScatter | Operation::AllGather | Operation::Broadcast, true)
            if bytes == MIB || bytes == 16 * MIB =>
        {
            of(Some(1.2), None, Some(4.0))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_depend_on_size_memory_and_peer() {
        let shm = |ranks, operation, bytes, registered, peer| {
            goal(Medium::SharedMemory, ranks, (operation, bytes), registered, peer)
        };
        for (ranks, operation, bytes, registered, peer, expected) in [
            (2, Operation::AllReduce, 4, true, Family::OpenMpi, Some(0.91)),
            (2, Operation::AllReduce, 4 * MIB, true, Family::IntelMpi, Some(2.2)),
            (2, Operation::AllReduce, 64 * MIB, true, Family::Gloo, Some(6.0)),
            (2, Operation::AllReduce, 64 << 10, false, Family::Gloo, Some(4.5)),
            (2, Operation::Broadcast, MIB, true, Family::IntelMpi, Some(1.2)),
            (2, Operation::Broadcast, MIB, false, Family::IntelMpi, None),
            (4, Operation::AllReduce, MIB, true, Family::Mpi, None),
            (4, Operation::AllReduce, MIB, true, Family::Gloo, Some(4.0)),
        ] {
            assert_eq!(
                shm(ranks, operation, bytes, registered, peer),
                expected,
                "{ranks} {operation:?} {bytes} {registered} {peer:?}"
            );
        }
        assert_eq!(goal(Medium::Tcp, 2, (Operation::AllReduce, MIB), false, Family::Gloo), None);
    }
}
