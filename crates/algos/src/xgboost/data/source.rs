//! A channel as a repeatable stream of batches in bounded memory.

use super::csv::{CsvOptions, Layout};
use super::files::Files;
use super::lines::{Lines, Position};
use super::{Batch, DataError, libsvm};

/// How a channel's lines are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::xgboost) enum Format {
    /// See [`super::csv`].
    Csv(CsvOptions),
    /// See [`super::libsvm`].
    Libsvm,
}

/// Rows per batch at most, and bytes per batch about.
const BATCH_ROWS: usize = 1 << 16;
const BATCH_BYTES: usize = 16 << 20;

/// Parsed rows that are kept between passes; what comes after is parsed again in each pass.
/// Building a quantile matrix takes four passes.
const KEPT_BYTES: usize = 512 << 20;

/// A channel's rows.
#[derive(Debug)]
pub(in crate::xgboost) struct Source {
    files: Files,
    parser: Parser,
    columns: usize,
    labels: Vec<f32>,
    weights: Vec<f32>,
    groups: Vec<u32>,
    /// The first batches, and the place after them.
    kept: Vec<Batch>,
    resume: Position,
    /// The next batch of the current pass.
    cursor: Cursor,
    scratch: Batch,
}

#[derive(Debug, Clone, Copy)]
enum Cursor {
    Kept(usize),
    Parsed(Position),
}

#[derive(Debug, Clone, Copy)]
enum Parser {
    Csv(Layout),
    Libsvm,
}

impl Parser {
    fn empty_batch(self) -> Batch {
        match self {
            Self::Csv(layout) => Batch::dense(layout.columns()),
            Self::Libsvm => Batch::sparse(),
        }
    }

    /// Fills `batch` from `position` on; returns the place after it and the greatest number of
    /// columns seen.
    fn fill(self, files: &Files, position: Position, batch: &mut Batch) -> Result<(Position, usize), DataError> {
        batch.clear();
        let mut lines = Lines::at(files, position);
        let mut columns = match self {
            Self::Csv(layout) => layout.columns(),
            Self::Libsvm => 0,
        };
        while batch.rows() < BATCH_ROWS && batch.bytes() < BATCH_BYTES {
            let Some(line) = lines.next()? else { break };
            let parsed = match self {
                Self::Csv(layout) => layout.parse(line, batch).map(|()| columns),
                Self::Libsvm => libsvm::parse(line, batch),
            };
            columns = columns.max(parsed.map_err(|field| self.explain(lines.bad(field)))?);
        }
        Ok((lines.position(), columns))
    }

    /// A first line that is not numbers is most often a header. Fields that are not separated by
    /// commas are read all the same, which their user will ask next.
    fn explain(self, error: DataError) -> DataError {
        match error {
            DataError::Line { file, line: 1, column, reason } if reason.ends_with("is not a number") => {
                let Self::Csv(layout) = self else { return DataError::Line { file, line: 1, column, reason } };
                let separator = match layout.delimiter {
                    b',' => String::new(),
                    other => format!(" ('{}' between fields is understood)", char::from(other).escape_debug()),
                };
                let reason = format!(
                    "{reason}; csv files must have no header line (remove it: tail -n +2) and the label in the first \
                     column{separator}"
                );
                DataError::Line { file, line: 1, column, reason }
            }
            other => other,
        }
    }
}

impl Source {
    /// Reads the whole channel once and checks every line of it; `None` if it has no rows.
    pub(in crate::xgboost) fn scan(files: Files, format: Format) -> Result<Option<Self>, DataError> {
        Self::scan_keeping(files, format, KEPT_BYTES)
    }

    fn scan_keeping(files: Files, format: Format, kept_bytes: usize) -> Result<Option<Self>, DataError> {
        let parser = match format {
            Format::Libsvm => Parser::Libsvm,
            Format::Csv(options) => {
                let mut lines = Lines::at(&files, Position::default());
                let Some(line) = lines.next()?.map(<[u8]>::to_vec) else { return Ok(None) };
                Parser::Csv(Layout::sniff(&line, options).map_err(|field| lines.bad(field))?)
            }
        };
        let mut source = Self {
            files,
            parser,
            columns: 0,
            labels: Vec::new(),
            weights: Vec::new(),
            groups: Vec::new(),
            kept: Vec::new(),
            resume: Position::default(),
            cursor: Cursor::Kept(0),
            scratch: parser.empty_batch(),
        };
        let (mut position, mut bytes, mut keeping) = (Position::default(), 0, true);
        loop {
            let mut batch = parser.empty_batch();
            let (after, columns) = parser.fill(&source.files, position, &mut batch)?;
            if batch.rows() == 0 {
                break;
            }
            source.note(&batch, columns)?;
            position = after;
            bytes += batch.bytes();
            keeping &= bytes <= kept_bytes;
            if keeping {
                source.kept.push(batch);
                source.resume = after;
            }
        }
        if source.labels.is_empty() {
            return Ok(None);
        }
        let weighted = source.is_weighted();
        source.kept.iter_mut().for_each(|batch| complete_weights(batch, weighted));
        Ok(Some(source))
    }

