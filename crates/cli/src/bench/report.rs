//! Numbers as a section of Markdown, and its place in a file.

use std::{fmt::Write as _, fs, io, path::Path};

/// What was measured once or often.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    /// For people.
    pub(super) what: String,
    /// In the order of measuring.
    pub(super) values: Vec<f64>,
    /// `s` or `MB`.
    pub(super) unit: &'static str,
    /// Not more than this, in the same unit.
    pub(super) goal: Option<f64>,
}

impl Line {
    /// The middle value, or the mean of the two in the middle.
    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            length if length % 2 == 1 => sorted[length / 2],
            length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
        }
    }
}

/// A section with a table.
pub(super) fn markdown(machine: &str, lines: &[Line]) -> String {
    let mut text = format!("## start\n\n{machine}.\n\n| what | median | least to most | goal |\n|---|---|---|---|\n");
    for line in lines {
        let number = |value: f64| format!("{value:.*} {}", if line.unit == "s" && value < 60.0 { 3 } else { 1 }, line.unit);
        let least = line.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = line.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let spread = match line.values.len() {
            1 => "one run".to_owned(),
            runs => format!("{} to {} in {runs} runs", number(least), number(most)),
        };
        let goal = line.goal.map_or_else(String::new, |goal| {
            let kept = if line.median() <= goal { "kept" } else { "missed" };
            format!("{goal} {}: {kept}", line.unit)
        });
        writeln!(text, "| {} | {} | {spread} | {goal} |", line.what, number(line.median())).expect("a string takes all");
    }
    text
}

/// Puts a section in the place of the one of the same heading, or at the file's end.
///
/// # Errors
/// The file cannot be read or written.
pub(super) fn put(path: &Path, section: &str) -> io::Result<()> {
    let before = fs::read_to_string(path)?;
    fs::write(path, replaced(&before, section))
}

fn replaced(text: &str, section: &str) -> String {
    let heading = section.lines().next().unwrap_or_default();
    let mut kept = String::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("## ") {
            inside = line == heading;
        }
        if !inside {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    format!("{}\n\n{section}", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_whether_a_goal_is_kept() {
        let line = |values: &[f64], goal| Line { what: "w".into(), values: values.into(), unit: "s", goal };
        let text = markdown("here", &[line(&[0.3, 0.1, 0.2], Some(0.25)), line(&[1.0], Some(0.5)), line(&[100.0], None)]);
        let rows: Vec<_> = text.lines().skip(6).collect();
        assert_eq!(
            rows,
            [
                "| w | 0.200 s | 0.100 s to 0.300 s in 3 runs | 0.25 s: kept |",
                "| w | 1.000 s | one run | 0.5 s: missed |",
                "| w | 100.0 s | one run |  |"
            ]
        );
    }

    #[test]
    fn a_section_takes_its_own_place() {
        let text = "# Benchmarks\n\nHow.\n\n## start\n\nold\n\n## other\n\nkept\n";
        assert_eq!(replaced(text, "## start\n\nnew\n"), "# Benchmarks\n\nHow.\n\n## other\n\nkept\n\n## start\n\nnew\n");
        assert_eq!(replaced("# Benchmarks\n", "## start\n\nnew\n"), "# Benchmarks\n\n## start\n\nnew\n");
    }
}
