//! Parameters of rules: `RuleParameters` of a request, checked against their declarations.

use std::collections::BTreeMap;

use fancy_regex::Regex;

/// A parameter as it is declared.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// AWS's name.
    pub name: &'static str,
    /// What values it has.
    pub kind: Kind,
    /// AWS's default as text; `None` where there is none.
    pub default: Option<&'static str>,
    /// What it does.
    pub doc: &'static str,
}

/// Values of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A number from a lowest to a highest.
    Number(f64, f64),
    /// An integer from a lowest to a highest.
    Integer(u64, u64),
    /// `True` or `False`, in any case.
    Flag,
    /// Names, separated by commas.
    Names,
    /// Regular expressions, separated by commas that are not within brackets.
    Expressions,
    /// Numbers, separated by commas.
    Numbers,
    /// One of these, in any case.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
}

/// A percentage.
pub(crate) const PERCENT: Kind = Kind::Number(0.0, 100.0);
/// A number that is not negative.
pub(crate) const POSITIVE: Kind = Kind::Number(0.0, f64::MAX);
/// Any number.
pub(crate) const NUMBER: Kind = Kind::Number(f64::MIN, f64::MAX);
/// A count of at least one.
pub(crate) const COUNT: Kind = Kind::Integer(1, 1_000_000_000);

/// A mistake in the parameters of a rule; `CreateTrainingJob` answers with it as a
/// `ValidationException`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// `rule_to_invoke` is missing.
    #[error("RuleParameters of {configuration} lack rule_to_invoke, the name of the rule")]
    NoRule {
        /// `RuleConfigurationName`.
        configuration: String,
    },
    /// There is no such rule.
    #[error("rule_to_invoke of {configuration} is {rule}, which is not a built-in rule{near}; rules are {known}")]
    UnknownRule {
        /// `RuleConfigurationName`.
        configuration: String,
        /// What was given.
        rule: String,
        /// A hint at the rule that was probably meant.
        near: String,
        /// All rules.
        known: String,
    },
    /// The rule has no such parameter.
    #[error("rule {rule} has no parameter {parameter}; its parameters are {known}")]
    UnknownParameter {
        /// The rule.
        rule: &'static str,
        /// What was given.
        parameter: String,
        /// What it has.
        known: String,
    },
    /// The value is not one of the parameter's.
    #[error("parameter {parameter} of rule {rule} is {value:?}; {expected}")]
    Value {
        /// The rule.
        rule: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        expected: String,
    },
}

/// Parameters that all rules have beside their own.
pub(crate) const COMMON: &[Parameter] = &[
    Parameter { name: "rule_to_invoke", kind: Kind::Text, default: None, doc: "Name of the rule." },
    Parameter { name: "start_step", kind: Kind::Integer(0, u64::MAX), default: Some("0"), doc: "First step." },
    Parameter { name: "end_step", kind: Kind::Integer(0, u64::MAX), default: None, doc: "Step before which it ends." },
    Parameter { name: "action_json", kind: Kind::Text, default: None, doc: "Actions when the condition is met." },
    Parameter { name: "base_trial", kind: Kind::Text, default: None, doc: "Set by the platform." },
];

/// Checked values of a rule's parameters.
#[derive(Debug)]
pub(crate) struct Parameters(BTreeMap<&'static str, String>);

impl Parameters {
    /// Checks what a request has. `is_further` accepts names that the table does not list.
    pub(crate) fn check(
        rule: &'static str,
        declared: &[Parameter],
        given: &BTreeMap<String, String>,
        is_further: impl Fn(&str) -> bool,
    ) -> Result<Self, ParameterError> {
        let all = || declared.iter().chain(COMMON);
        let unknown = given.keys().find(|name| all().all(|known| known.name != name.as_str()) && !is_further(name));
        if let Some(parameter) = unknown {
            let known = Vec::from_iter(all().map(|known| known.name)).join(", ");
            return Err(ParameterError::UnknownParameter { rule, parameter: parameter.clone(), known });
        }
        let mut values = BTreeMap::new();
        for parameter in all() {
            // The SDK sends Python's None as text.
            let given = given.get(parameter.name).map(String::as_str).filter(|value| !matches!(*value, "None" | ""));
            let Some(value) = given.or(parameter.default) else { continue };
            if let Err(expected) = parameter.kind.check(value) {
                let (parameter, value) = (parameter.name, value.to_owned());
                return Err(ParameterError::Value { rule, parameter, value, expected });
            }
            values.insert(parameter.name, value.to_owned());
        }
        Ok(Self(values))
    }

    fn get<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.0.get(name).map(|value| parse(value).expect("checked when it was parsed"))
    }

    /// A number without a default.
    pub(crate) fn optional_number(&self, name: &str) -> Option<f64> {
        self.get(name, number)
    }

    /// A number with a default.
    pub(crate) fn number(&self, name: &str) -> f64 {
        self.optional_number(name).expect("the parameter has a default")
    }

    /// An integer without a default.
    pub(crate) fn optional_integer(&self, name: &str) -> Option<u64> {
        self.get(name, integer)
    }

    /// An integer with a default.
    pub(crate) fn integer(&self, name: &str) -> u64 {
        self.optional_integer(name).expect("the parameter has a default")
    }

    /// A flag with a default.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name, flag).expect("the parameter has a default")
    }

    /// Text; empty where it was not given.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Names or expressions; none where it was not given.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        split(self.text(name))
    }

    /// Numbers.
    pub(crate) fn numbers(&self, name: &str) -> Vec<f64> {
        self.list(name).iter().filter_map(|item| number(item)).collect()
    }
}