    /// Remembers what every row has besides features: metrics need it for all rows at once.
    fn note(&mut self, batch: &Batch, columns: usize) -> Result<(), DataError> {
        self.columns = self.columns.max(columns);
        if !batch.weights.is_empty() {
            // Rows before the first weighted one weigh 1.
            self.weights.resize(self.labels.len(), 1.0);
            self.weights.extend_from_slice(&batch.weights);
        } else if !self.weights.is_empty() {
            self.weights.resize(self.labels.len() + batch.rows(), 1.0);
        }
        if batch.groups.is_empty() != self.groups.is_empty() && !self.labels.is_empty() {
            return Err(DataError::Channel(
                "some rows of the channel have a query id (qid) and some have none".to_owned(),
            ));
        }
        self.groups.extend_from_slice(&batch.groups);
        self.labels.extend_from_slice(&batch.labels);
        Ok(())
    }

    /// Rows of the channel.
    pub(in crate::xgboost) fn rows(&self) -> usize {
        self.labels.len()
    }

    /// Feature columns.
    pub(in crate::xgboost) fn columns(&self) -> usize {
        self.columns
    }

    /// One label per row.
    pub(in crate::xgboost) fn labels(&self) -> &[f32] {
        &self.labels
    }

    /// One weight per row, or nothing if no row has one.
    pub(in crate::xgboost) fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// One query id per row, or nothing if the rows have none.
    pub(in crate::xgboost) fn groups(&self) -> &[u32] {
        &self.groups
    }

    fn is_weighted(&self) -> bool {
        !self.weights.is_empty()
    }

    /// Begins a new pass.
    pub(in crate::xgboost) fn rewind(&mut self) {
        self.cursor = Cursor::Kept(0);
    }

    /// The next batch of the current pass; `None` at the end.
    pub(in crate::xgboost) fn next_batch(&mut self) -> Result<Option<&Batch>, DataError> {
        if let Cursor::Kept(index) = self.cursor {
            if index < self.kept.len() {
                self.cursor = Cursor::Kept(index + 1);
                return Ok(Some(&self.kept[index]));
            }
            self.cursor = Cursor::Parsed(self.resume);
        }
        let Cursor::Parsed(position) = self.cursor else { unreachable!("set above") };
        let (after, _) = self.parser.fill(&self.files, position, &mut self.scratch)?;
        complete_weights(&mut self.scratch, !self.weights.is_empty());
        self.cursor = Cursor::Parsed(after);
        Ok((self.scratch.rows() > 0).then_some(&self.scratch))
    }

    /// Every row in one batch.
    pub(in crate::xgboost) fn read_whole(&mut self) -> Result<Batch, DataError> {
        let mut whole = self.parser.empty_batch();
        self.rewind();
        while let Some(batch) = self.next_batch()? {
            whole.append(batch);
        }
        Ok(whole)
    }

    /// Frees the parsed rows; a later pass parses again.
    pub(in crate::xgboost) fn forget_rows(&mut self) {
        self.kept = Vec::new();
        self.scratch = self.parser.empty_batch();
        self.resume = Position::default();
        self.rewind();
    }
}

