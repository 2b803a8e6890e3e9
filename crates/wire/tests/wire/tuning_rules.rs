//! What creation of a tuning job refuses, and the limits that follow from its strategy and ranges.

use serde_json::{Value, json};
use shoal_wire::ErrorCode;

use crate::{
    changes::changed,
    tuning::{create, several, sound},
};

#[test]
fn rules_that_need_no_state_are_checked() {
    let refused = |request: &Value, code: ErrorCode, part: &str| {
        let error = create(request).expect_err(part);
        assert!(error.code == code && error.message.contains(part), "{part}: {error}");
    };
    let base = changed(&sound(), "/Tags", None);
    let check = |pointer: &str, value: Value, part: &str| {
        refused(
            &changed(&base, pointer, Some(&value).filter(|value| !value.is_null())),
            ErrorCode::ValidationException,
            part,
        );
    };
    let config = "/HyperParameterTuningJobConfig";
    check("/HyperParameterTuningJobName", json!("x".repeat(33)), "less than or equal to 32");
    check(&format!("{config}/Strategy"), json!("Genetic"), "[Bayesian, Random, Hyperband, Grid]");
    check(
        &format!("{config}/Strategy"),
        json!("baysian"),
        "[Bayesian, Random, Hyperband, Grid]; did you mean Bayesian?",
    );
    check(&format!("{config}/HyperParameterTuningJobObjective/Type"), json!("Maximum"), "; did you mean Maximize?");
    check(
        &format!("{config}/HyperParameterTuningJobObjective"),
        Value::Null,
        "'hyperParameterTuningJobConfig.hyperParameterTuningJobObjective'",
    );
    check(&format!("{config}/ResourceLimits/MaxRuntimeInSeconds"), json!(119), "greater than or equal to 120");
    check(&format!("{config}/ResourceLimits/MaxRuntimeInSeconds"), json!(15_768_001), "less than or equal to 15768000");
    check(
        &format!("{config}/TuningJobCompletionCriteria/BestObjectiveNotImproving/MaxNumberOfTrainingJobsNotImproving"),
        json!(2),
        "equal to 3",
    );
    check(&format!("{config}/RandomSeed"), json!(-1), "equal to 0");
    check(
        &format!("{config}/StrategyConfig"),
        json!({"HyperbandStrategyConfig": {"MinResource": 1}}),
        "for the strategy Hyperband only",
    );

    let ranges = format!("{config}/ParameterRanges");
    let path = "hyperParameterTuningJobConfig.parameterRanges";
    check(&ranges, Value::Null, "nothing to tune");
    let integer = |range: Value, part: &str| check(&format!("{ranges}/IntegerParameterRanges"), json!([range]), part);
    let at = format!("'{path}.integerParameterRanges.1.member");
    integer(
        json!({"Name": "d", "MinValue": "1.5", "MaxValue": "3"}),
        &format!("{at}.minValue': '1.5' is not a whole number"),
    );
    integer(json!({"Name": "d", "MinValue": "1", "MaxValue": "99999999999999999999"}), &format!("{at}.maxValue'"));
    integer(
        json!({"Name": "d", "MinValue": "4", "MaxValue": "3"}),
        "the minimum of 'd', 4, is greater than its maximum, 3",
    );
    integer(
        json!({"Name": "d", "MinValue": "0", "MaxValue": "3", "ScalingType": "Logarithmic"}),
        "values greater than 0",
    );
    integer(
        json!({"Name": "d", "MinValue": "0", "MaxValue": "3", "ScalingType": "ReverseLogarithmic"}),
        "for continuous parameters",
    );
    integer(json!({"Name": "eta", "MinValue": "0", "MaxValue": "3"}), "'eta' has a range already");
    integer(json!({"Name": "num_round", "MinValue": "1", "MaxValue": "3"}), "'num_round' is tuned, too");
    integer(json!({"Name": "_tuning_objective_metric", "MinValue": "1", "MaxValue": "3"}), "choose another name");
    let continuous =
        |range: Value, part: &str| check(&format!("{ranges}/ContinuousParameterRanges"), json!([range]), part);
    let at = format!("'{path}.continuousParameterRanges.1.member");
    continuous(
        json!({"Name": "x", "MinValue": "nan", "MaxValue": "1"}),
        &format!("{at}.minValue': 'nan' is not a finite number"),
    );
    continuous(json!({"Name": "x", "MinValue": "0", "MaxValue": "inf"}), &format!("{at}.maxValue'"));
    continuous(
        json!({"Name": "x", "MinValue": "0", "MaxValue": "1", "ScalingType": "Logarithmic"}),
        "values greater than 0",
    );
    continuous(
        json!({"Name": "x", "MinValue": "0", "MaxValue": "1", "ScalingType": "ReverseLogarithmic"}),
        "0 <= values < 1",
    );
    continuous(
        json!({"Name": "x", "MinValue": "-0.1", "MaxValue": "0.5", "ScalingType": "ReverseLogarithmic"}),
        "0 <= values < 1",
    );
    let many: Vec<Value> =
        (0..29).map(|at| json!({"Name": format!("p{at}"), "MinValue": "0", "MaxValue": "1"})).collect();
    check(
        &format!("{ranges}/ContinuousParameterRanges"),
        json!(many),
        "31 ranges of all kinds together, and 30 are allowed",
    );
    check(
        &format!("{ranges}/CategoricalParameterRanges"),
        json!([{"Name": "c", "Values": ["a", "a"]}]),
        "the value 'a' is there twice",
    );
    check(
        &format!("{ranges}/CategoricalParameterRanges"),
        json!([{"Name": "c", "Values": []}]),
        "greater than or equal to 1",
    );
    check(&format!("{ranges}/AutoParameters"), json!([{"Name": "gamma", "ValueHint": "1"}]), "for Autotune only");

    let definition = "/TrainingJobDefinition";
    check(definition, Value::Null, "give TrainingJobDefinition or TrainingJobDefinitions");
    check("/TrainingJobDefinitions", several()["TrainingJobDefinitions"].clone(), "alternatives; give one of them");
    check(&format!("{definition}/TuningObjective"), json!({"Type": "Minimize", "MetricName": "m"}), "give it once");
    check(&format!("{definition}/HyperParameterRanges"), json!({}), "give the ranges once");
    check(&format!("{definition}/HyperParameterTuningResourceConfig"), Value::Null, "give it or ResourceConfig");
    check(
        &format!("{definition}/ResourceConfig"),
        json!({"InstanceType": "ml.m5.xlarge", "InstanceCount": 1}),
        "are alternatives",
    );
    let resources = "'trainingJobDefinition.hyperParameterTuningResourceConfig";
    check(
        &format!("{definition}/HyperParameterTuningResourceConfig/InstanceCount"),
        json!(0),
        &format!("{resources}.instanceCount'"),
    );
    check(
        &format!("{definition}/StaticHyperParameters/objective"),
        json!("a\0"),
        "'trainingJobDefinition.staticHyperParameters'",
    );
    let statics: serde_json::Map<_, _> = (0..98).map(|at| (format!("s{at}"), json!("1"))).collect();
    check(
        &format!("{definition}/StaticHyperParameters"),
        statics.into(),
        "101 static and tuned hyperparameters together",
    );

    let parents = |names: &[&str]| {
        let each: Value = names.iter().map(|name| json!({"HyperParameterTuningJobName": name})).collect();
        json!({"ParentHyperParameterTuningJobs": each, "WarmStartType": "TransferLearning"})
    };
    check("/WarmStartConfig", parents(&["a", "a"]), "the parent 'a' is there twice");
    check("/WarmStartConfig", parents(&[]), "greater than or equal to 1");
    check("/WarmStartConfig", parents(&["a", "b", "c", "d", "e", "f"]), "less than or equal to 5");

    let limits = format!("{config}/ResourceLimits");
    refused(
        &changed(&base, &format!("{limits}/MaxNumberOfTrainingJobs"), Some(&json!(100_001))),
        ErrorCode::ResourceLimitExceeded,
        "100000",
    );
    refused(
        &changed(&base, &format!("{limits}/MaxParallelTrainingJobs"), Some(&json!(1_001))),
        ErrorCode::ResourceLimitExceeded,
        "1000",
    );
    let mut endless = changed(
        &changed(&base, &limits, Some(&json!({"MaxParallelTrainingJobs": 1}))),
        &format!("{config}/TuningJobCompletionCriteria"),
        None,
    );
    refused(&endless, ErrorCode::ValidationException, "nothing would end the tuning job");
    endless["Autotune"] = json!({"Mode": "Enabled"});
    let ends = create(&endless).expect("Autotune finds the limits").completion;
    assert_eq!((ends.not_improving, ends.convergence), (Some(30), true));
}

