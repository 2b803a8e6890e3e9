//! `FilterLogEvents`: the lines of several streams as one, by time.
//!
//! Streams are merged by the times of their first lines that are not yet told; one is read when its
//! turn may have come, and those outside the window never. A page ends at a time; streams that were
//! over by then and those that had not begun need no mention in its token, so that a token is as
//! long as there were hosts at once, and not as the group.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

use shoal_store::{GroupInfo, LINE_OVERHEAD, LogEvent, LogQuery, StreamInfo, Telemetry};
use shoal_wire::{Error, ErrorCode, FilterLogEvents, FilterPattern, FilteredLogEvent, LogGroup, Reply, Streams, arn};

use super::{
    Api, blocking,
    logs::{MOST_BYTES, check_group},
    token,
};
use crate::{hex::sha256_hex, internal::internal};

/// Most lines that are looked at for one page; AWS's pages may be short, too, and say that there is
/// more.
const MOST_LOOKED_AT: usize = 100_000;
/// Lines of a stream that are read at a time; fewer where many streams are merged, so that all that
/// is read ahead stays bounded.
const READ_AHEAD: usize = 1000;
/// Lines and bytes that are read ahead of all streams together, about.
const ALL_AHEAD: usize = 20_000;
const ALL_AHEAD_BYTES: usize = 8 << 20;

impl Api {
    pub(super) async fn filter_log_events(&self, request: FilterLogEvents) -> Result<Reply, Error> {
        let telemetry = self.telemetry.clone();
        blocking(move || {
            check_group(&telemetry, &request.group)?;
            let FilterLogEvents { group, streams, start_ms, end_ms, pattern_text, .. } = &request;
            let question = token::question(&(group, streams, start_ms, end_ms, pattern_text))?;
            let from = match &request.next_token {
                Some(given) => Place::read(&token::open(&question, given)?)?,
                None => Place::default(),
            };
            let filter = Filter {
                pattern: &request.pattern,
                start_ms: request.start_ms.unwrap_or(0),
                end_ms: request.end_ms.map_or(u64::MAX, |end| end.saturating_add(1)),
                limit: request.limit as usize,
                look_at: MOST_LOOKED_AT,
                group: &request.group,
            };
            let (events, next) =
                merge(&telemetry, &chosen(&telemetry, &request.group, &request.streams)?, &filter, &from)?;
            Ok(Reply::filter_log_events(&events, next.map(|place| token::seal(&question, &place.write())).as_deref()))
        })
        .await
    }

    pub(super) async fn log_groups(&self, request: shoal_wire::DescribeLogGroups) -> Result<Reply, Error> {
        let telemetry = self.telemetry.clone();
        let (region, account) = (self.identity.region.clone(), self.identity.account.clone());
        blocking(move || {
            let groups = telemetry.log_groups().map_err(|error| internal(&error))?;
            let group = |group: GroupInfo| LogGroup {
                arn: arn::log_group(&region, &account, &group.name),
                name: group.name,
                created_ms: group.created_ms,
                retention_days: group.retention_days,
                bytes: group.bytes,
            };
            let question =
                token::question(&("log groups", &request.prefix, &request.part, &request.class, &request.names))?;
            let after = request
                .next_token
                .as_deref()
                .map(|token| token::open(&question, token))
                .transpose()?
                .unwrap_or_default();
            let mut wanted =
                groups.into_iter().filter(|group| group.name > after && request.wants(&group.name)).map(group);
            let groups: Vec<LogGroup> = wanted.by_ref().take(request.limit as usize).collect();
            let next_token =
                groups.last().filter(|_| wanted.next().is_some()).map(|last| token::seal(&question, &last.name));
            Ok(Reply::describe_log_groups(&groups, next_token.as_deref()))
        })
        .await
    }
}

fn chosen(telemetry: &Telemetry, group: &str, streams: &Streams) -> Result<Vec<StreamInfo>, Error> {
    let with_prefix =
        |prefix: &str, most: usize| telemetry.streams_of(group, prefix, None, most).map_err(|error| internal(&error));
    match streams {
        Streams::Prefix(prefix) => with_prefix(prefix, usize::MAX),
        Streams::Named(names) => {
            let named = |name: &String| {
                let missing = || {
                    Error::new(ErrorCode::ResourceNotFound, format!("The specified log stream does not exist: {name}"))
                };
                // It is the first of those whose names begin so.
                with_prefix(name, 1)?.into_iter().find(|stream| stream.name == *name).ok_or_else(missing)
            };
            let mut found = names.iter().map(named).collect::<Result<Vec<_>, _>>()?;
            found.sort_by(|one, other| one.name.cmp(&other.name));
            found.dedup_by(|one, other| one.name == other.name);
            Ok(found)
        }
    }
}

