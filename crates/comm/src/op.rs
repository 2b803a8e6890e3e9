//! What an operation does.

use std::fmt;

/// How elements of several ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Sum, divided by the number of ranks; floating types only.
    Avg,
    /// The least; NaN if any is NaN (over NCCL: as NCCL has it).
    Min,
    /// The greatest; NaN if any is NaN (over NCCL: as NCCL has it).
    Max,
    /// Product.
    Product,
}

impl ReduceOp {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Avg, Self::Min, Self::Max, Self::Product];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::Product => "product",
        }
    }
}

/// What an operation does. Ranks are those of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Every rank gets the reduction of all.
    AllReduce(ReduceOp),
    /// The root gets the reduction of all.
    Reduce {
        /// How.
        op: ReduceOp,
        /// Who gets it.
        root: usize,
    },
    /// Rank r gets the r-th piece of the reduction of all.
    ReduceScatter(ReduceOp),
    /// Every rank gets every rank's piece, in rank order.
    AllGather,
    /// Every rank gets what the root has.
    Broadcast {
        /// Who has it.
        root: usize,
    },
    /// The root gets every rank's piece, in rank order.
    Gather {
        /// Who gets them.
        root: usize,
    },
    /// Rank r gets the r-th piece of what the root has.
    Scatter {
        /// Who has them.
        root: usize,
    },
    /// Rank r gets the r-th piece of every rank, in rank order.
    AllToAll,
    /// One rank gives to one other.
    Send {
        /// To whom.
        to: usize,
        /// By which the other side selects it.
        tag: u32,
    },
    /// One rank takes from one other: the oldest message of that rank with this tag.
    Recv {
        /// From whom.
        from: usize,
        /// Which messages: those of other tags wait.
        tag: u32,
    },
    /// One rank takes from any other: the first message with this tag that comes.
    /// [`crate::Work::source`] says whose it was.
    RecvAny {
        /// Which messages: those of other tags wait.
        tag: u32,
    },
    /// Nobody goes on before all have come.
    Barrier,
}

impl Kind {
    /// The rank that an operation of two is with, where it is named.
    pub const fn peer(self) -> Option<usize> {
        match self {
            Self::Send { to, .. } => Some(to),
            Self::Recv { from, .. } => Some(from),
            _ => None,
        }
    }

    /// Of a message.
    pub const fn tag(self) -> Option<u32> {
        match self {
            Self::Send { tag, .. } | Self::Recv { tag, .. } | Self::RecvAny { tag } => Some(tag),
            _ => None,
        }
    }

    /// The rank that plays the special part.
    pub const fn root(self) -> Option<usize> {
        match self {
            Self::Reduce { root, .. } | Self::Broadcast { root } | Self::Gather { root } | Self::Scatter { root } => {
                Some(root)
            }
            _ => None,
        }
    }

    /// How it reduces, if it does.
    pub const fn op(self) -> Option<ReduceOp> {
        match self {
            Self::AllReduce(op) | Self::ReduceScatter(op) | Self::Reduce { op, .. } => Some(op),
            _ => None,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce(_) => "all-reduce",
            Self::Reduce { .. } => "reduce",
            Self::ReduceScatter(_) => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::Broadcast { .. } => "broadcast",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::AllToAll => "all-to-all",
            Self::Send { .. } => "send",
            Self::Recv { .. } | Self::RecvAny { .. } => "recv",
            Self::Barrier => "barrier",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::AllReduce(op) | Self::ReduceScatter(op) => write!(f, " ({})", op.name()),
            Self::Reduce { op, root } => write!(f, " ({}, root {root})", op.name()),
            Self::Broadcast { root } | Self::Gather { root } | Self::Scatter { root } => write!(f, " (root {root})"),
            Self::Send { to, tag } => write!(f, " (to {to}, tag {tag})"),
            Self::Recv { from, tag } => write!(f, " (from {from}, tag {tag})"),
            Self::RecvAny { tag } => write!(f, " (from any, tag {tag})"),
            Self::AllGather | Self::AllToAll | Self::Barrier => Ok(()),
        }
    }
}
