//! Trial components: one stage of a trial with its parameters, artifacts and metrics. A run of the
//! SDK is one; each training job has one, too (`job_component`).

use serde_json::{Value, json};
use shoal_store::{LinkEnd, ResourceRow, Summary};
use shoal_wire::{Error, ErrorCode, timestamp};

use super::{
    Filter, Holder, Lookup, Members, PLAIN, Refusal, ResourceType, Selects, default_display_name, job_component, kinds,
    users,
};
use crate::internal::internal;

pub(super) static TRIAL_COMPONENT: ResourceType = ResourceType {
    kind: kinds::TRIAL_COMPONENT,
    noun: "TrialComponent",
    operations: &[
        "CreateTrialComponent",
        "DescribeTrialComponent",
        "ListTrialComponents",
        "UpdateTrialComponent",
        "DeleteTrialComponent",
    ],
    duplicate: Refusal(
        ErrorCode::ValidationException,
        "Trial Component names must be unique within an AWS account and region. Trial Component with name ({name}) \
         already exists.",
    ),
    missing: Refusal(ErrorCode::ResourceNotFound, "Trial Component '{name}' does not exist."),
    keys: [Some(&["Source", "SourceArn"]), None],
    filters: &[
        Filter {
            member: "ExperimentName",
            selects: Selects::Linked { of: kinds::EXPERIMENT, by: LinkEnd::SecondKey, names: LinkEnd::FirstKey },
        },
        Filter {
            member: "TrialName",
            selects: Selects::Linked { of: kinds::TRIAL, by: LinkEnd::Parent, names: LinkEnd::FirstKey },
        },
        Filter { member: "SourceArn", selects: Selects::Key { at: 0, lower: true } },
    ],
    one_filter: true,
    merged: &[("Parameters", 300), ("InputArtifacts", 60), ("OutputArtifacts", 60)],
    held_by: &[Holder {
        kind: kinds::TRIAL_LINK,
        end: LinkEnd::FirstKey,
        by_arn: false,
        refusal: "Trial Component '{name}' is associated with trials; disassociate it first \
                  (DisassociateTrialComponent).",
    }],
    check,
    describe,
    implied: job_component::implied,
    #[cfg(test)]
    sample: r#"{
        "TrialComponentName": "Forest-7", "DisplayName": "Forest-of-7", "StartTime": 1795245868.25, "EndTime": 1795245900,
        "Status": {"PrimaryStatus": "Completed", "Message": "all trees"},
        "Parameters": {"trees": {"NumberValue": 7.0}, "kind.of": {"StringValue": "random"}},
        "InputArtifacts": {"train": {"MediaType": "text/csv", "Value": "s3://bucket/train"}},
        "OutputArtifacts": {"model": {"Value": "s3://bucket/model"}},
        "MetadataProperties": {"CommitId": "1f"}, "Tags": [{"Key": "team", "Value": "trees"}]
    }"#,
    ..PLAIN
};

/// Name of the series of a component's metrics: no training job has a slash in its name. Those of
/// a job's component are the job's.
pub(crate) fn series(row: &ResourceRow) -> String {
    row.parent.clone().unwrap_or_else(|| format!("{}/{}", kinds::TRIAL_COMPONENT.name(), row.name))
}

/// A parameter is a text or a number.
fn check(request: &Members) -> Result<(), Error> {
    for (name, value) in request.get("Parameters").and_then(Value::as_object).into_iter().flatten() {
        if value.as_object().is_none_or(|value| value.len() != 1) {
            return Err(Error::validation(format!(
                "Invalid value at 'parameters.{name}': give one of StringValue and NumberValue."
            )));
        }
    }
    Ok(())
}

fn describe(lookup: Lookup<'_>, row: &ResourceRow, shown: &mut Members) -> Result<(), Error> {
    if let Some(job) = &row.parent {
        job_component::add_job(lookup, job, shown)?;
    }
    default_display_name(&TRIAL_COMPONENT, shown);
    users(row, shown);
    for member in ["Parameters", "InputArtifacts", "OutputArtifacts"] {
        shown.entry(member).or_insert(json!({}));
    }
    if let Some(source) = shown.get("Source").cloned() {
        shown.insert("Sources".to_owned(), json!([source]));
        shown.insert("TrialComponentSource".to_owned(), source);
    }
    let summaries = lookup.telemetry.summaries(&series(row)).map_err(|error| internal(&error))?;
    let mut metrics = shown.get("Metrics").and_then(Value::as_array).cloned().unwrap_or_default();
    metrics.retain(|kept| summaries.iter().all(|summary| kept["MetricName"] != summary.metric));
    metrics.extend(summaries.iter().map(|summary| metric(&row.arn, summary)));
    shown.insert("Metrics".to_owned(), Value::Array(metrics));
    Ok(())
}

/// A metric as a component shows it.
fn metric(arn: &str, summary: &Summary) -> Value {
    json!({
        "MetricName": summary.metric,
        "SourceArn": arn,
        "TimeStamp": timestamp::seconds(summary.last_ms),
        "Max": summary.high,
        "Min": summary.low,
        "Last": summary.last,
        "Count": summary.points,
        "Avg": summary.mean,
        "StdDev": summary.deviation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_has_one_value() {
        for (value, is_good) in [
            (json!({"StringValue": "a"}), true),
            (json!({"NumberValue": 1.5}), true),
            (json!({}), false),
            (json!({"StringValue": "a", "NumberValue": 1.5}), false),
        ] {
            let request = json!({"Parameters": {"depth": value}});
            let checked = check(request.as_object().unwrap());
            assert_eq!(checked.is_ok(), is_good, "{request}");
            assert!(checked.err().is_none_or(|error| error.message.contains("'parameters.depth'")));
        }
        assert!(check(&Members::new()).is_ok());
    }
}
