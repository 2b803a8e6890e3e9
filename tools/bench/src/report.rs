//! Numbers as a section of Markdown, and its place in a file.

use std::{fmt::Write as _, fs, io, path::Path};

use super::spread::Spread;

/// What was measured once or often.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    /// For people.
    pub(super) what: String,
    /// In the order of measuring.
    pub(super) values: Spread,
    /// `s`, `ms`, `MB`, `/s`.
    pub(super) unit: &'static str,
    /// In the same unit.
    pub(super) goal: Option<Goal>,
}

/// What a median is held to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
}

impl Goal {
    /// `0.5 s: kept`.
    pub(super) fn verdict(self, value: f64, unit: &str) -> String {
        let (words, goal, kept) = match self {
            Self::AtMost(goal) => ("at most ", goal, value <= goal),
            Self::AtLeast(goal) => ("at least ", goal, value >= goal),
        };
        format!("{words}{}: {}", with_unit(goal, unit), if kept { "kept" } else { "missed" })
    }

    /// `1.20: kept`, for a ratio whose goal stands elsewhere.
    pub(super) fn verdict_of(self, ratio: f64) -> String {
        let kept = match self {
            Self::AtMost(goal) => ratio <= goal,
            Self::AtLeast(goal) => ratio >= goal,
        };
        format!("{ratio:.2}: {}", if kept { "kept" } else { "missed" })
    }
}

/// Measured once or often, and held to a goal.
pub(super) fn line(what: impl Into<String>, values: Vec<f64>, unit: &'static str, goal: Option<Goal>) -> Line {
    Line { what: what.into(), values: Spread(values), unit, goal }
}

/// A number with as many digits as are worth reading.
pub(super) fn number(value: f64, unit: &str) -> String {
    let digits = match unit {
        "s" if value < 60.0 => 3,
        "ms" | "times" => 2,
        "/s" | "MB/s" => 0,
        _ => 1,
    };
    with_unit(format!("{value:.digits$}"), unit)
}

fn with_unit(value: impl std::fmt::Display, unit: &str) -> String {
    format!("{value}{}{unit}", if unit == "/s" { "" } else { " " })
}

/// A median and, where there were more runs than one, how far they lie apart.
pub(super) fn cell(values: &Spread, unit: &str) -> String {
    let (least, most) = values.bounds();
    match values.0.len() {
        0 => String::new(),
        1 => number(values.median(), unit),
        _ => format!("{} ({} to {})", number(values.median(), unit), number(least, unit), number(most, unit)),
    }
}

/// A section with a table of lines.
pub(super) fn markdown(name: &str, intro: &str, lines: &[Line]) -> String {
    let rows = lines.iter().map(|line| {
        let (least, most) = line.values.bounds();
        let spread = match line.values.0.len() {
            1 => "one run".to_owned(),
            runs => format!("{} to {} in {runs} runs", number(least, line.unit), number(most, line.unit)),
        };
        let median = line.values.median();
        let goal = line.goal.map_or_else(String::new, |goal| goal.verdict(median, line.unit));
        vec![line.what.clone(), number(median, line.unit), spread, goal]
    });
    table(name, &format!("{intro}."), &["what", "median", "least to most", "goal"], &rows.collect::<Vec<_>>())
}

/// A section with any table.
pub(super) fn table(name: &str, intro: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("## {name}\n\n{intro}\n\n| {} |\n|{}\n", header.join(" | "), "---|".repeat(header.len()));
    for row in rows {
        writeln!(text, "| {} |", row.join(" | ")).expect("a string takes all");
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
    let (mut kept, mut inside, mut found) = (String::new(), false, false);
    for line in text.lines() {
        if line.starts_with("## ") {
            inside = line == heading;
            if inside {
                found = true;
                kept.push_str(&format!("{}\n\n", section.trim_end()));
            }
        }
        if !inside {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    if !found {
        kept = format!("{}\n\n{}\n", kept.trim_end(), section.trim_end());
    }
    format!("{}\n", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_whether_a_goal_is_kept() {
        let lines = [
            line("w", vec![0.3, 0.1, 0.2], "s", Some(Goal::AtMost(0.25))),
            line("w", vec![1.0], "s", Some(Goal::AtMost(0.5))),
            line("w", vec![100.0], "s", None),
            line("w", vec![1234.5], "/s", Some(Goal::AtLeast(1000.0))),
        ];
        let text = markdown("start", "here", &lines);
        let rows: Vec<_> = text.lines().skip(6).collect();
        assert_eq!(
            rows,
            [
                "| w | 0.200 s | 0.100 s to 0.300 s in 3 runs | at most 0.25 s: kept |",
                "| w | 1.000 s | one run | at most 0.5 s: missed |",
                "| w | 100.0 s | one run |  |",
                "| w | 1234/s | one run | at least 1000/s: kept |",
            ]
        );
    }

    #[test]
    fn a_section_takes_its_own_place() {
        let text = "# Benchmarks\n\nHow.\n\n## start\n\nold\n\n## other\n\nkept\n";
        assert_eq!(
            replaced(text, "## start\n\nnew\n"),
            "# Benchmarks\n\nHow.\n\n## start\n\nnew\n\n## other\n\nkept\n"
        );
        assert_eq!(replaced("# Benchmarks\n", "## start\n\nnew\n"), "# Benchmarks\n\n## start\n\nnew\n");
    }
}
