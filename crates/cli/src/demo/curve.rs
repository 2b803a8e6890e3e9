//! Learning curves, read from a training's log lines as anybody reads them.

/// A metric by round.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curve {
    /// `train` or `validation`, or what a chart calls it.
    pub(super) name: String,
    /// One value a round.
    pub(super) points: Vec<f64>,
}

impl Curve {
    /// The value of the last round; NaN without rounds.
    pub(super) fn last(&self) -> f64 {
        self.points.last().copied().unwrap_or(f64::NAN)
    }
}

/// The curves of a metric in XGBoost's lines: `[0]#011train-rmse:0.69#011validation-rmse:0.70`.
pub(super) fn read<'a>(lines: impl Iterator<Item = &'a str>, metric: &str) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for line in lines.filter(|line| line.starts_with('[')) {
        for part in line.split("#011").skip(1) {
            let Some((name, value)) = part.split_once(':') else { continue };
            let (Some(name), Ok(value)) =
                (name.strip_suffix(metric).and_then(|name| name.strip_suffix('-')), value.trim().parse())
            else {
                continue;
            };
            match curves.iter_mut().find(|curve| curve.name == name) {
                Some(curve) => curve.points.push(value),
                None => curves.push(Curve { name: name.to_owned(), points: vec![value] }),
            }
        }
    }
    curves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_curves() {
        let lines = [
            "starting",
            "[0]#011train-auc:0.5#011validation-auc:0.4",
            "[1]#011train-auc:0.6#011validation-auc:0.5",
            "[1] done",
        ];
        let curves = read(lines.into_iter(), "auc");
        assert_eq!(
            curves,
            [("train", [0.5, 0.6]), ("validation", [0.4, 0.5])]
                .map(|(name, points)| Curve { name: name.into(), points: points.into() })
        );
        assert!(read(lines.into_iter(), "rmse").is_empty());
    }
}
