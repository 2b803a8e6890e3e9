//! One rank's operations as a Chrome trace. Each event is a line of its own with its members in one
//! order, which is what [`super::merge()`] relies on.

use std::{fmt::Write as _, sync::Arc};

use super::{Event, clock::Clock, ring::Ring};

/// Nanoseconds of a day. Times in files are counted from a day's begin, so that they fit a double
/// with all their digits.
const DAY: i64 = 86_400_000_000_000;

/// The whole file.
pub(super) fn text(rank: usize, groups: &[String], rings: &[Arc<Ring>], clock: &Clock) -> String {
    let scale = clock.scale();
    let mut text = String::from("{\"traceEvents\":[\n");
    let mut lost = 0;
    let mut base = None;
    let _ = writeln!(
        text,
        "{{\"ph\":\"M\",\"pid\":{rank},\"name\":\"process_name\",\"args\":{{\"name\":\"rank {rank}\"}}}},"
    );
    for (thread, ring) in rings.iter().enumerate() {
        let (events, lost_here) = ring.events();
        lost += lost_here;
        for event in &events {
            let base = *base.get_or_insert_with(|| scale(event.called) / DAY * DAY);
            push(
                &mut text,
                rank,
                thread,
                groups.get(event.group as usize).map_or("", String::as_str),
                event,
                |ticks| scale(ticks) - base,
            );
        }
    }
    let base = base.unwrap_or(0) / 1_000_000_000;
    // Every event ends with a comma; this one ends the list.
    let _ = writeln!(
        text,
        "{{\"ph\":\"M\",\"pid\":{rank},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{rank}}}}}"
    );
    let _ = writeln!(text, "],\"otherData\":{{\"format\":1,\"rank\":{rank},\"base\":{base},\"lost\":{lost}}}}}");
    text
}

fn push(text: &mut String, rank: usize, thread: usize, group: &str, event: &Event, at: impl Fn(u64) -> i64) {
    let Event { called, begun, ended, number, epoch, bytes, kind, dtype, way, failed, .. } = *event;
    let (called, begun, ended) = (at(called), at(begun), at(ended));
    let (start, time) = (micro(begun), micro((ended - begun).max(0)));
    let _ = write!(
        text,
        "{{\"ph\":\"X\",\"pid\":{rank},\"tid\":{thread},\"ts\":{start},\"dur\":{time},\"name\":\"{}\",\"cat\":\"comm\",\"args\":{{",
        kind.name()
    );
    let _ = write!(
        text,
        "\"group\":\"{group}\",\"epoch\":{epoch},\"number\":{number},\"call\":\"{kind}\",\"dtype\":\"{dtype}\",\"bytes\":{bytes},"
    );
    let _ = writeln!(
        text,
        "\"algorithm\":\"{}\",\"waited\":{},\"failed\":{failed}}}}},",
        way.name(),
        micro((begun - called).max(0))
    );
    if begun > called {
        // Waits overlap with what they wait for, which slices of one thread must not: they are
        // asynchronous events.
        let id = format!("{rank}.{group}.{epoch}.{number}.{}", kind.name());
        for (phase, time) in [("b", called), ("e", begun)] {
            let time = micro(time);
            let _ = writeln!(
                text,
                "{{\"ph\":\"{phase}\",\"pid\":{rank},\"tid\":{thread},\"ts\":{time},\"id\":\"{id}\",\"name\":\"wait \
                 for its turn\",\"cat\":\"wait\"}},"
            );
        }
    }
}

/// Nanoseconds as microseconds with three decimals.
pub(super) fn micro(nanoseconds: i64) -> String {
    let (sign, size) = (if nanoseconds < 0 { "-" } else { "" }, nanoseconds.unsigned_abs());
    format!("{sign}{}.{:03}", size / 1000, size % 1000)
}
