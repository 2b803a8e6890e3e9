//! Sampled stacks as a flame graph: width is how often a frame was seen, its callees are below.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::chart::begin;
use crate::html::escape;

const WIDTH: f64 = 960.0;
const ROW: f64 = 18.0;
/// Frames deeper than that are cut off.
const MOST_DEPTH: usize = 48;
/// Narrower frames are left out.
const NARROWEST: f64 = 1.0;
/// Pixels of a letter.
const LETTER: f64 = 6.3;

/// A frame, and what it called.
#[derive(Debug, Default)]
struct Node {
    count: u64,
    below: BTreeMap<String, Node>,
}

/// The samples of folded stacks.
#[must_use]
pub fn samples(folded: &str) -> u64 {
    entries(folded).map(|(_, count)| count).fold(0, u64::saturating_add)
}

/// Stacks and how often each was seen.
pub(crate) fn entries(folded: &str) -> impl Iterator<Item = (&str, u64)> {
    let entry = |line: &'_ str| {
        let (stack, count) = line.rsplit_once(' ')?;
        Some((stack.len(), count.parse().ok()?))
    };
    folded.lines().filter(|line| !line.starts_with('#')).filter_map(move |line| {
        let (end, count) = entry(line)?;
        Some((&line[..end], count))
    })
}

/// The graph; empty of nothing.
pub(super) fn graph(title: &str, folded: &str) -> String {
    let mut root = Node::default();
    for (stack, count) in entries(folded) {
        root.count = root.count.saturating_add(count);
        let mut node = &mut root;
        for frame in stack.split(';').take(MOST_DEPTH) {
            node = node.below.entry(frame.to_owned()).or_default();
            node.count = node.count.saturating_add(count);
        }
    }
    if root.count == 0 {
        return String::new();
    }
    let mut rects = String::new();
    let depth = draw(&root, 0.0, 0, root.count as f64, &mut rects);
    begin(title, ROW * depth as f64 + 2.0) + &rects + "</svg></div>"
}

/// Draws what a node called; how many rows there are.
fn draw(node: &Node, left: f64, row: usize, all: f64, svg: &mut String) -> usize {
    let mut x = left;
    let mut depth = row;
    for (name, below) in &node.below {
        let width = WIDTH * below.count as f64 / all;
        if width >= NARROWEST {
            let y = ROW * row as f64;
            let share = 100.0 * below.count as f64 / all;
            let _ = write!(
                svg,
                "<g><title>{} - {} samples, {share:.1} %</title><rect x=\"{x:.1}\" y=\"{y:.0}\" width=\"{:.1}\" \
                 height=\"17\" rx=\"2\" fill=\"{}\"/>",
                escape(name),
                below.count,
                (width - 0.5).max(0.5),
                colour(name)
            );
            let letters = ((width - 6.0) / LETTER) as usize;
            if letters >= 3 {
                let _ = write!(
                    svg,
                    "<text class=\"frame\" x=\"{:.1}\" y=\"{:.0}\">{}</text>",
                    x + 3.0,
                    y + 12.5,
                    escape(&cut(name, letters))
                );
            }
            svg.push_str("</g>");
            depth = depth.max(draw(below, x, row + 1, all, svg)).max(row + 1);
        }
        x += width;
    }
    depth
}

fn cut(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters - 1).chain(['…']).collect()
}

/// Warm, the same for each name; grey for what waits.
fn colour(name: &str) -> String {
    if name.starts_with('[') {
        return "#b8c0ca".to_owned();
    }
    let hash = name.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    format!("hsl({} {}% {}%)", 18 + hash % 38, 75 + hash / 64 % 15, 66 + hash / 1024 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_counts() {
        let folded = "python a;main;step 3\npython a;main;load<> 1\n# 4 samples, 0 missed\n";
        assert_eq!(samples(folded), 4);
        let svg = graph("stacks", folded);
        assert!(svg.contains("viewBox=\"0 0 960 56\""), "{svg}");
        assert!(
            svg.contains("<title>step - 3 samples, 75.0 %</title><rect x=\"240.0\" y=\"36\" width=\"719.5\""),
            "{svg}"
        );
        assert!(svg.contains("load&lt;&gt; - 1 samples, 25.0 %"), "{svg}");
        assert_eq!(graph("stacks", "no number\n# 0 samples\n"), "");
    }

    #[test]
    fn what_a_program_makes_up_is_bounded() {
        let deep = format!("{} 5\n", vec!["f"; 10_000].join(";"));
        let svg = graph("deep", &deep);
        assert!(svg.len() < 20_000 && svg.matches("<rect").count() == MOST_DEPTH, "{}", svg.len());
        let wide = (0..20_000).map(|number| format!("f{number} 1\n")).collect::<String>();
        assert!(!graph("wide", &wide).contains("<rect"));
        assert_eq!(cut("ääääää", 4), "äää…");
    }
}
