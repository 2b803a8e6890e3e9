//! CreateXgboostReport: one page about a training of gradient-boosted trees.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Rule, selected};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::selection::Selection;
use crate::step::Step;

/// Metrics on the page, and points of each; with more, every other one is left out.
const MAX_METRICS: usize = 50;
const MAX_POINTS: usize = 1000;
/// Features and classes on the page.
const MAX_FEATURES: usize = 30;
const MAX_CLASSES: usize = 20;

pub(crate) static CREATE_TREE_REPORT: Declaration = Declaration {
    name: "CreateXgboostReport",
    summary: "A report of metrics, feature importance and predictions; it finds no issues.",
    parameters: &[],
    collections: &["metrics", "feature_importance", "hyperparameters", "predictions", "labels"],
    make: Make::Tensors(|_| {
        Box::new(TreeReport {
            metrics: [Selection::of_collection("metrics")],
            others: ["feature_importance", "predictions", "labels"].map(Selection::of_collection),
            points: BTreeMap::new(),
            importance: BTreeMap::new(),
            confusion: BTreeMap::new(),
            last_step: 0,
        })
    }),
};

#[derive(Debug)]
struct TreeReport {
    metrics: [Selection; 1],
    /// Feature importance, predictions and labels.
    others: [Selection; 3],
    points: BTreeMap<String, Vec<(u64, f64)>>,
    /// Of the last step.
    importance: BTreeMap<String, f64>,
    confusion: BTreeMap<(u64, u64), u64>,
    last_step: u64,
}

impl TreeReport {
    fn observe_predictions(&mut self, step: &Step<'_>) {
        let [_, predictions, labels] = &self.others;
        let find = |selection| selected(step, selection).find_map(|saved| saved.tensor.as_ref()?.values().ok());
        let (Some(predictions), Some(labels)) = (find(predictions), find(labels)) else { return };
        let is_class = |label: &f64| label.fract() == 0.0 && (0.0..MAX_CLASSES as f64).contains(label);
        if labels.is_empty()
            || predictions.is_empty()
            || predictions.len() % labels.len() != 0
            || !labels.iter().all(is_class)
        {
            return;
        }
        self.confusion.clear();
        for (label, scores) in labels.iter().zip(predictions.chunks_exact(predictions.len() / labels.len())) {
            let class = match scores {
                [probability] => probability.round(),
                _ => scores
                    .iter()
                    .enumerate()
                    .max_by(|(_, a), (_, b)| a.total_cmp(b))
                    .map_or(0.0, |(best, _)| best as f64),
            };
            let class = class.clamp(0.0, MAX_CLASSES as f64) as u64;
            *self.confusion.entry((*label as u64, class)).or_default() += 1;
        }
    }
}

impl Rule for TreeReport {
    fn needs(&self) -> &[Selection] {
        &self.metrics
    }

    fn also_reads(&self) -> Vec<&Selection> {
        self.others.iter().collect()
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        self.last_step = step.step;
        for saved in selected(step, &self.metrics[0]) {
            let Some(value) = saved.tensor.as_ref().and_then(|tensor| tensor.scalar()) else { continue };
            if self.points.len() >= MAX_METRICS && !self.points.contains_key(&saved.name) {
                continue;
            }
            let points = self.points.entry(saved.name.clone()).or_default();
            points.push((step.step, value));
            if points.len() > MAX_POINTS {
                let mut index = 0;
                points.retain(|_| {
                    index += 1;
                    index % 2 == 0
                });
            }
        }
        let importances = Vec::from_iter(selected(step, &self.others[0]).filter_map(|saved| {
            let name = saved.name.strip_prefix("feature_importance/")?;
            Some((name.to_owned(), saved.tensor.as_ref()?.scalar()?))
        }));
        if !importances.is_empty() {
            self.importance = importances.into_iter().take(10_000).collect();
        }
        self.observe_predictions(step);
        None
    }

    fn report(&self) -> Option<(&'static str, String)> {
        Some(("xgboost_report.html", page(self)))
    }
}

fn page(report: &TreeReport) -> String {
    let mut body = format!("<h1>XGBoost training report</h1><p>Up to step {}.</p><h2>Metrics</h2>", report.last_step);
    for (name, points) in &report.points {
        curve(&mut body, name, points);
    }
    for kind in ["weight", "gain", "cover", "total_gain", "total_cover"] {
        importance(&mut body, kind, &report.importance);
    }
    if !report.confusion.is_empty() {
        confusion(&mut body, &report.confusion);
    }
    format!(
        "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><title>XGBoost training report</title><style>body\
         {{font:15px sans-serif;max-width:60em;margin:2em auto}}svg{{background:#f6f8fa}}td,th{{padding:.2em .6em;\
         text-align:right}}</style><body>{body}</body></html>"
    )
}

