//! One page of HTML that holds everything it shows: no script, nothing that is loaded.

mod chart;
mod flame;

use std::fmt::Write;

use self::chart::{Line, MOST_LINES, Mark, Unit, bars, lines};
pub(crate) use self::flame::entries;
pub use self::flame::samples;
use crate::findings::{Shares, findings, percent, slowest, time};
use crate::html::{escape, fill};
use crate::model::{Profile, RankSteps, Series};

const PAGE: &str = include_str!("../assets/profile.html");
// That of the tuning report, too.
const STYLE: &str = include_str!("../../cli/assets/report/report.css");
const OWN_STYLE: &str = include_str!("../assets/profile.css");
/// From this share of the time on a finding is a large one.
const LARGE: f64 = 0.2;

/// The page.
#[must_use]
pub fn page(profile: &Profile) -> String {
    let sections = [
        shares(profile),
        steps(profile),
        slow_steps(profile),
        utilization(profile),
        stacks(profile),
        rules(profile),
        notes(profile),
    ];
    let parts = [
        ("title", escape(&format!("Profile of {}", profile.job))),
        ("subtitle", escape(&subtitle(profile))),
        ("facts", facts(profile)),
        ("findings", found(profile)),
        ("sections", sections.concat()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("css", format!("{STYLE}{OWN_STYLE}")),
    ];
    fill(PAGE, &parts)
}

fn subtitle(profile: &Profile) -> String {
    let (instances, seconds) = (profile.hosts.len(), time(1000.0 * profile.seconds()));
    let status = if profile.status.is_empty() { "Training job".to_owned() } else { profile.status.clone() };
    let of = if instances == 1 { "1 instance".to_owned() } else { format!("{instances} instances") };
    format!("{status}; {seconds} on {of}.")
}

fn facts(profile: &Profile) -> String {
    let mut facts = vec![("time", time(1000.0 * profile.seconds()))];
    if let Some(shares) = Shares::of(profile) {
        let steps = profile.ranks.iter().map(|it| it.steps).fold(0, u64::saturating_add);
        let usual = profile.ranks.iter().map(|it| it.p50_ms).fold(0.0, f64::max);
        facts.push(("ranks", profile.ranks.len().to_string()));
        facts.push(("steps of all ranks", steps.to_string()));
        facts.push(("usual step", time(usual)));
        facts.push(("waiting for data", percent(shares.waiting)));
        if shares.sees_communication {
            facts.push(("communication", percent(shares.communicating)));
        }
        facts.push((computing(shares), percent(shares.computing())));
    }
    facts.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = write!(text, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(value));
        text
    })
}

fn found(profile: &Profile) -> String {
    let all = findings(profile);
    if all.is_empty() {
        return "<p>Nothing stands out.</p>".to_owned();
    }
    let items = all.iter().fold(String::new(), |mut text, it| {
        let class = if it.share >= LARGE { "" } else { " class=\"small\"" };
        let [title, what, advice] = [&it.title, &it.text, &it.advice].map(|text| escape(text));
        let _ = write!(text, "<li{class}><b>{title}</b><p>{what}</p><p>{advice}</p></li>");
        text
    });
    format!("<ol class=\"findings\">{items}</ol>")
}

fn section(title: &str, note: &str, content: &str) -> String {
    if content.is_empty() { String::new() } else { format!("<h2>{title}</h2><p>{}</p>{content}", escape(note)) }
}

/// Of several ranks without any time in collective operations.
const UNSEEN: &str = "Waits for other ranks are not measured in this training: Gloo and NCCL wait outside of Python. A \
                      rank that is slower than the others makes the steps of all ranks longer then, and is not \
                      recognised. The backend shoal (import shoal.torch) and Horovod are measured.";

/// Ranks that charts show: the slowest first where there are many.
fn shown(profile: &Profile) -> Vec<&RankSteps> {
    let mut ranks = Vec::from_iter(&profile.ranks);
    if ranks.len() > MOST_LINES {
        ranks.sort_by(|a, b| b.own_ms().total_cmp(&a.own_ms()));
        ranks.truncate(MOST_LINES);
        ranks.sort_by_key(|rank| rank.rank);
    }
    ranks
}

