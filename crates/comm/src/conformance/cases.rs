//! Single operations: every kind, type, length, alignment and kind of memory.

#![expect(unsafe_code, reason = "the suite speaks to the seam itself")]

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, OnceLock},
};

use half::{bf16, f16};

use super::reference::Inputs;
use crate::{Call, DType, Kind, Memory, ProcessGroup, ReduceOp};

/// One operation as all ranks do it.
#[derive(Debug)]
pub(super) struct Case {
    number: usize,
    kind: Kind,
    dtype: DType,
    /// Elements of each rank's piece (of the vector, for kinds without pieces).
    counts: Vec<usize>,
    uneven: bool,
    in_place: bool,
    /// Bytes by which buffers are off a page's start.
    shift: usize,
    /// Which ranks have registered memory: bit r.
    registered: u32,
    inputs: OnceLock<Inputs>,
    /// What ranks got before: by rank, or under 0 where all get the same.
    before: Mutex<BTreeMap<usize, Vec<u8>>>,
}

/// What is asked of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The reference's bits.
    Exact,
    /// Of floating types what another order of the ranks may give, and the same bits on all ranks
    /// and every time; else the reference's bits.
    Near,
}

/// Lengths around what transports treat differently, in elements.
const LENGTHS: [usize; 11] = [0, 1, 5, 14, 15, 56, 500, 1025, 2500, 9001, 40_003];

/// Cases for a world of `n` ranks.
pub(super) fn all(n: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut turn = 0;
    let mut add = |kind: Kind, dtype: DType, len: usize| {
        let has_pieces = !matches!(kind, Kind::AllReduce(_) | Kind::Reduce { .. } | Kind::Broadcast { .. });
        let len = if has_pieces { len.min(70_000 / n) } else { len };
        turn += 1;
        let in_place = turn % 3 == 0 && kind != Kind::AllToAll;
        let shift = [0, 0, 4, 1, 60, 64][turn % 6];
        let registered = [u32::MAX, 0, u32::MAX, 0b101, 0][turn % 5];
        let mut push = |counts, uneven| {
            cases.push(Case::new(turn, kind, dtype, (counts, uneven), in_place, shift, registered));
        };
        push(vec![len; n], false);
        if matches!(kind, Kind::AllGather | Kind::ReduceScatter(_) | Kind::AllToAll) {
            let counts = (0..n).map(|r| if r % 3 == 1 { 0 } else { len / (r + 1) + r }).collect();
            push(counts, true);
        }
    };
    for op in ReduceOp::ALL {
        for dtype in DType::ALL.into_iter().filter(|dtype| op != ReduceOp::Avg || dtype.is_float()) {
            for len in [3, 777, 5000] {
                add(Kind::AllReduce(op), dtype, len);
            }
        }
    }
    for (i, len) in LENGTHS.into_iter().enumerate() {
        let dtype = DType::ALL[i % 10];
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            add(Kind::AllReduce(op), DType::F32, len);
            add(Kind::AllReduce(op), dtype, len);
            add(Kind::ReduceScatter(op), DType::F32, len);
            add(Kind::ReduceScatter(op), dtype, len);
        }
        for root in [0, n - 1, i % n] {
            add(Kind::Reduce { op: ReduceOp::Sum, root }, DType::F32, len);
            add(Kind::Broadcast { root }, dtype, len);
            add(Kind::Gather { root }, dtype, len);
            add(Kind::Scatter { root }, dtype, len);
        }
        for _ in 0..3 {
            add(Kind::AllGather, dtype, len);
            add(Kind::AllToAll, dtype, len);
            add(Kind::Barrier, DType::U8, 0);
        }
    }
    cases
}

