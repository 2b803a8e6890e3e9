//! System metrics of an instance in a minute, as bytes: all samples, or for each column how many
//! there were, and the least, mean and greatest value. Pure.
//!
//! The first byte is the form. Samples: tables one behind another, each its number of columns
//! (u16), the columns, its number of rows (u32) and the rows: the time, doubled, and one more for a
//! sample of the profiler's (u64), and a value for each column (f32). Short form: the number of
//! columns (u16), and of each the count (u32) and three values (f32). A column: the length of its
//! name (u8), the name, GPU and rank (u32; the greatest number stands for none). All numbers are
//! little-endian.

use std::collections::BTreeMap;

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SystemColumn {
    /// `CPUUtilization` and the like.
    pub metric: String,
    /// Of one GPU.
    pub gpu: Option<u32>,
    /// Of the processes of one rank.
    pub rank: Option<u32>,
}

/// A sample of an instance.
#[derive(Debug, Clone, PartialEq)]
pub struct SystemRow {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// It belongs into the profiler's files.
    pub is_profiled: bool,
    /// By column.
    pub values: Vec<f32>,
}

/// Samples that have the same columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SystemTable {
    /// At most 65,535, with names of at most 255 bytes.
    pub columns: Vec<SystemColumn>,
    /// In order of time.
    pub rows: Vec<SystemRow>,
}

/// Some samples of a column in a row, of which only this may be known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SystemPoint {
    /// Time of the first, in milliseconds since the epoch; of a short form that of its minute.
    pub at_ms: u64,
    /// How many; at least 1.
    pub count: u32,
    /// The least value.
    pub low: f32,
    /// The mean.
    pub mean: f32,
    /// The greatest value.
    pub high: f32,
}

impl SystemPoint {
    fn of(at_ms: u64, value: f32) -> Self {
        Self { at_ms, count: 1, low: value, mean: value, high: value }
    }

    /// With those that follow.
    #[must_use]
    pub fn joined(self, next: Self) -> Self {
        let count = self.count + next.count;
        let sum = |point: Self| f64::from(point.mean) * f64::from(point.count);
        Self {
            at_ms: self.at_ms,
            count,
            low: self.low.min(next.low),
            mean: ((sum(self) + sum(next)) / f64::from(count)) as f32,
            high: self.high.max(next.high),
        }
    }

    /// As many values with the same sum, least and greatest one.
    pub fn values(self) -> impl Iterator<Item = f64> {
        let [low, mean, high] = [self.low, self.mean, self.high].map(f64::from);
        let others = f64::from(self.count.saturating_sub(2));
        let between = (mean * f64::from(self.count) - low - high) / others;
        (0..self.count).map(move |at| match (self.count, at) {
            (1, _) => mean,
            (_, 0) => low,
            (_, 1) => high,
            _ => between,
        })
    }
}

/// A minute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Minute {
    Samples(Vec<SystemTable>),
    Short(BTreeMap<SystemColumn, SystemPoint>),
}

const SAMPLES: u8 = 1;
const SHORT: u8 = 2;
const NONE: u32 = u32::MAX;

impl Minute {
    /// Adds a table, whose samples follow.
    pub(crate) fn append(&mut self, table: SystemTable) {
        match self {
            Self::Samples(tables) => match tables.last_mut().filter(|last| last.columns == table.columns) {
                Some(last) => last.rows.extend(table.rows),
                None => tables.push(table),
            },
            Self::Short(columns) => {
                for (column, point) in Self::Samples(vec![table])
                    .points(0)
                    .into_iter()
                    .flat_map(|(column, points)| points.into_iter().map(move |point| (column.clone(), point)))
                {
                    columns.entry(column).and_modify(|before| *before = before.joined(point)).or_insert(point);
                }
            }
        }
    }

