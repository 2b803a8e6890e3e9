//! Errors as texts for people.

use shoal_store::DataDir;

/// An error with its sources in one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// A text for clients, who need not know where the server keeps its files.
pub(crate) fn without_paths(data_dir: &DataDir, text: &str) -> String {
    text.replace(&data_dir.root().display().to_string(), "DATA_DIR")
}
