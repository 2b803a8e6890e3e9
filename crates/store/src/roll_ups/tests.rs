use std::path::Path;

use super::*;
use crate::{Ingest, MetricPoint};

fn open(directory: &Path) -> Telemetry {
    Telemetry::open(&directory.join("telemetry.db")).unwrap()
}

/// Values and times of hosts' points, in batches of some; a seed gives the same.
fn say(telemetry: &Telemetry, seq: u64, host: u32, times: impl Iterator<Item = u64>) {
    let value = |at_ms: u64| if at_ms.is_multiple_of(97) { f64::NAN } else { (at_ms * 7_919 % 1_009) as f64 };
    let points = times.map(|at_ms| MetricPoint { metric: "loss".to_owned(), at_ms, value: value(at_ms) }).collect();
    let report = Ingest { attempt: "a".to_owned(), host, seq, job: "j".to_owned(), points, ..Ingest::default() };
    telemetry.ingest(&report).unwrap();
}

fn number_of_blocks(telemetry: &Telemetry) -> usize {
    telemetry.database.read(|connection| Ok(read_blocks(connection, 1)?.len())).unwrap()
}

/// What the stretches must be made of: the points themselves, numbered by host.
fn expected(telemetry: &Telemetry) -> BTreeMap<Option<u32>, Vec<Sample>> {
    let mut hosts: BTreeMap<Option<u32>, Vec<Sample>> = BTreeMap::new();
    for Point { at_ms, value, host } in telemetry.read_points("j", "loss", 0, u64::MAX).unwrap() {
        let samples = hosts.entry(host).or_default();
        samples.push(Sample { step: samples.len() as u64 + 1, at_ms, value });
    }
    hosts
}

fn is_same(a: &Sample, b: &Sample) -> bool {
    (a.step, a.at_ms, a.value.to_bits()) == (b.step, b.at_ms, b.value.to_bits())
}

/// Compares stretches with the points; returns how many stretches there are.
fn check(telemetry: &Telemetry, from: u64, to: u64) -> usize {
    let read = telemetry.read_stretches("j", "loss", from, to).unwrap().hosts;
    let all = expected(telemetry);
    assert_eq!(read.keys().collect::<Vec<_>>(), all.keys().collect::<Vec<_>>());
    for (host, samples) in &all {
        let HostSeries { total, stretches } = &read[host];
        assert_eq!(*total, samples.len() as u64, "{host:?}");
        let mut next = from.max(1);
        for stretch in stretches {
            assert_eq!(stretch.first_step, next, "{host:?}: no gap");
            next = stretch.last.step + 1;
            let points = &samples[stretch.first_step as usize - 1..stretch.last.step as usize];
            let by_value = |a: &&Sample, b: &&Sample| a.value.total_cmp(&b.value);
            let low = points.iter().min_by(by_value).unwrap();
            assert!(is_same(low, &stretch.low), "{host:?}: {low:?} {:?}", stretch.low);
            assert_eq!(points.iter().max_by(by_value).unwrap().value.to_bits(), stretch.high.value.to_bits());
            assert!(
                is_same(points.last().unwrap(), &stretch.last)
                    && is_same(&samples[stretch.high.step as usize - 1], &stretch.high)
            );
        }
        assert_eq!(next, (to.min(*total) + 1).max(from.max(1)), "{host:?}: to the end");
    }
    read.values().map(|series| series.stretches.len()).sum()
}

#[test]
fn stretches_are_the_points_of_one_host_and_of_several() {
    for hosts in [1_u32, 3, 100] {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = open(temp.path());
        let each = 60_000 / u64::from(hosts);
        for host in 1..=hosts {
            say(&telemetry, 1, host, (0..each).map(|at| 10 * at + u64::from(host % 7)));
        }
        let points = check(&telemetry, 1, u64::MAX);
        assert_eq!(points, 60_000 / hosts as usize * hosts as usize, "no block yet");
        telemetry.roll_up().unwrap();
        assert!(number_of_blocks(&telemetry) > 2);
        let stretches = check(&telemetry, 1, u64::MAX);
        assert!(hosts > 1 || stretches < 1_000, "{stretches} of {points}");
        for (from, to) in [(1, 1), (300, 55_000), (256, 512), (257, 300), (each, each), (each + 1, u64::MAX)] {
            check(&telemetry, from, to);
        }
    }
}

