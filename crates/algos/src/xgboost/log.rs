//! Log lines as SageMaker's XGBoost image writes them: `[2026-11-21:07:30:00:INFO] text`, on
//! standard output.

use std::io::Write;

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

const TIME: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]:[hour]:[minute]:[second]");

/// Something that the reader of the log may want to know.
pub(super) fn info(text: &str) {
    line("INFO", text);
}

/// Something that the reader of the log should change.
pub(super) fn warning(text: &str) {
    line("WARNING", text);
}

/// The training failed.
pub(super) fn error(text: &str) {
    line("ERROR", text);
}

fn line(level: &str, text: &str) {
    let now = OffsetDateTime::now_utc().format(TIME).unwrap_or_default();
    print(&format!("[{now}:{level}] {text}"));
}

/// One line, at once: whoever reads the log waits for it. A closed standard output does not end a
/// training.
pub(super) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}
