//! What may be tried: parameters, their ranges, and under which values of others they are active.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Config, Rng, Scaling, SpaceError, Value};

/// A parameter's values, all ends included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Domain {
    /// Real numbers.
    Continuous {
        /// Least.
        min: f64,
        /// Greatest.
        max: f64,
        /// How they are spread.
        #[serde(default)]
        scaling: Scaling,
    },
    /// Whole numbers.
    Integer {
        /// Least.
        min: i64,
        /// Greatest.
        max: i64,
        /// How they are spread.
        #[serde(default)]
        scaling: Scaling,
    },
    /// Names without an order.
    Categorical {
        /// Different from each other.
        values: Vec<String>,
    },
}

/// A parameter is active only while its parent has one of these values (and is active itself).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// A categorical or integer parameter.
    pub parent: String,
    /// Its values, as text.
    #[serde(rename = "in")]
    pub values: Vec<String>,
}

/// A parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its name, unique in the space.
    pub name: String,
    /// Its values.
    #[serde(flatten)]
    pub domain: Domain,
    /// When it is active; none: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
}

/// Parameters in the order that configurations keep. As JSON: a list of
/// `{"name","type","min","max","scaling"}` or `{"name","type","values"}`, each with an optional
/// `"condition":{"parent","in"}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Parameter>", into = "Vec<Parameter>")]
pub struct Space {
    parameters: Vec<Parameter>,
    /// Parents before children.
    order: Vec<usize>,
    /// By parameter: its parent's index, and the parent's values under which it is active.
    parents: Vec<Option<(usize, Vec<Value>)>>,
    ranges: Vec<Range>,
}

/// A numeric range on the scale on which draws are uniform.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    scaling: Scaling,
    low: f64,
    high: f64,
}

impl Parameter {
    fn wrong(&self, problem: impl Into<String>) -> SpaceError {
        SpaceError { parameter: self.name.clone(), problem: problem.into() }
    }

    #[expect(clippy::cast_precision_loss, reason = "beyond 2^53 neighbours are one place")]
    fn range(&self) -> Result<Range, SpaceError> {
        let (min, max, scaling, half) = match &self.domain {
            Domain::Categorical { values } => {
                if values.is_empty() {
                    return Err(self.wrong("has no values: give at least one"));
                }
                for (index, value) in values.iter().enumerate() {
                    if values[..index].contains(value) {
                        return Err(self.wrong(format!("has the value {value:?} twice")));
                    }
                }
                return Ok(Range { scaling: Scaling::Linear, low: 0.0, high: values.len() as f64 });
            }
            Domain::Continuous { min, max, scaling } => (*min, *max, *scaling, 0.0),
            Domain::Integer { min, max, scaling } => (*min as f64, *max as f64, *scaling, 0.5),
        };
        if !min.is_finite() || !max.is_finite() {
            return Err(self.wrong("its ends must be finite numbers"));
        }
        if min > max {
            return Err(self.wrong(format!("its minimum {min} is above its maximum {max}")));
        }
        let scaling = scaling.resolved(min, max);
        match scaling {
            Scaling::Logarithmic if min <= 0.0 => {
                return Err(self.wrong(format!("logarithmic scaling needs values above 0, and its minimum is {min}")));
            }
            Scaling::ReverseLogarithmic if half > 0.0 => {
                return Err(
                    self.wrong("reverse logarithmic scaling is for continuous parameters, not for integer ones")
                );
            }
            Scaling::ReverseLogarithmic if min < 0.0 || max >= 1.0 => {
                return Err(self.wrong(format!(
                    "reverse logarithmic scaling needs 0 <= values < 1, and they go from {min} to {max}"
                )));
            }
            _ => {}
        }
        let (low, high) = (scaling.forward(min - half), scaling.forward(max + half));
        if !(high - low).is_finite() {
            return Err(self.wrong(format!("the range from {min} to {max} is too wide")));
        }
        Ok(Range { scaling, low, high })
    }

