//! A picture as lines of text, as wide and as high as the terminal.

use super::gather::{Job, Picture, Tuning};

/// Cells of the bar that shows how much of its time a job has used.
const BAR: usize = 10;

/// How the reasons of jobs that wait begin.
const CAPACITY: &str = "Waiting for capacity: ";

/// How the picture is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) order: Order,
    /// Jobs left out above.
    pub(super) scroll: usize,
    pub(super) color: bool,
}

/// What jobs are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The newest first.
    Newest,
    /// The longest at work first.
    Longest,
    /// By name.
    Name,
}

impl Order {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Newest => Self::Longest,
            Self::Longest => Self::Name,
            Self::Name => Self::Newest,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest first",
            Self::Longest => "longest first",
            Self::Name => "by name",
        }
    }
}

/// Lines, at most `height`, each at most `width` characters wide besides its colours.
pub(super) fn draw(picture: &Picture, look: &Look, now_ms: u64) -> Vec<String> {
    let now = now_ms as f64 / 1000.0;
    let mut lines = vec![cut(&headline(picture), look.width)];
    if let Some(trouble) = &picture.trouble {
        lines.push(paint(look, "31", &cut(trouble, look.width)));
    }
    lines.push(String::new());
    if !picture.tunings.is_empty() {
        let heading = ["TUNING JOB", "STATE", "TIME", "TRIALS OVER", "AT WORK", "BEST SO FAR"];
        lines.extend(table(look, &heading, picture.tunings.iter().map(|it| (it.state.as_str(), search(it, now)))));
        lines.push(String::new());
    }
    let mut jobs: Vec<&Job> = picture.jobs.iter().collect();
    match look.order {
        Order::Newest => jobs.sort_by(|left, right| right.created.total_cmp(&left.created)),
        Order::Longest => jobs.sort_by(|left, right| worked(right, now).total_cmp(&worked(left, now))),
        Order::Name => jobs.sort_by(|left, right| left.name.cmp(&right.name)),
    }
    // Those that wait come after those that run, in the order in which they will; then those that
    // are paused.
    let (paused, jobs): (Vec<&Job>, Vec<&Job>) = jobs.into_iter().partition(|job| job.is_paused());
    let (mut waiting, mut jobs): (Vec<&Job>, Vec<&Job>) = jobs.into_iter().partition(|job| job.waits());
    waiting.sort_by(|left, right| left.created.total_cmp(&right.created));
    jobs.extend(waiting);
    jobs.extend(paused);
    let ended = picture.ended.len() + if picture.ended.is_empty() { 0 } else { 2 };
    let room = look.height.saturating_sub(lines.len() + 1 + ended + 2).max(1);
    if jobs.is_empty() {
        lines.push("no training job runs or waits; start one with `shoal train`, or by any AWS client".to_owned());
    } else {
        let shown: Vec<_> = jobs.iter().copied().skip(look.scroll).take(room).collect();
        let hidden = jobs.len() - shown.len() + picture.more;
        let heading = ["NAME", "STATE", "TIME", "OF LIMIT", "INSTANCES", "METRICS, OR WHY IT WAITS"];
        lines.extend(table(look, &heading, shown.iter().map(|job| (job.state.as_str(), live(job, now)))));
        if hidden > 0 {
            lines.push(format!("and {hidden} more"));
        }
    }
    if !picture.ended.is_empty() {
        lines.push(String::new());
        let heading = ["ENDED", "STATE", "TOOK", "AGO", "INSTANCES", "METRICS, OR WHY IT FAILED"];
        lines.extend(table(look, &heading, picture.ended.iter().map(|job| (job.state.as_str(), over(job, now)))));
    }
    lines.truncate(look.height.saturating_sub(1));
    if look.color {
        let below = look.height.saturating_sub(lines.len() + 1);
        lines.extend(std::iter::repeat_n(String::new(), below));
        lines.push(paint(
            look,
            "2",
            &cut(&format!("q quit   s sort ({})   arrows scroll", look.order.name()), look.width),
        ));
    }
    lines
}

fn headline(picture: &Picture) -> String {
    let (waiting, paused) = (
        picture.jobs.iter().filter(|job| job.waits()).count(),
        picture.jobs.iter().filter(|job| job.is_paused()).count(),
    );
    let running = picture.jobs.len() - waiting - paused;
    let at_work = picture.jobs.iter().filter(|job| job.started.is_some() && !job.waits() && !job.is_paused());
    let instances: u64 = at_work.flat_map(|job| &job.instances).map(|(_, count)| count).sum();
    let plural = if instances == 1 { "" } else { "s" };
    let paused = if paused > 0 { format!("{paused} paused, ") } else { String::new() };
    format!(
        "shoal at {}   {running} running, {waiting} waiting, {paused}{instances} instance{plural} at work",
        picture.server
    )
}