#[test]
fn definitions_of_a_list_stand_for_themselves() {
    let base = changed(&several(), "/Tags", None);
    let check = |pointer: &str, value: Value, part: &str| {
        let request = changed(&base, pointer, Some(&value).filter(|value| !value.is_null()));
        let error = create(&request).expect_err(part);
        assert!(error.code == ErrorCode::ValidationException && error.message.contains(part), "{part}: {error}");
    };
    check("/TrainingJobDefinitions/1/DefinitionName", json!("a"), "the definition 'a' is there twice");
    check("/TrainingJobDefinitions/1/DefinitionName", Value::Null, "'trainingJobDefinitions.2.member.definitionName'");
    check(
        "/TrainingJobDefinitions/1/TuningObjective",
        Value::Null,
        "'trainingJobDefinitions.2.member.tuningObjective'",
    );
    check(
        "/TrainingJobDefinitions/1/TuningObjective/Type",
        json!("Minimize"),
        "one tuning job finds one best training job",
    );
    check(
        "/TrainingJobDefinitions/1/HyperParameterRanges",
        Value::Null,
        "'trainingJobDefinitions.2.member.hyperParameterRanges'",
    );
    let config = "/HyperParameterTuningJobConfig";
    check(
        &format!("{config}/ParameterRanges"),
        sound()["HyperParameterTuningJobConfig"]["ParameterRanges"].clone(),
        "give the ranges once",
    );
    let objective = sound()["HyperParameterTuningJobConfig"]["HyperParameterTuningJobObjective"].clone();
    check(&format!("{config}/HyperParameterTuningJobObjective"), objective, "give it once");
}

