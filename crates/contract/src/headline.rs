//! What a program's last words on stderr say of its failure, in one line:
//! `ValueError: no column 'price' (train.py, line 4)`.

/// Longest headline, in characters.
const MOST: usize = 200;

/// Begins the line in which a program of MPI's is told whose words the others are.
const WHOSE: &str = "(rank ";

/// Where scripts lie, behind the base of their instance: what is told of a file is what stands
/// behind it.
const PLACES: [&str; 2] = ["/ml/code/", "/ml/input/data/"];

/// In the paths of what is not the user's own.
const LIBRARIES: [&str; 4] = ["/site-packages/", "/dist-packages/", "/lib/python3", "<frozen "];

/// The exception of the last traceback of Python's, with the user's line that it came through last;
/// without a traceback the last line. `None` where nothing was said.
pub fn headline(said: &str) -> Option<String> {
    let lines = Vec::from_iter(said.lines());
    let is_told = |line: &&str| !line.is_empty() && !line.starts_with(WHOSE);
    let line =
        of_python(&lines).or_else(|| lines.iter().rev().map(|line| line.trim()).find(is_told).map(str::to_owned))?;
    let mut line = line.replace('\t', " ");
    if let Some((end, _)) = line.char_indices().nth(MOST) {
        line.truncate(end);
        line.push_str("...");
    }
    Some(line)
}

/// A traceback's beginning may be cut off, and a mistake of syntax has none: its last frame tells
/// it.
fn of_python(lines: &[&str]) -> Option<String> {
    let last = lines.iter().rposition(|line| frame(line).is_some())?;
    let is_source = |line: &str| line.starts_with([' ', '\t']) || line.is_empty();
    let exception = lines[last + 1..].iter().find(|line| !is_source(line))?;
    let kind = exception.split(": ").next()?.trim_end_matches(':');
    if kind.is_empty() || !kind.chars().all(|it| it.is_alphanumeric() || matches!(it, '_' | '.')) {
        return None;
    }
    let begin = lines[..last].iter().rposition(|line| !is_source(line)).map_or(0, |at| at + 1);
    let mut frames = lines[begin..=last].iter().rev().filter_map(|line| frame(line));
    let own = frames.find(|(file, _)| !LIBRARIES.iter().any(|library| file.contains(library)));
    Some(match own {
        Some((file, line)) => format!("{} ({file}, line {line})", exception.trim_end()),
        None => exception.trim_end().to_owned(),
    })
}

/// File, as its user knows it, and line of `  File "/opt/ml/code/train.py", line 4, in step`.
fn frame(line: &str) -> Option<(&str, u32)> {
    let (file, rest) = line.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    let digits = rest.split(|it: char| !it.is_ascii_digit()).next()?;
    let known = PLACES.iter().find_map(|place| file.split_once(place)).map(|(_, name)| name);
    let is_own = !LIBRARIES.iter().any(|library| file.contains(library));
    let name = if is_own { known.or_else(|| file.rsplit('/').next()) } else { None };
    Some((name.unwrap_or(file), digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_named_with_its_place() {
        let long = format!("  File \"/opt/ml/code/train.py\", line 9, in <module>\nValueError: {}", "x".repeat(500));
        for (said, expected) in [
            ("", None),
            ("one\nlast words\n(rank 1 on algo-2)\n\n", Some("last words")),
            (
                "File \"/opt/ml/code/train.py\", line 12\n    def f(:\n          ^\nSyntaxError: invalid syntax\n",
                Some("SyntaxError: invalid syntax (train.py, line 12)"),
            ),
            (
                "Traceback (most recent call last):\n  File \"/opt/ml/code/train.py\", line 3, in \
                 <module>\n    f()\n  File \"/opt/ml/code/lib/a.py\", line 5, in f\n    \
                 numpy.x()\n    ~~~~^^\n  File \"/e/lib/python3.11/site-packages/numpy/x.py\", line 7, in \
                 x\nValueError: bad\nof two lines",
                Some("ValueError: bad (lib/a.py, line 5)"),
            ),
            (
                "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyError: 'x'\n\nDuring \
                 handling of the above exception, another exception \
                 occurred:\n\nTraceback (most recent call last):\n  File \"<frozen runpy>\", line 2, in \
                 x\nAssertionError\n",
                Some("AssertionError"),
            ),
            (
                "  File \"/srv/x/ml/input/data/code/t.py\", line 4, in <module>\ntorch.X.Error: no\n(rank 1 on algo-2)",
                Some("torch.X.Error: no (code/t.py, line 4)"),
            ),
            (
                "  File \"/opt/ml/code/t.py\", line 4 in <module>\n\nThread 0x1 (most recent call first):",
                Some("Thread 0x1 (most recent call first):"),
            ),
            (long.as_str(), Some(&format!("ValueError: {}...", "x".repeat(188)) as &str)),
        ] {
            assert_eq!(headline(said).as_deref(), expected, "{said}");
        }
    }
}
