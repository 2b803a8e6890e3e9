//! Which container engine's images jobs may name.

/// The setting `engine`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineChoice {
    /// The first that is installed.
    Auto,
    /// This command.
    Command(String),
    /// None.
    None,
}
