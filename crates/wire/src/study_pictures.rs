//! What pictures of a study are drawn of, for the page of `shoal tuning report` and the console,
//! which both draw them with `study.js`.

use serde_json::{Map, Value, json};

use crate::{StudyDescription, StudyTrial};

/// How far trials came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rung {
    /// Units of resource.
    pub resource: u32,
    /// Trials that came at least this far.
    pub reached: usize,
    /// Of these, those that ended before the next rung.
    pub ended: usize,
}

/// Rungs of a definition: its scheduler's levels, or a few that its trials' resources suggest.
pub fn rungs(study: &StudyDescription, definition: usize) -> Vec<Rung> {
    let trials: Vec<&StudyTrial> = trials_of(study, definition).filter(|trial| trial.resource() > 0).collect();
    let most = trials.iter().map(|trial| trial.resource()).max().unwrap_or(0);
    let known = study.definitions.get(definition).map_or(&[][..], |it| &it.levels);
    let levels: Vec<u32> = if known.is_empty() { doublings(most) } else { known.to_vec() };
    let next = levels.iter().copied().skip(1).chain([u32::MAX]);
    let rung = |(&resource, next): (&u32, u32)| Rung {
        resource,
        reached: trials.iter().filter(|trial| trial.resource() >= resource).count(),
        ended: trials.iter().filter(|trial| trial.is_over() && (resource..next).contains(&trial.resource())).count(),
    };
    if most == 0 { Vec::new() } else { levels.iter().zip(next).map(rung).collect() }
}

/// 1, 2, 4, ... and the greatest itself.
fn doublings(most: u32) -> Vec<u32> {
    let mut levels: Vec<u32> =
        std::iter::successors(Some(1_u32), |level| level.checked_mul(2)).take_while(|&level| level < most).collect();
    levels.push(most);
    levels
}

/// A definition's trials.
pub fn trials_of(study: &StudyDescription, definition: usize) -> impl Iterator<Item = &StudyTrial> {
    study.trials.iter().filter(move |trial| trial.definition as usize == definition)
}

/// The best trial and its value.
pub fn best(study: &StudyDescription) -> Option<(&StudyTrial, f64)> {
    let number = study.best_trial?;
    let trial = study.trials.iter().find(|trial| trial.number == number)?;
    Some((trial, trial.value()?))
}

/// What `study.js` draws of a definition.
pub fn data(study: &StudyDescription, index: usize) -> Value {
    let Some(definition) = study.definitions.get(index) else { return Value::Null };
    let best = best(study).map(|(trial, _)| trial.number);
    let first = definition.objectives.first();
    let shown: Vec<Value> = trials_of(study, index)
        .map(|trial| {
            json!({
                "name": trial.training_job_name,
                "state": if trial.state == "Waiting" { "Running" } else { &trial.state },
                "values": trial.values.iter().map(|(name, value)| (name.clone(), json!(value))).collect::<Map<_, _>>(),
                "value": trial.value(),
                "astray": trial.is_astray(),
                "at": trial.value_time.or(trial.end_time).map(|at| at - study.creation_time),
                "curve": trial.curve,
                "objectives": trial.objectives,
                "best": best == Some(trial.number),
                "front": trial.front,
            })
        })
        .collect();
    json!({
        "metric": first.map(|it| it.metric_name.clone()).unwrap_or_default(),
        "maximize": first.is_some_and(|it| it.maximize),
        "objectives": definition.objectives.iter().map(|it| json!({"name": it.metric_name})).collect::<Vec<_>>(),
        "parameters": definition.parameters.iter().map(|it| json!({
            "name": it.name, "min": it.min, "max": it.max, "log": it.log, "values": it.values,
        })).collect::<Vec<_>>(),
        "importance": definition.importance.iter().map(|it| json!({"name": it.name, "weight": it.weight})).collect::<Vec<_>>(),
        "rungs": rungs(study, index).iter().map(|it| json!({"resource": it.resource, "reached": it.reached, "ended": it.ended})).collect::<Vec<_>>(),
        "trials": shown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StudyDefinition, StudyObjective, StudyParameter};

    #[test]
    fn values_stand_where_they_came() {
        let trial = |number: u32, value_time: Option<f64>, end_time: Option<f64>| StudyTrial {
            number,
            training_job_name: format!("t-{number}"),
            values: vec![("eta".to_owned(), "0.5".to_owned())],
            state: if end_time.is_some() { "Completed" } else { "Waiting" }.to_owned(),
            curve: vec![(1, 2.0), (3, 0.5)],
            value_time,
            end_time,
            ..StudyTrial::default()
        };
        let study = StudyDescription {
            creation_time: 100.0,
            best_trial: Some(2),
            definitions: vec![StudyDefinition {
                objectives: vec![StudyObjective { metric_name: "loss".to_owned(), maximize: false }],
                parameters: vec![StudyParameter { name: "eta".to_owned(), ..StudyParameter::default() }],
                levels: vec![1, 3],
                ..StudyDefinition::default()
            }],
            // The second one rested until the end of the search.
            trials: vec![trial(1, None, Some(110.0)), trial(2, Some(104.0), Some(190.0)), trial(3, None, None)],
            ..StudyDescription::default()
        };
        let data = data(&study, 0);
        let shown =
            |member: &str| data["trials"].as_array().unwrap().iter().map(|it| it[member].clone()).collect::<Vec<_>>();
        assert_eq!(shown("at"), [json!(10.0), json!(4.0), Value::Null]);
        assert_eq!(shown("best"), [json!(false), json!(true), json!(false)]);
        assert_eq!(shown("state"), [json!("Completed"), json!("Completed"), json!("Running")]);
        assert_eq!(data["rungs"][1], json!({"resource": 3, "reached": 3, "ended": 2}));
        assert_eq!(super::data(&study, 1), Value::Null);
    }
}