/// In a channel with weights every batch has them.
fn complete_weights(batch: &mut Batch, weighted: bool) {
    if weighted {
        batch.weights.resize(batch.labels.len(), 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Features;
    use super::*;

    fn channel(files: &[(&str, &str)]) -> (tempfile::TempDir, Files) {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = directory.path().join("train").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let files = Files::list(&directory.path().join("train")).unwrap();
        (directory, files)
    }

    fn csv() -> Format {
        Format::Csv(CsvOptions { weights: false })
    }

    #[test]
    fn a_channel_is_all_its_files_in_order() {
        let (_directory, files) = channel(&[
            ("b.csv", "3,30\n"),
            ("a/2.csv", "\u{feff}2,20"),
            ("a/1.csv", "1,10\r\n\r\n"),
            ("_SUCCESS", "x"),
            (".hidden", "x"),
            ("a/_tmp/1.csv", "x"),
            ("empty.csv", ""),
        ]);
        let mut source = Source::scan(files, csv()).unwrap().unwrap();
        assert_eq!((source.rows(), source.columns()), (3, 1));
        assert_eq!(source.labels(), [1.0, 2.0, 3.0]);
        assert_eq!(
            source.read_whole().unwrap().features,
            Features::Dense { values: vec![10.0, 20.0, 30.0], columns: 1 }
        );
    }

    #[test]
    fn passes_agree_whether_rows_are_kept_or_parsed_again() {
        let rows = 50_000;
        let text: String = (0..rows).map(|row| format!("{},{},{}\n", row % 2, row, row * 7 % 13)).collect();
        let sparse: String = (0..rows).map(|row| format!("{} {}:{}\n", row % 2, row % 5, row)).collect();
        for (format, text) in [(csv(), text), (Format::Libsvm, sparse)] {
            for kept in [0, 1 << 20, usize::MAX] {
                let (_directory, files) = channel(&[("1", &text), ("2", &text)]);
                let mut source = Source::scan_keeping(files, format, kept).unwrap().unwrap();
                assert_eq!(source.rows(), 2 * rows, "{format:?}");
                let first = source.read_whole().unwrap();
                assert_eq!(first.rows(), 2 * rows);
                assert!(first == source.read_whole().unwrap(), "two passes differ, {kept} bytes kept of {format:?}");
                source.forget_rows();
                assert!(
                    first == source.read_whole().unwrap(),
                    "a parsed pass differs, {kept} bytes kept of {format:?}"
                );
            }
        }
    }

    #[test]
    fn nothing_to_read_is_no_source() {
        for files in [&[][..], &[("a", "")], &[("a", "\n\n")]] {
            for format in [csv(), Format::Libsvm] {
                let (_directory, files) = channel(files);
                assert!(Source::scan(files, format).unwrap().is_none());
            }
        }
    }

    #[test]
    fn weights_may_begin_late() {
        let (_directory, files) = channel(&[("1", &"1 1:1\n".repeat(BATCH_ROWS)), ("2", "0:0.5 1:1\n")]);
        let mut source = Source::scan(files, Format::Libsvm).unwrap().unwrap();
        assert_eq!(source.weights().len(), BATCH_ROWS + 1);
        let whole = source.read_whole().unwrap();
        assert_eq!(whole.weights, source.weights());
        assert_eq!((whole.weights[0], whole.weights[BATCH_ROWS]), (1.0, 0.5));
    }

    #[test]
    fn errors_name_file_line_and_column() {
        let cases = [
            (csv(), "1,2\n\n1,x\n", "train/f, line 3, column 2: \"x\" is not a number"),
            (
                csv(),
                "y,x\n1,2\n",
                "train/f, line 1, column 1: \"y\" is not a number; csv files must have no header line (remove it: tail \
                 -n +2) and the label in the first column",
            ),
            (
                csv(),
                "\"fixed acidity\";\"quality\"\n7.4;5\n",
                "train/f, line 1, column 1: \"\\\"fixed acidity\\\"\" is not a number; csv files must have no header \
                 line (remove it: tail -n +2) and the label in the first column \
                 (';' between fields is understood)",
            ),
            (csv(), "1,2\n1\n", "train/f, line 2, column 1: the line has 1 columns and the channel's first line has 2"),
            (Format::Libsvm, "1 1:2\n1 1;2\n", "train/f, line 2, column 2: \"1;2\" is not index:value"),
            (
                csv(),
                "\u{1f}\u{8b}x,1\n",
                "train/f, line 1, column 1: \"\\u{1f}\\u{8b}x\" is not a number; csv files must have no header line \
                 (remove it: tail -n +2) and the label in the first column",
            ),
            (csv(), "PAR1\u{0}", "train/f: the file is Apache Parquet: this XGBoost reads csv and libsvm"),
        ];
        for (format, text, expected) in cases {
            let (_directory, files) = channel(&[("f", text)]);
            assert_eq!(Source::scan(files, format).unwrap_err().to_string(), expected, "{text:?}");
        }
    }
}
