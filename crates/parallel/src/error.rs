//! What is wrong with a plan that was asked for: the field, and the nearest values that are right.

/// A value that cannot be; it names the field, and what could stand there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}{}", advice(.nearest))]
pub struct Invalid {
    /// Which field or argument.
    pub field: &'static str,
    /// What is wrong with its value.
    pub problem: String,
    /// The nearest values with which this complaint is gone, the lesser one first; none where no
    /// list of numbers can say it.
    pub nearest: Vec<u64>,
}

impl Invalid {
    pub(crate) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into(), nearest: Vec::new() }
    }

    pub(crate) fn nearest(mut self, values: impl IntoIterator<Item = usize>) -> Self {
        self.nearest = values.into_iter().map(|value| value as u64).collect();
        self.nearest.dedup();
        self
    }
}

fn advice(nearest: &[u64]) -> String {
    let words: Vec<String> = nearest.iter().map(u64::to_string).collect();
    if words.is_empty() { String::new() } else { format!("; nearest valid: {}", words.join(" or ")) }
}

/// The divisors of `whole` next to `wanted`, below and above.
pub(crate) fn nearest_divisors(whole: usize, wanted: usize) -> Vec<usize> {
    let divides = |candidate: &usize| whole.is_multiple_of(*candidate);
    let below = (1..=wanted.min(whole)).rev().find(divides);
    let above = (wanted.max(1)..=whole).find(divides);
    below.into_iter().chain(above).collect()
}

/// The multiples of `unit` next to `wanted`, below (where that is not 0) and above.
pub(crate) fn nearest_multiples(unit: usize, wanted: usize) -> Vec<usize> {
    let below = wanted / unit * unit;
    let above = wanted.div_ceil(unit).max(1) * unit;
    [below, above].into_iter().filter(|candidate| *candidate > 0).collect()
}

/// A number of something that must be there: 1 or more.
pub(crate) fn at_least_one(field: &'static str, value: usize) -> Result<(), Invalid> {
    if value == 0 { Err(Invalid::new(field, "must be at least 1").nearest([1])) } else { Ok(()) }
}

/// A real number within bounds, both included; what is not a number is outside.
pub(crate) fn within(field: &'static str, value: f64, low: f64, high: f64) -> Result<(), Invalid> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    // Bounds that every sensible number keeps are no news, and their digits fill a screen.
    let bounds = match (low == f64::MIN_POSITIVE, high < f64::MAX) {
        (true, true) => format!("above 0, and at most {high}"),
        (true, false) => "above 0, and finite".to_owned(),
        (false, true) => format!("from {low} to {high}"),
        (false, false) => format!("at least {low}, and finite"),
    };
    Err(Invalid::new(field, format!("is {value}, and must be {bounds}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_values_are_named() {
        assert_eq!(nearest_divisors(12, 5), [4, 6]);
        assert_eq!(nearest_divisors(7, 5), [1, 7]);
        assert_eq!(nearest_divisors(8, 100), [8]);
        assert_eq!(nearest_multiples(3, 8), [6, 9]);
        assert_eq!(nearest_multiples(3, 2), [3]);
        let error = Invalid::new("tensor", "5 does not divide 12 ranks").nearest(nearest_divisors(12, 5));
        assert_eq!(error.to_string(), "tensor: 5 does not divide 12 ranks; nearest valid: 4 or 6");
        let said = |low, high| within("rate", -1.0, low, high).unwrap_err().to_string();
        assert_eq!(said(0.0, f64::MAX), "rate: is -1, and must be at least 0, and finite");
        assert_eq!(said(f64::MIN_POSITIVE, f64::INFINITY), "rate: is -1, and must be above 0, and finite");
        assert_eq!(said(f64::MIN_POSITIVE, 1.0), "rate: is -1, and must be above 0, and at most 1");
        assert!(within("beta", f64::NAN, 0.0, 1.0).is_err() && within("beta", 1.0, 0.0, 1.0).is_ok());
    }
}