fn left_out(count: usize, what: &str) -> String {
    if count > MOST_LINES { format!(" Of {count} {what}, {MOST_LINES} are shown.") } else { String::new() }
}

/// What is neither waiting for data nor communication that is seen.
fn computing(shares: Shares) -> &'static str {
    if shares.sees_communication { "computing" } else { "computing or communication" }
}

fn shares(profile: &Profile) -> String {
    let Some(of_all) = Shares::of(profile) else { return String::new() };
    let parts = [("waiting for data", "#c25b00"), ("communication", "#a8578a"), (computing(of_all), "#0072b2")];
    let row = |rank: &&RankSteps| {
        let [waiting, communicating] =
            [rank.waiting_s, rank.communicating_s].map(|it| (it / rank.total_s.max(1e-9)).clamp(0.0, 1.0));
        let computing = (1.0 - waiting - communicating).max(0.0);
        let mean = time(rank.per_step_ms(rank.total_s));
        (rank.name(), vec![waiting, communicating, computing], format!("{mean} a step"))
    };
    let rows = Vec::from_iter(shown(profile).iter().map(row));
    if rows.is_empty() {
        return String::new();
    }
    let slowest = match slowest(profile) {
        Some((rank, usual)) => format!(
            " {} is the slowest: {} a step without its waits for others, where {} are usual.",
            rank.name(),
            time(rank.own_ms()),
            time(usual)
        ),
        None if !of_all.sees_communication => format!(" {UNSEEN}"),
        None if profile.ranks.len() > 1 => " No rank is slower than the others.".to_owned(),
        None => String::new(),
    };
    let note =
        format!("What the steps of each rank spend their time on.{slowest}{}", left_out(profile.ranks.len(), "ranks"));
    section("Where the time goes", &note, &bars("Where the time goes", &parts, &rows))
}

fn steps(profile: &Profile) -> String {
    let ranks = shown(profile);
    let line = |rank: &&RankSteps| Line {
        name: rank.name(),
        points: rank.points.iter().map(|point| (point.at_s, point.mean_ms)).collect(),
    };
    let mark = |rank: &RankSteps, slow: &crate::SlowStep| Mark {
        at: (slow.at_s, slow.ms),
        text: format!("step {} of {}: {}", slow.step, rank.name(), time(slow.ms)),
    };
    let marks = Vec::from_iter(ranks.iter().flat_map(|rank| rank.slow.iter().map(move |slow| mark(rank, slow))));
    let all = Vec::from_iter(ranks.iter().map(line));
    let chart = lines("Step times", Unit::Milliseconds, profile.seconds(), &all, &marks);
    let note = "Mean time of a step; circles are single steps of more than twice the usual time.";
    section("Step times", note, &chart)
}

fn slow_steps(profile: &Profile) -> String {
    const MOST: usize = 15;
    let mut slow = Vec::from_iter(profile.ranks.iter().flat_map(|rank| rank.slow.iter().map(move |it| (rank, it))));
    slow.sort_by(|a, b| b.1.ms.total_cmp(&a.1.ms));
    slow.truncate(MOST);
    if slow.is_empty() {
        return String::new();
    }
    let rows = slow.iter().fold(String::new(), |mut text, (rank, it)| {
        let known = |ms: f64| if ms > 0.0 { time(ms) } else { "-".to_owned() };
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            it.step,
            escape(&rank.name()),
            time(1000.0 * it.at_s),
            time(it.ms),
            known(it.waiting_ms),
            known(it.communicating_ms)
        );
        text
    });
    let heads = ["step", "rank", "at", "took", "waiting for data", "communication"];
    table("The longest steps", &heads, &rows)
}

