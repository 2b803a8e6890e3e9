//! Training jobs by their properties: the API's lists do not say which of them are trials of tuning jobs, its `Search` does.

use serde_json::{Value, json};

use crate::client::{Client, ClientError};

/// Descriptions of the jobs for which all these filters hold, the newest first.
///
/// # Errors
/// See [`ClientError`].
pub(super) fn training_jobs(client: &Client, filters: &[Value], most: usize) -> Result<Vec<Value>, ClientError> {
    let mut input = json!({"Resource": "TrainingJob", "SortBy": "CreationTime", "SortOrder": "Descending"});
    if !filters.is_empty() {
        input["SearchExpression"] = json!({"Filters": filters});
    }
    let results = client.list("Search", "Results", input, most)?;
    Ok(results.into_iter().map(|mut result| result["TrainingJob"].take()).collect())
}

/// A property and what is asked of it.
pub(super) fn filter(name: &str, operator: &str, value: &str) -> Value {
    json!({"Name": name, "Operator": operator, "Value": value})
}

/// Jobs that are trials of no tuning job.
pub(super) fn is_no_trial() -> Value {
    json!({"Name": "TuningJobArn", "Operator": "NotExists"})
}
