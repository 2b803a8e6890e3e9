//! Charts as SVG: lines over time, and one bar for each rank.

use std::fmt::Write;

use crate::findings::time;
use crate::html::escape;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 26.0;
const TOP: f64 = 10.0;
/// Lines of a chart; further ones are left out, and the caption tells so.
pub(super) const MOST_LINES: usize = 12;
/// Okabe and Ito's, readable on light and dark.
const COLOURS: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#999999", "#b5a800"];

/// A line over time.
pub(super) struct Line {
    pub(super) name: String,
    /// Seconds and values, in order.
    pub(super) points: Vec<(f64, f64)>,
}

/// A mark with what it stands for.
pub(super) struct Mark {
    pub(super) at: (f64, f64),
    pub(super) text: String,
}

/// What a chart's values are.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Percent,
    Milliseconds,
    BytesPerSecond,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Percent if value > 0.0 && value < 10.0 => format!("{value:.1} %"),
            Self::Percent => format!("{value:.0} %"),
            Self::Milliseconds if value <= 0.0 => "0".to_owned(),
            Self::Milliseconds => time(value),
            Self::BytesPerSecond if value <= 0.0 => "0".to_owned(),
            Self::BytesPerSecond => {
                let power = (value.max(1.0).log(1024.0) as usize).min(3);
                format!("{:.0} {}/s", value / 1024_f64.powi(power as i32), ["B", "KiB", "MiB", "GiB"][power])
            }
        }
    }
}

/// Lines from 0 on, and marks on them. Empty of nothing.
pub(super) fn lines(title: &str, unit: Unit, seconds: f64, lines: &[Line], marks: &[Mark]) -> String {
    let lines = &lines[..lines.len().min(MOST_LINES)];
    let all = lines.iter().flat_map(|line| line.points.iter()).chain(marks.iter().map(|mark| &mark.at));
    let Some(high) = all.map(|(_, value)| *value).filter(|it| it.is_finite()).reduce(f64::max) else {
        return String::new();
    };
    let (step, most) = scale(high, unit);
    let seconds = seconds.max(1.0);
    let x = |at: f64| LEFT + (WIDTH - LEFT - 10.0) * (at / seconds).clamp(0.0, 1.0);
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - (value / most).clamp(0.0, 1.0));
    let mut svg = begin(title, HEIGHT);
    let mut value = 0.0;
    while value <= most * 1.001 {
        let at = y(value);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.0}\"/><text class=\"axis\" x=\"{:.0}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            WIDTH - 10.0,
            LEFT - 6.0,
            at + 4.0,
            unit.show(value)
        );
        value += step;
    }
    let every = time_step(seconds);
    let mut at = 0.0;
    while at <= seconds {
        let text = if at == 0.0 { "0".to_owned() } else { clock(at) };
        let anchor = if x(at) > WIDTH - 40.0 { "end" } else { "middle" };
        let _ = write!(
            svg,
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{text}</text>",
            x(at),
            HEIGHT - 8.0
        );
        at += every;
    }
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let path = line.points.iter().enumerate().fold(String::new(), |mut path, (number, (at, value))| {
            let _ = write!(path, "{}{:.1} {:.1}", if number == 0 { 'M' } else { 'L' }, x(*at), y(*value));
            path
        });
        let _ = write!(
            svg,
            "<path class=\"line\" stroke=\"{colour}\" d=\"{path}\"><title>{}</title></path>",
            escape(&line.name)
        );
        if let [(at, value)] = line.points[..] {
            let _ = write!(svg, "<circle fill=\"{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>", x(at), y(value));
        }
    }
    for Mark { at, text } in marks {
        let text = escape(text);
        let (x, y) = (x(at.0), y(at.1));
        let _ =
            write!(svg, "<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{text}</title></circle>");
    }
    if lines.len() == 1 {
        return svg + "</svg></div>";
    }
    svg + "</svg></div>" + &legend(lines.iter().map(|line| &*line.name).zip(COLOURS.iter().cycle().copied()))
}

