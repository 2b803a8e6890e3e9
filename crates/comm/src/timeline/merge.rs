//! The ranks' files on one clock.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::trace::micro;
use crate::Error;

/// Makes one trace, `all.json`, of the `rank-N.json` of a directory, and gives its path; see
/// [`merge_files`].
///
/// # Errors
/// As for [`merge_files`]; [`Error::Config`] where there are no such files.
pub fn merge(directory: &Path) -> Result<PathBuf, Error> {
    let path = directory.join("all.json");
    merge_files(&files_of(directory)?, &path)?;
    Ok(path)
}

/// The files that ranks wrote into a directory, in any order.
///
/// # Errors
/// [`Error::Io`] where it cannot be read, [`Error::Config`] where there are none.
pub fn files_of(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable =
        |source| Error::io(format!("cannot read the directory of timelines {}", directory.display()), source);
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let rank = name.strip_prefix("rank-").and_then(|name| name.strip_suffix(".json"));
        if rank.is_some_and(|rank| rank.parse::<usize>().is_ok()) {
            files.push(path);
        }
    }
    if files.is_empty() {
        let problem =
            format!("{}: no rank-N.json here; run the ranks with SHOAL_COMM_TIMELINE={0}", directory.display());
        return Err(Error::Config { problem });
    }
    Ok(files)
}

/// Makes one trace of ranks' files, each rank a row, and gives how many ranks there are.
///
/// Clocks of different hosts differ. No rank can end a barrier, an all-reduce, an all-gather or an
/// all-to-all before the last has begun it: every such operation bounds by how much two clocks can
/// differ, from both sides. Where the clocks as they are break the bounds, the higher rank's is
/// moved to the middle between them. Ranks that have no such operation with the lowest keep their
/// own clock.
///
/// # Errors
/// [`Error::Io`], or [`Error::Config`] where a file was not written by this version, or two are of
/// one rank.
pub fn merge_files(paths: &[PathBuf], output: &Path) -> Result<usize, Error> {
    let mut files = BTreeMap::new();
    for path in paths {
        let text =
            fs::read_to_string(path).map_err(|source| Error::io(format!("cannot read {}", path.display()), source))?;
        let refused =
            || Error::Config { problem: format!("{}: not a timeline of this version; record it anew", path.display()) };
        let file = File::parse(&text).ok_or_else(refused)?;
        let rank = file.rank;
        if let Some((_, other)) = files.insert(rank, (file, path)) {
            let problem =
                format!("{} and {} are both of rank {rank}: give one of them", other.display(), path.display());
            return Err(Error::Config { problem });
        }
    }
    let files: BTreeMap<_, _> = files.into_iter().map(|(rank, (file, _))| (rank, file)).collect();
    fs::write(output, joined(&files))
        .map_err(|source| Error::io(format!("cannot write {}", output.display()), source))?;
    Ok(files.len())
}

/// A rank's file.
#[derive(Debug)]
struct File {
    rank: usize,
    lines: Vec<String>,
    /// Nanoseconds that its times are counted from.
    base: i64,
    /// Begin and end of the operations that no rank ends before all have begun, in nanoseconds
    /// since 1970.
    meetings: BTreeMap<String, (i64, i64)>,
}

impl File {
    fn parse(text: &str) -> Option<Self> {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        if lines.first()? != "{\"traceEvents\":[" {
            return None;
        }
        let last = lines.pop()?;
        if !last.starts_with("],\"otherData\":{\"format\":1,") {
            return None;
        }
        let rank = member(&last, "rank")?.parse().ok()?;
        let base = member(&last, "base")?.parse::<i64>().ok()?.checked_mul(1_000_000_000)?;
        lines.remove(0);
        let mut meetings = BTreeMap::new();
        for line in lines.iter().filter(|line| line.starts_with("{\"ph\":\"X\"")) {
            let name = member(line, "name")?;
            let meets = ["\"all-reduce\"", "\"all-gather\"", "\"all-to-all\"", "\"barrier\""].contains(&name);
            if meets && member(line, "failed")? == "false" {
                let begin = base.checked_add(nanoseconds(member(line, "ts")?)?)?;
                let key = format!("{} {} {}", member(line, "group")?, member(line, "epoch")?, member(line, "number")?);
                meetings.insert(key, (begin, begin.checked_add(nanoseconds(member(line, "dur")?)?)?));
            }
        }
        Some(Self { rank, lines, base, meetings })
    }

    /// By how many nanoseconds this clock is ahead of `other`'s, as far as can be known.
    fn ahead_of(&self, other: &Self) -> i64 {
        let common = self.meetings.iter().filter_map(|(key, own)| Some((own, other.meetings.get(key)?)));
        // The other's begin comes before the own end, and the own begin before the other's end.
        let bounds = common.map(|((begin, end), (other_begin, other_end))| (begin - other_end, end - other_begin));
        let Some((least, most)) = bounds.reduce(|a, b| (a.0.max(b.0), a.1.min(b.1))) else { return 0 };
        if least <= 0 && 0 <= most { 0 } else { least + (most - least) / 2 }
    }
}

/// The text of a member of a line, as our own files have them: strings with their quotes.
fn member<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let start = line.find(&format!("\"{name}\":"))? + name.len() + 3;
    let end = line[start..].find([',', '}'])?;
    Some(&line[start..start + end])
}