/// A polyline of 600 by 160.
fn curve(body: &mut String, name: &str, points: &[(u64, f64)]) {
    let finite = Vec::from_iter(points.iter().filter(|(_, value)| value.is_finite()));
    let (Some((first, _)), Some((last, value))) = (finite.first(), finite.last()) else { return };
    let (low, high) =
        finite.iter().fold((f64::MAX, f64::MIN), |(low, high), (_, value)| (low.min(*value), high.max(*value)));
    let (width, height) = ((last - first).max(1) as f64, (high - low).max(f64::MIN_POSITIVE));
    let line = finite.iter().fold(String::new(), |mut line, (step, value)| {
        let _ =
            write!(line, "{:.1},{:.1} ", 600.0 * (step - first) as f64 / width, 155.0 - 150.0 * (value - low) / height);
        line
    });
    let _ = write!(
        body,
        "<h3>{}: {} at the end, from {} to {}</h3><svg width=\"600\" height=\"160\"><polyline points=\"{}\" fill=\"none\" \
         stroke=\"#0969da\"/></svg>",
        escaped(name),
        Short(*value),
        Short(low),
        Short(high),
        line.trim_end()
    );
}

fn importance(body: &mut String, kind: &str, all: &BTreeMap<String, f64>) {
    let of_kind =
        |(name, value): (&String, &f64)| Some((name.strip_prefix(kind)?.strip_prefix('/')?.to_owned(), *value));
    let mut features = Vec::from_iter(all.iter().filter_map(of_kind));
    features.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let Some((_, highest)) = features.first().cloned() else { return };
    let _ = write!(body, "<h2>Feature importance: {kind}</h2><table>");
    for (name, value) in features.iter().take(MAX_FEATURES) {
        let width = if highest > 0.0 { 300.0 * (value / highest).clamp(0.0, 1.0) } else { 0.0 };
        let _ = write!(
            body,
            "<tr><td>{}<td>{}<td><svg width=\"300\" height=\"12\"><rect width=\"{width:.0}\" height=\"12\" \
             fill=\"#0969da\"/></svg>",
            escaped(name),
            Short(*value)
        );
    }
    body.push_str("</table>");
}

fn confusion(body: &mut String, matrix: &BTreeMap<(u64, u64), u64>) {
    let classes = matrix.keys().map(|(label, prediction)| label.max(prediction)).max().map_or(0, |class| class + 1);
    let classes = classes.min(MAX_CLASSES as u64);
    let right: u64 = matrix.iter().filter(|((label, prediction), _)| label == prediction).map(|(_, count)| count).sum();
    let all: u64 = matrix.values().sum();
    let accuracy = Short(right as f64 / all as f64);
    let _ = write!(body, "<h2>Confusion matrix (accuracy {accuracy})</h2><table><tr><th>label \\ prediction");
    for prediction in 0..classes {
        let _ = write!(body, "<th>{prediction}");
    }
    for label in 0..classes {
        let _ = write!(body, "<tr><th>{label}");
        for prediction in 0..classes {
            let _ = write!(body, "<td>{}", matrix.get(&(label, prediction)).copied().unwrap_or(0));
        }
    }
    body.push_str("</table>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use crate::selection::Groups;
    use crate::testing::{evaluation, step};
    use crate::{Catalogue, Status};

    #[test]
    fn the_page_has_curves_importance_and_confusion() {
        let groups = Groups::default();
        let mut evaluation = evaluation("CreateXgboostReport", &[]);
        for number in 0..5000 {
            let auc = [0.5 + number as f32 / 10_000.0];
            let tensors: &[(&str, &[f32])] = &[
                ("validation-auc", &auc),
                ("feature_importance/gain/<f0>", &[3.0]),
                ("feature_importance/gain/f1", &[1.0]),
                ("labels", &[0.0, 1.0, 1.0, 1.0]),
                ("predictions", &[0.2, 0.9, 0.4, 0.8]),
            ];
            assert_eq!(evaluation.observe(&step(&groups, number, tensors)), None);
        }
        let ended = evaluation.end(&groups, &Catalogue::default()).unwrap();
        assert_eq!(ended.status, Status::NoIssuesFound);
        let (name, page) = ended.report.unwrap();
        assert_eq!(name, "xgboost_report.html");
        for part in [
            "validation-auc: 0.9999 at the end",
            "Confusion matrix (accuracy 0.75)",
            "<tr><th>1<td>1<td>2",
            "&lt;f0&gt;<td>3",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(page.len() < 100_000 && !page.contains("<f0>"), "{}", page.len());
    }
}
