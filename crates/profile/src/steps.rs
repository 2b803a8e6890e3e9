//! Steps of a training as a program's framework events have them (`profiler-output/framework`): a
//! Chrome trace with one event a line. `py/python/smdebug/profiler` writes them; of AWS's own
//! library's files the steps are read, too.

use serde::Deserialize;
use serde_json::Value;

/// Where a program writes them, below its profiler's directory.
pub const EVENTS: &str = "framework/pevents";
/// What each step's name begins with.
const STEP: &str = "Step:ModeKeys.";
/// Bytes of an event.
const MOST_LINE: usize = 4096;
/// Longest time that is believed: a year, in microseconds.
const MOST_US: u64 = 366 * 86_400 * 1_000_000;

/// A step, and those before it that have no event of their own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// Rank of the process.
    pub rank: u32,
    /// Number within the process, from 0.
    pub number: u64,
    /// Microseconds since the epoch.
    pub begin_us: u64,
    /// Of this step.
    pub duration_us: u64,
    /// Steps that the sums below are of: this one, and those without an event.
    pub steps: u64,
    /// Sum of their durations.
    pub total_us: u64,
    /// Sum of their waits for data.
    pub waiting_us: u64,
    /// Sum of their backward passes, which may have communication in them.
    pub backward_us: u64,
    /// Sum of their optimizers' steps.
    pub optimizer_us: u64,
    /// Sum of their waits for other ranks.
    pub communicating_us: u64,
}

#[derive(Deserialize)]
struct Event {
    name: String,
    ph: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Value,
}

/// The steps of a file, in its order. What is torn or no step is left out.
#[must_use]
pub fn parse(text: &str) -> Vec<Step> {
    let mut start_us = 0;
    let mut steps = Vec::new();
    for line in text.lines().filter(|line| line.len() <= MOST_LINE) {
        let line = line.trim().trim_end_matches(',');
        let Ok(event) = serde_json::from_str::<Event>(line) else { continue };
        if let Some(start) = event.args["start_time_since_epoch_in_micros"].as_u64() {
            start_us = start;
        }
        if event.ph == "X" && event.name.starts_with(STEP) {
            steps.push(step(&event, start_us));
        }
    }
    steps
}

fn step(event: &Event, start_us: u64) -> Step {
    // AWS's library writes numbers as texts.
    let number = |name: &str| {
        let value = &event.args[name];
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    };
    let time = |name: &str| number(name).unwrap_or(0).min(MOST_US);
    let microseconds = |value: f64| (value.max(0.0) as u64).min(MOST_US);
    let duration_us = microseconds(event.dur);
    let total_us = number("total_us").map_or(duration_us, |total| total.min(MOST_US));
    Step {
        rank: number("rank").and_then(|rank| u32::try_from(rank).ok()).unwrap_or(0),
        number: number("step_num").unwrap_or(0),
        begin_us: start_us.saturating_add(microseconds(event.ts)),
        duration_us,
        steps: number("steps").unwrap_or(1).clamp(1, 1 << 32),
        total_us,
        waiting_us: time("data_us").min(total_us),
        backward_us: time("backward_us"),
        optimizer_us: time("optimizer_us"),
        communicating_us: time("communication_us").min(total_us),
    }
}

/// The host of a file's name, `<end>_<process>-<host>_pythontimeline.json`.
#[must_use]
pub fn host_of(file: &str) -> Option<&str> {
    let (_, rest) = file.strip_suffix(".json")?.split_once('_')?;
    let (node, _) = rest.rsplit_once('_')?;
    Some(node.split_once('-').map_or(node, |(_, host)| host))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"[
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1000}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Step:ModeKeys.TRAIN"}},
{"name":"Step:ModeKeys.TRAIN","ph":"X","pid":1,"tid":7,"ts":500,"dur":200,"args":{"rank":2,"step_num":0,"data_us":150,"backward_us":20}},
{"name":"Step:ModeKeys.TRAIN","ph":"X","pid":1,"tid":7,"ts":900,"dur":100,"args":{"rank":2,"step_num":4,"steps":4,"total_us":400,"communication_us":90,"optimizer_us":7}}
]
"#;

    #[test]
    fn steps_of_a_file() {
        let first = Step {
            rank: 2,
            begin_us: 1500,
            duration_us: 200,
            steps: 1,
            total_us: 200,
            waiting_us: 150,
            backward_us: 20,
            ..Step::default()
        };
        let second = Step {
            rank: 2,
            number: 4,
            begin_us: 1900,
            duration_us: 100,
            steps: 4,
            total_us: 400,
            optimizer_us: 7,
            communicating_us: 90,
            ..Step::default()
        };
        assert_eq!(parse(FILE), [first.clone(), second]);
        // Torn in the last event.
        assert_eq!(parse(&FILE[..FILE.len() - 30]), [first]);
    }

    #[test]
    fn files_of_aws_have_texts() {
        let text =
            "[\n{\"name\":\"Step:ModeKeys.TRAIN\",\"ph\":\"X\",\"ts\":5.5,\"dur\":9,\"args\":{\"step_num\":\"12\"}},\n";
        assert_eq!(parse(text)[0].number, 12);
    }

    #[test]
    fn whatever_a_program_writes_is_bounded() {
        let event = |dur: &str, args: &str| {
            parse(&format!("{{\"name\":\"Step:ModeKeys.TRAIN\",\"ph\":\"X\",\"ts\":-4,\"dur\":{dur},\"args\":{args}}}"))
        };
        let found = &event("1e300", r#"{"steps":99999999999999999,"data_us":88888888888888888888,"rank":-1}"#)[0];
        assert_eq!((found.duration_us, found.total_us, found.rank, found.begin_us), (MOST_US, MOST_US, 0, 0));
        assert_eq!(event("5", r#"{"data_us":700}"#)[0].waiting_us, 5);
        assert_eq!(parse("nothing\n{}\n[[[[\n"), []);
        assert_eq!(parse(&format!("{{\"name\":\"{}", "x".repeat(1 << 20))), []);
    }

    #[test]
    fn names_have_hosts() {
        assert_eq!(host_of("1700000002000000_4711-algo-1_pythontimeline.json"), Some("algo-1"));
        assert_eq!(host_of("1700000002000000_4711_model_timeline.json"), Some("4711_model"));
        assert_eq!(host_of("readme.txt"), None);
    }
}
