//! Whether an audit log is as it was written.

use std::{collections::BTreeSet, fmt, io, path::Path};

use super::{
    chain::{End, Line},
    files::{Directory, first_of, number_of},
};
use crate::keys::AccessKeys;

/// Faults that are reported at most: one changed file has many.
const MAX_FAULTS: usize = 20;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// Lines that were read.
    pub lines: u64,
    /// What is not as it was written, in the order of the lines.
    pub faults: Vec<AuditFault>,
}

/// Something that is not as it was written. Numbers are those of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditFault {
    /// The line is not the one that was written.
    Changed(u64),
    /// These lines, first and last, are not there.
    Removed(u64, u64),
    /// The line is not where it was written, or is there twice; with the one before.
    Moved(u64, u64),
    /// A line of a file, counted from 1, is no line of an audit log.
    Unreadable(String, u64),
    /// There is no seal, though there are lines; or it is not the owner's.
    NoSeal,
}

impl fmt::Display for AuditFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(number) => write!(formatter, "line {number} was changed"),
            Self::Removed(one, last) if one == last => write!(formatter, "line {one} was removed"),
            Self::Removed(first, last) => write!(formatter, "lines {first} to {last} were removed"),
            Self::Moved(number, before) => {
                write!(formatter, "line {number} follows line {before}: it was moved, or is there twice")
            }
            Self::Unreadable(file, at) => write!(formatter, "{file} line {at} is not a line of an audit log"),
            Self::NoSeal => write!(
                formatter,
                "audit.seal is missing or is not of this owner's key: lines may have been removed at the end"
            ),
        }
    }
}

/// Reads all files of a data directory's audit log and compares each line with what is known of it.
/// A server may be writing meanwhile: lines after the seal's are chained all the same.
///
/// # Errors
/// A file cannot be read.
pub fn verify(data_dir: &Path, owner: &AccessKeys) -> io::Result<AuditReport> {
    let directory = Directory::new(data_dir);
    // Before the lines: later ones are no fault.
    let seal = directory.seal().unwrap_or(None).filter(|seal| seal.holds(owner));
    let mut check = Check { report: AuditReport::default(), end: None, seen: BTreeSet::new() };
    for path in directory.files()? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = match std::fs::read(&path) {
            // It was rotated just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read?,
        };
        let is_current = first_of(&path).is_none();
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // A line that is being written has no newline yet.
        let whole = if is_current { &bytes[..end] } else { &bytes[..] };
        let text = String::from_utf8_lossy(whole);
        let first = seal.as_ref().map(|seal| seal.first);
        let last = text.lines().next_back().and_then(number_of);
        // It was about to be removed when a server was killed.
        if !is_current && last.zip(first).is_some_and(|(last, first)| last < first) {
            continue;
        }
        for (at, line) in (1..).zip(text.lines()) {
            let sealed = seal.as_ref().map(|seal| (seal.last, seal.hash.as_str()));
            check.line(line, &name, at, first, sealed);
        }
    }
    let last = check.end.as_ref().map_or(0, |end| end.number);
    match &seal {
        Some(seal) if seal.last > last => check.fault(AuditFault::Removed(last.max(seal.first - 1) + 1, seal.last)),
        None if check.report.lines > 0 => check.fault(AuditFault::NoSeal),
        _ => {}
    }
    Ok(check.finish())
}

struct Check {
    report: AuditReport,
    /// The line before.
    end: Option<End>,
    seen: BTreeSet<u64>,
}

impl Check {
    fn fault(&mut self, fault: AuditFault) {
        if self.report.faults.len() < MAX_FAULTS {
            self.report.faults.push(fault);
        }
    }

    /// The report, in which no line is removed that is elsewhere.
    fn finish(mut self) -> AuditReport {
        let mut faults = Vec::new();
        for fault in std::mem::take(&mut self.report.faults) {
            let AuditFault::Removed(first, last) = fault else {
                faults.push(fault);
                continue;
            };
            let mut from = first;
            for present in self.seen.range(first..=last).copied().chain([last + 1]) {
                if from < present {
                    faults.push(AuditFault::Removed(from, present - 1));
                }
                from = present + 1;
            }
        }
        faults.dedup();
        AuditReport { faults, ..self.report }
    }

