//! The CreateHyperParameterTuningJob request that flags and file make together.

use serde_json::{Map, Value, json};
use shoal_wire::{NETWORK_TAG, Service, TARGET_TAG};

use super::{
    TuneArgs,
    ranges::{choice, range},
    strategy::{self, Strategy},
};
use crate::{
    settings::Settings,
    train::{
        TrainArgs,
        request::{self as train, Upload, object, set_default, set_tag},
    },
};

/// The member that has the tuning job's name.
const NAME: &str = "HyperParameterTuningJobName";

/// What makes a metric one that is better when it is smaller.
const SMALLER: [&str; 15] = [
    "loss",
    "error",
    "err",
    "rmse",
    "mse",
    "mae",
    "mape",
    "rmsle",
    "logloss",
    "mlogloss",
    "merror",
    "perplexity",
    "deviance",
    "nloglik",
    "mphe",
];

/// The request, and what has to be uploaded for it. `trial` is what every trial runs.
///
/// # Errors
/// Flags or file make no sense; the text says which and why.
pub(super) fn build(
    args: &TuneArgs,
    trial: &TrainArgs,
    file: Option<Value>,
    settings: &Settings,
    now_ms: u64,
) -> Result<(Value, Vec<Upload>), String> {
    let Value::Object(mut request) = file.unwrap_or_else(|| json!({})) else {
        return Err("the file must hold one object, a CreateHyperParameterTuningJob request".to_owned());
    };
    let mut uploads = Vec::new();
    if let Some(several) = request.get("TrainingJobDefinitions") {
        if !several.is_array() {
            return Err(
                "TrainingJobDefinitions must be a list; a single one is called TrainingJobDefinition".to_owned()
            );
        }
    } else {
        let definition = request.remove("TrainingJobDefinition");
        let (definition, found) = definition_of(trial, definition, settings, now_ms)?;
        request.insert("TrainingJobDefinition".to_owned(), definition);
        uploads = found;
    }
    if let Some(name) = &args.name {
        request.insert(NAME.to_owned(), json!(name));
    }
    let image =
        request.get("TrainingJobDefinition").and_then(|it| it["AlgorithmSpecification"]["TrainingImage"].as_str());
    let image = image.unwrap_or_default().to_owned();
    set_default(&mut request, NAME, || json!(default_name(&image, now_ms)));
    set_default(&mut request, "HyperParameterTuningJobConfig", || json!({}));
    let strategy = args.strategy.as_deref().map(Strategy::of).transpose()?;
    let strategy = strategy.map(|it| if args.early_stopping { it.with_early_stopping() } else { it });
    config(args, strategy.as_ref(), object(&mut request, "HyperParameterTuningJobConfig")?)?;
    if let Some(value) = strategy.as_ref().map(Strategy::tag).transpose()?.flatten() {
        set_tag(&mut request, strategy::TAG, &value)?;
    }
    if let Some(mode) = &args.network {
        // Trials have the tag of their tuning job.
        set_tag(&mut request, NETWORK_TAG, mode)?;
    }
    if let Some(target) = &args.compute_target {
        set_tag(&mut request, TARGET_TAG, target)?;
    }
    if !args.warm_start.is_empty() {
        let parents: Vec<Value> = args.warm_start.iter().map(|name| json!({ NAME: name })).collect();
        request.insert(
            "WarmStartConfig".to_owned(),
            json!({"ParentHyperParameterTuningJobs": parents, "WarmStartType": "IdenticalDataAndAlgorithm"}),
        );
    }
    Ok((Value::Object(request), uploads))
}

/// What every trial runs: a CreateTrainingJob request in the form of a definition.
fn definition_of(
    trial: &TrainArgs,
    file: Option<Value>,
    settings: &Settings,
    now_ms: u64,
) -> Result<(Value, Vec<Upload>), String> {
    let file = match file {
        Some(Value::Object(mut definition)) => {
            if let Some(fixed) = definition.remove("StaticHyperParameters") {
                definition.insert("HyperParameters".to_owned(), fixed);
            }
            Some(Value::Object(definition))
        }
        Some(_) => return Err("TrainingJobDefinition must be an object".to_owned()),
        None => None,
    };
    // Resources may stand under another name, and then are not ours to fill in.
    let has_other_resources = file.as_ref().is_some_and(|file| file["HyperParameterTuningResourceConfig"].is_object());
    let (mut request, uploads) = train::build(trial, file, settings, now_ms)?;
    let definition = request.as_object_mut().ok_or("TrainingJobDefinition must be an object")?;
    definition.remove("TrainingJobName");
    if has_other_resources {
        definition.remove("ResourceConfig");
    }
    if let Some(fixed) = definition.remove("HyperParameters") {
        definition.insert("StaticHyperParameters".to_owned(), fixed);
    }
    Ok((request, uploads))
}