/// Bars whose parts are shares; each with a name and a text at its end.
pub(super) fn bars(title: &str, parts: &[(&str, &str)], rows: &[(String, Vec<f64>, String)]) -> String {
    const ROW: f64 = 26.0;
    let height = ROW * rows.len() as f64 + 8.0;
    let (left, right) = (150.0, 150.0);
    let mut svg = begin(title, height);
    for (number, (name, shares, text)) in rows.iter().enumerate() {
        let top = 4.0 + ROW * number as f64;
        let _ = write!(
            svg,
            "<text class=\"name\" x=\"0\" y=\"{0:.0}\">{1}</text><text class=\"axis\" x=\"{2:.0}\" y=\"{0:.0}\">{3}</text>",
            top + 15.0,
            escape(name),
            WIDTH - right + 8.0,
            escape(text)
        );
        let mut x = left;
        for ((part, colour), share) in parts.iter().zip(shares) {
            let width = (WIDTH - left - right) * share;
            let _ = write!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{top:.0}\" width=\"{width:.1}\" height=\"20\" fill=\"{colour}\"><title>{part}: \
                 {:.1} %</title></rect>",
                100.0 * share
            );
            if width > 46.0 {
                let _ = write!(
                    svg,
                    "<text class=\"on\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{:.0} %</text>",
                    x + width / 2.0,
                    top + 15.0,
                    100.0 * share
                );
            }
            x += width;
        }
    }
    svg + "</svg></div>" + &legend(parts.iter().copied())
}

/// The chart's opening; narrow windows scroll it.
pub(super) fn begin(title: &str, height: f64) -> String {
    let title = escape(title);
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><svg viewBox=\"0 0 {WIDTH:.0} \
         {height:.0}\" role=\"img\" aria-label=\"{title}\">"
    )
}

fn legend<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let entries = entries.fold(String::new(), |mut text, (name, colour)| {
        let _ = write!(text, "<span><i style=\"background:{colour}\"></i>{}</span>", escape(name));
        text
    });
    format!("<p class=\"keys\">{entries}</p>")
}

/// A round step between lines of the grid, and the greatest value.
fn scale(high: f64, unit: Unit) -> (f64, f64) {
    let base: f64 = if matches!(unit, Unit::BytesPerSecond) { 2.0 } else { 10.0 };
    let rough = (high / 4.0).max(1e-3);
    let power = base.powf(rough.log(base).floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|it| it * power).into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough);
    let step = if base == 2.0 { power * (rough / power).ceil() } else { step };
    (step, step * (high / step).ceil().max(1.0))
}

fn time_step(seconds: f64) -> f64 {
    const STEPS: [f64; 15] =
        [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21_600.0, 86_400.0];
    STEPS.into_iter().find(|step| seconds / step <= 10.0).unwrap_or(seconds / 10.0)
}

fn clock(seconds: f64) -> String {
    match seconds as u64 {
        s if s < 60 => format!("{s} s"),
        s if s < 3600 && s % 60 == 0 => format!("{} min", s / 60),
        s if s < 3600 => format!("{}:{:02}", s / 60, s % 60),
        s => format!("{}:{:02} h", s / 3600, s / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_round() {
        assert_eq!(scale(97.0, Unit::Percent), (50.0, 100.0));
        assert_eq!(scale(100.0, Unit::Percent), (50.0, 100.0));
        assert_eq!(scale(13.0, Unit::Milliseconds), (5.0, 15.0));
        assert_eq!(scale(0.0, Unit::Milliseconds).1, 0.001);
        assert_eq!(scale(4096.0, Unit::BytesPerSecond), (1024.0, 4096.0));
        assert_eq!([5.0, 90.0, 120.0, 7260.0].map(clock), ["5 s", "1:30", "2 min", "2:01 h"]);
        assert_eq!([9.0, 100.0, 86_400.0].map(time_step), [1.0, 10.0, 21_600.0]);
    }

    #[test]
    fn charts_hold_their_values_and_escape_names() {
        let line = Line { name: "<b>".to_owned(), points: vec![(0.0, 0.0), (10.0, 100.0)] };
        let mark = Mark { at: (5.0, 50.0), text: "step 7".to_owned() };
        let svg = lines("a & b", Unit::Percent, 10.0, &[line], &[mark]);
        for part in ["a &amp; b", "&lt;b&gt;", "d=\"M70.0 194.0L950.0 10.0\"", "<title>step 7</title>", ">100 %<"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert_eq!(lines("none", Unit::Percent, 10.0, &[], &[]), "");
        let row = ("rank 0".to_owned(), vec![0.25, 0.75], "10 ms".to_owned());
        let svg = bars("shares", &[("data", "#111"), ("computing", "#222")], &[row]);
        assert!(svg.contains("data: 25.0 %") && svg.contains(">75 %<"), "{svg}");
    }
}
