//! Trials: groups of trial components in an experiment. SDK v2's `Run` has one for each experiment.

use shoal_store::LinkEnd;
use shoal_wire::ErrorCode;

use super::{Filter, Holder, Owner, PLAIN, Refusal, ResourceType, Selects, default_display_name, kinds, users};

pub(super) static TRIAL: ResourceType = ResourceType {
    kind: kinds::TRIAL,
    noun: "Trial",
    operations: &["CreateTrial", "DescribeTrial", "ListTrials", "UpdateTrial", "DeleteTrial"],
    duplicate: Refusal(
        ErrorCode::ValidationException,
        "Trial names must be unique within an AWS account and region. Trial with name ({name}) already exists.",
    ),
    missing: Refusal(ErrorCode::ResourceNotFound, "Trial '{name}' does not exist."),
    belongs_to: Some(Owner { of: kinds::EXPERIMENT, member: "ExperimentName" }),
    filters: &[
        Filter { member: "ExperimentName", selects: Selects::Owned(kinds::EXPERIMENT) },
        Filter {
            member: "TrialComponentName",
            selects: Selects::Linked { of: kinds::TRIAL_COMPONENT, by: LinkEnd::FirstKey, names: LinkEnd::Parent },
        },
    ],
    held_by: &[Holder {
        kind: kinds::TRIAL_LINK,
        end: LinkEnd::Parent,
        by_arn: false,
        refusal: "Trial '{name}' has trial components; disassociate them first (DisassociateTrialComponent).",
    }],
    describe: |_, row, shown| {
        default_display_name(&TRIAL, shown);
        users(row, shown);
        Ok(())
    },
    #[cfg(test)]
    sample: r#"{
        "TrialName": "Forest", "ExperimentName": "Titanic", "DisplayName": "Forest-of-trees",
        "MetadataProperties": {"CommitId": "1f", "Repository": "r", "GeneratedBy": "g", "ProjectId": "p"},
        "Tags": [{"Key": "team", "Value": "trees"}]
    }"#,
    ..PLAIN
};