    fn line(&mut self, text: &str, file: &str, at: u64, first: Option<u64>, sealed: Option<(u64, &str)>) {
        self.report.lines += 1;
        let Ok(line) = serde_json::from_str::<Line>(text) else {
            self.fault(AuditFault::Unreadable(file.to_owned(), at));
            // The next one is compared with its hash.
            let number = self.end.as_ref().map_or(0, |end| end.number) + 1;
            self.end = Some(End::after(number, text));
            return;
        };
        self.seen.insert(line.number);
        let end = End::after(line.number, text);
        let before = self.end.clone().unwrap_or_else(|| first_end(&line, first));
        match line.number.cmp(&(before.number + 1)) {
            std::cmp::Ordering::Greater => self.fault(AuditFault::Removed(before.number + 1, line.number - 1)),
            std::cmp::Ordering::Less => self.fault(AuditFault::Moved(line.number, before.number)),
            std::cmp::Ordering::Equal if self.end.is_some() && line.previous != before.hash => {
                self.fault(AuditFault::Changed(before.number));
            }
            std::cmp::Ordering::Equal => {}
        }
        // Nothing follows the last line that would have its hash.
        if sealed.is_some_and(|(last, hash)| last == line.number && hash != end.hash) {
            self.fault(AuditFault::Changed(line.number));
        }
        self.end = Some(end);
    }
}

/// What comes before the first line that is kept.
fn first_end(line: &Line, first: Option<u64>) -> End {
    let number = first.unwrap_or(line.number).saturating_sub(1);
    End { number, hash: line.previous.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::writer::tests::{owner, write};

    fn faults(dir: &Path) -> Vec<AuditFault> {
        verify(dir, &owner()).unwrap().faults
    }

    /// A log of eight lines, changed so.
    fn after(change: impl FnOnce(&mut Vec<String>)) -> Vec<AuditFault> {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), 8, 1 << 20);
        let path = dir.path().join("audit.log");
        let mut lines: Vec<String> = std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
        change(&mut lines);
        std::fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        faults(dir.path())
    }

    #[test]
    fn what_was_changed_removed_or_moved_is_named() {
        use AuditFault::{Changed, Moved, Removed};
        assert_eq!(after(|_| {}), []);
        for at in 0..8 {
            let number = at as u64 + 1;
            assert_eq!(after(|lines| lines[at] = lines[at].replace("anna", "ben")), [Changed(number)], "{number}");
            assert_eq!(after(|lines| drop(lines.remove(at))), [Removed(number, number)], "{number}");
        }
        assert_eq!(after(|lines| drop(lines.drain(2..5))), [Removed(3, 5)]);
        assert_eq!(after(|lines| lines.truncate(5)), [Removed(6, 8)], "at the end");
        assert_eq!(after(Vec::clear), [Removed(1, 8)]);
        assert_eq!(after(|lines| drop(lines.drain(..2))), [Removed(1, 2)], "at the beginning");
        let swapped = after(|lines| lines.swap(3, 4));
        assert_eq!(swapped, [Moved(4, 5)]);
        let twice = after(|lines| lines.insert(4, lines[3].clone()));
        assert!(twice.contains(&Moved(4, 4)), "{twice:?}");
        let unreadable = after(|lines| lines[2] = "deleted".to_owned());
        assert!(unreadable.contains(&AuditFault::Unreadable("audit.log".to_owned(), 3)), "{unreadable:?}");
    }

    /// One without the owner's key cannot make another log of it.
    #[test]
    fn a_log_that_is_written_again_has_another_seal() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), 8, 1 << 20);
        let forged = tempfile::tempdir().unwrap();
        write(forged.path(), 8, 1 << 20);
        let text = std::fs::read_to_string(forged.path().join("audit.log")).unwrap();
        let mut end = End::default();
        let again: String = text
            .lines()
            .map(|line| end.append(serde_json::from_str::<Line>(&line.replace("anna", "ben")).unwrap().record))
            .collect();
        std::fs::write(dir.path().join("audit.log"), again).unwrap();
        assert_eq!(faults(dir.path()), [AuditFault::Changed(8)]);
        std::fs::remove_file(dir.path().join("audit.seal")).unwrap();
        assert_eq!(faults(dir.path()), [AuditFault::NoSeal]);
        let other = AccessKeys { secret_access_key: "other".to_owned(), ..owner() };
        write(forged.path(), 1, 1 << 20);
        assert_eq!(verify(forged.path(), &other).unwrap().faults, [AuditFault::NoSeal]);
    }

    #[test]
    fn a_full_file_that_is_gone_is_missed() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), 12, 600);
        let files = Directory::new(dir.path()).files().unwrap();
        assert!(files.len() > 2, "{files:?}");
        std::fs::remove_file(&files[1]).unwrap();
        let faults = faults(dir.path());
        assert!(matches!(faults.as_slice(), [AuditFault::Removed(..)]), "{faults:?}");
    }
}
