//! Grid search: every combination once, in an order that follows from the space alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Config, Domain, Proposal, Rng, Searcher, Space, SpecError, Value, View};

/// Options. AWS's grid has categorical parameters only and needs none of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GridSpec {
    /// How many points a numeric parameter has.
    pub points: Option<u32>,
    /// The same by the parameter's name, which goes before `points`.
    pub by_name: BTreeMap<String, u32>,
}

/// All combinations of the parameters' values, the last parameter changing fastest, of active
/// parameters only. Numeric parameters have so many points, evenly in the scaled range with both
/// ends (one point: its middle); of integers that come to the same, one. What was tried before
/// (injected) is left out.
#[derive(Debug)]
pub struct Grid {
    /// By parameter.
    values: Vec<Vec<Value>>,
}

impl Grid {
    /// The grid of a space.
    ///
    /// # Errors
    /// A numeric parameter has no number of points, or a number is given for a parameter that is
    /// not there.
    pub(crate) fn new(space: &Space, spec: &GridSpec) -> Result<Self, SpecError> {
        let wrong = |problem: String| SpecError::Searcher { searcher: "grid", problem };
        if let Some(name) = spec.by_name.keys().find(|name| space.parameters().iter().all(|it| it.name != **name)) {
            return Err(wrong(format!("by_name has {name:?}, and the space has no such parameter")));
        }
        let mut values = Vec::new();
        for (index, parameter) in space.parameters().iter().enumerate() {
            let points = spec.by_name.get(&parameter.name).copied().or(spec.points);
            let (min, max) = match &parameter.domain {
                Domain::Categorical { values: names } => {
                    values.push(
                        (0..names.len()).map(|place| Value::Choice(u32::try_from(place).unwrap_or(u32::MAX))).collect(),
                    );
                    continue;
                }
                Domain::Continuous { min, max, .. } => (Value::Float(*min), Value::Float(*max)),
                Domain::Integer { min, max, .. } => (Value::Int(*min), Value::Int(*max)),
            };
            let points = if min == max { 1 } else { points.unwrap_or(0) };
            if points == 0 {
                let name = &parameter.name;
                return Err(wrong(format!(
                    "parameter {name} is numeric: say how many points it has (\"points\", or \"by_name\": \
                     {{\"{name}\": 5}}), or make it categorical"
                )));
            }
            values.push(steps(space, index, [min, max], points));
        }
        Ok(Self { values })
    }

    /// The combination of these digits (by parameter; of inactive ones passed over).
    fn config(&self, space: &Space, digits: &[u32]) -> Config {
        space.build(|parameter| self.values[parameter][digits[parameter] as usize])
    }

    /// Counts on; none after the last.
    fn next(&self, space: &Space, digits: &[u32]) -> Option<Vec<u32>> {
        let config = self.config(space, digits);
        let can_go_on = |parameter: usize| {
            config.0[parameter].is_some() && (digits[parameter] as usize) + 1 < self.values[parameter].len()
        };
        // Parents stand before their children: what comes after the one that goes on begins anew.
        let at = space.order().iter().rposition(|&parameter| can_go_on(parameter))?;
        let mut digits = digits.to_vec();
        digits[space.order()[at]] += 1;
        for &later in &space.order()[at + 1..] {
            digits[later] = 0;
        }
        Some(digits)
    }
}

/// Points from end to end, evenly in the scaled range.
fn steps(space: &Space, parameter: usize, ends: [Value; 2], points: u32) -> Vec<Value> {
    let [low, high] = ends.map(|end| space.unit(parameter, end));
    let mut found: Vec<Value> = (0..points)
        .map(|step| match step {
            _ if points == 1 => space.from_unit(parameter, 0.5 * (low + high)),
            0 => ends[0],
            _ if step == points - 1 => ends[1],
            _ => space.from_unit(parameter, low + (high - low) * f64::from(step) / f64::from(points - 1)),
        })
        .collect();
    found.dedup();
    found
}

impl Searcher for Grid {
    fn propose(&mut self, view: &View<'_>, _rng: &mut Rng) -> Proposal {
        // The memo: digits of the last combination.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "they were such numbers")]
        let last = view
            .memo
            .filter(|memo| memo.len() == self.values.len())
            .map(|memo| memo.iter().map(|&digit| digit as u32).collect::<Vec<_>>());
        let mut digits = match last {
            None => Some(vec![0; self.values.len()]),
            Some(last) => self.next(view.space, &last),
        };
        while let Some(these) = digits {
            let config = self.config(view.space, &these);
            if !view.history.has_tried(&config) {
                return Proposal::Try { config, memo: Some(these.into_iter().map(f64::from).collect()) };
            }
            digits = self.next(view.space, &these);
        }
        Proposal::Exhausted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ask, Outcome, SearcherSpec, Study, StudySpec};