/// Which lines are wanted, and how many.
struct Filter<'a> {
    pattern: &'a FilterPattern,
    start_ms: u64,
    /// Up to, but without, here.
    end_ms: u64,
    limit: usize,
    look_at: usize,
    group: &'a str,
}

/// Where a page ended.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Place {
    /// The time of the last line.
    at_ms: u64,
    /// The position in each stream that had begun by then and was not over.
    positions: BTreeMap<String, u64>,
}

impl Place {
    /// Names of streams have no colon.
    fn write(&self) -> String {
        let positions = self.positions.iter().map(|(stream, position)| format!(":{stream}:{position}"));
        format!("{}{}", self.at_ms, positions.collect::<String>())
    }

    fn read(text: &str) -> Result<Self, Error> {
        let invalid = || Error::validation("The specified nextToken is invalid.");
        let mut words = text.split(':');
        let at_ms = words.next().and_then(|word| word.parse().ok()).ok_or_else(invalid)?;
        let mut positions = BTreeMap::new();
        while let Some(stream) = words.next() {
            let position = words.next().and_then(|word| word.parse().ok()).ok_or_else(invalid)?;
            positions.insert(stream.to_owned(), position);
        }
        Ok(Self { at_ms, positions })
    }
}

/// A stream that is being merged.
struct Source<'a> {
    stream: &'a StreamInfo,
    /// The position after the last line taken.
    position: u64,
    ahead: VecDeque<LogEvent>,
    /// Where to read on; `None` at the end.
    next: Option<u64>,
    /// The latest time of its lines so far: a line that is out of order counts as that.
    latest_ms: u64,
    /// Only lines from here on are new.
    start_ms: u64,
}

impl<'a> Source<'a> {
    /// The stream as it goes on from a place; `None` if it was over there.
    fn new(stream: &'a StreamInfo, from: &Place, filter: &Filter<'_>) -> Option<Self> {
        let (first_ms, last_ms) = stream.first_ms.zip(stream.last_ms)?;
        if last_ms < filter.start_ms || first_ms >= filter.end_ms {
            return None;
        }
        let (position, start_ms) = match from.positions.get(&stream.name) {
            Some(position) => (*position, 0),
            None if last_ms < from.at_ms => return None,
            // It seemed over, and then lines came.
            None if first_ms < from.at_ms => (0, from.at_ms),
            None => (0, 0),
        };
        Some(Self { stream, position, ahead: VecDeque::new(), next: Some(position), latest_ms: 0, start_ms })
    }

    /// The next line stands at this time or later. One of which something was told may go on with
    /// lines that are out of order.
    fn earliest(&self) -> u64 {
        if self.position > 0 { 0 } else { self.stream.first_ms.unwrap_or(0) }
    }

    /// The time at which the next line stands; `None` at the end. `open`: how many streams are
    /// read.
    fn head(&mut self, telemetry: &Telemetry, filter: &Filter<'_>, open: usize) -> Result<Option<u64>, Error> {
        if let (true, Some(from)) = (self.ahead.is_empty(), self.next) {
            let query = LogQuery {
                group: filter.group.to_owned(),
                stream: self.stream.name.clone(),
                from: Some(from),
                start_ms: Some(filter.start_ms.max(self.start_ms)),
                end_ms: Some(filter.end_ms),
                limit: (ALL_AHEAD / open.max(1)).clamp(16, READ_AHEAD),
                max_bytes: (ALL_AHEAD_BYTES / open.max(1)).clamp(64 << 10, MOST_BYTES),
                ..LogQuery::default()
            };
            let page = telemetry.read_logs(&query).map_err(|error| internal(&error))?;
            // A stream that was deleted meanwhile is at its end.
            self.next = page.as_ref().filter(|page| !page.events.is_empty()).map(|page| page.forward);
            self.ahead = page.map(|page| page.events.into()).unwrap_or_default();
        }
        Ok(self.ahead.front().map(|line| line.at_ms.max(self.latest_ms)))
    }
}

