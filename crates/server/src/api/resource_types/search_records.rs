//! What `Search` shows and compares of experiments, trials and trial components: their
//! descriptions, tags and what they are linked with.

use serde_json::{Value, json};
use shoal_store::{LinkEnd, ResourceKind, ResourceRow};
use shoal_wire::{Error, tags, timestamp};

use super::{
    Lookup, Members, created_by,
    kinds::{EXPERIMENT, TRIAL, TRIAL_COMPONENT, TRIAL_LINK},
    links::{MOST_SHOWN, ends, links},
    of_kind,
    registry::description,
    request,
};
use crate::{
    api::{Records, training},
    internal::internal,
};

/// Members of a description that a record of Search does not have.
const NOT_RECORDED: [&str; 2] = ["Sources", "TrialComponentSource"];

fn lookup(records: &Records) -> Lookup<'_> {
    Lookup { rows: &*records.rows, telemetry: &records.telemetry }
}

/// A description and the tags.
fn record(kind: ResourceKind, records: &Records, row: &ResourceRow) -> Result<Members, Error> {
    let mut record = description(of_kind(kind), lookup(records), row)?;
    NOT_RECORDED.iter().for_each(|member| drop(record.shift_remove(*member)));
    let tags = tags::from_json(&row.tags).map_err(|error| internal(&error))?;
    record.insert("Tags".to_owned(), tags::to_json(&tags));
    Ok(record)
}

pub(crate) fn experiment_record(records: &Records, row: &ResourceRow) -> Result<Value, Error> {
    record(EXPERIMENT, records, row).map(Value::Object)
}

/// A trial with summaries of its components, the first ones if it has very many.
pub(crate) fn trial_record(records: &Records, row: &ResourceRow) -> Result<Value, Error> {
    let mut record = record(TRIAL, records, row)?;
    let lookup = lookup(records);
    let mut summaries = Vec::new();
    for link in links(lookup, TRIAL_LINK, LinkEnd::Parent, &row.name, MOST_SHOWN)? {
        let (component, _) = ends(&link.name);
        let found = lookup.rows.resource(TRIAL_COMPONENT, component).map_err(|error| internal(&error))?;
        let Some(component) = found else { continue };
        let own = request(&component)?;
        let mut summary = json!({
            "TrialComponentName": own.get("TrialComponentName"),
            "TrialComponentArn": component.arn,
            "CreationTime": timestamp::seconds(component.created_ms),
            "CreatedBy": created_by(&component),
        });
        if let Some(source) = own.get("Source") {
            summary["TrialComponentSource"] = source.clone();
        }
        summaries.push(summary);
    }
    record.insert("TrialComponentSummaries".to_owned(), Value::Array(summaries));
    Ok(Value::Object(record))
}

/// A component with the trials that it is in and its job.
pub(crate) fn trial_component_record(records: &Records, row: &ResourceRow) -> Result<Value, Error> {
    component(records, row, training::record)
}

/// The same as conditions are compared with: without what the platform supplies to the job.
pub(crate) fn trial_component_document(records: &Records, row: &ResourceRow) -> Result<Value, Error> {
    component(records, row, |records, job| {
        let mut record = training::searched(records, job)?;
        if let Some(record) = record.as_object_mut() {
            record.shift_remove("SecondaryStatusTransitions");
        }
        Ok(record)
    })
}

fn component(
    records: &Records,
    row: &ResourceRow,
    of_job: fn(&Records, &ResourceRow) -> Result<Value, Error>,
) -> Result<Value, Error> {
    let mut record = record(TRIAL_COMPONENT, records, row)?;
    let lookup = lookup(records);
    let parents: Vec<Value> = links(lookup, TRIAL_LINK, LinkEnd::FirstKey, &row.name, MOST_SHOWN)?
        .iter()
        .map(|link| request(link).map(Value::Object))
        .collect::<Result<_, _>>()?;
    record.insert("Parents".to_owned(), Value::Array(parents));
    if let Some(job) = &row.parent
        && let Some(job) = lookup.rows.resource(ResourceKind::TRAINING_JOB, job).map_err(|error| internal(&error))?
    {
        let detail = json!({"SourceArn": job.arn, "TrainingJob": of_job(records, &job)?});
        record.insert("SourceDetail".to_owned(), detail);
    }
    Ok(Value::Object(record))
}
