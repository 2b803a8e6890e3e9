//! A job's log: the streams of its hosts as one, by time. It is read backward from its end (earlier
//! lines on demand) and forward from where a page stands (new lines), whole or only lines that hold
//! a text.

use std::{collections::BTreeMap, fmt::Write, str::FromStr};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use shoal_store::{LogDirection, LogEvent, LogQuery, StoreError, StreamInfo, Telemetry};

use super::{
    Console, Visit, amounts, ansi, blocking,
    frame::PageError,
    responses::{Body, html, text},
};

/// Most lines of an answer.
pub(crate) const MOST_LINES: usize = 500;
/// Lines of a stream that are looked at in one go.
const STEP: usize = 2_000;
/// Lines of a stream that one search looks at before it answers with what it has.
const SEARCHED: usize = 200_000;

/// Which lines a page wants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// `algo-1`; all hosts if absent.
    pub(crate) host: Option<String>,
    /// Lines that hold this, whatever the case.
    pub(crate) search: Option<String>,
}

/// A place in each stream, as a number of lines. Its text is `algo-1-1700000000:12,...`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places(BTreeMap<String, u64>);

/// A line and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) host: String,
    pub(crate) event: LogEvent,
}

/// Lines by time, and where to go on on both sides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) lines: Vec<Line>,
    pub(crate) before: Places,
    pub(crate) after: Places,
    /// There may be more on the side that was read towards.
    pub(crate) more: bool,
}

impl std::fmt::Display for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pairs: Vec<_> = self.0.iter().map(|(stream, place)| format!("{stream}:{place}")).collect();
        f.write_str(&pairs.join(","))
    }
}

impl FromStr for Places {
    type Err = PageError;

    fn from_str(text: &str) -> Result<Self, PageError> {
        let pair = |pair: &str| {
            pair.rsplit_once(':').and_then(|(stream, place)| Some((stream.to_owned(), place.parse().ok()?)))
        };
        let pairs: Option<_> = text.split(',').filter(|pair| !pair.is_empty()).map(pair).collect();
        pairs.map(Self).ok_or_else(|| PageError::not_found("That place in the log is none."))
    }
}

/// `algo-1` of `job/algo-1-1700000000`.
fn host_of<'a>(job: &str, stream: &'a str) -> &'a str {
    let name = stream.get(job.len() + 1..).unwrap_or(stream);
    name.rsplit_once('-').map_or(name, |(host, _)| host)
}

/// Hosts that have logged, in the order of their numbers.
pub(crate) fn hosts(telemetry: &Telemetry, job: &str) -> Result<Vec<String>, StoreError> {
    let mut hosts: Vec<_> =
        streams(telemetry, job, None)?.iter().map(|stream| host_of(job, &stream.name).to_owned()).collect();
    hosts.sort_by_key(|host| (host.len(), host.clone()));
    hosts.dedup();
    Ok(hosts)
}

fn streams(telemetry: &Telemetry, job: &str, host: Option<&str>) -> Result<Vec<StreamInfo>, StoreError> {
    let mut streams = telemetry.streams(&format!("{job}/"), None, usize::MAX)?;
    streams.retain(|stream| host.is_none_or(|host| host_of(job, &stream.name) == host));
    Ok(streams)
}

/// The last lines before these places, or of all.
pub(crate) fn earlier(
    telemetry: &Telemetry,
    job: &str,
    wanted: &Wanted,
    before: Option<&Places>,
) -> Result<Chunk, StoreError> {
    read(telemetry, job, wanted, before, LogDirection::Backward)
}

/// The first lines after these places. A stream that they do not name is new, and read from its
/// start.
pub(crate) fn later(telemetry: &Telemetry, job: &str, wanted: &Wanted, after: &Places) -> Result<Chunk, StoreError> {
    read(telemetry, job, wanted, Some(after), LogDirection::Forward)
}

