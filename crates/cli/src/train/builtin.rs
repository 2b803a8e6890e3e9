//! What a built-in algorithm takes, told before anything is uploaded: its jobs, and its trials one
//! by one, would fail otherwise.

use std::collections::BTreeSet;

use serde_json::Value;
use shoal_algos::{Algorithm, Algorithms, Channels};
use shoal_tuner::near;

/// The algorithm of a request or of a definition; none where the algorithm's image runs a script of
/// the user's.
pub(crate) fn of(request: &Value, hyperparameters: &Value, algorithms: Algorithms) -> Option<&'static Algorithm> {
    let image = request["AlgorithmSpecification"]["TrainingImage"].as_str().unwrap_or_default();
    let algorithm = algorithms.resolve(image).ok().flatten().map(|image| image.algorithm);
    algorithm.filter(|_| {
        hyperparameters.get("sagemaker_program").is_none() && request["Environment"].get("SAGEMAKER_PROGRAM").is_none()
    })
}

/// All that a training job's request can have wrong.
///
/// # Errors
/// The first mistake, and what would be right.
pub(super) fn check(request: &Value, algorithms: Algorithms) -> Result<(), String> {
    let given = &request["HyperParameters"];
    let Some(algorithm) = of(request, given, algorithms) else { return Ok(()) };
    let pairs = given.as_object().into_iter().flatten();
    let named = pairs.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?, "--hp")));
    hyperparameters(algorithm, named)?;
    required(algorithm, |name| given.get(name).is_some(), "")?;
    channels(algorithm, request)
}

/// Names and values, each with the flag that it was given by.
///
/// # Errors
/// There is none of a name, or it does not take its value.
pub(crate) fn hyperparameters<'a>(
    algorithm: &Algorithm,
    given: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>,
) -> Result<(), String> {
    let Algorithm { name: algorithm, hyperparameters: declared, .. } = algorithm;
    let known: BTreeSet<&str> = (declared.names)().into_iter().collect();
    for (name, value, flag) in given {
        if !known.contains(name) {
            let hint = near(name, known.iter().copied().filter(|name| !name.starts_with('_')));
            return Err(format!("{flag} {name}: {algorithm} has no such hyperparameter{hint}"));
        }
        (declared.check)(name, value).map_err(|error| {
            // Of a choice, its message lists the values: 'reg:squarederror', 'reg:logistic'.
            let error = error.to_string();
            let hint = near(value, error.split('\'').skip(1).step_by(2));
            format!("{flag} {name}: {algorithm} does not take it: {error}{hint}")
        })?;
    }
    Ok(())
}

/// The hyperparameters that every job must have.
///
/// # Errors
/// One is missing; `or_else` is what else could be done about it.
pub(crate) fn required(algorithm: &Algorithm, has: impl Fn(&str) -> bool, or_else: &str) -> Result<(), String> {
    match algorithm.hyperparameters.required.iter().find(|(name, _)| !has(name)) {
        None => Ok(()),
        Some((missing, example)) => Err(format!(
            "{} needs the hyperparameter {missing}: give --hp {missing}={example}{or_else}",
            algorithm.name
        )),
    }
}

/// The names of the channels.
///
/// # Errors
/// One is unknown, or one that every job needs is missing.
pub(crate) fn channels(algorithm: &Algorithm, request: &Value) -> Result<(), String> {
    let Algorithm { name: algorithm, channels: Channels { required: needed, optional: others }, .. } = *algorithm;
    let given: Vec<&str> = request["InputDataConfig"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|channel| channel["ChannelName"].as_str())
        .collect();
    let is_known = |name: &str| name == needed || others.contains(&name);
    if let Some(unknown) = given.iter().find(|name| !is_known(name)) {
        let hint =
            near(unknown, std::iter::once(needed).chain(others.iter().copied()).filter(|name| !given.contains(name)));
        let given = given.join(", ");
        return Err(format!(
            "--channel {unknown}=...: {algorithm} has no channel of this name{hint} (given: {given}; it reads \
             {needed}, and if there: {})",
            others.join(", ")
        ));
    }
    if !given.contains(&needed) {
        let shown = if given.is_empty() { "none is given".to_owned() } else { format!("given: {}", given.join(", ")) };
        return Err(format!("{algorithm} trains on the channel {needed}, and {shown}: give --channel {needed}=FILE"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn jobs_that_would_fail_are_told_what_is_right() {
        let request = |hyperparameters: Value, channels: &[&str]| {
            let channels = Vec::from_iter(channels.iter().map(|name| json!({"ChannelName": name})));
            json!({"AlgorithmSpecification": {"TrainingImage": "xgboost"}, "HyperParameters": hyperparameters, "InputDataConfig": channels})
        };
        let fine = json!({"num_round": "5"});
        for (hyperparameters, channels, expected) in [
            (fine.clone(), &["train", "validation"][..], ""),
            (json!({}), &["train"], "xgboost needs the hyperparameter num_round: give --hp num_round=100"),
            (
                fine.clone(),
                &["training"],
                "--channel training=...: xgboost has no channel of this name; did you mean train? (given: training; it \
                 reads",
            ),
            (
                fine.clone(),
                &["train", "validaton"],
                "did you mean validation? (given: train, validaton; it reads train",
            ),
            (fine.clone(), &[], "xgboost trains on the channel train, and none is given"),
            (fine, &["validation"], "and given: validation: give --channel train=FILE"),
            (json!({"num_round": "5", "objective": "reg:sqerror"}), &["train"], "; did you mean reg:squarederror?"),
            (
                json!({"num_round": "5", "max_dept": "3"}),
                &["train"],
                "--hp max_dept: xgboost has no such hyperparameter; did you mean max_depth?",
            ),
            (json!({"sagemaker_program": "train.py"}), &["training"], ""),
        ] {
            let said = check(&request(hyperparameters, channels), shoal_algos::BUILT_IN).err().unwrap_or_default();
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{said}");
        }
        assert_eq!(
            check(&json!({"AlgorithmSpecification": {"TrainingImage": "shoal/host"}}), shoal_algos::BUILT_IN),
            Ok(())
        );
    }
}
