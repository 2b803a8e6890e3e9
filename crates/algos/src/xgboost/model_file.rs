//! The model file. It is replaced as a whole, so that whoever looks sees the old model or the new
//! one.

use std::io::Write;
use std::path::Path;

use super::failure::Failure;
use super::ffi::booster::Booster;

/// The file's name in the model directory; without a suffix, as
/// `Booster.load_model("xgboost-model")` expects it.
pub(super) const NAME: &str = "xgboost-model";

/// What a file is called while it is written.
const TEMPORARY: &str = ".xgboost-model.part";

/// Writes `booster` to `directory/name`.
pub(super) fn save(booster: &Booster, directory: &Path, name: &str) -> Result<(), Failure> {
    replace(&booster.to_bytes()?, directory, name, TEMPORARY)
}

/// Writes a model's bytes to `target`.
pub(super) fn write(model: &[u8], target: &Path) -> Result<(), Failure> {
    let (directory, name) = (target.parent().unwrap_or(target), target.file_name().unwrap_or_default());
    replace(model, directory, &name.to_string_lossy(), TEMPORARY)
}

/// Writes `directory/name` as a whole; it is called `temporary` until then. The kernel may write it
/// to the disk when it likes: what outlives the machine is the copy in S3.
pub(super) fn replace(bytes: &[u8], directory: &Path, name: &str, temporary: &str) -> Result<(), Failure> {
    let temporary = directory.join(temporary);
    let target = directory.join(name);
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::File::create(&temporary))
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| std::fs::rename(&temporary, &target))
        .map_err(|source| Failure::File { what: "write", path: target, source })
}

/// Removes what a save left that did not end.
pub(super) fn clean(directory: &Path) {
    let _ = std::fs::remove_file(directory.join(TEMPORARY));
}