fn read(
    telemetry: &Telemetry,
    job: &str,
    wanted: &Wanted,
    from: Option<&Places>,
    direction: LogDirection,
) -> Result<Chunk, StoreError> {
    let needle = wanted.search.as_ref().map(|text| text.to_lowercase());
    let backward = direction == LogDirection::Backward;
    // Place, line and stream of all that may be shown; and how far each stream was read.
    let mut found = Vec::new();
    let mut scanned = BTreeMap::new();
    let mut chunk = Chunk::default();
    for StreamInfo { name: stream, lines, .. } in streams(telemetry, job, wanted.host.as_deref())? {
        let name = stream[job.len() + 1..].to_owned();
        let start = from.and_then(|places| places.0.get(&name)).copied().unwrap_or(if backward && from.is_none() {
            lines
        } else {
            0
        });
        let (mut at, mut matches, mut looked) = (start.min(lines), 0, 0);
        loop {
            let step = if needle.is_some() { STEP } else { MOST_LINES };
            let query =
                LogQuery { stream: stream.clone(), from: Some(at), direction, limit: step, ..LogQuery::default() };
            let Some(page) = telemetry.read_logs(&query)? else { break };
            let count = page.events.len();
            for (place, event) in (page.backward..).zip(page.events) {
                if needle.as_ref().is_none_or(|needle| ansi::line_text(&event.text).to_lowercase().contains(needle)) {
                    matches += 1;
                    found.push((event.at_ms, name.clone(), place, event));
                }
            }
            at = if backward { page.backward } else { page.forward };
            looked += count;
            let whole = count < step;
            chunk.more |= !whole && (looked >= SEARCHED || matches >= MOST_LINES);
            if whole || looked >= SEARCHED || matches >= MOST_LINES {
                break;
            }
        }
        scanned.insert(name.clone(), at);
        // The side from which was read stays where it was.
        if backward { &mut chunk.after } else { &mut chunk.before }.0.insert(name, start.min(lines));
    }
    found.sort_by(|a, b| (a.0, &a.1, a.2).cmp(&(b.0, &b.1, b.2)));
    // What does not fit is read again from the nearest line that was left out.
    if found.len() > MOST_LINES {
        chunk.more = true;
        let left_out: Vec<_> = if backward {
            found.drain(..found.len() - MOST_LINES).collect()
        } else {
            found.drain(MOST_LINES..).collect()
        };
        for (_, name, place, _) in left_out {
            let edge = scanned.get_mut(&name).expect("only streams that were read have lines");
            *edge = if backward { (*edge).max(place + 1) } else { (*edge).min(place) };
        }
    }
    if backward {
        chunk.before.0 = scanned;
    } else {
        chunk.after.0 = scanned;
    }
    chunk.lines = found
        .into_iter()
        .map(|(_, name, _, event)| Line {
            host: name.rsplit_once('-').map_or(name.as_str(), |(host, _)| host).to_owned(),
            event,
        })
        .collect();
    Ok(chunk)
}

/// Lines as the page shows them. Everything that comes from a program is escaped by [`ansi`].
pub(crate) fn lines_html(chunk: &Chunk) -> String {
    let mut out = String::with_capacity(chunk.lines.len() * 128);
    for Line { host, event } in &chunk.lines {
        let number = host.rsplit('-').next().and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
        let (at, time) = (event.at_ms, amounts::clock(event.at_ms));
        let text = ansi::line_html(&event.text);
        let _ = writeln!(
            out,
            "<p><time data-clock=\"{at}\">{time}</time><b class=\"h{}\">algo-{number}</b><span>{text}</span></p>",
            number % 6
        );
    }
    out
}

impl Console {
    /// Lines for a page that is open: `before` or `after` places, of one `host`, with a text `q`.
    pub(super) async fn log_lines(&self, visit: &Visit, name: &str) -> Result<Response<Body>, PageError> {
        let query = &visit.query;
        let wanted = Wanted { host: query.get("host").map(str::to_owned), search: query.get("q").map(str::to_owned) };
        let places = |name| query.get(name).map(str::parse::<Places>).transpose();
        let (before, after) = (places("before")?, places("after")?);
        let (sources, name) = (self.sources.clone(), name.to_owned());
        let chunk = blocking(move || {
            let telemetry = &sources.telemetry;
            Ok(match after {
                // A page that saw no stream yet stands at the start of all.
                Some(after) => later(telemetry, &name, &wanted, &after)?,
                None => earlier(telemetry, &name, &wanted, before.as_ref())?,
            })
        })
        .await?;
        let mut response = html(lines_html(&chunk));
        let mut tell = |name: &'static str, value: String| {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        };
        tell("shoal-before", chunk.before.to_string());
        tell("shoal-after", chunk.after.to_string());
        tell("shoal-more", chunk.more.to_string());
        Ok(response)
    }