fn config(args: &TuneArgs, strategy: Option<&Strategy>, config: &mut Map<String, Value>) -> Result<(), String> {
    if let Some(strategy) = strategy {
        // Only Hyperband has resources there; the tag says which strategy it is.
        let has_resources = args.min_resource.is_some() || args.max_resource.is_some();
        let shown = if has_resources && !matches!(strategy, Strategy::OfTheApi(_)) {
            "Hyperband"
        } else {
            strategy.in_the_api()
        };
        config.insert("Strategy".to_owned(), json!(shown));
    }
    set_default(config, "Strategy", || json!("Bayesian"));
    objective(args, config);
    limits(args, strategy, config)?;
    if !args.ranges.is_empty() || !args.choices.is_empty() {
        set_default(config, "ParameterRanges", || json!({}));
        let ranges = object(config, "ParameterRanges")?;
        let numbers = args.ranges.iter().map(|text| range(text));
        let choices = args.choices.iter().map(|text| Ok(("CategoricalParameterRanges", choice(text)?)));
        let mut known: Vec<Value> = Vec::new();
        for entry in numbers.chain(choices) {
            let (list, entry) = entry?;
            if known.contains(&entry["Name"]) {
                return Err(format!(
                    "{} is tuned twice; give one --range or --choice of it",
                    entry["Name"].as_str().unwrap_or_default()
                ));
            }
            known.push(entry["Name"].clone());
            for (_, other) in ranges.iter_mut() {
                other
                    .as_array_mut()
                    .ok_or("the lists of ParameterRanges must be lists")?
                    .retain(|known| known["Name"] != entry["Name"]);
            }
            set_default(ranges, list, || json!([]));
            ranges[list].as_array_mut().ok_or("the lists of ParameterRanges must be lists")?.push(entry);
        }
    }
    if args.min_resource.is_some() || args.max_resource.is_some() {
        set_default(config, "StrategyConfig", || json!({}));
        let strategy = object(config, "StrategyConfig")?;
        set_default(strategy, "HyperbandStrategyConfig", || json!({}));
        let hyperband = object(strategy, "HyperbandStrategyConfig")?;
        for (field, value) in [("MinResource", args.min_resource), ("MaxResource", args.max_resource)] {
            if let Some(value) = value {
                hyperband.insert(field.to_owned(), json!(value));
            }
        }
    }
    if let (true, Some(scheduler)) =
        (args.early_stopping, strategy.and_then(Strategy::scheduler).filter(|it| it != "median"))
    {
        return Err(format!(
            "--early-stopping: {scheduler} decides by itself which trials are stopped; leave one of the two out"
        ));
    }
    if args.early_stopping {
        config.insert("TrainingJobEarlyStoppingType".to_owned(), json!("Auto"));
    }
    if let Some(target) = args.target {
        config.insert("TuningJobCompletionCriteria".to_owned(), json!({"TargetObjectiveMetricValue": target}));
    }
    if let Some(seed) = args.seed {
        config.insert("RandomSeed".to_owned(), json!(seed));
    }
    Ok(())
}

fn objective(args: &TuneArgs, config: &mut Map<String, Value>) {
    let (name, kind) = match (&args.maximize, &args.minimize, &args.objective) {
        (Some(name), _, _) => (name, "Maximize"),
        (_, Some(name), _) => (name, "Minimize"),
        (_, _, Some(name)) => (name, if is_smaller_better(name) { "Minimize" } else { "Maximize" }),
        (None, None, None) => return,
    };
    config.insert("HyperParameterTuningJobObjective".to_owned(), json!({"Type": kind, "MetricName": name}));
}

/// `validation:rmse` is, `validation:auc` is not.
fn is_smaller_better(metric: &str) -> bool {
    metric.to_lowercase().split(|c: char| !c.is_ascii_alphanumeric()).any(|word| SMALLER.contains(&word))
}

