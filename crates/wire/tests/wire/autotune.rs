//! Autotune: which parameters it is left to.

use serde_json::json;

use crate::{
    changes::changed,
    tuning::{create, sound},
};

#[test]
fn autotune_leaves_alone_what_says_which_script_is_started() {
    let mut request = changed(&sound(), "/Tags", None);
    request["Autotune"] = json!({"Mode": "Enabled"});
    let hint = |name: &str, hint: &str| json!({"Name": name, "ValueHint": hint});
    let hints = [
        hint("epochs", "3"),
        hint("sagemaker_program", "\"train.py\""),
        hint("sagemaker_submit_directory", "\"s3://my-bucket/a/sourcedir.tar.gz\""),
        hint("sagemaker_container_log_level", "20"),
    ];
    request["HyperParameterTuningJobConfig"]["ParameterRanges"] = json!({"AutoParameters": hints});
    let job = create(&request).expect("SDKs send it");
    let definition = job.definitions.into_iter().next().expect("one").with_auto_ranges(&[], true);
    assert_eq!(definition.ranges.iter().map(|range| range.name.as_str()).collect::<Vec<_>>(), ["epochs"]);
    assert_eq!(definition.static_hyperparameters["sagemaker_container_log_level"], "20");
    let script = definition.training.script.expect("the template starts it");
    assert_eq!(script.source.map(|uri| uri.to_string()).as_deref(), Some("s3://my-bucket/a/sourcedir.tar.gz"));
    let tuned = &mut request["TrainingJobDefinition"]["StaticHyperParameters"];
    tuned["sagemaker_program"] = json!("other.py");
    let twice = create(&request).expect_err("given twice");
    assert!(twice.message.contains("the hyperparameter 'sagemaker_program' is tuned, too"), "{twice}");
}
