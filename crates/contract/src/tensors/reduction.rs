//! Numbers that stand for a tensor that is not saved itself.

/// Begins the names of reductions.
const PREFIX: &str = "smdebug/reductions/";

/// How a tensor becomes a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ReductionKind {
    Min,
    Max,
    Mean,
    Std,
    Variance,
    Sum,
    Prod,
    L1,
    L2,
}

impl ReductionKind {
    const TABLE: [(Self, &'static str); 9] = [
        (Self::Min, "min"),
        (Self::Max, "max"),
        (Self::Mean, "mean"),
        (Self::Std, "std"),
        (Self::Variance, "variance"),
        (Self::Sum, "sum"),
        (Self::Prod, "prod"),
        (Self::L1, "l1"),
        (Self::L2, "l2"),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|(kind, _)| *kind == self).expect("the table has a row for every kind").1
    }
}

/// A reduction, of the tensor or of its absolute values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reduction {
    /// How.
    pub kind: ReductionKind,
    /// Of the absolute values.
    pub is_absolute: bool,
}

impl Reduction {
    /// The name under which the reduction of a tensor is saved.
    #[must_use]
    pub fn tensor_name(self, tensor: &str) -> String {
        let absolute = if self.is_absolute { "abs_" } else { "" };
        format!("{PREFIX}{absolute}{}/{tensor}", self.kind.name())
    }

    /// The reduction and its tensor of such a name; `None` for names of tensors themselves.
    #[must_use]
    pub fn parse(name: &str) -> Option<(Self, &str)> {
        let (reduction, tensor) = name.strip_prefix(PREFIX)?.split_once('/')?;
        let (is_absolute, kind) = match reduction.strip_prefix("abs_") {
            Some(kind) => (true, kind),
            None => (false, reduction),
        };
        let (kind, _) = ReductionKind::TABLE.into_iter().find(|(_, known)| *known == kind)?;
        Some((Self { kind, is_absolute }, tensor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for (kind, _) in ReductionKind::TABLE {
            for is_absolute in [false, true] {
                let reduction = Reduction { kind, is_absolute };
                let name = reduction.tensor_name("gradient/a.weight");
                assert_eq!(Reduction::parse(&name), Some((reduction, "gradient/a.weight")), "{name}");
            }
        }
        assert_eq!(
            Reduction { kind: ReductionKind::Max, is_absolute: true }.tensor_name("w"),
            "smdebug/reductions/abs_max/w"
        );
        for other in ["w", "smdebug/reductions/median/w", "smdebug/reductions/min"] {
            assert_eq!(Reduction::parse(other), None, "{other}");
        }
    }
}
