//! What NCCL is asked to do for an operation: a list of its own operations, which it begins
//! together. Knows no library and no GPU.

use cudarc::nccl::sys::{ncclDataType_t as Type, ncclRedOp_t as Op};

use crate::{Call, DType, Error, Kind, ReduceOp};

/// One of NCCL's operations. What only copies is counted in bytes, so that all types do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    AllReduce { send: *const u8, recv: *mut u8, len: usize, how: How },
    Reduce { send: *const u8, recv: *mut u8, len: usize, how: How, root: usize },
    ReduceScatter { send: *const u8, recv: *mut u8, len: usize, how: How },
    AllGather { send: *const u8, recv: *mut u8, bytes: usize },
    Broadcast { send: *const u8, recv: *mut u8, bytes: usize, root: usize },
    Send { from: *const u8, bytes: usize, to: usize },
    Recv { into: *mut u8, bytes: usize, from: usize },
}

/// How NCCL reduces: its type and its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct How {
    pub(super) dtype: Type,
    pub(super) op: Op,
}

impl How {
    /// NCCL's words for this, if it has such. A bool is a byte that is 0 or 1: the greatest is
    /// "or", the least is "and".
    pub(super) fn new(dtype: DType, op: ReduceOp) -> Option<Self> {
        let op = match (dtype, op) {
            (DType::Bool, ReduceOp::Sum | ReduceOp::Max) => Op::ncclMax,
            (DType::Bool, ReduceOp::Product | ReduceOp::Min) => Op::ncclMin,
            (_, ReduceOp::Sum) => Op::ncclSum,
            (_, ReduceOp::Avg) => Op::ncclAvg,
            (_, ReduceOp::Min) => Op::ncclMin,
            (_, ReduceOp::Max) => Op::ncclMax,
            (_, ReduceOp::Product) => Op::ncclProd,
        };
        let dtype = match dtype {
            DType::F32 => Type::ncclFloat32,
            DType::F64 => Type::ncclFloat64,
            DType::F16 => Type::ncclFloat16,
            DType::BF16 => Type::ncclBfloat16,
            DType::I8 => Type::ncclInt8,
            DType::I32 => Type::ncclInt32,
            DType::I64 => Type::ncclInt64,
            DType::U8 | DType::Bool => Type::ncclUint8,
            DType::I16 => return None,
        };
        Some(Self { dtype, op })
    }
}

/// How NCCL reduces in this call, if it reduces.
///
/// # Errors
/// NCCL has no such type.
pub(super) fn how(call: &Call) -> Result<Option<How>, Error> {
    let refused = || {
        let advice = "convert it to i32, or use a group over another transport for it (Carrier::Auto)";
        Error::config(format!("{call}: NCCL cannot reduce {}; {advice}", call.dtype))
    };
    if matches!(call.kind, Kind::RecvAny { .. }) {
        return Err(Error::config(format!("{call}: over NCCL a message is received from a rank that is named")));
    }
    call.kind.op().map(|op| How::new(call.dtype, op).ok_or_else(refused)).transpose()
}