/// A heading, and rows in the colours of their states; the last column takes what is left of the
/// width.
fn table<'a>(look: &Look, heading: &[&str; 6], rows: impl Iterator<Item = (&'a str, [String; 6])>) -> Vec<String> {
    let rows: Vec<(&str, [String; 6])> = rows.collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|(_, row)| row[column].chars().count());
        cells.chain([heading[column].len()]).max().unwrap_or_default()
    };
    let mut widths: [usize; 5] = std::array::from_fn(width);
    // Long names leave something of the other columns.
    let others: usize = widths[1..].iter().map(|width| width + 2).sum();
    widths[0] = widths[0].min(look.width.saturating_sub(others + 12).max(12));
    let line = |cells: [&str; 6]| {
        let mut line = String::new();
        for (cell, width) in cells.into_iter().zip(widths) {
            line.push_str(&format!("{:width$}  ", cut(cell, width)));
        }
        cut(&(line + cells[5]), look.width)
    };
    let mut lines = vec![paint(look, "1", line(*heading).trim_end())];
    for (state, cells) in &rows {
        let text = line(std::array::from_fn(|column| cells[column].as_str()));
        lines.push(paint(look, color(state), text.trim_end()));
    }
    lines
}

fn color(state: &str) -> &'static str {
    match state {
        "Training" | "InProgress" => "32",
        "Pending" | "Waiting" | "Stopping" => "33",
        "Failed" => "31",
        "Completed" => "0",
        _ => "36",
    }
}

fn live(job: &Job, now: f64) -> [String; 6] {
    let time = worked(job, now);
    let limit = match (job.max_runtime, job.started) {
        (Some(limit), Some(_)) => format!("{} {}", bar(time / limit), duration(limit)),
        _ => String::new(),
    };
    let metrics = metrics(job);
    let message = one_line(&job.message);
    // What every job's transition to Training says is no news.
    let used = job.utilization.iter().cloned();
    let news = Vec::from_iter([metrics].into_iter().filter(|it| !it.is_empty()).chain(used)).join("  ");
    let why = if job.state == "Training" { news } else { message.trim_start_matches(CAPACITY).to_owned() };
    [job.name.clone(), job.state.clone(), duration(time), limit, instances(job), why]
}

fn search(tuning: &Tuning, now: f64) -> [String; 6] {
    let most = tuning.most.map_or(String::new(), |most| format!(" of {most}"));
    let failed = if tuning.failed > 0 { format!(", {} failed", tuning.failed) } else { String::new() };
    let best = tuning
        .best
        .as_ref()
        .map(|(metric, value, job)| format!("{metric} {}  ({job})", number(*value)))
        .unwrap_or_default();
    [
        tuning.name.clone(),
        tuning.state.clone(),
        duration(now - tuning.created),
        format!("{}{most}{failed}", tuning.over),
        [(tuning.waiting, "waiting"), (tuning.paused, "paused")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .fold(tuning.running.to_string(), |text, (count, what)| format!("{text}, {count} {what}")),
        best,
    ]
}

fn over(job: &Job, now: f64) -> [String; 6] {
    let ended = job.ended.unwrap_or(job.created);
    let why = if job.state == "Failed" { one_line(&job.message) } else { metrics(job) };
    [job.name.clone(), job.state.clone(), duration(ended - job.created), duration(now - ended), instances(job), why]
}

/// Seconds at work, or waiting for it.
fn worked(job: &Job, now: f64) -> f64 {
    (now - job.started.unwrap_or(job.created)).max(0.0)
}

fn instances(job: &Job) -> String {
    Vec::from_iter(job.instances.iter().map(|(kind, count)| format!("{count} x {kind}"))).join(" + ")
}

fn metrics(job: &Job) -> String {
    job.metrics.iter().map(|(name, value)| format!("{name} {}", number(*value))).collect::<Vec<_>>().join("  ")
}

/// Five digits, as many of them behind the point as the number is small.
fn number(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        return format!("{value:.3e}");
    }
    let digits = 4_usize.saturating_sub(value.abs().max(1.0).log10() as usize);
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// `0.4s`, `1:05`, `2:03:04`, `3d 4h`.
fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..10 => format!("{:.1}s", seconds.max(0.0)),
        10..3600 => format!("{}:{:02}", whole / 60, whole % 60),
        3600..86_400 => format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60),
        _ => format!("{}d {}h", whole / 86_400, whole / 3600 % 24),
    }
}