#[test]
fn hyperband_knows_how_long_a_training_job_is() {
    let mut base = changed(&sound(), "/Tags", None);
    base["HyperParameterTuningJobConfig"]["Strategy"] = json!("Hyperband");
    base["HyperParameterTuningJobConfig"]["TrainingJobEarlyStoppingType"] = json!("Off");
    let resource = |hyperband: Value, statics: Value| {
        let mut request = base.clone();
        request["HyperParameterTuningJobConfig"]["StrategyConfig"] = json!({"HyperbandStrategyConfig": hyperband});
        request["TrainingJobDefinition"]["StaticHyperParameters"] = statics;
        create(&request).map(|job| (job.min_resource, job.definitions[0].max_resource)).map_err(|error| error.message)
    };
    let none = json!({});
    assert_eq!(resource(json!({"MinResource": 2, "MaxResource": 20}), none.clone()), Ok((Some(2), Some(20))));
    for name in ["epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs"] {
        assert_eq!(resource(json!({}), json!({name: "9"})), Ok((None, Some(9))), "{name}");
    }
    assert_eq!(resource(json!({}), json!({"epochs": "\"9\""})), Ok((None, Some(9))), "as SDK v2 writes texts");
    let fails = |hyperband: Value, statics: Value, part: &str| {
        let message = resource(hyperband, statics).expect_err(part);
        assert!(message.contains(part), "{part}: {message}");
    };
    let missing = "MaxResource parameter is not provided and could not be inferred from provided static hyperparameters of TrainingJobDefinition";
    fails(json!({}), json!({"num_round": "10"}), missing);
    fails(json!({}), json!({"epochs": "many"}), "'many' and not a whole number from 1 to 20000");
    fails(json!({"MaxResource": 20_001}), none.clone(), "20001 is more than 20000");
    fails(json!({"MinResource": 21, "MaxResource": 20}), none, "21 is greater than the MaxResource");
    base["HyperParameterTuningJobConfig"]["TrainingJobEarlyStoppingType"] = json!("Auto");
    assert!(
        create(&base).expect_err("two ways to stop early").message.contains("must be Off for the strategy Hyperband")
    );
}

#[test]
fn a_grid_has_as_many_training_jobs_as_combinations() {
    let grid = |jobs: Option<u32>, values: [usize; 2]| {
        let mut request = changed(&sound(), "/Tags", None);
        let names = |count: usize| (0..count).map(|at| format!("v{at}")).collect::<Vec<_>>();
        let config = &mut request["HyperParameterTuningJobConfig"];
        config["Strategy"] = json!("Grid");
        config["ParameterRanges"] = json!({"CategoricalParameterRanges": [{"Name": "a", "Values": names(values[0])}, {"Name": "b", "Values": names(values[1])}]});
        config["ResourceLimits"] = json!({"MaxParallelTrainingJobs": 1});
        if let Some(jobs) = jobs {
            config["ResourceLimits"]["MaxNumberOfTrainingJobs"] = json!(jobs);
        }
        create(&request).map(|job| job.limits.max_jobs).map_err(|error| error.message)
    };
    assert_eq!(grid(None, [3, 4]), Ok(Some(12)));
    assert_eq!(grid(Some(12), [3, 4]), Ok(Some(12)));
    let few = grid(Some(10), [3, 1]).expect_err("too many");
    assert_eq!(
        few,
        "You don't have enough combinations of hyperparameter ranges. The total number of hyperparameter combinations for the provided ranges [3.0] \
         must be equal or greater than the value of MaxNumberOfJobs, [10]."
    );
    assert!(grid(Some(11), [3, 4]).expect_err("too few").contains("give 12, or leave it out"));
    let mut request = changed(&sound(), "/Tags", None);
    request["HyperParameterTuningJobConfig"]["Strategy"] = json!("Grid");
    assert!(create(&request).expect_err("numbers").message.contains("for categorical parameters only"));
    request["HyperParameterTuningJobConfig"]["Strategy"] = json!("Random");
    request["HyperParameterTuningJobConfig"]["ParameterRanges"] =
        json!({"IntegerParameterRanges": [{"Name": "d", "MinValue": "1", "MaxValue": "3"}]});
    assert!(
        create(&request).expect_err("three whole numbers").message.contains("ranges [3.0] must be"),
        "not only a grid can be too small"
    );
}
