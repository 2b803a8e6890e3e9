//! Configurations as points of the model. Numbers stand in [0, 1] of their scaled range (integers
//! at the middle of their part, so that the model sees what will be tried), choices are their
//! index. What a condition makes inactive is neutral: a number stands in the middle, a choice has
//! an index of its own.

use super::kernel::Axis;
use crate::{Config, Domain, Space, Value};

/// Of a space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoding<'a> {
    space: &'a Space,
    has_conditions: bool,
}

/// Integers with fewer values than this are not warped.
const FEW: u64 = 5;

impl<'a> Encoding<'a> {
    pub(crate) fn new(space: &'a Space) -> Self {
        let has_conditions = (0..space.parameters().len()).any(|parameter| space.parent(parameter).is_some());
        Self { space, has_conditions }
    }

    /// The space.
    pub(crate) fn space(&self) -> &'a Space {
        self.space
    }

    /// An axis per parameter.
    pub(crate) fn axes(&self, is_warped: bool) -> Vec<Axis> {
        let axis = |domain: &Domain, count: Option<u64>| match domain {
            Domain::Categorical { .. } => Axis::Choice,
            Domain::Continuous { .. } | Domain::Integer { .. } => {
                Axis::Number { warped: is_warped && count.is_none_or(|count| count >= FEW) }
            }
        };
        self.space.parameters().iter().map(|parameter| axis(&parameter.domain, parameter.count())).collect()
    }

    /// Whether a parameter moves continuously.
    pub(crate) fn is_continuous(&self, parameter: usize) -> bool {
        let parameter = &self.space.parameters()[parameter];
        matches!(parameter.domain, Domain::Continuous { .. }) && parameter.count().is_none()
    }

    /// The point of a configuration.
    pub(crate) fn point(&self, config: &Config) -> Vec<f64> {
        config.0.iter().enumerate().map(|(parameter, value)| self.coordinate(parameter, *value)).collect()
    }

    fn coordinate(&self, parameter: usize, value: Option<Value>) -> f64 {
        match (&self.space.parameters()[parameter].domain, value) {
            (Domain::Categorical { .. }, Some(Value::Choice(index))) => f64::from(index),
            #[expect(clippy::cast_precision_loss, reason = "a count of names")]
            (Domain::Categorical { values }, _) => values.len() as f64,
            (_, Some(value)) => self.space.unit(parameter, value),
            (_, None) => 0.5,
        }
    }

    /// Where a place in [0, 1] of a parameter's range comes to stand when it is rounded to a value.
    pub(crate) fn snapped(&self, parameter: usize, unit: f64) -> f64 {
        if self.is_continuous(parameter) {
            unit
        } else {
            self.coordinate(parameter, Some(self.space.from_unit(parameter, unit)))
        }
    }

    /// The value at a coordinate.
    pub(crate) fn value(&self, parameter: usize, coordinate: f64) -> Value {
        match &self.space.parameters()[parameter].domain {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
            Domain::Categorical { values } => {
                Value::Choice((coordinate as u32).min(u32::try_from(values.len() - 1).unwrap_or(u32::MAX)))
            }
            _ => self.space.from_unit(parameter, coordinate),
        }
    }

    /// The configuration of coordinates, of which those of inactive parameters are passed over.
    pub(crate) fn config(&self, coordinates: &[f64]) -> Config {
        self.space.build(|parameter| self.value(parameter, coordinates[parameter]))
    }

    /// Coordinates with the inactive ones made neutral: a point of the model.
    pub(crate) fn masked(&self, coordinates: &[f64]) -> Vec<f64> {
        if !self.has_conditions {
            return coordinates.to_vec();
        }
        let config = self.config(coordinates);
        let masked = |parameter: usize| {
            config.0[parameter].map_or_else(|| self.coordinate(parameter, None), |_| coordinates[parameter])
        };
        (0..coordinates.len()).map(masked).collect()
    }

    /// Whether a parameter is active at coordinates.
    pub(crate) fn active(&self, coordinates: &[f64]) -> Vec<bool> {
        if !self.has_conditions {
            return vec![true; coordinates.len()];
        }
        self.config(coordinates).0.iter().map(Option::is_some).collect()
    }

    /// Other coordinates of a parameter that does not move continuously: all if there are few, else
    /// at growing distances on both sides.
    pub(crate) fn others(&self, parameter: usize, coordinate: f64) -> Vec<f64> {
        let own = self.value(parameter, coordinate);
        match (&self.space.parameters()[parameter].domain, own) {
            (Domain::Categorical { values }, Value::Choice(own)) => {
                let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
                (0..count).filter(|index| *index != own).map(f64::from).collect()
            }
            (Domain::Integer { min, max, .. }, Value::Int(own)) => {
                let coordinate = |value: i64| self.coordinate(parameter, Some(Value::Int(value)));
                if max.abs_diff(*min) < MANY {
                    return (*min..=*max).filter(|value| *value != own).map(coordinate).collect();
                }
                let far = (0..62).map(|power| 1_i64 << power);
                let both = far.flat_map(|by| [own.checked_sub(by), own.checked_add(by)]).flatten();
                both.filter(|value| (min..=max).contains(&value)).map(coordinate).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Integers with more values than this are not all looked at.
const MANY: u64 = 16;
