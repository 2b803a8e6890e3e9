//! Experiments: groups of trials.

use shoal_store::LinkEnd;
use shoal_wire::ErrorCode;

use super::{Holder, PLAIN, Refusal, ResourceType, default_display_name, kinds, users};

pub(super) static EXPERIMENT: ResourceType = ResourceType {
    kind: kinds::EXPERIMENT,
    noun: "Experiment",
    operations: &["CreateExperiment", "DescribeExperiment", "ListExperiments", "UpdateExperiment", "DeleteExperiment"],
    duplicate: Refusal(
        ErrorCode::ValidationException,
        "Experiment names must be unique within an AWS account and region. Experiment with name ({name}) already \
         exists.",
    ),
    missing: Refusal(ErrorCode::ResourceNotFound, "Experiment '{name}' does not exist."),
    held_by: &[Holder {
        kind: kinds::TRIAL,
        end: LinkEnd::Parent,
        by_arn: false,
        refusal: "Experiment '{name}' has trials; delete them first (ListTrials with ExperimentName names them).",
    }],
    describe: |_, row, shown| {
        default_display_name(&EXPERIMENT, shown);
        users(row, shown);
        Ok(())
    },
    #[cfg(test)]
    sample: r#"{"ExperimentName": "Titanic", "Description": "who survived", "Tags": [{"Key": "team", "Value": "trees"}]}"#,
    ..PLAIN
};