    /// The points of each column; those of a short form are of this minute.
    pub(crate) fn points(self, minute_ms: u64) -> BTreeMap<SystemColumn, Vec<SystemPoint>> {
        match self {
            Self::Samples(tables) => {
                let mut all = BTreeMap::<SystemColumn, Vec<SystemPoint>>::new();
                for SystemTable { columns, rows } in tables {
                    for (at, column) in columns.into_iter().enumerate() {
                        let points = rows.iter().map(|row| SystemPoint::of(row.at_ms, row.values[at]));
                        all.entry(column).or_default().extend(points);
                    }
                }
                all
            }
            Self::Short(columns) => {
                let point = |(column, point)| (column, vec![SystemPoint { at_ms: minute_ms, ..point }]);
                columns.into_iter().map(point).collect()
            }
        }
    }

    /// The short form.
    pub(crate) fn shortened(self) -> Self {
        let short = |(column, points): (SystemColumn, Vec<SystemPoint>)| {
            let point = points.into_iter().reduce(SystemPoint::joined)?;
            Some((column, SystemPoint { at_ms: 0, ..point }))
        };
        Self::Short(self.points(0).into_iter().filter_map(short).collect())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Samples(tables) => {
                bytes.push(SAMPLES);
                for table in tables {
                    put_columns(&mut bytes, table.columns.iter());
                    bytes.extend((table.rows.len() as u32).to_le_bytes());
                    for row in &table.rows {
                        bytes.extend((row.at_ms << 1 | u64::from(row.is_profiled)).to_le_bytes());
                        row.values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
                    }
                }
            }
            Self::Short(columns) => {
                bytes.push(SHORT);
                put_columns(&mut bytes, columns.keys());
                for point in columns.values() {
                    bytes.extend(point.count.to_le_bytes());
                    [point.low, point.mean, point.high].iter().for_each(|value| bytes.extend(value.to_le_bytes()));
                }
            }
        }
        bytes
    }

    /// `None` if these bytes are not a minute.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (form, bytes) = bytes.split_first()?;
        let mut reader = Reader(bytes);
        match *form {
            SAMPLES => {
                let mut tables = Vec::new();
                while !reader.0.is_empty() {
                    let columns = reader.columns()?;
                    let rows = (0..reader.u32()?).map(|_| reader.row(columns.len())).collect::<Option<_>>()?;
                    tables.push(SystemTable { columns, rows });
                }
                Some(Self::Samples(tables))
            }
            SHORT => {
                let columns = reader.columns()?;
                let all = columns.into_iter().map(|column| {
                    let (count, low, mean, high) = (reader.u32()?, reader.f32()?, reader.f32()?, reader.f32()?);
                    Some((column, SystemPoint { at_ms: 0, count: count.max(1), low, mean, high }))
                });
                all.collect::<Option<_>>().map(Self::Short)
            }
            _ => None,
        }
    }
}

/// Columns as bytes.
pub(crate) fn encode_columns<'a>(columns: impl ExactSizeIterator<Item = &'a SystemColumn>) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_columns(&mut bytes, columns);
    bytes
}

/// Reads them again; `None` if these bytes are something else.
pub(crate) fn decode_columns(bytes: &[u8]) -> Option<Vec<SystemColumn>> {
    Reader(bytes).columns()
}

