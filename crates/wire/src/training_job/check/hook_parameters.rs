//! `HookParameters` and `CollectionParameters` of `DebugHookConfig`: a value that no hook can use
//! is refused, as the hook would be off for the whole training. Names that are not known here pass,
//! as at AWS: a script's own library may have more.

use std::collections::BTreeMap;

use fancy_regex::Regex;

use crate::{Error, refusal::refuse};

/// Before a parameter of steps: the mode that it is for.
const MODES: [&str; 4] = ["train.", "eval.", "predict.", "global."];
/// Letters in which a mistyped name differs.
const NEAR: usize = 3;
/// `reductions`, each also of absolute values, with `abs_` before it.
const REDUCTIONS: [&str; 9] = ["min", "max", "mean", "std", "variance", "sum", "prod", "l1_norm", "l2_norm"];

/// Parameters, of the hook or of a collection; those of steps may have a mode before them.
const STEPS: [&str; 4] = ["save_interval", "start_step", "end_step", "save_steps"];
const OTHERS: [&str; 9] = [
    "reductions",
    "include_regex",
    "include_workers",
    "save_all",
    "save_histogram",
    "save_raw_tensor",
    "save_shape",
    "export_tensorboard",
    "tensorboard_dir",
];

/// Whether the hook knows a parameter of this name.
#[must_use]
pub fn is_hook_parameter(name: &str) -> bool {
    OTHERS.contains(&name) || STEPS.contains(&without_mode(name))
}

/// The parameter that a name is likely to mean.
#[must_use]
pub fn nearest_hook_parameter(name: &str) -> Option<&'static str> {
    let name = without_mode(name);
    let distance = |known: &&str| distance(name, known);
    STEPS.iter().chain(&OTHERS).copied().min_by_key(distance).filter(|known| distance(known) <= NEAR)
}

fn without_mode(name: &str) -> &str {
    MODES.iter().find_map(|mode| name.strip_prefix(mode)).unwrap_or(name)
}

/// Letters to add, take away or replace between two names (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row = Vec::from_iter(0..=other.chars().count());
    for (at, letter) in one.chars().enumerate() {
        let mut above_left = std::mem::replace(&mut row[0], at + 1);
        for (place, second) in other.chars().enumerate() {
            let above = row[place + 1];
            let replaced = above_left + usize::from(letter != second);
            row[place + 1] = replaced.min(above + 1).min(row[place] + 1);
            above_left = above;
        }
    }
    row[row.len() - 1]
}

/// Checks the parameters of the member at `path`.
pub(super) fn check(path: &str, parameters: &BTreeMap<String, String>) -> Result<(), Error> {
    for (name, value) in parameters {
        if let Some(expected) = problem(name, value.trim()) {
            return refuse(&format!("{path}.{name}"), &format!("'{value}' {expected}"));
        }
    }
    Ok(())
}

/// What is wrong with a value. An empty one counts as none.
fn problem(name: &str, value: &str) -> Option<String> {
    if value.is_empty() {
        return None;
    }
    let of_steps = without_mode(name);
    let number = || value.parse::<u64>().ok();
    let items = || value.split(',').map(str::trim).filter(|item| !item.is_empty());
    match of_steps {
        "save_interval" => {
            number().is_none_or(|steps| steps == 0).then(|| "must be a whole number of at least 1".to_owned())
        }
        "start_step" | "end_step" => number().is_none().then(|| "must be a whole number".to_owned()),
        "save_steps" => {
            let is_wrong = items().any(|step| step.parse::<u64>().is_err());
            is_wrong.then(|| "must be whole numbers with commas between them".to_owned())
        }
        "save_all" | "save_histogram" | "save_raw_tensor" | "save_shape" | "export_tensorboard" => {
            let is_flag = ["true", "false"].iter().any(|flag| flag.eq_ignore_ascii_case(value));
            (!is_flag).then(|| "must be true or false".to_owned())
        }
        "include_workers" => (!["one", "all"].contains(&value)).then(|| "must be one or all".to_owned()),
        "reductions" => {
            let is_known = |item: &str| REDUCTIONS.contains(&item.strip_prefix("abs_").unwrap_or(item));
            let unknown = items().find(|item| !is_known(item))?;
            Some(format!("has {unknown}, which is none of {} (each may have abs_ before it)", REDUCTIONS.join(", ")))
        }
        "include_regex" => items().find_map(|item| {
            let error = Regex::new(item).err()?;
            Some(format!("has {item}, which is not a regular expression: {error}"))
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_is_near_the_one_that_is_meant() {
        for (name, near) in [
            ("save_intervall", Some("save_interval")),
            ("train.save_intrval", Some("save_interval")),
            ("include_regexp", Some("include_regex")),
            ("saveall", Some("save_all")),
            ("of_another_library", None),
        ] {
            assert!(!is_hook_parameter(name));
            assert_eq!(nearest_hook_parameter(name), near, "{name}");
        }
        assert!(is_hook_parameter("eval.save_steps") && is_hook_parameter("reductions"));
        assert!(!is_hook_parameter("eval.reductions"), "only steps are by mode");
        assert_eq!((distance("", "abc"), distance("kitten", "sitting"), distance("a", "a")), (3, 3, 0));
    }

    #[test]
    fn values_that_no_hook_can_use_are_refused() {
        let refused = |name: &str, value: &str| {
            let given = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            check("debugHookConfig.hookParameters", &given).err().map(|error| error.message)
        };
        for (name, value, expected) in [
            ("save_interval", "often", "must be a whole number of at least 1"),
            ("save_interval", "0", "at least 1"),
            ("train.save_interval", "1.5", "at least 1"),
            ("eval.start_step", "-1", "must be a whole number"),
            ("save_steps", "1;2", "commas between them"),
            ("save_all", "yes", "must be true or false"),
            ("include_workers", "some", "must be one or all"),
            ("reductions", "mean,median", "has median, which is none of min, max,"),
            ("include_regex", "relu,(conv", "has (conv, which is not a regular expression"),
        ] {
            let message = refused(name, value).expect(name);
            assert!(message.contains(&format!("'debugHookConfig.hookParameters.{name}'")), "{message}");
            assert!(message.contains(expected), "{message}");
        }
        for (name, value) in [
            ("save_interval", "100"),
            ("predict.end_step", "7"),
            ("save_steps", "1, 2,3"),
            ("save_histogram", "False"),
            ("reductions", "mean,abs_max,l2_norm,abs_l1_norm"),
            ("include_regex", r"^(?!gradient).*weight,relu"),
            ("end_step", ""),
            ("of_another_library", "anything"),
        ] {
            assert_eq!(refused(name, value), None, "{name}");
        }
    }
}
