//! What goes to the user: standard output whole, tables aligned, times readable; and a line that
//! redraws itself on a terminal.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use time::OffsetDateTime;

/// Writes to standard output. A reader that has gone away is an `io::Error` of kind `BrokenPipe`,
/// which ends us quietly.
pub fn show(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// A value as pretty JSON, a line feed behind it.
pub(crate) fn show_json(value: &serde_json::Value) -> io::Result<()> {
    show(&format!("{value:#}\n"))
}

/// Rows as aligned columns, two spaces between them. Numbers are the caller's to pad.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// An API time (seconds since the epoch, with a fraction) as `2026-11-21 07:24:29Z`.
pub(crate) fn time_text(seconds: &serde_json::Value) -> String {
    let time = seconds.as_f64().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds as i64).ok());
    time.map_or("-".to_owned(), |time| {
        format!("{} {:02}:{:02}:{:02}Z", time.date(), time.hour(), time.minute(), time.second())
    })
}

/// How often a pipe or a file hears of progress.
const PIPE_INTERVAL: Duration = Duration::from_secs(30);

/// Progress: one line that is redrawn on a terminal; elsewhere lasting lines, and the other line
/// every 30 s at most, if it is another one.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    drawn: bool,
    written: Instant,
    last: String,
}

impl Progress {
    /// Standard output stays data.
    pub fn on_stderr() -> Self {
        Self { terminal: io::stderr().is_terminal(), drawn: false, written: Instant::now(), last: String::new() }
    }

    /// Whether a person watches.
    pub(crate) fn is_live(&self) -> bool {
        self.terminal
    }

    /// Redraws the line. What is wider than the terminal is cut off by it.
    pub fn draw(&mut self, text: &str) {
        if self.terminal {
            // Wrapping off, line, wrapping on: a wrapped line could not be redrawn in place.
            eprint!("\r\x1b[K\x1b[?7l{text}\x1b[?7h");
            self.drawn = true;
        } else if self.written.elapsed() >= PIPE_INTERVAL && text != self.last {
            eprintln!("{text}");
            (self.written, self.last) = (Instant::now(), text.to_owned());
        }
    }

    /// Writes a line that stays.
    pub(crate) fn line(&mut self, text: &str) {
        self.clear();
        eprintln!("{text}");
    }

    /// Takes the redrawn line away.
    pub(crate) fn clear(&mut self) {
        if self.drawn {
            eprint!("\r\x1b[K");
            self.drawn = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// An amount with two digits; with more where it is small, and still something.
pub(crate) fn amount(value: f64) -> String {
    match value.abs() {
        0.0 | 0.1.. => format!("{value:.2}"),
        0.0001.. => format!("{value:.4}"),
        _ => "<0.0001".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_aligned() {
        let rows =
            [vec!["NAME".to_owned(), "STATUS".into()], vec!["a-job".into(), "Completed".into()], vec!["b".into()]];
        assert_eq!(table(&rows), "NAME   STATUS\na-job  Completed\nb\n");
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(time_text(&json!(1_795_245_869.25)), "2026-11-21 07:24:29Z");
        assert_eq!(time_text(&json!(null)), "-");
    }
}
