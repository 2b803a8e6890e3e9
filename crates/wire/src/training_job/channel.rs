//! `InputDataConfig`: where the data of a training job is, and how it comes.

use crate::S3Uri;

/// How a channel's data comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum InputMode {
    /// Files, there before the program starts.
    File,
    /// Files, read when they are opened; the same as `File` where nothing is copied.
    FastFile,
    /// Named pipes, one for each epoch.
    Pipe,
}

/// An input; only sources that Shoal has.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Channel {
    /// Name of its directory or its pipes.
    pub name: String,
    /// Where the data is.
    #[serde(flatten)]
    pub source: ChannelSource,
    /// For the program.
    pub content_type: Option<String>,
    /// How objects are wrapped; other than [`RecordWrapper::None`] in Pipe mode alone.
    pub record_wrapper: RecordWrapper,
    /// `CompressionType` is `Gzip`: objects are decompressed; in Pipe mode alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_gzip: bool,
    /// The channel's own, else the algorithm's.
    pub input_mode: InputMode,
    /// Seed of `ShuffleConfig`.
    pub shuffle_seed: Option<i64>,
}

impl Channel {
    /// Its objects, where it has any.
    pub fn s3(&self) -> Option<&S3Source> {
        match &self.source {
            ChannelSource::S3(source) => Some(source),
            ChannelSource::FileSystem { .. } => None,
        }
    }

    /// Who sees what.
    pub fn distribution(&self) -> Distribution {
        self.s3().map_or(Distribution::FullyReplicated, |source| source.distribution)
    }
}

/// Where a channel's data is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum ChannelSource {
    /// Objects.
    S3(S3Source),
    /// A directory that the owner of the server allows.
    FileSystem {
        /// `FileSystemDataSource`
        file_system: FileSystemSource,
    },
}

/// `S3DataSource`
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct S3Source {
    /// What the URI names.
    pub data_type: S3DataType,
    /// Where it is.
    pub uri: S3Uri,
    /// Who sees what.
    pub distribution: Distribution,
    /// Of an augmented manifest: attributes that are streamed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attribute_names: Vec<String>,
    /// Groups whose instances have it; empty: all have.
    pub instance_groups: Vec<String>,
}

/// `FileSystemDataSource`
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileSystemSource {
    /// `fs-` and hexadecimal digits.
    pub id: String,
    /// `FileSystemAccessMode` is `rw`.
    pub is_writable: bool,
    /// Below the file system's root: names without `.` and `..`, `/` between them; empty for all.
    pub directory: String,
}

/// `S3DataType`; conversations are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum S3DataType {
    /// All keys with a prefix.
    S3Prefix,
    /// The keys listed in a JSON object at the URI.
    ManifestFile,
    /// Attributes of the JSON lines of the object at the URI; in Pipe mode alone.
    AugmentedManifestFile,
}

/// `S3DataDistributionType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum Distribution {
    /// Every instance sees everything.
    #[default]
    FullyReplicated,
    /// Each instance sees its partition of the keys.
    ShardedByS3Key,
}

impl Distribution {
    /// As SageMaker writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FullyReplicated => "FullyReplicated",
            Self::ShardedByS3Key => "ShardedByS3Key",
        }
    }
}

/// `RecordWrapperType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum RecordWrapper {
    /// Data as it is.
    #[default]
    None,
    /// Each object is a record.
    RecordIO,
}

impl RecordWrapper {
    /// As SageMaker writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::RecordIO => "RecordIO",
        }
    }
}