/// Long vectors, for worlds of `n` ranks: what only they are treated with.
pub(super) fn long(n: usize) -> Vec<Case> {
    let kinds = [
        (Kind::AllReduce(ReduceOp::Sum), DType::F32, 3 << 20),
        (Kind::AllReduce(ReduceOp::Avg), DType::F64, 5 << 20),
        (Kind::AllReduce(ReduceOp::Product), DType::I32, 9 << 20),
        (Kind::AllReduce(ReduceOp::Sum), DType::BF16, 6 << 20),
        (Kind::AllReduce(ReduceOp::Max), DType::F32, 34 << 20),
        (Kind::ReduceScatter(ReduceOp::Sum), DType::F32, (4 << 20) / n),
        (Kind::AllGather, DType::I64, (4 << 20) / n),
        (Kind::Broadcast { root: n - 1 }, DType::U8, 5 << 20),
    ];
    let case = |(turn, (kind, dtype, bytes)): (usize, (Kind, DType, usize))| {
        // No whole number of slices, blocks or lines.
        let len = bytes / dtype.size() + 13;
        Case::new(turn, kind, dtype, (vec![len; n], false), turn % 2 == 0, [0, 4][turn / 2 % 2], 0)
    };
    kinds.into_iter().enumerate().map(case).collect()
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, kind, dtype, counts, in_place, shift, registered, .. } = self;
        write!(
            f,
            "case {number}: {kind} of {counts:?} {dtype}, in place {in_place}, shifted {shift}, registered \
             {registered:b}"
        )
    }
}

impl Case {
    fn new(
        number: usize,
        kind: Kind,
        dtype: DType,
        (counts, uneven): (Vec<usize>, bool),
        in_place: bool,
        shift: usize,
        registered: u32,
    ) -> Self {
        let (inputs, before) = (OnceLock::new(), Mutex::default());
        Self { number, kind, dtype, counts, uneven, in_place, shift, registered, inputs, before }
    }

    /// Whether it is one of the operations that `has` says.
    pub(super) fn is_among(&self, has: &dyn Fn(Kind, DType) -> bool) -> bool {
        has(self.kind, self.dtype)
    }

    /// Every rank's result of an all-reduce has the same bits, and everybody's result the bits that
    /// it had before.
    fn compare_with_before(&self, rank: usize, got: &[u8]) {
        let whose = if matches!(self.kind, Kind::AllReduce(_)) { 0 } else { rank };
        let mut before = self.before.lock().unwrap();
        let first = before.entry(whose).or_insert_with(|| got.to_vec());
        assert!(first == got, "rank {rank}, {self}: other bits than another rank's, or than the time before");
    }

    /// Elements that rank `r` of `n` sends to each, in an all-to-all.
    fn row(&self, r: usize) -> Vec<usize> {
        let n = self.counts.len();
        if self.uneven && self.kind == Kind::AllToAll {
            (0..n).map(|c| self.counts[(r + c) % n]).collect()
        } else {
            self.counts.clone()
        }
    }

    fn inputs(&self) -> Inputs {
        let n = self.counts.len();
        let own = |r: usize| match self.kind {
            Kind::AllReduce(_) | Kind::Reduce { .. } | Kind::Broadcast { .. } => self.counts[0],
            Kind::ReduceScatter(_) | Kind::Scatter { .. } => self.counts.iter().sum(),
            Kind::AllToAll => self.row(r).iter().sum(),
            _ => self.counts[r],
        };
        let mut sends = vec![Vec::new(); n];
        for (r, send) in sends.iter_mut().enumerate() {
            (0..own(r)).for_each(|i| push_value(self.dtype, self.number, r, i, send));
        }
        Inputs { dtype: self.dtype, sends, counts: (0..n).map(|r| self.row(r)).collect(), reduced: OnceLock::new() }
    }

