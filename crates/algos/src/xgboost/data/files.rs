//! Which files of a channel hold data, and of what format they say they are.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::DataError;

/// A channel's content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::xgboost) enum ContentType {
    /// Text, label first.
    Csv,
    /// Sparse text; the default of SageMaker's XGBoost image.
    Libsvm,
}

impl ContentType {
    /// Reads a channel's content type, parameters included.
    pub(in crate::xgboost) fn parse(text: Option<&str>) -> Result<Self, DataError> {
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Ok(Self::Libsvm) };
        let lower = text.to_ascii_lowercase();
        let mut parts = lower.split(';').map(str::trim);
        match parts.next().unwrap_or_default() {
            "csv" | "text/csv" => {
                let label_size =
                    parts.filter_map(|part| part.split_once('=')).find(|(name, _)| name.trim() == "label_size");
                match label_size {
                    Some((_, size)) if size.trim() != "1" => Err(DataError::Channel(format!(
                        "{text} is not an accepted csv ContentType. Optional parameter label_size must be equal to 1"
                    ))),
                    _ => Ok(Self::Csv),
                }
            }
            "libsvm" | "text/libsvm" | "text/x-libsvm" => Ok(Self::Libsvm),
            "parquet" | "application/x-parquet" | "recordio-protobuf" | "application/x-recordio-protobuf" => {
                Err(DataError::Channel(format!(
                    "this XGBoost reads csv and libsvm, not {text}: convert the channel's files to text/csv"
                )))
            }
            _ => Err(DataError::Channel(format!(
                "{text} is not an accepted ContentType: csv, libsvm, text/csv, text/libsvm, text/x-libsvm."
            ))),
        }
    }
}

/// The data files of one channel, in the order of their paths.
#[derive(Debug, Clone)]
pub(in crate::xgboost) struct Files {
    directory: PathBuf,
    paths: Vec<PathBuf>,
}

impl Files {
    /// Lists the files below `directory`, sub-directories included; names that begin with `.` or
    /// `_` are skipped, as are empty files. A directory that does not exist has none.
    pub(in crate::xgboost) fn list(directory: &Path) -> Result<Self, DataError> {
        let mut paths = Vec::new();
        if directory.exists() {
            collect(directory, &mut paths)?;
        }
        paths.sort();
        Ok(Self { directory: directory.to_owned(), paths })
    }

    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Nothing to read.
    pub(in crate::xgboost) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// How messages name a file: from the channel on (`train/part-0.csv`).
    pub(super) fn name(&self, index: usize) -> String {
        let Some(path) = self.paths.get(index) else { return String::new() };
        let root = self.directory.parent().unwrap_or(&self.directory);
        path.strip_prefix(root).unwrap_or(path).display().to_string()
    }

    /// Refuses formats that no text reader could make sense of.
    pub(super) fn check_magic(&self, index: usize, file: &mut File) -> Result<(), DataError> {
        let mut start = [0; 4];
        let read =
            file.read(&mut start).map_err(|source| DataError::Read { path: self.paths[index].clone(), source })?;
        let reason = match &start[..read] {
            [0x1f, 0x8b, ..] => {
                "the file is compressed by gzip, which XGBoost's channels do not take: upload it decompressed"
            }
            [b'P', b'K', 3, 4] => "the file is a zip archive: upload the files in it instead",
            b"PAR1" => "the file is Apache Parquet: this XGBoost reads csv and libsvm",
            _ => return Ok(()),
        };
        Err(DataError::File { file: self.name(index), reason: reason.to_owned() })
    }
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) -> Result<(), DataError> {
    let read_error = |source| DataError::Read { path: directory.to_owned(), source };
    for entry in std::fs::read_dir(directory).map_err(read_error)? {
        let entry = entry.map_err(read_error)?;
        let name = entry.file_name();
        if matches!(name.as_encoded_bytes().first(), Some(b'.' | b'_')) {
            continue;
        }
        let path = entry.path();
        // Follows links: channels are trees of them.
        let metadata = std::fs::metadata(&path).map_err(|source| DataError::Read { path: path.clone(), source })?;
        if metadata.is_dir() {
            collect(&path, paths)?;
        } else if metadata.len() > 0 {
            paths.push(path);
        }
    }
    Ok(())
}
