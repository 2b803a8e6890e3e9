//! Curves drawn with characters.

use super::curve::Curve;

/// Size of the drawing without its frame.
const WIDTH: usize = 64;
const HEIGHT: usize = 12;

/// What the curves are drawn with, in order; a later one goes over an earlier one.
const MARKS: [char; 4] = ['·', '•', '+', 'x'];

/// A chart of up to four curves over the same rounds; empty when there is nothing to draw.
pub(super) fn draw(title: &str, curves: &[Curve]) -> String {
    let values = || curves.iter().flat_map(|curve| &curve.points).copied().filter(|value| value.is_finite());
    let (low, high) =
        values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    let rounds = curves.iter().map(|curve| curve.points.len()).max().unwrap_or(0);
    if low > high {
        return String::new();
    }
    let span = if high > low { high - low } else { 1.0 };
    let mut cells = vec![[' '; WIDTH]; HEIGHT];
    for (curve, mark) in curves.iter().zip(MARKS) {
        // Each column shows the round below it, so that short and long curves fill the same width.
        let rounds = (0..WIDTH).map(|column| column * rounds.saturating_sub(1) / (WIDTH - 1));
        for (column, value) in rounds.map(|round| curve.points.get(round)).enumerate() {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let from_top = ((high - value) / span * (HEIGHT - 1) as f64).round() as usize;
            cells[from_top.min(HEIGHT - 1)][column] = mark;
        }
    }
    let mut text = format!("  {title}\n");
    for (row, line) in cells.iter().enumerate() {
        let label = match row {
            0 => format!("{high:.4}"),
            row if row == HEIGHT - 1 => format!("{low:.4}"),
            _ => String::new(),
        };
        text.push_str(&format!("  {label:>8} │{}\n", line.iter().collect::<String>().trim_end()));
    }
    text.push_str(&format!("  {:>8} └{}\n", "", "─".repeat(WIDTH)));
    let last = rounds.saturating_sub(1).to_string();
    text.push_str(&format!("  {:>8}  0{last:>width$}\n", "", width = WIDTH - 1));
    let legend: Vec<_> = curves.iter().zip(MARKS).map(|(curve, mark)| format!("{mark} {}", curve.name)).collect();
    text.push_str(&format!("  {:>8}  {}\n", "", legend.join("   ")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_go_where_their_values_are() {
        let falling = Curve { name: "train".into(), points: (0..100).map(|round| f64::from(100 - round)).collect() };
        let flat = Curve { name: "validation".into(), points: vec![1.0; 100] };
        let text = draw("rmse", &[falling, flat]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "  rmse");
        assert!(lines[1].starts_with("  100.0000 │·"), "{text}");
        assert!(lines[HEIGHT].starts_with("    1.0000 │•") && lines[HEIGHT].ends_with('•'), "{text}");
        assert!(lines[HEIGHT + 2].ends_with("99") && lines[HEIGHT + 3].ends_with("· train   • validation"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 12 + WIDTH));
    }

    #[test]
    fn nothing_and_one_point_can_be_drawn() {
        assert_eq!(draw("x", &[]), "");
        assert_eq!(draw("x", &[Curve { name: "a".into(), points: vec![f64::NAN] }]), "");
        assert!(draw("x", &[Curve { name: "a".into(), points: vec![2.0] }]).contains('·'));
    }
}
