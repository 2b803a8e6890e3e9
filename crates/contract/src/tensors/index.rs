//! The index file of a step and worker: where each tensor lies in the event file.

use serde::{Deserialize, Serialize};

use super::{Mode, TensorError};

const FILE: &str = "the index file";

/// What a worker saved in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Phase.
    pub mode: Mode,
    /// Step within the mode.
    pub mode_step: u64,
    /// Event file, relative to the directory of the tensors; `None` where only shapes were saved.
    pub event_file: Option<String>,
    /// Tensors in the order of the event file.
    pub tensors: Vec<IndexEntry>,
    /// Tensors of which the shape alone was saved.
    pub shapes: Vec<ShapeEntry>,
}

/// A tensor's place in the event file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    /// The tensor.
    #[serde(rename = "tensorname")]
    pub name: String,
    /// First byte of its record.
    #[serde(rename = "start_idx")]
    pub start: u64,
    /// Bytes of its record.
    pub length: u64,
}

/// A tensor's shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShapeEntry {
    /// The tensor.
    #[serde(rename = "tensorname")]
    pub name: String,
    /// Its name in the framework.
    #[serde(rename = "originalname")]
    pub original_name: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct IndexFile {
    meta: Meta,
    #[serde(default)]
    tensor_payload: Vec<IndexEntry>,
    #[serde(default)]
    shape_payload: Vec<ShapeEntry>,
}

#[derive(Serialize, Deserialize)]
struct Meta {
    mode: String,
    mode_step: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_file_name: Option<String>,
}

impl Index {
    /// Reads the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, TensorError> {
        let json = |reason: String| TensorError::Json { file: FILE, reason };
        let file: IndexFile = serde_json::from_slice(bytes).map_err(|error| json(error.to_string()))?;
        let mode = Mode::parse(&file.meta.mode).ok_or_else(|| {
            json(format!("mode is \"{}\"; modes are TRAIN, EVAL, PREDICT and GLOBAL", file.meta.mode))
        })?;
        if file.meta.event_file_name.is_none() && !file.tensor_payload.is_empty() {
            return Err(json("tensors without event_file_name".to_owned()));
        }
        Ok(Self {
            mode,
            mode_step: file.meta.mode_step,
            event_file: file.meta.event_file_name,
            tensors: file.tensor_payload,
            shapes: file.shape_payload,
        })
    }

    /// The file's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let meta = Meta {
            mode: self.mode.name().to_owned(),
            mode_step: self.mode_step,
            event_file_name: self.event_file.clone(),
        };
        let file = IndexFile { meta, tensor_payload: self.tensors.clone(), shape_payload: self.shapes.clone() };
        serde_json::to_vec(&file).expect("numbers and text are JSON")
    }
}