fn limits(args: &TuneArgs, strategy: Option<&Strategy>, config: &mut Map<String, Value>) -> Result<(), String> {
    let is_grid = strategy.map_or(config["Strategy"] == "Grid", Strategy::is_grid);
    set_default(config, "ResourceLimits", || json!({}));
    let limits = object(config, "ResourceLimits")?;
    for (field, value) in [("MaxNumberOfTrainingJobs", args.trials), ("MaxParallelTrainingJobs", args.parallel)] {
        if let Some(value) = value {
            limits.insert(field.to_owned(), json!(value));
        }
    }
    if let Some(seconds) = args.max_seconds {
        limits.insert("MaxRuntimeInSeconds".to_owned(), json!(seconds));
    }
    if !is_grid {
        set_default(limits, "MaxNumberOfTrainingJobs", || json!(20));
    }
    set_default(limits, "MaxParallelTrainingJobs", || json!(2));
    Ok(())
}

/// Characters that a text of the request may have.
pub(super) fn longest(path: &[&str]) -> usize {
    let limits = shoal_wire::text_limits(Service::SageMaker, "CreateHyperParameterTuningJob", path);
    limits.and_then(|limits| usize::try_from(limits.longest).ok()).expect("the table has this member")
}

/// `xgboost-261121-0724-29123`: as SDKs do it, from the image and the time, as long as a name may
/// be.
fn default_name(image: &str, now_ms: u64) -> String {
    let long = train::default_name(image, now_ms);
    // `<base>-2026-11-21-07-24-29-123`, of which the last 23 characters are the time.
    let (base, time) = long.split_at(long.len() - 24);
    let digits: String = time.chars().filter(char::is_ascii_digit).skip(2).collect();
    let time = format!("{}-{}-{}", &digits[..6], &digits[6..10], &digits[10..]);
    let base = base.trim_start_matches("sagemaker-");
    let base = base.get(..longest(&[NAME]) - time.len() - 1).unwrap_or(base).trim_end_matches('-');
    format!("{base}-{time}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let typed =
            crate::settings::Typed::gather(&std::collections::BTreeMap::new(), &|_| None, &|_| Ok(None)).unwrap();
        Settings::of(&typed).unwrap()
    }

    fn own(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn the_network_is_a_tag_of_the_tuning_job() {
        let args =
            TuneArgs { image: Some("xgboost".to_owned()), network: Some("host".to_owned()), ..TuneArgs::default() };
        let file = json!({"Tags": [{"Key": NETWORK_TAG, "Value": "none"}, {"Key": "team", "Value": "trees"}]});
        let (request, _) = build(&args, &args.trial(), Some(file), &settings(), 0).unwrap();
        assert_eq!(request["Tags"], json!([{"Key": "team", "Value": "trees"}, {"Key": NETWORK_TAG, "Value": "host"}]));
        assert_eq!(request["TrainingJobDefinition"]["Tags"], Value::Null, "a definition has no tags");
        let (request, _) = build(
            &TuneArgs { network: None, ..args },
            &TrainArgs::default(),
            Some(json!({"TrainingJobDefinitions": []})),
            &settings(),
            0,
        )
        .unwrap();
        assert_eq!(request["Tags"], Value::Null);
    }

    #[test]
    fn flags_make_a_request() {
        let args = TuneArgs {
            image: Some("xgboost".to_owned()),
            hyperparameters: own(&["num_round=100"]),
            ranges: own(&["eta=0.01..0.5,log", "max_depth=2..10"]),
            choices: own(&["booster=gbtree,dart"]),
            objective: Some("validation:auc".to_owned()),
            strategy: Some("hyperband".to_owned()),
            max_resource: Some(100),
            trials: Some(30),
            parallel: Some(4),
            seed: Some(7),
            ..TuneArgs::default()
        };
        let (request, uploads) = build(&args, &args.trial(), None, &settings(), 1_795_245_869_123).unwrap();
        assert!(uploads.is_empty());
        assert_eq!(request["HyperParameterTuningJobName"], "xgboost-261121-0724-29123");
        assert_eq!(
            request["HyperParameterTuningJobConfig"],
            json!({
                "Strategy": "Hyperband",
                "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "validation:auc"},
                "ResourceLimits": {"MaxNumberOfTrainingJobs": 30, "MaxParallelTrainingJobs": 4},
                "ParameterRanges": {
                    "ContinuousParameterRanges": [{"Name": "eta", "MinValue": "0.01", "MaxValue": "0.5", "ScalingType": "Logarithmic"}],
                    "IntegerParameterRanges": [{"Name": "max_depth", "MinValue": "2", "MaxValue": "10", "ScalingType": "Auto"}],
                    "CategoricalParameterRanges": [{"Name": "booster", "Values": ["gbtree", "dart"]}],
                },
                "StrategyConfig": {"HyperbandStrategyConfig": {"MaxResource": 100}},
                "RandomSeed": 7,
            })
        );
        let definition = &request["TrainingJobDefinition"];
        assert_eq!(definition["StaticHyperParameters"], json!({"num_round": "100"}));
        assert!(definition.get("TrainingJobName").is_none() && definition.get("HyperParameters").is_none());
        assert_eq!(definition["ResourceConfig"]["InstanceCount"], 1);
        assert!(request.get("Tags").is_none());
    }

    #[test]
    fn strategies_beyond_the_api_are_a_tag() {
        let args =
            TuneArgs { image: Some("xgboost".to_owned()), strategy: Some("tpe".to_owned()), ..TuneArgs::default() };
        let (request, _) = build(&args, &args.trial(), None, &settings(), 0).unwrap();
        assert_eq!(request["Tags"], json!([{"Key": "shoal:strategy", "Value": "tpe"}]));
        assert_eq!(request["HyperParameterTuningJobConfig"]["Strategy"], "Bayesian");
    }

    #[test]
    fn flags_go_before_the_file() {
        let file: Value = serde_saphyr::from_str(
            "HyperParameterTuningJobName: from-file\nHyperParameterTuningJobConfig:\n  Strategy: \
             Random\n  ResourceLimits: {MaxNumberOfTrainingJobs: 3}\n  \
             ParameterRanges: {IntegerParameterRanges: [{Name: eta, MinValue: '0', MaxValue: \
             '1'}]}\nTrainingJobDefinition:\n  \
             StaticHyperParameters: {num_round: 5}\n  AlgorithmSpecification: {TrainingImage: xgboost}\n  \
             HyperParameterTuningResourceConfig: {InstanceType: ml.m5.large, InstanceCount: 2}\n",
        )
        .unwrap();
        let args = TuneArgs {
            ranges: own(&["eta=0.1..0.5"]),
            trials: Some(9),
            minimize: Some("loss".to_owned()),
            ..TuneArgs::default()
        };
        let (request, _) = build(&args, &args.trial(), Some(file), &settings(), 0).unwrap();
        let config = &request["HyperParameterTuningJobConfig"];
        assert_eq!(
            (&request["HyperParameterTuningJobName"], &config["Strategy"]),
            (&json!("from-file"), &json!("Random"))
        );
        assert_eq!(config["ResourceLimits"], json!({"MaxNumberOfTrainingJobs": 9, "MaxParallelTrainingJobs": 2}));
        assert_eq!(config["ParameterRanges"]["IntegerParameterRanges"], json!([]));
        assert_eq!(config["HyperParameterTuningJobObjective"]["Type"], "Minimize");
        let definition = &request["TrainingJobDefinition"];
        assert_eq!(definition["StaticHyperParameters"], json!({"num_round": "5"}));
        assert!(definition.get("ResourceConfig").is_none());
    }

    #[test]
    fn several_definitions_are_left_as_they_are() {
        let file = json!({"HyperParameterTuningJobName": "x", "TrainingJobDefinitions": [{"DefinitionName": "one"}]});
        let (request, uploads) =
            build(&TuneArgs::default(), &TrainArgs::default(), Some(file.clone()), &settings(), 0).unwrap();
        assert!(uploads.is_empty() && request.get("TrainingJobDefinition").is_none());
        assert_eq!(request["TrainingJobDefinitions"], file["TrainingJobDefinitions"]);
        let file = json!({"TrainingJobDefinitions": {"DefinitionName": "one"}});
        assert!(
            build(&TuneArgs::default(), &TrainArgs::default(), Some(file), &settings(), 0)
                .unwrap_err()
                .contains("must be a list")
        );
    }

    #[test]
    fn names_and_metrics() {
        assert_eq!(
            default_name("683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1", 0),
            "xgboost-700101-0000-00000"
        );
        assert!(default_name(&"x".repeat(300), 0).len() <= longest(&[NAME]));
        for (metric, expected) in [
            ("validation:rmse", true),
            ("validation:mphe", true),
            ("loss", true),
            ("val_loss", true),
            ("validation:auc", false),
            ("closs", false),
        ] {
            assert_eq!(is_smaller_better(metric), expected, "{metric}");
        }
    }
}