fn bar(share: f64) -> String {
    let full = ((share * BAR as f64).round() as usize).min(BAR);
    "█".repeat(full) + &"░".repeat(BAR - full)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At most `width` characters, without what could move the cursor.
fn cut(text: &str, width: usize) -> String {
    let clean = text.chars().map(|it| if it.is_control() { ' ' } else { it });
    if text.chars().count() <= width {
        return clean.collect();
    }
    clean.take(width.saturating_sub(1)).chain(['…']).collect()
}

fn paint(look: &Look, color: &str, text: &str) -> String {
    if look.color { format!("\x1b[{color}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> Picture {
        let job = |name: &str, state: &str, created: f64, started: Option<f64>| Job {
            name: name.into(),
            state: state.into(),
            created,
            started,
            max_runtime: Some(100.0),
            instances: vec![("ml.m5.large".into(), 2)],
            message: "Waiting for capacity:\nneeds 1 instance".into(),
            ..Job::default()
        };
        let trains = Job {
            metrics: vec![("loss".into(), 0.71234), ("auc".into(), 0.5)],
            utilization: Some("cpu 184 % of 2 cores".into()),
            ..job("trains", "Training", 100.0, Some(130.0))
        };
        let failed = Job {
            ended: Some(150.5),
            message: "AlgorithmError: \x1b[2Jout".into(),
            ..job("failed", "Failed", 148.0, Some(149.0))
        };
        Picture {
            server: "http://h:1".into(),
            jobs: vec![job("waits", "Pending", 175.0, None), trains],
            ended: vec![failed],
            ..Picture::default()
        }
    }

    fn look(width: usize, height: usize, color: bool) -> Look {
        Look { width, height, order: Order::Newest, scroll: 0, color }
    }

    #[test]
    fn a_frame_says_what_matters() {
        let expected = "\
shoal at http://h:1   1 running, 1 waiting, 2 instances at work

NAME    STATE     TIME  OF LIMIT         INSTANCES        METRICS, OR WHY IT WAITS
trains  Training  0:50  █████░░░░░ 1:40  2 x ml.m5.large  loss 0.7123  auc 0.5  cpu 184 % of 2 cores
waits   Pending   5.0s                   2 x ml.m5.large  needs 1 instance

ENDED   STATE   TOOK  AGO   INSTANCES        METRICS, OR WHY IT FAILED
failed  Failed  2.5s  0:29  2 x ml.m5.large  AlgorithmError: [2Jout";
        let lines = draw(&picture(), &look(100, usize::MAX, false), 180_000);
        assert_eq!(lines.join("\n"), expected.replace("AlgorithmError: [", "AlgorithmError:  ["));
    }

    #[test]
    fn tuning_jobs_stand_above_their_trials() {
        let lines = draw(&with_tuning(), &look(100, usize::MAX, false), 180_000).join("\n");
        let expected = "
TUNING JOB  STATE       TIME  TRIALS OVER       AT WORK  BEST SO FAR
search      InProgress  2:00  7 of 30, 1 failed  4, 2 waiting, 1 paused  auc 0.8123  (search-003)

NAME ";
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed(&lines).contains(&squeezed(expected)), "{lines}");
    }

    fn with_tuning() -> Picture {
        let tuning = Tuning {
            name: "search".into(),
            state: "InProgress".into(),
            created: 60.0,
            over: 7,
            failed: 1,
            running: 4,
            waiting: 2,
            paused: 1,
            most: Some(30),
            best: Some(("auc".into(), 0.812_34, "search-003".into())),
        };
        Picture { tunings: vec![tuning], ..picture() }
    }

    #[test]
    fn trials_that_wait_or_are_paused_do_not_run() {
        let mut picture = picture();
        for state in ["Waiting", "Paused"] {
            picture.jobs.push(Job { name: state.into(), state: state.into(), ..picture.jobs[1].clone() });
        }
        let lines = draw(&picture, &look(100, usize::MAX, false), 180_000);
        assert_eq!(lines[0], "shoal at http://h:1   1 running, 2 waiting, 1 paused, 2 instances at work");
        let names: Vec<&str> = lines[3..7].iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names, ["trains", "Waiting", "waits", "Paused"]);
    }

    #[test]
    fn a_frame_fits_its_terminal() {
        for (width, height) in [(200, 50), (80, 24), (40, 10), (20, 5)] {
            let lines = draw(&with_tuning(), &look(width, height, true), 180_000);
            assert_eq!(lines.len(), height, "{width} x {height}");
            for line in lines {
                let visible = line
                    .split('\x1b')
                    .enumerate()
                    .map(|(index, part)| if index == 0 { part } else { &part[part.find('m').unwrap() + 1..] });
                let visible: String = visible.collect();
                assert!(visible.chars().count() <= width, "{visible:?} in {width}");
            }
        }
    }

    #[test]
    fn numbers_and_times_are_short() {
        for (value, expected) in [
            (0.71234, "0.7123"),
            (12.5, "12.5"),
            (1234.56, "1234.6"),
            (0.0, "0"),
            (0.000_012, "1.200e-5"),
            (250_000.0, "250000"),
        ] {
            assert_eq!(number(value), expected);
        }
        for (seconds, expected) in [(0.42, "0.4s"), (65.0, "1:05"), (7384.0, "2:03:04"), (273_600.0, "3d 4h")] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