#[test]
fn points_that_come_late_or_go_are_seen() {
    let temp = tempfile::tempdir().unwrap();
    let telemetry = open(temp.path());
    say(&telemetry, 1, 1, (0..60_000).map(|at| 10 * at));
    telemetry.roll_up().unwrap();
    let blocks = number_of_blocks(&telemetry);
    say(&telemetry, 2, 1, [590_000, 300_005].into_iter());
    assert!(number_of_blocks(&telemetry) < blocks * 6 / 10, "those after the late point are gone");
    check(&telemetry, 1, u64::MAX);
    telemetry.roll_up().unwrap();
    assert_eq!(number_of_blocks(&telemetry), blocks);
    check(&telemetry, 1, u64::MAX);
    // As retention does: in the middle of a block.
    telemetry.remove_points(1, 123_456).unwrap();
    check(&telemetry, 1, u64::MAX);
    check(&telemetry, 100, 50_000);
    telemetry.roll_up().unwrap();
    say(&telemetry, 3, 2, (0..60_000).map(|at| 1_000_000 + at));
    telemetry.roll_up().unwrap();
    check(&telemetry, 1, u64::MAX);
    telemetry.delete_series("j").unwrap();
    assert!(telemetry.read_stretches("j", "loss", 1, u64::MAX).unwrap().hosts.is_empty());
    let left =
        telemetry.database.read(|it| Ok(it.query_row("SELECT count(*) FROM roll_up", [], |row| row.get::<_, u64>(0))?));
    assert_eq!(left.unwrap(), 0);
}

/// What a page with a million points costs: each stretch is a stored row, of a block or of a point
/// that is in none yet.
#[test]
fn a_chart_of_a_million_points_reads_some_thousand_rows() {
    let temp = tempfile::tempdir().unwrap();
    let telemetry = open(temp.path());
    say(&telemetry, 1, 1, 1..2);
    let fill = "WITH RECURSIVE number (n) AS (VALUES (2) UNION ALL SELECT n + 1 FROM number WHERE n < 1000000)
        INSERT INTO point (series, at_ms, position, value, host) SELECT 1, n, n, n % 1009, 1 FROM number";
    let filled = telemetry.database.write(|tx| {
        tx.execute(fill, [])?;
        Ok(tx.execute("UPDATE series SET points = 1000000 WHERE id = 1", [])?)
    });
    assert_eq!(filled.unwrap(), 1);
    while telemetry.read_stretches("j", "loss", 1, u64::MAX).unwrap().hosts[&Some(1)].stretches.len() > 5_000 {
        telemetry.roll_up().unwrap();
    }
    let rows = telemetry.database.read(|connection| {
        let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u64>(0));
        let end = "SELECT count(*) FROM point WHERE at_ms > (SELECT max(until_ms) FROM roll_up)";
        Ok((count("SELECT count(*) FROM roll_up")?, count(end)?))
    });
    let (blocks, rest) = rows.unwrap();
    assert_eq!((blocks, rest), (1_000_000 / BLOCK_POINTS as u64, 1_000_000 % BLOCK_POINTS as u64));
    let whole = telemetry.read_stretches("j", "loss", 1, u64::MAX).unwrap();
    let series = &whole.hosts[&Some(1)];
    assert_eq!(
        (series.total, series.stretches.len() as u64),
        (1_000_000, blocks + rest),
        "no block is read from its points"
    );
    assert_eq!(whole.position.points, 1_000_000);
    // A zoom reads the points of the blocks at its ends, or of few blocks.
    let part = &telemetry.read_stretches("j", "loss", 100_001, 900_000).unwrap().hosts[&Some(1)];
    let inside = 800_000 / BLOCK_POINTS;
    assert!((inside - 1..inside + 2 * BLOCK_POINTS).contains(&part.stretches.len()), "{}", part.stretches.len());
}