/// What NCCL does for rank `rank` of `size`, with the memory where it has it. A barrier is nothing;
/// so is what has no bytes.
///
/// # Errors
/// NCCL has no such type.
pub(super) fn plan(call: &Call, rank: usize, size: usize, send: *const u8, recv: *mut u8) -> Result<Vec<Step>, Error> {
    let width = call.dtype.size();
    let bytes = call.len * width;
    let how = how(call)?;
    // The r-th of equal pieces, or of those that the counts say.
    let give =
        |to: usize| Step::Send { from: send.wrapping_add(call.offset(to) * width), bytes: call.piece(to) * width, to };
    let is_root = call.kind.root() == Some(rank);
    let mut steps = match (call.kind, how) {
        (Kind::AllReduce(_), Some(how)) => vec![Step::AllReduce { send, recv, len: call.len, how }],
        (Kind::Reduce { root, .. }, Some(how)) => vec![Step::Reduce { send, recv, len: call.len, how, root }],
        (Kind::ReduceScatter(_), Some(how)) if call.counts.is_none() => {
            vec![Step::ReduceScatter { send, recv, len: call.len, how }]
        }
        (Kind::ReduceScatter(_), Some(how)) => {
            let piece = |root| Step::Reduce {
                send: send.wrapping_add(call.offset(root) * width),
                recv,
                len: call.piece(root),
                how,
                root,
            };
            (0..size).map(piece).collect()
        }
        (Kind::AllGather, _) if call.counts.is_none() => vec![Step::AllGather { send, recv, bytes }],
        (Kind::AllGather, _) => {
            let piece = |root| Step::Broadcast {
                send,
                recv: recv.wrapping_add(call.offset(root) * width),
                bytes: call.piece(root) * width,
                root,
            };
            (0..size).map(piece).collect()
        }
        // The root's own vector stays where it is.
        (Kind::Broadcast { root }, _) if is_root => vec![Step::Broadcast { send, recv: send.cast_mut(), bytes, root }],
        (Kind::Broadcast { root }, _) => vec![Step::Broadcast { send: recv, recv, bytes, root }],
        (Kind::Gather { root }, _) => {
            let mut steps = vec![Step::Send { from: send, bytes, to: root }];
            if is_root {
                steps.extend((0..size).map(|from| Step::Recv { into: recv.wrapping_add(from * bytes), bytes, from }));
            }
            steps
        }
        (Kind::Scatter { root }, _) => {
            let mut steps = if is_root { (0..size).map(give).collect() } else { Vec::new() };
            steps.push(Step::Recv { into: recv, bytes, from: root });
            steps
        }
        (Kind::AllToAll, _) => {
            let take = |from: usize| Step::Recv {
                into: recv.wrapping_add(call.offset_from(from, size) * width),
                bytes: call.piece_from(from, size) * width,
                from,
            };
            (0..size).map(give).chain((0..size).map(take)).collect()
        }
        (Kind::Send { to, .. }, _) => vec![Step::Send { from: send, bytes, to }],
        (Kind::Recv { from, .. }, _) => vec![Step::Recv { into: recv, bytes, from }],
        (
            Kind::AllReduce(_) | Kind::Reduce { .. } | Kind::ReduceScatter(_) | Kind::RecvAny { .. } | Kind::Barrier,
            _,
        ) => Vec::new(),
    };
    steps.retain(|step| !step.is_empty());
    leave_in_place(&mut steps, rank);
    Ok(steps)
}

impl Step {
    const fn is_empty(&self) -> bool {
        match *self {
            Self::AllReduce { len, .. } | Self::Reduce { len, .. } | Self::ReduceScatter { len, .. } => len == 0,
            Self::AllGather { bytes, .. }
            | Self::Broadcast { bytes, .. }
            | Self::Send { bytes, .. }
            | Self::Recv { bytes, .. } => bytes == 0,
        }
    }
}

/// What a rank gives itself and has there already is not sent.
fn leave_in_place(steps: &mut Vec<Step>, rank: usize) {
    let source = steps.iter().find_map(|step| match *step {
        Step::Send { from, to, .. } if to == rank => Some(from),
        _ => None,
    });
    let target = steps.iter().find_map(|step| match *step {
        Step::Recv { into, from, .. } if from == rank => Some(into.cast_const()),
        _ => None,
    });
    if source.is_some() && source == target {
        steps.retain(
            |step| !matches!(*step, Step::Send { to: other, .. } | Step::Recv { from: other, .. } if other == rank),
        );
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "calls are addresses")]
mod tests {
    use std::{ptr, sync::Arc};

    use super::*;
    use crate::{
        reduce::Stores,
        transport::direct::{self, View},
    };