    /// The value of a text, as AWS sends it.
    ///
    /// # Errors
    /// It is no value of this parameter.
    pub fn parse(&self, text: &str) -> Result<Value, SpaceError> {
        let not = |what: &str| self.wrong(format!("{text:?} is not {what}"));
        let value = match &self.domain {
            Domain::Continuous { .. } => Value::Float(text.trim().parse().map_err(|_| not("a number"))?),
            Domain::Integer { .. } => Value::Int(text.trim().parse().map_err(|_| not("a whole number"))?),
            Domain::Categorical { values } => {
                let place = values.iter().position(|value| value == text).ok_or_else(|| not("one of its values"))?;
                Value::Choice(u32::try_from(place).map_err(|_| not("one of its values"))?)
            }
        };
        if self.holds(value) { Ok(value) } else { Err(not("in its range")) }
    }

    /// Whether it is one of its values.
    pub fn holds(&self, value: Value) -> bool {
        match (&self.domain, value) {
            (Domain::Continuous { min, max, .. }, Value::Float(value)) => (*min..=*max).contains(&value),
            (Domain::Integer { min, max, .. }, Value::Int(value)) => (*min..=*max).contains(&value),
            (Domain::Categorical { values }, Value::Choice(index)) => (index as usize) < values.len(),
            _ => false,
        }
    }

    /// The text of a value, which [`Self::parse`] reads back without loss.
    pub fn text(&self, value: Value) -> String {
        match (&self.domain, value) {
            (Domain::Categorical { values }, Value::Choice(index)) => {
                values.get(index as usize).cloned().unwrap_or_default()
            }
            (_, Value::Float(value)) => value.to_string(),
            (_, Value::Int(value)) => value.to_string(),
            (_, Value::Choice(index)) => index.to_string(),
        }
    }

    /// How many values it has, unless they are a continuum.
    pub fn count(&self) -> Option<u64> {
        match &self.domain {
            Domain::Continuous { min, max, .. } => (min == max).then_some(1),
            Domain::Integer { min, max, .. } => max.abs_diff(*min).checked_add(1),
            Domain::Categorical { values } => Some(values.len() as u64),
        }
    }
}

impl TryFrom<Vec<Parameter>> for Space {
    type Error = SpaceError;

    fn try_from(parameters: Vec<Parameter>) -> Result<Self, SpaceError> {
        Self::new(parameters)
    }
}

impl From<Space> for Vec<Parameter> {
    fn from(space: Space) -> Self {
        space.parameters
    }
}

impl Space {
    /// Checks everything at once.
    ///
    /// # Errors
    /// The first parameter that makes no sense, and why.
    pub fn new(parameters: Vec<Parameter>) -> Result<Self, SpaceError> {
        let mut places = BTreeMap::new();
        for (index, parameter) in parameters.iter().enumerate() {
            if places.insert(parameter.name.clone(), index).is_some() {
                return Err(parameter.wrong("the name is there twice"));
            }
        }
        let ranges = parameters.iter().map(Parameter::range).collect::<Result<_, _>>()?;
        let parents = parameters.iter().map(|it| parent(it, &parameters, &places)).collect::<Result<Vec<_>, _>>()?;
        let order = order(&parameters, &parents)?;
        Ok(Self { parameters, order, parents, ranges })
    }

    /// In the order of configurations.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Indices of the parameters, parents before children.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// Index of a parameter's parent, and the parent's values under which it is active.
    pub fn parent(&self, parameter: usize) -> Option<(usize, &[Value])> {
        self.parents[parameter].as_ref().map(|(parent, values)| (*parent, values.as_slice()))
    }

    /// What a numeric parameter's scaling comes to; linear for categorical ones.
    pub fn scaling(&self, parameter: usize) -> Scaling {
        self.ranges[parameter].scaling
    }

    /// How many configurations there are, unless they are a continuum or more than 2^63.
    pub fn combinations(&self) -> Option<u64> {
        // Below[p][v]: configurations of what hangs below parameter p while it has value v;
        // conditions make it a forest.
        let mut total = 1_u64;
        for (index, parent) in self.parents.iter().enumerate() {
            if parent.is_none() {
                total = total.checked_mul(self.combinations_of(index)?)?;
            }
        }
        Some(total).filter(|&total| total < 1 << 63)
    }