/// Of microseconds with three decimals.
fn nanoseconds(text: &str) -> Option<i64> {
    let (sign, size) = text.strip_prefix('-').map_or((1, text), |size| (-1, size));
    let (whole, decimals) = size.split_once('.')?;
    Some(sign * whole.parse::<i64>().ok()?.checked_mul(1000)?.checked_add(decimals.parse::<i64>().ok()?)?)
}

fn joined(files: &BTreeMap<usize, File>) -> String {
    let reference = files.values().next();
    let mut text = String::from("{\"traceEvents\":[\n");
    let origin = reference.map_or(0, |file| file.base);
    let mut lines = Vec::new();
    for file in files.values() {
        let shift = file.base - origin - reference.map_or(0, |reference| file.ahead_of(reference));
        for line in &file.lines {
            let moved = member(line, "ts").and_then(|time| {
                let after = micro(nanoseconds(time)? + shift);
                Some(line.replacen(&format!("\"ts\":{time}"), &format!("\"ts\":{after}"), 1))
            });
            lines.push(moved.unwrap_or_else(|| line.clone()).trim_end_matches(',').to_owned());
        }
    }
    text += &lines.join(",\n");
    text += "\n]}\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of a rank whose clock is ahead by `ahead`, with all-reduces at these times (begin,
    /// end), in nanoseconds.
    fn file(rank: usize, base_days: i64, ahead: i64, operations: &[(i64, i64)]) -> File {
        let base = base_days * 86_400;
        let mut text = "{\"traceEvents\":[\n".to_owned();
        for (number, (begin, end)) in operations.iter().enumerate() {
            let ts = micro(begin + ahead - base * 1_000_000_000);
            let dur = micro(end - begin);
            text += &format!(
                "{{\"ph\":\"X\",\"pid\":{rank},\"tid\":0,\"ts\":{ts},\"dur\":{dur},\"name\":\"all-reduce\",\"cat\":\"comm\",\"args\":{{\"group\":\"0\",\"epoch\":0,\"number\":{number},\"failed\":false}}}},\n"
            );
        }
        text += &format!(
            "{{\"ph\":\"M\",\"pid\":{rank}}}\n],\"otherData\":{{\"format\":1,\"rank\":{rank},\"base\":{base},\"lost\":0}}}}\n"
        );
        File::parse(&text).expect("a file")
    }

    #[test]
    fn clocks_that_cannot_be_right_are_moved() {
        // Rank 1 comes late to some, rank 0 to others; each ends 10 us after the last has come.
        let first = [(0, 60_000), (100_000, 120_000), (200_000, 215_000)];
        let second = [(50_000, 60_000), (110_000, 120_000), (190_000, 215_000)];
        let reference = file(0, 0, 0, &first);
        for (ahead, days) in [(0, 0), (3_000_000, 0), (-5_000_000_000, -1), (5_000_000_000, 0)] {
            let found = file(1, days, ahead, &second).ahead_of(&reference);
            if ahead == 0 {
                assert_eq!(found, 0, "clocks that agree are left alone");
            } else {
                assert!((found - ahead).abs() <= 10_000, "ahead by {ahead}, found {found}");
            }
        }
        assert_eq!(file(1, 0, 77, &[]).ahead_of(&reference), 0, "nothing in common");
        let files = BTreeMap::from([(0, reference), (1, file(1, -1, -3_000_000_000, &second))]);
        let text = joined(&files);
        let times: Vec<_> = text
            .lines()
            .filter(|line| line.contains("\"pid\":1"))
            .filter_map(|line| nanoseconds(member(line, "ts")?))
            .collect();
        assert_eq!(times.len(), 3, "{text}");
        assert!(
            times.iter().zip([50_000, 110_000, 190_000]).all(|(got, wanted)| (got - wanted).abs() <= 10_000),
            "{times:?}"
        );
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for time in [0, 1, -1, 999, -999, 1000, -1000, 86_399_999_999_999, -1_234_567] {
            assert_eq!(nanoseconds(&micro(time)), Some(time));
            assert_eq!(micro(time).parse::<f64>().ok(), Some(time as f64 / 1e3));
        }
    }

    #[test]
    fn other_files_are_refused() {
        assert!(File::parse("").is_none() && File::parse("{\"traceEvents\":[\n]}").is_none());
        let missing = merge(Path::new("/nonexistent")).expect_err("no such directory").to_string();
        assert!(missing.contains("/nonexistent"), "{missing}");
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let refused = |paths: &[PathBuf]| merge_files(paths, &at("all.json")).expect_err("refused").to_string();
        assert!(merge(directory.path()).expect_err("empty").to_string().contains("no rank-N.json"));
        fs::write(at("other.json"), "{}").expect("written");
        assert!(refused(&[at("other.json")]).contains("other.json: not a timeline"));
        for name in ["rank-0.json", "rank-1.json"] {
            fs::write(
                at(name),
                "{\"traceEvents\":[\n],\"otherData\":{\"format\":1,\"rank\":1,\"base\":0,\"lost\":0}}\n",
            )
            .expect("written");
        }
        assert!(refused(&[at("rank-0.json"), at("rank-1.json")]).contains("both of rank 1"));
    }

    #[test]
    fn times_that_no_clock_has_are_refused() {
        assert_eq!(
            (nanoseconds("-1.500"), nanoseconds("9223372036854775807.000"), nanoseconds("1")),
            (Some(-1500), None, None)
        );
    }
}