    #[test]
    fn what_nccl_has_is_named_and_what_it_lacks_is_refused() {
        for dtype in DType::ALL {
            for op in ReduceOp::ALL {
                let how = How::new(dtype, op);
                assert_eq!(how.is_none(), dtype == DType::I16, "{dtype}");
            }
        }
        assert_eq!(How::new(DType::BF16, ReduceOp::Avg), Some(How { dtype: Type::ncclBfloat16, op: Op::ncclAvg }));
        assert_eq!(How::new(DType::Bool, ReduceOp::Sum), Some(How { dtype: Type::ncclUint8, op: Op::ncclMax }));
        assert_eq!(How::new(DType::Bool, ReduceOp::Product), Some(How { dtype: Type::ncclUint8, op: Op::ncclMin }));
        let call = Call::new(Kind::AllReduce(ReduceOp::Sum), DType::I16, ptr::null(), ptr::null_mut(), 1);
        let refused = plan(&call, 0, 2, ptr::null(), ptr::null_mut()).expect_err("no such type").to_string();
        assert!(refused.contains("all-reduce (sum) of 1 i16: NCCL cannot reduce i16"), "{refused}");
        let copied = Call { kind: Kind::AllGather, ..call };
        assert_eq!(
            plan(&copied, 0, 2, ptr::null(), ptr::null_mut()).map(|steps| steps.len()),
            Ok(1),
            "bytes are bytes"
        );
        let refused = how(&Call { kind: Kind::RecvAny { tag: 3 }, ..copied }).expect_err("not there").to_string();
        assert!(refused.contains("recv (from any, tag 3)") && refused.contains("a rank that is named"), "{refused}");
    }

    /// What nccl.h says of sums of f32: all ranks' steps, played on memory of the processor.
    ///
    /// # Safety
    /// The steps' memory is valid.
    unsafe fn play(steps: &[Vec<Step>]) {
        let n = steps.len();
        // SAFETY: the caller's promise.
        unsafe {
            let sum = |sends: &[*const u8], at: usize, recv: *mut u8, len: usize| {
                let values: Vec<f32> = (0..len)
                    .map(|i| sends.iter().map(|send| send.cast::<f32>().add(at + i).read_unaligned()).sum())
                    .collect();
                recv.copy_from(values.as_ptr().cast(), len * 4);
            };
            let collectives: Vec<Vec<Step>> = steps
                .iter()
                .map(|list| {
                    list.iter().copied().filter(|step| !matches!(step, Step::Send { .. } | Step::Recv { .. })).collect()
                })
                .collect();
            for i in 0..collectives[0].len() {
                let row: Vec<Step> = collectives.iter().map(|list| list[i]).collect();
                let sends: Vec<*const u8> = row
                    .iter()
                    .map(|step| match *step {
                        Step::AllReduce { send, .. } | Step::Reduce { send, .. } | Step::ReduceScatter { send, .. } => {
                            send
                        }
                        Step::AllGather { send, .. } | Step::Broadcast { send, .. } => send,
                        Step::Send { .. } | Step::Recv { .. } => unreachable!("left out above"),
                    })
                    .collect();
                // Reductions read all before anything is written: in place, one rank's result is
                // another's input.
                for (r, step) in row.iter().enumerate() {
                    match *step {
                        Step::Reduce { recv, len, root, .. } if root == r => sum(&sends, 0, recv, len),
                        Step::ReduceScatter { recv, len, .. } => sum(&sends, r * len, recv, len),
                        Step::AllGather { recv, bytes, .. } => {
                            (0..n).for_each(|from| recv.add(from * bytes).copy_from(sends[from], bytes));
                        }
                        Step::Broadcast { recv, bytes, root, .. } => recv.copy_from(sends[root], bytes),
                        _ => {}
                    }
                }
                if let Step::AllReduce { recv, len, .. } = row[0] {
                    sum(&sends, 0, recv, len);
                    for step in &row[1..] {
                        let Step::AllReduce { recv: other, .. } = *step else {
                            panic!("{step:?} beside an all-reduce")
                        };
                        other.copy_from(recv, len * 4);
                    }
                }
            }
            for (from, list) in steps.iter().enumerate() {
                for step in list {
                    let Step::Send { from: source, bytes, to } = *step else { continue };
                    let taken = steps[to].iter().find_map(|step| match *step {
                        Step::Recv { into, bytes: expected, from: sender } if sender == from => Some((into, expected)),
                        _ => None,
                    });
                    let (into, expected) = taken.unwrap_or_else(|| panic!("rank {to} takes nothing from rank {from}"));
                    assert_eq!(bytes, expected, "from rank {from} to rank {to}");
                    into.copy_from(source, bytes);
                }
                let comes = |sender: usize| {
                    steps[sender].iter().any(|step| matches!(*step, Step::Send { to, .. } if to == from))
                };
                assert!(
                    list.iter().all(|step| !matches!(*step, Step::Recv { from, .. } if !comes(from))),
                    "rank {from} waits for nothing"
                );
            }
        }
    }