fn table(title: &str, heads: &[&str], rows: &str) -> String {
    let heads = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect::<String>();
    let (title, name) = if title.is_empty() { (String::new(), "Rules") } else { (format!("<h3>{title}</h3>"), title) };
    format!(
        "{title}<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\"><table><thead><tr>\
         {heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

fn utilization(profile: &Profile) -> String {
    const CHARTS: [(&str, &str, Unit); 9] = [
        ("Processors", "CPUUtilization", Unit::Percent),
        ("GPUs", "GPUUtilization", Unit::Percent),
        ("GPU memory", "GPUMemoryUtilization", Unit::Percent),
        ("Memory", "MemoryUtilization", Unit::Percent),
        ("Volume", "DiskUtilization", Unit::Percent),
        ("Read from disks", "DiskReadBytesPerSecond", Unit::BytesPerSecond),
        ("Written to disks", "DiskWriteBytesPerSecond", Unit::BytesPerSecond),
        ("Received", "NetworkReceiveBytesPerSecond", Unit::BytesPerSecond),
        ("Sent", "NetworkSendBytesPerSecond", Unit::BytesPerSecond),
    ];
    let mut text = String::new();
    for (title, metric, unit) in CHARTS {
        let all = series_of(profile, metric);
        let chart = lines(title, unit, profile.seconds(), &all, &[]);
        if !chart.is_empty() {
            let _ = write!(text, "<h3>{title}{}</h3>{chart}", left_out(all.len(), "lines").trim_end_matches('.'));
        }
    }
    let note = "Each instance, GPU and rank, as the instance's agent measured it. Of processors, 100 % is one core.";
    section("Utilisation", note, &text)
}

/// A line for each series of the metric that is not nothing all the time.
fn series_of(profile: &Profile, metric: &str) -> Vec<Line> {
    // What is next to nothing all the time is left out.
    let least = if metric.ends_with("PerSecond") { 1024.0 } else { 0.5 };
    let all = profile.hosts.iter().flat_map(|host| host.series.iter().map(move |series| (host, series)));
    all.filter(|(_, series)| series.metric == metric && series.high().is_some_and(|high| high >= least))
        .map(|(host, series)| Line { name: of(&host.host, series), points: points(series) })
        .collect()
}

fn of(host: &str, series: &Series) -> String {
    match (series.gpu, series.rank) {
        (Some(gpu), _) => format!("{host} GPU {gpu}"),
        (_, Some(rank)) => format!("{host} rank {rank}"),
        _ => host.to_owned(),
    }
}

fn points(series: &Series) -> Vec<(f64, f64)> {
    series.points.iter().map(|(at, mean, _)| (*at, *mean)).collect()
}

fn stacks(profile: &Profile) -> String {
    let graphs = profile.stacks.iter().fold(String::new(), |mut text, it| {
        let graph = flame::graph(&format!("Stacks of {}", it.host), &it.folded);
        if !graph.is_empty() {
            let _ = write!(text, "<h3>{} ({} samples)</h3>{graph}", escape(&it.host), samples(&it.folded));
        }
        text
    });
    let note = "Python's stacks, sampled from outside while the training went on. The wider a frame, the more often it was \
                seen; what it calls stands below it. [waits]: the thread did not compute then.";
    section("Stacks", note, &graphs)
}

fn rules(profile: &Profile) -> String {
    if profile.rules.is_empty() {
        return String::new();
    }
    let rows = profile.rules.iter().fold(String::new(), |mut text, rule| {
        let [name, status, details] = [&rule.name, &rule.status, &rule.details].map(|it| escape(it));
        let _ = write!(text, "<tr><td>{name}</td><td>{status}</td><td class=\"why\">{details}</td></tr>");
        text
    });
    let table = table("", &["rule", "status", "details"], &rows);
    section("Rules", "Rules of the job, and what met their conditions.", &table)
}

fn notes(profile: &Profile) -> String {
    profile.notes.iter().fold(String::new(), |mut text, note| {
        let _ = write!(text, "<p>{}</p>", escape(note));
        text
    })
}

#[cfg(test)]
mod tests;