    fn combinations_of(&self, index: usize) -> Option<u64> {
        let count = self.parameters[index].count()?;
        let children: Vec<usize> =
            (0..self.parents.len()).filter(|&it| self.parent(it).is_some_and(|(parent, _)| parent == index)).collect();
        if children.is_empty() {
            return Some(count);
        }
        // Values that no child names have one configuration each.
        let mut named: Vec<Value> = children
            .iter()
            .flat_map(|&child| self.parent(child).map_or(&[][..], |(_, values)| values))
            .copied()
            .collect();
        named.sort_by(|one, other| one.number().total_cmp(&other.number()));
        named.dedup();
        let mut total = count - named.len() as u64;
        for value in named {
            let mut product = 1_u64;
            for &child in
                children.iter().filter(|&&child| self.parent(child).is_some_and(|(_, values)| values.contains(&value)))
            {
                product = product.checked_mul(self.combinations_of(child)?)?;
            }
            total = total.checked_add(product)?;
        }
        Some(total)
    }

    /// Whether a parameter is active, given the values of those before it in [`Self::order`].
    pub fn is_active(&self, parameter: usize, config: &Config) -> bool {
        match self.parent(parameter) {
            None => true,
            Some((parent, values)) => {
                config.0.get(parent).copied().flatten().is_some_and(|value| values.contains(&value))
            }
        }
    }

    /// Whether it is a configuration of this space: a value in its range for every active
    /// parameter, none for others.
    pub fn holds(&self, config: &Config) -> bool {
        config.0.len() == self.parameters.len()
            && self.order.iter().all(|&index| match config.0[index] {
                Some(value) => self.is_active(index, config) && self.parameters[index].holds(value),
                None => !self.is_active(index, config),
            })
    }

    /// Makes one value for each active parameter, parents first.
    pub fn build(&self, mut value: impl FnMut(usize) -> Value) -> Config {
        let mut config = Config(vec![None; self.parameters.len()]);
        for &index in &self.order {
            if self.is_active(index, &config) {
                config.0[index] = Some(value(index));
            }
        }
        config
    }

    /// Uniform in the scaled space.
    pub fn draw(&self, rng: &mut Rng) -> Config {
        self.build(|index| self.from_unit(index, rng.unit()))
    }

