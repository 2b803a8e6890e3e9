//! What earlier searches found, in a space that may be another one; and whether a space is large
//! enough.

use crate::{Config, Domain, Outcome, Space, SpaceError, SpecError, Study, Value};

/// What became of trials of elsewhere.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transferred {
    /// How many the study knows now.
    pub taken: usize,
    /// Those that are no configurations of its space: place in the list, and why.
    pub dropped: Vec<(usize, SpaceError)>,
}

/// Rounding that a number may have suffered on its way through another's text, relative to the
/// greater end of its range.
const ROUNDING: f64 = 1e-9;

impl Space {
    /// A trial of another space in this one: each active parameter takes the value of its name,
    /// whether that was tuned or fixed there. What this space does not have is passed over. Whole
    /// numbers may be written as `3.0`, and numbers a rounding error outside the range count as its
    /// end.
    ///
    /// # Errors
    /// A parameter has no value there, or one that is not in its range here.
    pub fn adopt<'a>(&self, text: impl Fn(&str) -> Option<&'a str>) -> Result<Config, SpaceError> {
        let mut config = Config(vec![None; self.parameters().len()]);
        for &index in self.order() {
            if !self.is_active(index, &config) {
                continue;
            }
            let parameter = &self.parameters()[index];
            let missing =
                || SpaceError { parameter: parameter.name.clone(), problem: "has no value in the trial".to_owned() };
            let text = text(&parameter.name).ok_or_else(missing)?;
            let near = |number: f64| number.is_finite().then(|| nearest(&parameter.domain, number)).flatten();
            let value = parameter.parse(text).or_else(|error| text.trim().parse().ok().and_then(near).ok_or(error))?;
            config.0[index] = Some(value);
        }
        Ok(config)
    }

    /// AWS's message, if there are fewer configurations than trials wanted.
    pub fn too_few_combinations(&self, trials: u64) -> Option<String> {
        let combinations = self.combinations().filter(|combinations| *combinations < trials)?;
        Some(format!(
            "You don't have enough combinations of hyperparameter ranges. The total number of hyperparameter \
             combinations for the provided ranges \
             [{combinations}.0] must be equal or greater than the value of MaxNumberOfJobs, [{trials}]."
        ))
    }

    /// How many parameters have more than one value.
    pub fn dimensions(&self) -> usize {
        self.parameters().iter().filter(|parameter| parameter.count() != Some(1)).count()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "whole, and within the range")]
fn nearest(domain: &Domain, number: f64) -> Option<Value> {
    match domain {
        Domain::Continuous { min, max, .. } => {
            let slack = ROUNDING * min.abs().max(max.abs());
            (min - slack..=max + slack).contains(&number).then(|| Value::Float(number.clamp(*min, *max)))
        }
        Domain::Integer { min, max, .. } => {
            let whole = libm::round(number);
            (whole == number && (*min as f64..=*max as f64).contains(&whole)).then_some(Value::Int(whole as i64))
        }
        Domain::Categorical { .. } => None,
    }
}

impl Study {
    /// Tells finished trials of other searches (a warm start): each as a look-up of its
    /// hyperparameters' texts by name, tuned and fixed ones, and how it ended. Those that are no
    /// configurations of this space are left out.
    ///
    /// # Errors
    /// Never for a trial that is left out: the study itself refuses a configuration, which
    /// [`Space::adopt`] rules out.
    pub fn transfer<'a, F: Fn(&str) -> Option<&'a str>>(
        &mut self,
        trials: impl IntoIterator<Item = (F, Outcome)>,
    ) -> Result<Transferred, SpecError> {
        let mut transferred = Transferred::default();
        for (place, (texts, outcome)) in trials.into_iter().enumerate() {
            match self.space().adopt(texts) {
                Ok(config) => {
                    self.inject(config, outcome)?;
                    transferred.taken += 1;
                }
                Err(error) => transferred.dropped.push((place, error)),
            }
        }
        Ok(transferred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StudySpec;

    fn space(json: &str) -> Space {
        serde_json::from_str(json).unwrap()
    }

    const CHILD: &str = r#"[{"name":"eta","type":"continuous","min":0.01,"max":0.3},{"name":"depth","type":"integer","min":2,"max":9},
        {"name":"booster","type":"categorical","values":["gbtree","dart"]},
        {"name":"rate_drop","type":"continuous","min":0.0,"max":1.0,"condition":{"parent":"booster","in":["dart"]}}]"#;

    #[test]
    fn what_maps_is_taken_and_what_does_not_is_left_out_with_a_reason() {
        let mut study = Study::new(StudySpec::random(space(CHILD), 1)).unwrap();
        let trials: [(&[(&str, &str)], Outcome); 6] = [
            // `subsample` is tuned there and fixed here; `rate_drop` does not matter for gbtree.
            (
                &[("eta", "0.1"), ("depth", "3"), ("booster", "gbtree"), ("subsample", "0.5")],
                Outcome::Completed { values: vec![0.4] },
            ),
            (
                &[("eta", "0.30000000000000004"), ("depth", "9.0"), ("booster", "dart"), ("rate_drop", "1")],
                Outcome::Failed,
            ),
            (&[("eta", "0.5"), ("depth", "3"), ("booster", "gbtree")], Outcome::Failed),
            (&[("eta", "0.1"), ("depth", "3.5"), ("booster", "gbtree")], Outcome::Failed),
            (&[("eta", "0.1"), ("depth", "3"), ("booster", "gblinear")], Outcome::Failed),
            (&[("eta", "0.1"), ("booster", "gbtree")], Outcome::Failed),
        ];
        let look = |texts: &'static [(&str, &str)]| {
            move |name: &str| texts.iter().find(|(it, _)| *it == name).map(|(_, text)| *text)
        };
        let transferred = study.transfer(trials.into_iter().map(|(texts, outcome)| (look(texts), outcome))).unwrap();
        assert_eq!(transferred.taken, 2);
        let dropped: Vec<String> =
            transferred.dropped.iter().map(|(place, error)| format!("{place}: {error}")).collect();
        assert_eq!(
            dropped,
            [
                "2: parameter eta: \"0.5\" is not in its range",
                "3: parameter depth: \"3.5\" is not a whole number",
                "4: parameter booster: \"gblinear\" is not one of its values",
                "5: parameter depth: has no value in the trial",
            ]
        );
        let known = study.history().trials();
        assert_eq!(study.space().texts(&known[1].config)[0], ("eta".to_owned(), "0.3".to_owned()));
        assert_eq!((known[0].value(), known[0].injected), (Some(0.4), true));
    }

    #[test]
    fn too_few_combinations_are_told_as_aws_does() {
        let small = space(
            r#"[{"name":"a","type":"integer","min":1,"max":3},{"name":"b","type":"continuous","min":2,"max":2}]"#,
        );
        let message = small.too_few_combinations(10).unwrap();
        assert!(message.ends_with(
            "for the provided ranges [3.0] must be equal or greater than the value of MaxNumberOfJobs, [10]."
        ));
        assert_eq!((small.too_few_combinations(3), small.dimensions()), (None, 1));
        assert_eq!(space(CHILD).too_few_combinations(u64::MAX), None);
    }
}
