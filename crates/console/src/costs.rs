//! What training jobs cost: by what they have in common, and day by day. By `ListCosts`.

use std::collections::BTreeMap;

use askama::Template;
use http::Response;
use serde_json::{Value, json};

use super::{
    Console, Visit, amounts,
    frame::{Frame, PageError, rendered},
    now_ms,
    query::address,
    responses::Body,
};

/// What one can group by: in addresses, for `ListCosts`, in words.
const GROUPS: [(&str, &str, &str); 6] = [
    ("tuning-job", "TuningJob", "Tuning job"),
    ("job", "Job", "Training job"),
    ("experiment", "Experiment", "Experiment"),
    ("tag", "Tag", "Tag"),
    ("user", "Role", "User (role)"),
    ("instance-type", "InstanceType", "Instance type"),
];
/// Times until now: in addresses and words, in seconds.
const TIMES: [(&str, u64); 4] = [("24 h", 86_400), ("7 d", 604_800), ("30 d", 2_592_000), ("90 d", 7_776_000)];
/// Most groups of the table.
const MOST_GROUPS: usize = 200;
/// Most days of the picture, the last ones.
const MOST_DAYS: u64 = 92;
const DAY_S: u64 = 86_400;
/// Height of the picture's box.
const HEIGHT: f64 = 120.0;

#[derive(Template)]
#[template(path = "costs.html")]
struct CostsPage {
    frame: Frame,
    groups: Vec<Choice>,
    times: Vec<Choice>,
    /// The tag alone whose values are shown.
    tag: String,
    by_tag: bool,
    since: String,
    heading: &'static str,
    total: Line,
    /// No instance was used in this time.
    fresh: bool,
    lines: Vec<Line>,
    /// Groups that are not shown.
    more: usize,
    bars: Vec<Bar>,
    first_day: String,
    last_day: String,
    highest: String,
    /// Hours of instances without a price.
    unpriced: Option<String>,
}

struct Choice {
    label: &'static str,
    address: String,
    chosen: bool,
}

struct Line {
    key: String,
    link: Option<String>,
    jobs: String,
    time: String,
    money: String,
    saved: String,
    /// Its part of the total, for a bar of 100.
    share: String,
}

#[derive(Debug, PartialEq)]
struct Bar {
    x: String,
    width: String,
    y: String,
    height: String,
    title: String,
}

/// What is asked for.
#[derive(Clone)]
struct View {
    by: usize,
    since: Option<usize>,
    tag: String,
}

impl View {
    fn read(visit: &Visit) -> Self {
        let query = &visit.query;
        let since = match query.get("since") {
            None => Some(2),
            Some(text) => TIMES.iter().position(|(label, _)| *label == text),
        };
        let by = query.get("by").and_then(|by| GROUPS.iter().position(|(key, ..)| *key == by));
        Self { by: by.unwrap_or(0), since, tag: query.get("tag").unwrap_or_default().to_owned() }
    }

    fn since_text(&self) -> &'static str {
        self.since.map_or("all", |since| TIMES[since].0)
    }

    fn address(&self) -> String {
        let tag = if GROUPS[self.by].0 == "tag" { self.tag.as_str() } else { "" };
        address("/console/cost", &[("by", GROUPS[self.by].0), ("since", self.since_text()), ("tag", tag)])
    }
}

impl Console {
    pub(super) async fn costs_page(&self, visit: &Visit) -> Result<Response<Body>, PageError> {
        let view = View::read(visit);
        let now_s = now_ms() / 1000;
        let mut wanted = json!({"GroupBy": GROUPS[view.by].1, "Days": true});
        if let Some(since) = view.since {
            wanted["After"] = json!(now_s.saturating_sub(TIMES[since].1));
        }
        if GROUPS[view.by].0 == "tag" && !view.tag.is_empty() {
            wanted["TagKey"] = json!(view.tag);
        }
        let costs = self.sources.server.call("Shoal.ListCosts", wanted).await?;
        Ok(rendered(&page(visit.frame("Cost"), &view, &costs, now_s)))
    }
}