impl Kind {
    /// What is expected, if the value is not that.
    fn check(self, value: &str) -> Result<(), String> {
        let (is_valid, expected) = match self {
            Self::Number(low, high) => {
                let is_in = |value: f64| (low..=high).contains(&value);
                let range = match (low, high) {
                    (f64::MIN, f64::MAX) => String::new(),
                    (low, f64::MAX) => format!(" of at least {low}"),
                    (low, high) => format!(" from {low} to {high}"),
                };
                (number(value).is_some_and(is_in), format!("it is a number{range}"))
            }
            Self::Integer(low, high) => {
                let range = if high == u64::MAX { format!("at least {low}") } else { format!("{low} to {high}") };
                (
                    integer(value).is_some_and(|value| (low..=high).contains(&value)),
                    format!("it is an integer, {range}"),
                )
            }
            Self::Flag => (flag(value).is_some(), "it is True or False".to_owned()),
            Self::Names => (!split(value).is_empty(), "it is a list of names with commas between them".to_owned()),
            Self::Expressions => {
                let wrong =
                    split(value).into_iter().find_map(|expression| Some((Regex::new(&expression).err()?, expression)));
                let reason = wrong
                    .as_ref()
                    .map(|(error, expression)| format!("{expression} is not a regular expression: {error}"));
                (wrong.is_none(), reason.unwrap_or_default())
            }
            Self::Numbers => {
                let items = split(value);
                let is_valid = !items.is_empty() && items.iter().all(|item| number(item).is_some());
                (is_valid, "it is a list of numbers with commas between them".to_owned())
            }
            Self::Choice(choices) => {
                let is_valid = choices.iter().any(|choice| choice.eq_ignore_ascii_case(value));
                (is_valid, format!("it is one of {}", choices.join(", ")))
            }
            Self::Text => (true, String::new()),
        };
        if is_valid { Ok(()) } else { Err(expected) }
    }
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|value: &f64| value.is_finite())
}

/// The SDK may send `10.0`.
fn integer(text: &str) -> Option<u64> {
    let text = text.trim();
    text.strip_suffix(".0").unwrap_or(text).parse().ok()
}

fn flag(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" => Some(true),
        "false" | "0" | "no" => Some(false),
        _ => None,
    }
}

/// Splits at commas outside of brackets, as `x{1,3}` has one.
fn split(text: &str) -> Vec<String> {
    let (mut items, mut item, mut depth) = (Vec::new(), String::new(), 0_u32);
    for letter in text.chars() {
        match letter {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                items.push(std::mem::take(&mut item));
                continue;
            }
            _ => {}
        }
        item.push(letter);
    }
    items.push(item);
    items.iter().map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[Parameter] = &[
        Parameter { name: "threshold", kind: PERCENT, default: Some("50"), doc: "" },
        Parameter { name: "num_steps", kind: COUNT, default: None, doc: "" },
        Parameter { name: "tensor_regex", kind: Kind::Expressions, default: None, doc: "" },
        Parameter { name: "mode", kind: Kind::Choice(&["EVAL", "TRAIN"]), default: None, doc: "" },
        Parameter { name: "only_nan", kind: Kind::Flag, default: Some("False"), doc: "" },
    ];

    fn check(name: &str, value: &str) -> Result<Parameters, ParameterError> {
        Parameters::check("AllZero", DECLARED, &BTreeMap::from([(name.to_owned(), value.to_owned())]), |_| false)
    }

    #[test]
    fn values_are_checked_and_have_defaults() {
        let parameters = check("num_steps", "10.0").unwrap();
        assert_eq!((parameters.number("threshold"), parameters.integer("num_steps")), (50.0, 10));
        assert!(!parameters.flag("only_nan"));
        assert_eq!(parameters.optional_integer("end_step"), None);
        assert_eq!(check("threshold", "None").unwrap().number("threshold"), 50.0);
        assert_eq!(check("tensor_regex", "a{1,2},b").unwrap().list("tensor_regex"), ["a{1,2}", "b"]);
        assert!(check("only_nan", "TRUE").unwrap().flag("only_nan"));
    }

    #[test]
    fn mistakes_are_explained() {
        for (name, value, expected) in [
            ("threshold", "x", "parameter threshold of rule AllZero is \"x\"; it is a number from 0 to 100"),
            ("threshold", "101", "it is a number from 0 to 100"),
            ("threshold", "nan", "it is a number from 0 to 100"),
            ("num_steps", "0", "it is an integer, 1 to 1000000000"),
            ("num_steps", "1.5", "it is an integer"),
            ("start_step", "-1", "it is an integer, at least 0"),
            ("tensor_regex", "a,(b", "(b is not a regular expression: "),
            ("mode", "test", "it is one of EVAL, TRAIN"),
            ("only_nan", "maybe", "it is True or False"),
            ("treshold", "1", "rule AllZero has no parameter treshold; its parameters are threshold, num_steps,"),
        ] {
            let error = check(name, value).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