    /// Plays this rank's part and compares.
    pub(super) fn check(&self, group: &dyn ProcessGroup, wanted: Wanted) {
        let (rank, n) = (group.rank(), group.size());
        let inputs = self.inputs.get_or_init(|| self.inputs());
        let size = self.dtype.size();
        let mut call = Call::new(self.kind, self.dtype, std::ptr::null(), std::ptr::null_mut(), self.counts[rank]);
        if self.uneven {
            let row = self.row(rank);
            call.counts = Some(match self.kind {
                Kind::AllToAll => row.into_iter().chain((0..n).map(|from| self.row(from)[rank])).collect(),
                _ => Arc::from(row),
            });
        }
        let (gives, gets) = call.extent(rank, n);
        let own = self.counts[..rank].iter().sum::<usize>() * size;
        // Where `send` begins within `recv`, or the other way round, in place.
        let (send_at, recv_at) = match self.kind {
            Kind::AllGather | Kind::Gather { .. } => (own, 0),
            Kind::ReduceScatter(_) | Kind::Scatter { .. } => (0, own),
            _ => (0, 0),
        };
        let in_place = self.in_place && gives > 0 && gets > 0;
        let mut send = Buffer::new(group, self, gives.max(gets) + own);
        let mut recv = Buffer::new(group, self, gets);
        let send_offset = if in_place { send_at } else { 0 };
        send.bytes()[send_offset..send_offset + gives].copy_from_slice(&inputs.sends[rank][..gives]);
        call.send = send.at(send_offset);
        call.recv = if in_place { send.at(recv_at) } else { recv.at(0) };
        // SAFETY: both buffers are this case's own and have the call's extents.
        let result = unsafe { group.run(&call) };
        assert_eq!(result, Ok(()), "rank {rank} of {n}, {self}");
        let expected = inputs.result(self.kind, rank);
        if let Some(expected) = expected.filter(|_| gets > 0) {
            let got = if in_place { &send.bytes()[recv_at..recv_at + gets] } else { &recv.bytes()[..gets] };
            let off = match wanted {
                Wanted::Exact => got.iter().zip(&expected).position(|(a, b)| a != b).map(|i| i / size),
                Wanted::Near => {
                    self.compare_with_before(rank, got);
                    inputs.far(self.kind, rank, got, &expected)
                }
            };
            if let Some(i) = off {
                let element = |bytes: &[u8]| bytes[i * size..(i + 1) * size].to_vec();
                panic!("rank {rank} of {n}, {self}: element {i} is {:?}, not {:?}", element(got), element(&expected));
            }
        }
        if !in_place {
            assert_eq!(
                send.bytes()[..gives],
                inputs.sends[rank][..gives],
                "rank {rank} of {n}, {self}: what it gives changed"
            );
        }
        send.check_edges();
        recv.check_edges();
    }
}

/// Memory with a margin on both sides that nobody may write to.
struct Buffer {
    memory: Memory,
    start: usize,
    len: usize,
}

const MARGIN: usize = 192;
const UNTOUCHED: u8 = 0xa5;

impl Buffer {
    fn new(group: &dyn ProcessGroup, case: &Case, len: usize) -> Self {
        let bytes = len + 2 * MARGIN + 64;
        let registered = case.registered >> group.rank() & 1 == 1;
        let mut memory = if registered { group.alloc(bytes) } else { Memory::private(bytes) }.expect("memory");
        memory.as_mut_slice::<u8>().fill(UNTOUCHED);
        Self { memory, start: MARGIN + case.shift, len }
    }

    fn at(&mut self, offset: usize) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(self.start + offset)
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut_slice()[self.start..self.start + self.len]
    }

    fn check_edges(&self) {
        let bytes = self.memory.as_slice::<u8>();
        let (before, after) = (&bytes[..self.start], &bytes[self.start + self.len..]);
        assert!(before.iter().chain(after).all(|byte| *byte == UNTOUCHED), "bytes beside the buffer were written");
    }
}

/// Appends the bytes of element `i` of rank `r`: small numbers mostly, with some whose order of
/// summing shows, and now and then NaN, infinity, zeros.
fn push_value(dtype: DType, number: usize, r: usize, i: usize, to: &mut Vec<u8>) {
    let mut x = (number as u64) << 40 ^ (r as u64) << 32 ^ i as u64;
    x = (x ^ x >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-40];
    let small = (x >> 8 & 0xfff) as f32 / 512.0 - 4.0;
    let float = if x.is_multiple_of(97) { special[(x >> 24) as usize % 5] } else { small };
    match dtype {
        DType::F32 => to.extend(float.to_le_bytes()),
        DType::F64 => to.extend((f64::from(float) * 1.1).to_le_bytes()),
        DType::F16 => to.extend(f16::from_f32_const(float).to_le_bytes()),
        DType::BF16 => to.extend(bf16::from_f32_const(float).to_le_bytes()),
        DType::Bool => to.push((x >> 20 & 1) as u8),
        _ => to.extend(&x.to_le_bytes()[..dtype.size()]),
    }
}