/// The wanted lines after a place, by time, and the place where they end; `None` if there are no
/// more.
fn merge(
    telemetry: &Telemetry,
    streams: &[StreamInfo],
    filter: &Filter<'_>,
    from: &Place,
) -> Result<(Vec<FilteredLogEvent>, Option<Place>), Error> {
    let mut sources: Vec<Source<'_>> = streams.iter().filter_map(|stream| Source::new(stream, from, filter)).collect();
    let (mut events, mut bytes, mut looked_at, mut at_ms) = (Vec::new(), 0, 0, from.at_ms);
    // Streams are in the order of their names, which decides between lines of one time. The flag:
    // the stream was read, and the time is its line's.
    let mut turns: BinaryHeap<_> =
        sources.iter().enumerate().map(|(at, source)| Reverse((source.earliest(), at, false))).collect();
    let mut open = 0;
    loop {
        let Some(Reverse((head, at, is_read))) = turns.pop() else { return Ok((events, None)) };
        let source = &mut sources[at];
        if !is_read {
            open += 1;
            match source.head(telemetry, filter, open)? {
                Some(head) => turns.push(Reverse((head, at, true))),
                None => open -= 1,
            }
            continue;
        }
        let length = source.ahead.front().map_or(0, |line| line.text.len() + LINE_OVERHEAD);
        if events.len() == filter.limit
            || looked_at == filter.look_at
            || (bytes + length > MOST_BYTES && !events.is_empty())
        {
            break;
        }
        let Some(line) = source.ahead.pop_front() else { break };
        source.latest_ms = head;
        source.position = line.position + 1;
        at_ms = at_ms.max(head);
        looked_at += 1;
        match source.head(telemetry, filter, open)? {
            Some(next) => turns.push(Reverse((next, at, true))),
            None => open -= 1,
        }
        if filter.pattern.matches(&line.text) {
            bytes += length;
            events.push(FilteredLogEvent {
                event_id: event_id(&source.stream.name, &line),
                stream: source.stream.name.clone(),
                at_ms: line.at_ms,
                message: line.text,
                ingested_ms: line.ingested_ms,
            });
        }
    }
    let begun = |source: &Source<'_>| source.position > 0 || source.stream.first_ms.is_some_and(|first| first < at_ms);
    let under_way = |source: &&Source<'_>| begun(source) && source.stream.last_ms.is_some_and(|last| last >= at_ms);
    let positions =
        sources.iter().filter(under_way).map(|source| (source.stream.name.clone(), source.position)).collect();
    Ok((events, Some(Place { at_ms, positions })))
}