fn page(frame: Frame, view: &View, costs: &Value, now_s: u64) -> CostsPage {
    let total = &costs["Total"];
    let groups = costs["Groups"].as_array().map_or(&[][..], Vec::as_slice);
    let by = |by: usize| View { by, ..view.clone() }.address();
    let since = |since: Option<usize>| View { since, ..view.clone() }.address();
    let choice = |label, address, chosen| Choice { label, address, chosen };
    let times =
        TIMES.iter().enumerate().map(|(at, (label, _))| choice(*label, since(Some(at)), view.since == Some(at)));
    let days = days(&costs["Days"]);
    let (from, until) = range(view, &days, now_s);
    let bars = bars(&days, from, until);
    let highest = days.range(from..).map(|(_, (usd, _))| *usd).fold(0.0, f64::max);
    let unpriced = number(total, "UnpricedInstanceSeconds");
    CostsPage {
        frame,
        groups: GROUPS.iter().enumerate().map(|(at, (.., label))| choice(*label, by(at), view.by == at)).collect(),
        times: times.chain([choice("all", since(None), view.since.is_none())]).collect(),
        tag: view.tag.clone(),
        by_tag: GROUPS[view.by].0 == "tag",
        since: view.since_text().to_owned(),
        heading: GROUPS[view.by].2,
        lines: groups.iter().take(MOST_GROUPS).map(|group| line(view, group, total)).collect(),
        more: groups.len().saturating_sub(MOST_GROUPS),
        total: line(view, total, total),
        fresh: total["Jobs"] == 0,
        bars,
        first_day: date(from),
        last_day: date(until),
        highest: money(highest),
        unpriced: (unpriced > 0.0).then(|| amounts::duration((unpriced * 1000.0) as u64)),
    }
}

/// As short as a table's column needs.
fn money(usd: f64) -> String {
    if usd > 0.0 && usd < 0.005 { "< $0.01".to_owned() } else { format!("${usd:.2}") }
}

fn number(line: &Value, member: &str) -> f64 {
    line[member].as_f64().unwrap_or_default()
}

fn line(view: &View, group: &Value, total: &Value) -> Line {
    let key = group["Key"].as_str().unwrap_or_default();
    let link = match GROUPS[view.by].0 {
        _ if key.is_empty() => None,
        "job" => Some(format!("/console/jobs/{key}")),
        "tuning-job" => Some(format!("/console/tuning/{key}")),
        "experiment" => Some(format!("/console/experiments/{key}")),
        _ => None,
    };
    let saved = number(group, "SavedUsDollars");
    // Where nothing has a price, time is compared.
    let by = if number(total, "UsDollars") > 0.0 { "UsDollars" } else { "InstanceSeconds" };
    let share = if number(total, by) > 0.0 { 100.0 * number(group, by) / number(total, by) } else { 0.0 };
    Line {
        key: if key.is_empty() { format!("no {}", GROUPS[view.by].2.to_lowercase()) } else { key.to_owned() },
        link,
        jobs: amounts::count(group["Jobs"].as_u64().unwrap_or(0)),
        time: amounts::duration((number(group, "InstanceSeconds") * 1000.0) as u64),
        money: money(number(group, "UsDollars")),
        saved: if saved > 0.0 { money(saved) } else { "–".to_owned() },
        share: format!("{:.1}", share.min(100.0)),
    }
}

/// Dollars and instance seconds of days, by their beginnings.
fn days(days: &Value) -> BTreeMap<u64, (f64, f64)> {
    let of = |day: &Value| Some((day["Start"].as_u64()?, (number(day, "UsDollars"), number(day, "InstanceSeconds"))));
    days.as_array().into_iter().flatten().filter_map(of).collect()
}

/// The first and the last day of the picture.
fn range(view: &View, days: &BTreeMap<u64, (f64, f64)>, now_s: u64) -> (u64, u64) {
    let today = now_s / DAY_S * DAY_S;
    let first = match view.since {
        Some(since) => now_s.saturating_sub(TIMES[since].1) / DAY_S * DAY_S,
        None => days.keys().next().copied().unwrap_or(today),
    };
    (first.max(today.saturating_sub((MOST_DAYS - 1) * DAY_S)).min(today), today)
}

