//! Phases of a training program, which count their own steps.

/// Phase in which a tensor was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Training.
    Train,
    /// Evaluation.
    Eval,
    /// Prediction.
    Predict,
    /// The program sets no modes.
    Global,
}

impl Mode {
    /// All, in the order of their numbers in event files, which begin with 1.
    pub const ALL: [Self; 4] = [Self::Train, Self::Eval, Self::Predict, Self::Global];

    /// Its name in index and collections files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "TRAIN",
            Self::Eval => "EVAL",
            Self::Predict => "PREDICT",
            Self::Global => "GLOBAL",
        }
    }

    /// The mode of a name, in either case, with or without `ModeKeys.` before it.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.trim();
        let name = name.strip_prefix("ModeKeys.").or_else(|| name.strip_prefix("modes.")).unwrap_or(name);
        Self::ALL.into_iter().find(|mode| mode.name().eq_ignore_ascii_case(name))
    }

    /// Its number in event files.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Train => 1,
            Self::Eval => 2,
            Self::Predict => 3,
            Self::Global => 4,
        }
    }

    pub(super) fn of_number(number: &[u8]) -> Option<Self> {
        let [digit @ b'1'..=b'4'] = number else { return None };
        Some(Self::ALL[usize::from(digit - b'1')])
    }
}
