//! Files that are sent while a program runs.

use serde::{Deserialize, Serialize};

/// Files that agents send while their program runs, each kind on a connection of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MirrorKind {
    /// `CheckpointConfig`: they have receipts.
    Checkpoints,
    /// `/opt/ml/output/intermediate`
    Intermediate,
    /// `DebugHookConfig`
    Tensors,
    /// `TensorBoardOutputConfig`
    TensorBoard,
    /// `ProfilerConfig`: events of frameworks.
    Profiler,
}

impl MirrorKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Checkpoints, Self::Intermediate, Self::Tensors, Self::TensorBoard, Self::Profiler];

    /// Names directories.
    pub fn name(self) -> &'static str {
        match self {
            Self::Checkpoints => "checkpoints",
            Self::Intermediate => "intermediate",
            Self::Tensors => "tensors",
            Self::TensorBoard => "tensorboard",
            Self::Profiler => "profiler",
        }
    }

    /// What one of its files is called.
    pub fn file(self) -> &'static str {
        match self {
            Self::Checkpoints => "checkpoint",
            Self::Intermediate => "intermediate output",
            Self::Tensors => "tensor",
            Self::TensorBoard => "TensorBoard event",
            Self::Profiler => "framework event",
        }
    }
}