/// A bar for each day, in a box of 1000 by [`HEIGHT`]: dollars, or, where nothing has a price,
/// time.
fn bars(days: &BTreeMap<u64, (f64, f64)>, from: u64, until: u64) -> Vec<Bar> {
    let count = (until - from) / DAY_S + 1;
    let is_priced = days.range(from..).any(|(_, (usd, _))| *usd > 0.0);
    let height = |(usd, seconds): &(f64, f64)| if is_priced { *usd } else { *seconds };
    let highest = days.range(from..).map(|(_, day)| height(day)).fold(0.0, f64::max);
    if highest <= 0.0 {
        return Vec::new();
    }
    let width = 1000.0 / count as f64;
    let bar = |(start, day): (&u64, &(f64, f64))| {
        let share = (HEIGHT * height(day) / highest).max(1.0);
        Bar {
            x: format!("{:.2}", width * ((start - from) / DAY_S) as f64 + width * 0.1),
            width: format!("{:.2}", (width * 0.8).min(60.0)),
            y: format!("{:.1}", HEIGHT - share),
            height: format!("{share:.1}"),
            title: format!(
                "{}: {}, {} of instances",
                date(*start),
                money(day.0),
                amounts::duration((day.1 * 1000.0) as u64)
            ),
        }
    };
    days.range(from..=until).map(bar).collect()
}

/// `2026-11-27`.
fn date(seconds: u64) -> String {
    amounts::rfc3339(seconds * 1000).chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(by: usize, since: Option<usize>) -> View {
        View { by, since, tag: "team".to_owned() }
    }

    #[test]
    fn days_are_bars_to_scale() {
        let known = days(&json!([
            {"Start": 86_400, "UsDollars": 2.0, "InstanceSeconds": 10.0},
            {"Start": 259_200, "UsDollars": 4.0, "InstanceSeconds": 5.0},
        ]));
        let (from, until) = range(&view(0, None), &known, 400_000);
        assert_eq!((from, until), (86_400, 345_600), "from the first day on which something was used to today");
        let shown: Vec<_> = bars(&known, from, until).into_iter().map(|bar| (bar.x, bar.y, bar.height)).collect();
        let bar = |x: &str, y: &str, height: &str| (x.to_owned(), y.to_owned(), height.to_owned());
        assert_eq!(shown, [bar("25.00", "60.0", "60.0"), bar("525.00", "0.0", "120.0")]);
        assert_eq!(bars(&known, from, until)[0].title, "1970-01-02: $2.00, 10 s of instances");
        assert_eq!(range(&view(0, Some(1)), &known, 10 * DAY_S + 5), (3 * DAY_S, 10 * DAY_S));
        let free = days(&json!([{"Start": 0, "UsDollars": 0.0, "InstanceSeconds": 10.0}]));
        assert_eq!(bars(&free, 0, 0).len(), 1, "time where there is no price");
        assert_eq!(bars(&BTreeMap::new(), 0, DAY_S), []);
    }

    #[test]
    fn a_line_leads_to_what_it_is_about() {
        let group =
            json!({"Key": "a", "Jobs": 1200, "InstanceSeconds": 3600.0, "UsDollars": 1.0, "SavedUsDollars": 0.0});
        let total = json!({"UsDollars": 4.0});
        let shown = line(&view(1, None), &group, &total);
        assert_eq!((shown.link.as_deref(), &*shown.jobs, &*shown.share), (Some("/console/jobs/a"), "1,200", "25.0"));
        assert_eq!((&*shown.time, &*shown.money, &*shown.saved), ("1 h 00 m", "$1.00", "–"));
        assert_eq!([0.0, 0.001, 0.006].map(money), ["$0.00", "< $0.01", "$0.01"]);
        assert_eq!(line(&view(3, None), &group, &total).link, None, "a tag has no page");
        assert_eq!(line(&view(2, None), &json!({"Key": ""}), &total).key, "no experiment");
        assert_eq!(view(3, Some(1)).address(), "/console/cost?by=tag&since=7+d&tag=team");
        assert_eq!(view(1, None).address(), "/console/cost?by=job&since=all");
    }
}