/// 56 digits, as AWS's: the time, the stream and the line's place in it.
fn event_id(stream: &str, line: &LogEvent) -> String {
    let digest = u64::from_str_radix(&sha256_hex(stream)[..14], 16).unwrap_or(0);
    format!("{:020}{digest:018}{:018}", line.at_ms, line.position)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use shoal_store::{LogLines, TRAINING_JOBS};

    use super::*;
    use crate::random::Random;

    fn telemetry(streams: &[(&str, &[u64])]) -> (tempfile::TempDir, Telemetry) {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        for (name, times) in streams {
            let lines = times.iter().enumerate().map(|(at, at_ms)| (*at_ms, format!("{name}{at}"))).collect();
            telemetry.append_logs(&[LogLines { stream: (*name).to_owned(), lines, ..LogLines::default() }]).unwrap();
        }
        (temp, telemetry)
    }

    fn pages(telemetry: &Telemetry, pattern: &str, limit: usize, look_at: usize) -> (Vec<String>, Vec<String>) {
        let pattern = FilterPattern::parse(pattern).unwrap();
        let filter = Filter { pattern: &pattern, start_ms: 0, end_ms: u64::MAX, limit, look_at, group: TRAINING_JOBS };
        let streams = chosen(telemetry, TRAINING_JOBS, &Streams::Prefix(String::new())).unwrap();
        let (mut lines, mut ids, mut place) = (Vec::new(), Vec::new(), Place::default());
        loop {
            let (events, next) = merge(telemetry, &streams, &filter, &place).unwrap();
            assert!(events.len() <= limit);
            ids.extend(events.iter().map(|event| event.event_id.clone()));
            lines.extend(events.into_iter().map(|event| event.message));
            match next {
                Some(next) => place = Place::read(&next.write()).unwrap(),
                None => return (lines, ids),
            }
        }
    }

    #[test]
    fn streams_are_merged_by_time_whatever_the_pages() {
        let (_temp, telemetry) = telemetry(&[
            ("a", &[10, 20, 30, 40]),
            ("b", &[10, 15, 15, 45]),
            ("c", &[]),
            // One that is out of order, one that is over early, one that begins late.
            ("d", &[12, 30, 11, 31]),
            ("e", &[1, 2]),
            ("f", &[44, 44]),
        ]);
        let expected = ["e0", "e1", "a0", "b0", "d0", "b1", "b2", "a1", "a2", "d1", "d2", "d3", "a3", "f0", "f1", "b3"];
        for limit in [1, 2, 3, 7, 100] {
            for look_at in [1, 3, 100] {
                let (lines, ids) = pages(&telemetry, "", limit, look_at);
                assert_eq!(lines, expected, "{limit} {look_at}");
                assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), expected.len());
                assert!(ids.iter().all(|id| id.len() == 56), "{ids:?}");
                assert_eq!(ids, pages(&telemetry, "", 100, 100).1, "ids are stable");
                assert_eq!(pages(&telemetry, "?a1 ?b3", limit, look_at).0, ["a1", "b3"]);
            }
        }
    }

    #[test]
    fn streams_outside_the_window_are_not_read() {
        let (_temp, telemetry) = telemetry(&[("a", &[10, 20]), ("b", &[15, 99]), ("c", &[40, 50])]);
        let streams = chosen(&telemetry, TRAINING_JOBS, &Streams::Prefix(String::new())).unwrap();
        let pattern = FilterPattern::default();
        for (start_ms, end_ms, expected, read) in
            [(21, 40, &[][..], 1), (0, 16, &["a0", "b0"], 2), (45, 100, &["c1", "b1"], 2)]
        {
            let filter = Filter { pattern: &pattern, start_ms, end_ms, limit: 100, look_at: 100, group: TRAINING_JOBS };
            assert_eq!(streams.iter().filter(|it| Source::new(it, &Place::default(), &filter).is_some()).count(), read);
            let (events, place) = merge(&telemetry, &streams, &filter, &Place::default()).unwrap();
            assert_eq!(events.iter().map(|event| event.message.as_str()).collect::<Vec<_>>(), expected);
            assert_eq!(place, None);
        }
    }

    #[test]
    fn what_comes_in_meanwhile_is_told_once() {
        let (_temp, telemetry) = telemetry(&[("a", &[10, 20]), ("b", &[15])]);
        let pattern = FilterPattern::default();
        let filter =
            Filter { pattern: &pattern, start_ms: 0, end_ms: u64::MAX, limit: 2, look_at: 100, group: TRAINING_JOBS };
        let all = || chosen(&telemetry, TRAINING_JOBS, &Streams::Prefix(String::new())).unwrap();
        let (events, place) = merge(&telemetry, &all(), &filter, &Place::default()).unwrap();
        assert_eq!(events.iter().map(|event| event.message.as_str()).collect::<Vec<_>>(), ["a0", "b0"]);
        // A new stream, and one that seemed over.
        for stream in ["c", "b"] {
            telemetry
                .append_logs(&[LogLines {
                    stream: stream.to_owned(),
                    lines: vec![(30, format!("{stream} new"))],
                    ..LogLines::default()
                }])
                .unwrap();
        }
        let (events, place) = merge(&telemetry, &all(), &filter, &place.unwrap()).unwrap();
        assert_eq!(events.iter().map(|event| event.message.as_str()).collect::<Vec<_>>(), ["a1", "b new"]);
        let (events, place) = merge(&telemetry, &all(), &filter, &place.unwrap()).unwrap();
        assert_eq!(events.iter().map(|event| event.message.as_str()).collect::<Vec<_>>(), ["c new"]);
        assert_eq!(place, None);
    }

    #[test]
    fn every_line_of_a_window_is_on_one_page_whatever_the_streams_are() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        for seed in 0..60 {
            let mut random = Random::new(seed);
            // Lines of equal times, lines out of order, streams without lines.
            let logs: Vec<_> = (0..1 + random.below(5))
                .map(|number| LogLines {
                    stream: format!("{seed}/{number}"),
                    lines: (0..random.below(9)).map(|at| (random.below(12) as u64, format!("{number} {at}"))).collect(),
                    ..LogLines::default()
                })
                .collect();
            telemetry.append_logs(&logs).unwrap();
            let pattern = FilterPattern::default();
            let filter = Filter {
                pattern: &pattern,
                start_ms: random.below(6) as u64,
                end_ms: 6 + random.below(8) as u64,
                limit: 1 + random.below(5),
                look_at: 1 + random.below(4),
                group: TRAINING_JOBS,
            };
            let streams = chosen(&telemetry, TRAINING_JOBS, &Streams::Prefix(format!("{seed}/"))).unwrap();
            let (mut found, mut place, mut latest) = (Vec::new(), Place::default(), 0);
            for page in 0.. {
                assert!(page < 100, "seed {seed}: pages end");
                let (events, next) = merge(&telemetry, &streams, &filter, &place).unwrap();
                assert!(events.len() <= filter.limit, "seed {seed}");
                found.extend(events.into_iter().map(|event| (event.at_ms, event.message)));
                let Some(next) = next else { break };
                assert!(next.at_ms >= latest, "seed {seed}: no page goes back");
                latest = next.at_ms;
                place = Place::read(&next.write()).unwrap();
            }
            for LogLines { stream, lines, .. } in logs {
                let number = &stream[stream.len() - 1..];
                let of_stream = found.iter().filter(|(_, text)| text.starts_with(number)).cloned();
                let wanted = lines.into_iter().filter(|(at_ms, _)| (filter.start_ms..filter.end_ms).contains(at_ms));
                assert_eq!(of_stream.collect::<Vec<_>>(), wanted.collect::<Vec<_>>(), "seed {seed}: {stream}");
            }
        }
    }

    #[test]
    fn a_page_ends_before_it_is_too_long_and_has_one_line_at_least() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let text = |length: usize| "x".repeat(length);
        let lines = [MOST_BYTES + 1, 5, MOST_BYTES - LINE_OVERHEAD, 7];
        let lines: Vec<_> = (0..).zip(lines.map(text)).collect();
        telemetry.append_logs(&[LogLines { stream: "a".to_owned(), lines, ..LogLines::default() }]).unwrap();
        let streams = chosen(&telemetry, TRAINING_JOBS, &Streams::Prefix(String::new())).unwrap();
        let pattern = FilterPattern::default();
        let filter =
            Filter { pattern: &pattern, start_ms: 0, end_ms: u64::MAX, limit: 9, look_at: 9, group: TRAINING_JOBS };
        let (mut lengths, mut place) = (Vec::new(), Some(Place::default()));
        while let Some(from) = place {
            let (events, next) = merge(&telemetry, &streams, &filter, &from).unwrap();
            lengths.push(events.iter().map(|event| event.message.len()).collect::<Vec<_>>());
            place = next;
        }
        assert_eq!(lengths, [vec![MOST_BYTES + 1], vec![5], vec![MOST_BYTES - LINE_OVERHEAD], vec![7]]);
    }

    #[test]
    fn named_streams_are_those_and_all_must_be_there() {
        let (_temp, telemetry) = telemetry(&[("a", &[1]), ("ab", &[1]), ("b", &[1])]);
        let named = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            chosen(&telemetry, TRAINING_JOBS, &Streams::Named(names))
                .map(|found| found.into_iter().map(|stream| stream.name).collect::<Vec<_>>())
        };
        assert_eq!(named(&["b", "a", "b"]), Ok(vec!["a".to_owned(), "b".to_owned()]));
        for missing in ["", "aa", "abc", "c"] {
            let error = named(&["a", missing]).unwrap_err();
            assert_eq!(error.code, ErrorCode::ResourceNotFound, "{missing:?}");
        }
    }

    #[test]
    fn a_place_is_read_as_it_was_written_and_nothing_else_is() {
        let positions = [("a/algo-1-3".to_owned(), 7), ("é".to_owned(), u64::MAX)].into();
        let place = Place { at_ms: u64::MAX, positions };
        assert_eq!(Place::read(&place.write()), Ok(place));
        for made_up in ["", "x", "1:a", "1:a:", "1:a:-1", "1:a:2:b", "18446744073709551616"] {
            assert!(Place::read(made_up).is_err(), "{made_up}");
        }
    }
}