    fn study(space: &str, spec: &str) -> Result<Study, SpecError> {
        let space: Space = serde_json::from_str(space).unwrap();
        Study::new(StudySpec {
            searcher: serde_json::from_str::<SearcherSpec>(spec).unwrap(),
            ..StudySpec::random(space, 7)
        })
    }

    /// Values as the user sees them, until it ends.
    fn all(study: &mut Study) -> Vec<String> {
        let mut found = Vec::new();
        while let Ask::Start(start) = study.ask() {
            let texts: Vec<String> = study.space().texts(&start.config).into_iter().map(|(_, text)| text).collect();
            found.push(texts.join(" "));
            study.end(start.trial, Outcome::Failed);
        }
        assert_eq!(study.ask(), Ask::End);
        found
    }

    const CATEGORICAL: &str = r#"[{"name":"a","type":"categorical","values":["p","q"]},{"name":"b","type":"categorical","values":["x","y","z"]}]"#;

    #[test]
    fn categorical_values_are_multiplied_in_order() {
        let expected = ["p x", "p y", "p z", "q x", "q y", "q z"];
        assert_eq!(all(&mut study(CATEGORICAL, r#"{"kind":"grid"}"#).unwrap()), expected);
        // A restored study goes on; what is known from elsewhere is left out.
        let mut one = study(CATEGORICAL, r#"{"kind":"grid"}"#).unwrap();
        one.inject(Config(vec![Some(Value::Choice(0)), Some(Value::Choice(1))]), Outcome::Failed).unwrap();
        let Ask::Start(start) = one.ask() else { panic!("there is more to try") };
        one.end(start.trial, Outcome::Failed);
        assert_eq!(all(&mut Study::restore(one.snapshot()).unwrap()), ["p z", "q x", "q y", "q z"]);
    }

    #[test]
    fn numbers_are_stepped_through_on_their_scale() {
        let space = r#"[{"name":"lr","type":"continuous","min":0.001,"max":10.0,"scaling":"Logarithmic"},{"name":"n","type":"integer","min":1,"max":3}]"#;
        let mut grid = study(space, r#"{"kind":"grid","points":5,"by_name":{"n":9}}"#).unwrap();
        let found = all(&mut grid);
        assert_eq!(found.len(), 15, "{found:?}");
        assert_eq!(&found[..3], ["0.001 1", "0.001 2", "0.001 3"]);
        let rates: Vec<f64> =
            found.iter().step_by(3).map(|text| text.split(' ').next().unwrap().parse().unwrap()).collect();
        for (rate, expected) in rates.iter().zip([0.001, 0.01, 0.1, 1.0, 10.0]) {
            assert!((rate / expected - 1.0).abs() < 1e-12, "{rates:?}");
        }
        assert_eq!(rates[4], 10.0);
        let one = all(&mut study(space, r#"{"kind":"grid","points":1}"#).unwrap());
        assert_eq!(one.len(), 1, "{one:?}");
    }

    #[test]
    fn inactive_parameters_are_not_multiplied() {
        let space = r#"[{"name":"child","type":"integer","min":1,"max":2,"condition":{"parent":"a","in":["q"]}},
            {"name":"a","type":"categorical","values":["p","q"]},{"name":"b","type":"categorical","values":["x","y"]}]"#;
        let found = all(&mut study(space, r#"{"kind":"grid","points":2}"#).unwrap());
        let mut sorted = found.clone();
        sorted.sort();
        assert_eq!(sorted, ["1 q x", "1 q y", "2 q x", "2 q y", "p x", "p y"]);
        let mut different = found;
        different.dedup();
        assert_eq!(different.len(), 6);
    }

    #[test]
    fn what_is_missing_is_named() {
        let space = r#"[{"name":"lr","type":"continuous","min":0.001,"max":10.0}]"#;
        let error = study(space, r#"{"kind":"grid"}"#).unwrap_err().to_string();
        assert!(error.contains("lr") && error.contains("points"), "{error}");
        let error = study(space, r#"{"kind":"grid","points":2,"by_name":{"mu":3}}"#).unwrap_err().to_string();
        assert!(error.contains("mu"), "{error}");
    }
}