    /// The whole log as a file.
    pub(super) async fn log_file(&self, name: &str) -> Result<Response<Body>, PageError> {
        let row = self.row(name).await?;
        let (telemetry, job) = (self.sources.telemetry.clone(), row.name.clone());
        let parts = stream::unfold(Some(Places::default()), move |places| {
            let (telemetry, job) = (telemetry.clone(), job.clone());
            async move {
                let places = places?;
                let read = blocking(move || Ok(later(&telemetry, &job, &Wanted::default(), &places)?)).await;
                let Ok(chunk) = read else { return Some((Err("the log could not be read".into()), None)) };
                let mut text = String::new();
                for Line { host, event } in &chunk.lines {
                    let _ =
                        writeln!(text, "{}  {host}  {}", amounts::rfc3339(event.at_ms), ansi::line_text(&event.text));
                }
                Some((Ok(Frame::data(Bytes::from(text))), chunk.more.then_some(chunk.after)))
            }
        });
        let mut response = text(String::new());
        *response.body_mut() = BodyExt::boxed(StreamBody::new(parts));
        let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{}.log\"", row.name));
        response
            .headers_mut()
            .insert(header::CONTENT_DISPOSITION, disposition.unwrap_or(HeaderValue::from_static("attachment")));
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use shoal_store::LogLines;

    use super::*;

    /// Two hosts that take turns, one line a millisecond; every hundredth line of the first says
    /// "epoch".
    fn telemetry(lines: u64) -> (tempfile::TempDir, Telemetry) {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        for host in [1, 2] {
            let text =
                |n: u64| if host == 1 && n % 200 == 1 { format!("\u{1b}[1mEpo\u{1b}[0mch {n}") } else { n.to_string() };
            let lines = (0..lines).filter(|n| n % 2 == host % 2).map(|n| (n, text(n))).collect();
            telemetry
                .append_logs(&[LogLines { stream: format!("job/algo-{host}-17"), lines, ..LogLines::default() }])
                .unwrap();
        }
        telemetry
            .append_logs(&[LogLines {
                stream: "job-2/algo-1-17".to_owned(),
                lines: vec![(0, "another's".to_owned())],
                ..LogLines::default()
            }])
            .unwrap();
        (temp, telemetry)
    }

    fn all_earlier(telemetry: &Telemetry, wanted: &Wanted) -> Vec<Line> {
        let mut chunk = earlier(telemetry, "job", wanted, None).unwrap();
        let mut lines = chunk.lines;
        while chunk.more {
            let before: Places = chunk.before.to_string().parse().unwrap();
            chunk = earlier(telemetry, "job", wanted, Some(&before)).unwrap();
            lines.splice(..0, chunk.lines);
        }
        lines
    }

    fn all_later(telemetry: &Telemetry, wanted: &Wanted) -> Vec<Line> {
        let mut chunk = later(telemetry, "job", wanted, &Places::default()).unwrap();
        let mut lines = chunk.lines;
        while chunk.more {
            chunk = later(telemetry, "job", wanted, &chunk.after).unwrap();
            lines.extend(chunk.lines);
        }
        lines
    }

    #[test]
    fn every_line_comes_once_and_by_time_in_both_directions() {
        for lines in [0, 1, 499, 500, 501, 3_333] {
            let (_temp, telemetry) = telemetry(lines);
            for (host, share) in
                [(None, lines), (Some("algo-1"), lines / 2), (Some("algo-2"), lines.div_ceil(2)), (Some("algo-9"), 0)]
            {
                let wanted = Wanted { host: host.map(str::to_owned), search: None };
                let there = all_earlier(&telemetry, &wanted);
                assert_eq!(there.len() as u64, share, "{lines} {host:?}");
                assert!(there.is_sorted_by_key(|line| line.event.at_ms));
                assert_eq!(there, all_later(&telemetry, &wanted), "{lines} {host:?}");
            }
        }
    }

    #[test]
    fn a_search_sees_what_a_reader_sees() {
        let (_temp, telemetry) = telemetry(9_000);
        let wanted = Wanted { host: None, search: Some("EPOCH".to_owned()) };
        for lines in [all_earlier(&telemetry, &wanted), all_later(&telemetry, &wanted)] {
            assert_eq!(
                lines.iter().map(|line| line.event.at_ms).collect::<Vec<_>>(),
                (0..9_000).filter(|n| n % 200 == 1).collect::<Vec<_>>()
            );
            assert!(lines.iter().all(|line| line.host == "algo-1"));
        }
    }

    #[test]
    fn new_lines_and_new_hosts_follow() {
        let (_temp, telemetry) = telemetry(3);
        let start = earlier(&telemetry, "job", &Wanted::default(), None).unwrap();
        assert_eq!((start.lines.len(), start.more), (3, false));
        let new = |stream: &str, text: &str| LogLines {
            stream: stream.to_owned(),
            lines: vec![(9, text.to_owned())],
            ..LogLines::default()
        };
        telemetry.append_logs(&[new("job/algo-2-17", "a"), new("job/algo-3-17", "b")]).unwrap();
        let next = later(&telemetry, "job", &Wanted::default(), &start.after).unwrap();
        assert_eq!(
            next.lines.iter().map(|line| (line.host.as_str(), line.event.text.as_str())).collect::<Vec<_>>(),
            [("algo-2", "a"), ("algo-3", "b")]
        );
        assert!(later(&telemetry, "job", &Wanted::default(), &next.after).unwrap().lines.is_empty());
        assert_eq!(hosts(&telemetry, "job").unwrap(), ["algo-1", "algo-2", "algo-3"]);
        assert!("algo-1".parse::<Places>().is_err());
    }

    #[test]
    fn lines_are_escaped() {
        let event = LogEvent { at_ms: 1_500, ingested_ms: 0, text: "<img src=x>".to_owned(), position: 0 };
        let chunk = Chunk { lines: vec![Line { host: "algo-7".to_owned(), event }], ..Chunk::default() };
        let expected = "<p><time data-clock=\"1500\">00:00:01.500</time><b class=\"h1\">algo-7</b><span>&lt;img \
                        src=x&gt;</span></p>\n";
        assert_eq!(lines_html(&chunk), expected);
    }
}