    #[test]
    fn steps_come_to_what_the_operation_means() {
        let n = 3;
        let kinds = [
            Kind::AllReduce(ReduceOp::Sum),
            Kind::Reduce { op: ReduceOp::Sum, root: 1 },
            Kind::ReduceScatter(ReduceOp::Sum),
            Kind::AllGather,
            Kind::Broadcast { root: 2 },
            Kind::Gather { root: 1 },
            Kind::Scatter { root: 1 },
            Kind::AllToAll,
            Kind::Barrier,
        ];
        for (kind, uneven, in_place) in kinds
            .into_iter()
            .flat_map(|kind| [(kind, false, false), (kind, false, true), (kind, true, false), (kind, true, true)])
        {
            let has_counts = matches!(kind, Kind::AllGather | Kind::ReduceScatter(_) | Kind::AllToAll);
            if uneven && !has_counts || in_place && kind == Kind::AllToAll {
                continue;
            }
            // Rank r gives r + c elements to rank c in an uneven all-to-all; pieces are of 2, 0 and
            // 4 elements otherwise.
            let counts = |r: usize| -> Option<Arc<[usize]>> {
                uneven.then(|| match kind {
                    Kind::AllToAll => (0..n).map(|c| r + c).chain((0..n).map(|from| from + r)).collect(),
                    _ => [2, 0, 4].into(),
                })
            };
            let len = |r: usize| if uneven && kind != Kind::AllToAll { [2, 0, 4][r] } else { 5 };
            let mut memory: Vec<Vec<f32>> = (0..n).map(|r| (0..100).map(|i| (r * 100 + i) as f32).collect()).collect();
            let mut expected = memory.clone();
            let calls = |memory: &mut [Vec<f32>]| -> Vec<Call> {
                let make = |(r, own): (usize, &mut Vec<f32>)| {
                    let base = own.as_mut_ptr().cast::<u8>();
                    let call =
                        Call { counts: counts(r), ..Call::new(kind, DType::F32, base, base.wrapping_add(200), len(r)) };
                    let piece = call.offset(r) * 4;
                    match kind {
                        _ if !in_place => call,
                        Kind::AllGather | Kind::Gather { .. } => {
                            Call { send: base.wrapping_add(piece), recv: base, ..call }
                        }
                        Kind::ReduceScatter(_) | Kind::Scatter { .. } => {
                            Call { recv: base.wrapping_add(piece), ..call }
                        }
                        _ => Call { recv: base, ..call },
                    }
                };
                memory.iter_mut().enumerate().map(make).collect()
            };
            let reference = calls(&mut expected);
            for (r, call) in reference.iter().enumerate() {
                let views: Vec<_> = reference
                    .iter()
                    .map(|call| View { send: call.send, recv: call.recv, mine: call.offset(r) })
                    .collect();
                // SAFETY: one thread does every rank's share, of memory that lives here.
                unsafe { direct::share(call, r, &views, Stores::Cached) };
            }
            let steps: Vec<_> = calls(&mut memory)
                .iter()
                .enumerate()
                .map(|(r, call)| plan(call, r, n, call.send, call.recv).unwrap())
                .collect();
            // SAFETY: the memory lives here.
            unsafe { play(&steps) };
            assert_eq!(memory, expected, "{kind}, uneven {uneven}, in place {in_place}: {steps:?}");
        }
    }
}