    /// The value of a place in [0, 1] of the scaled range. Integers and choices have parts of equal
    /// width (as the scale measures it).
    pub fn from_unit(&self, parameter: usize, unit: f64) -> Value {
        let Range { scaling, low, high } = self.ranges[parameter];
        let place = scaling.backward(low + (high - low) * unit);
        // Saturating casts, clamped to the range.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturating, then clamped to the range"
        )]
        match &self.parameters[parameter].domain {
            Domain::Continuous { min, max, .. } => Value::Float(place.clamp(*min, *max)),
            Domain::Integer { min, max, .. } => Value::Int((libm::round(place) as i64).clamp(*min, *max)),
            Domain::Categorical { values } => {
                Value::Choice((place as u32).min(u32::try_from(values.len() - 1).unwrap_or(u32::MAX)))
            }
        }
    }

    /// Where a value stands in [0, 1] of the scaled range; the middle of its part for integers and
    /// choices.
    pub fn unit(&self, parameter: usize, value: Value) -> f64 {
        let Range { scaling, low, high } = self.ranges[parameter];
        let place = match value {
            Value::Choice(index) => f64::from(index) + 0.5,
            number => scaling.forward(number.number()),
        };
        if high > low { ((place - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
    }

    /// Names and texts of the active parameters, in order.
    pub fn texts(&self, config: &Config) -> Vec<(String, String)> {
        let pairs = self.parameters.iter().zip(&config.0);
        pairs
            .filter_map(|(parameter, value)| value.map(|value| (parameter.name.clone(), parameter.text(value))))
            .collect()
    }

    /// The configuration of these texts. Values of inactive parameters are passed over; parameters
    /// that are not of this space are, too.
    ///
    /// # Errors
    /// An active parameter has no value, or one that is not its.
    pub fn parse<'a>(&self, text: impl Fn(&str) -> Option<&'a str>) -> Result<Config, SpaceError> {
        let mut config = Config(vec![None; self.parameters.len()]);
        for &index in &self.order {
            if self.is_active(index, &config) {
                let parameter = &self.parameters[index];
                let text = text(&parameter.name).ok_or_else(|| parameter.wrong("has no value"))?;
                config.0[index] = Some(parameter.parse(text)?);
            }
        }
        Ok(config)
    }

    /// A parameter's value as a number, if it is active.
    pub fn number(&self, config: &Config, name: &str) -> Option<f64> {
        let index = self.parameters.iter().position(|it| it.name == name)?;
        config.0.get(index).copied().flatten().map(Value::number)
    }
}

fn parent(
    parameter: &Parameter,
    all: &[Parameter],
    places: &BTreeMap<String, usize>,
) -> Result<Option<(usize, Vec<Value>)>, SpaceError> {
    let Some(condition) = &parameter.condition else { return Ok(None) };
    let place = *places
        .get(&condition.parent)
        .ok_or_else(|| parameter.wrong(format!("its parent {} does not exist", condition.parent)))?;
    if matches!(all[place].domain, Domain::Continuous { .. }) {
        return Err(parameter.wrong(format!(
            "its parent {} is continuous: a condition needs a categorical or integer one",
            condition.parent
        )));
    }
    if condition.values.is_empty() {
        return Err(parameter.wrong("its condition names no value of its parent, so it would never be active"));
    }
    let values = condition.values.iter().map(|text| all[place].parse(text)).collect::<Result<Vec<_>, _>>();
    Ok(Some((place, values.map_err(|error| parameter.wrong(format!("its condition: {error}")))?)))
}

fn order(parameters: &[Parameter], parents: &[Option<(usize, Vec<Value>)>]) -> Result<Vec<usize>, SpaceError> {
    let mut order = Vec::with_capacity(parameters.len());
    let mut placed = vec![false; parameters.len()];
    while order.len() < parameters.len() {
        let before = order.len();
        for index in 0..parameters.len() {
            if !placed[index] && parents[index].as_ref().is_none_or(|(parent, _)| placed[*parent]) {
                placed[index] = true;
                order.push(index);
            }
        }
        if order.len() == before {
            let stuck = placed.iter().position(|placed| !placed).unwrap_or(0);
            return Err(parameters[stuck].wrong("its conditions go round in a circle"));
        }
    }
    Ok(order)
}

/// All configurations of a space without a continuum, one after the other.
#[derive(Debug, Clone)]
pub struct Configs<'a> {
    space: &'a Space,
    next: Option<Config>,
}

impl Space {
    /// All configurations in order, the last parameter fastest; none if there is a continuum.
    pub fn configs(&self) -> Configs<'_> {
        let is_countable = self.parameters.iter().all(|parameter| parameter.count().is_some());
        Configs { space: self, next: is_countable.then(|| self.build(|index| first(&self.parameters[index].domain))) }
    }
}

fn first(domain: &Domain) -> Value {
    match domain {
        Domain::Continuous { min, .. } => Value::Float(*min),
        Domain::Integer { min, .. } => Value::Int(*min),
        Domain::Categorical { .. } => Value::Choice(0),
    }
}

fn following(domain: &Domain, value: Value) -> Option<Value> {
    match (domain, value) {
        (Domain::Integer { max, .. }, Value::Int(value)) if value < *max => Some(Value::Int(value + 1)),
        (Domain::Categorical { values }, Value::Choice(index)) if (index as usize) + 1 < values.len() => {
            Some(Value::Choice(index + 1))
        }
        _ => None,
    }
}

impl Iterator for Configs<'_> {
    type Item = Config;

    fn next(&mut self) -> Option<Config> {
        let current = self.next.take()?;
        let order = &self.space.order;
        // The last active parameter that can go on does; those after it begin again.
        self.next = (0..order.len()).rev().find_map(|place| {
            let index = order[place];
            let raised = following(&self.space.parameters[index].domain, current.0[index]?)?;
            Some(self.space.build(|it| match order.iter().position(|&other| other == it) {
                Some(position) if position < place => {
                    current.0[it].unwrap_or_else(|| first(&self.space.parameters[it].domain))
                }
                Some(position) if position == place => raised,
                _ => first(&self.space.parameters[it].domain),
            }))
        });
        Some(current)
    }
}
