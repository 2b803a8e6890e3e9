//! What operations mean, element by element, as slowly as it can be said.

use std::sync::OnceLock;

use half::{bf16, f16};

use crate::{DType, Kind, ReduceOp};

/// Inputs of one operation: what every rank's `send` holds, as bytes.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) dtype: DType,
    pub(super) sends: Vec<Vec<u8>>,
    /// Elements of each rank's piece; all-to-all: of what row r gives to column c.
    pub(super) counts: Vec<Vec<usize>>,
    /// The reduction of all; an operation has only one.
    pub(super) reduced: OnceLock<Vec<u8>>,
}

impl Inputs {
    /// What rank `rank`'s `recv` is afterwards; none where it gets nothing.
    pub(super) fn result(&self, kind: Kind, rank: usize) -> Option<Vec<u8>> {
        let n = self.sends.len();
        let size = self.dtype.size();
        let is_root = kind.root().is_none_or(|root| root == rank);
        let piece = |of: &[u8], r: usize| {
            let start = self.counts[0][..r].iter().sum::<usize>() * size;
            of[start..start + self.counts[0][r] * size].to_vec()
        };
        match kind {
            Kind::AllReduce(op) => Some(self.reduced(op).to_vec()),
            Kind::Reduce { op, .. } => is_root.then(|| self.reduced(op).to_vec()),
            Kind::ReduceScatter(op) => Some(piece(self.reduced(op), rank)),
            Kind::AllGather => Some(self.sends.concat()),
            Kind::Gather { .. } => is_root.then(|| self.sends.concat()),
            Kind::Broadcast { root } => (root != rank).then(|| self.sends[root].clone()),
            Kind::Scatter { root } => Some(piece(&self.sends[root], rank)),
            Kind::AllToAll => {
                let from = |r: usize| {
                    let start = self.counts[r][..rank].iter().sum::<usize>() * size;
                    self.sends[r][start..start + self.counts[r][rank] * size].to_vec()
                };
                Some((0..n).flat_map(from).collect())
            }
            Kind::Send { .. } | Kind::Recv { .. } | Kind::RecvAny { .. } | Kind::Barrier => None,
        }
    }

    /// The first element of rank `rank`'s result that no order of the ranks would give: beside the
    /// reference by more than their roundings. Exact for what does not round.
    pub(super) fn far(&self, kind: Kind, rank: usize, got: &[u8], expected: &[u8]) -> Option<usize> {
        let (size, dtype) = (self.dtype.size(), self.dtype);
        let Some(op) = kind.op().filter(|_| dtype.is_float()) else {
            return got.chunks(size).zip(expected.chunks(size)).position(|(a, b)| a != b);
        };
        let first = if matches!(kind, Kind::ReduceScatter(_)) { self.counts[0][..rank].iter().sum() } else { 0 };
        (0..got.len() / size).find(|i| {
            let at = |bytes: &[u8], i: usize| float(dtype, &bytes[i * size..(i + 1) * size]);
            let (got, expected) = (at(got, *i), at(expected, *i));
            if got == expected || got.is_nan() && expected.is_nan() {
                return false;
            }
            let values = self.sends.iter().map(|send| at(send, first + i).abs());
            let largest = match op {
                ReduceOp::Sum => values.sum::<f64>(),
                ReduceOp::Avg => values.sum::<f64>() / self.sends.len() as f64,
                ReduceOp::Product => values.map(|value| value.max(1.0)).product(),
                ReduceOp::Min | ReduceOp::Max => return true,
            };
            let (roundoff, greatest) = match dtype {
                DType::F64 => (f64::EPSILON, f64::MAX),
                DType::F32 => (f64::from(f32::EPSILON), f64::from(f32::MAX)),
                DType::F16 => (1.0 / 1024.0, 65_504.0),
                _ => (1.0 / 128.0, f64::from(f32::MAX)),
            };
            // A product may leave the type on its way.
            let overflows = op == ReduceOp::Product && largest >= greatest;
            // Written so that NaN is far.
            let is_near = (got - expected).abs() <= self.sends.len() as f64 * roundoff * largest;
            !(is_near || overflows)
        })
    }

    fn reduced(&self, op: ReduceOp) -> &[u8] {
        self.reduced.get_or_init(|| {
            let size = self.dtype.size();
            let mut result = Vec::new();
            for i in 0..self.sends[0].len() / size {
                let values = self.sends.iter().map(|send| &send[i * size..(i + 1) * size]);
                one(self.dtype, op, values, self.sends.len(), &mut result);
            }
            result
        })
    }
}

/// An element of a floating type.
fn float(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        DType::F32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        DType::F16 => f64::from(f16::from_le_bytes(bytes.try_into().unwrap()).to_f32_const()),
        _ => f64::from(bf16::from_le_bytes(bytes.try_into().unwrap()).to_f32_const()),
    }
}

/// One element of each rank, reduced.
fn one<'a>(dtype: DType, op: ReduceOp, mut values: impl Iterator<Item = &'a [u8]>, n: usize, result: &mut Vec<u8>) {
    macro_rules! float {
        ($bytes:ty, $wide:ty, $to:expr, $from:expr) => {{
            let all = values.map(|v| $to(<$bytes>::from_le_bytes(v.try_into().unwrap())));
            let one: $wide = match op {
                ReduceOp::Sum => all.reduce(|a, b| a + b).unwrap(),
                ReduceOp::Avg => all.reduce(|a, b| a + b).unwrap() / n as $wide,
                ReduceOp::Product => all.reduce(|a, b| a * b).unwrap(),
                ReduceOp::Min => all.reduce(|a, b| if a.is_nan() || a < b { a } else { b }).unwrap(),
                ReduceOp::Max => all.reduce(|a, b| if a.is_nan() || a > b { a } else { b }).unwrap(),
            };
            result.extend($from(one).to_le_bytes());
        }};
    }
    macro_rules! integer {
        ($int:ty) => {{
            let all = values.map(|v| <$int>::from_le_bytes(v.try_into().unwrap()));
            let one = match op {
                ReduceOp::Sum | ReduceOp::Avg => all.reduce(<$int>::wrapping_add),
                ReduceOp::Product => all.reduce(<$int>::wrapping_mul),
                ReduceOp::Min => all.min(),
                ReduceOp::Max => all.max(),
            };
            result.extend(one.unwrap().to_le_bytes());
        }};
    }
    match dtype {
        DType::F32 => float!(f32, f32, |v: f32| v, |v: f32| v),
        DType::F64 => float!(f64, f64, |v: f64| v, |v: f64| v),
        DType::F16 => float!(f16, f32, f16::to_f32_const, f16::from_f32_const),
        DType::BF16 => float!(bf16, f32, bf16::to_f32_const, bf16::from_f32_const),
        DType::I8 => integer!(i8),
        DType::I16 => integer!(i16),
        DType::I32 => integer!(i32),
        DType::I64 => integer!(i64),
        DType::U8 => integer!(u8),
        DType::Bool => match op {
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Avg => result.push(u8::from(values.any(|v| v[0] == 1))),
            ReduceOp::Product | ReduceOp::Min => result.push(u8::from(values.all(|v| v[0] == 1))),
        },
    }
}