fn put_columns<'a>(bytes: &mut Vec<u8>, columns: impl ExactSizeIterator<Item = &'a SystemColumn>) {
    bytes.extend((columns.len() as u16).to_le_bytes());
    for column in columns {
        bytes.push(column.metric.len() as u8);
        bytes.extend(column.metric.as_bytes());
        bytes.extend(column.gpu.unwrap_or(NONE).to_le_bytes());
        bytes.extend(column.rank.unwrap_or(NONE).to_le_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn f32(&mut self) -> Option<f32> {
        self.take().map(f32::from_le_bytes)
    }

    fn row(&mut self, columns: usize) -> Option<SystemRow> {
        let at = u64::from_le_bytes(self.take()?);
        let values = (0..columns).map(|_| self.f32()).collect::<Option<_>>()?;
        Some(SystemRow { at_ms: at >> 1, is_profiled: at & 1 == 1, values })
    }

    fn columns(&mut self) -> Option<Vec<SystemColumn>> {
        let count = u16::from_le_bytes(self.take()?);
        let mut column = || {
            let length = usize::from(u8::from_le_bytes(self.take()?));
            let (name, rest) = self.0.split_at_checked(length)?;
            self.0 = rest;
            let metric = std::str::from_utf8(name).ok()?.to_owned();
            let (gpu, rank) = (self.u32()?, self.u32()?);
            let number = |number| Some(number).filter(|it| *it != NONE);
            Some(SystemColumn { metric, gpu: number(gpu), rank: number(rank) })
        };
        (0..count).map(|_| column()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(metric: &str, gpu: Option<u32>, rank: Option<u32>) -> SystemColumn {
        SystemColumn { metric: metric.to_owned(), gpu, rank }
    }

    fn table(columns: &[SystemColumn], from: u64, count: u64) -> SystemTable {
        let row = |at_ms| SystemRow {
            at_ms,
            is_profiled: at_ms % 2 == 0,
            values: (0..columns.len()).map(|at| (at_ms * 10) as f32 + at as f32).collect(),
        };
        SystemTable { columns: columns.to_vec(), rows: (from..from + count).map(row).collect() }
    }

    #[test]
    fn a_minute_is_read_as_it_was_written() {
        let (cpu, gpu) = (column("CPUUtilization", None, None), column("GPUUtilization", Some(0), Some(7)));
        let mut minute = Minute::Samples(Vec::new());
        minute.append(table(&[cpu.clone(), gpu.clone()], 1_700_000_000_000, 3));
        minute.append(table(&[cpu.clone(), gpu.clone()], 1_700_000_000_003, 2));
        minute.append(table(std::slice::from_ref(&cpu), 1_700_000_000_005, 1));
        let Minute::Samples(tables) = &minute else { panic!("{minute:?}") };
        assert_eq!(tables.iter().map(|table| table.rows.len()).collect::<Vec<_>>(), [5, 1]);
        let bytes = minute.encode();
        assert_eq!(Minute::decode(&bytes), Some(minute.clone()));
        for cut in 0..bytes.len() {
            // What is cut behind a table is a minute with fewer of them.
            assert_ne!(Minute::decode(&bytes[..cut]), Some(minute.clone()), "{cut}");
        }
        let short = minute.shortened();
        assert_eq!(Minute::decode(&short.encode()), Some(short));
        assert_eq!(Minute::decode(&[9]), None);
        assert_eq!(decode_columns(&encode_columns([cpu.clone(), gpu.clone()].iter())), Some(vec![cpu, gpu]));
    }

    #[test]
    fn a_short_form_keeps_count_sum_and_extremes() {
        let cpu = column("CPUUtilization", None, None);
        let mut minute = Minute::Samples(vec![table(std::slice::from_ref(&cpu), 0, 4)]).shortened();
        minute.append(table(std::slice::from_ref(&cpu), 4, 2));
        let points = minute.points(60_000);
        assert_eq!(points[&cpu], [SystemPoint { at_ms: 60_000, count: 6, low: 0.0, mean: 25.0, high: 50.0 }]);
        for (count, low, mean, high) in [(1, 5.0, 5.0, 5.0), (2, 1.0, 2.0, 3.0), (6, 0.0, 25.0, 50.0)] {
            let values: Vec<f64> = SystemPoint { at_ms: 0, count, low, mean, high }.values().collect();
            assert_eq!(values.len(), count as usize);
            assert!((values.iter().sum::<f64>() - f64::from(mean) * f64::from(count)).abs() < 1e-3);
            assert_eq!(values.iter().copied().fold(f64::INFINITY, f64::min), f64::from(low));
            assert_eq!(values.iter().copied().fold(0.0, f64::max), f64::from(high));
        }
    }
}
