//! Training jobs by their properties: the API's lists do not say which of them are trials of tuning
//! jobs, its `Search` does.

use serde_json::{Value, json};

use crate::client::{Client, ClientError};

/// Descriptions of the jobs for which all these filters hold, the newest first.
///
/// # Errors
/// See [`ClientError`].
pub(super) fn training_jobs(client: &Client, filters: &[Value], most: usize) -> Result<Vec<Value>, ClientError> {
    let results = client.list("Search", "Results", search(filters), most)?;
    Ok(results.into_iter().map(|mut result| result["TrainingJob"].take()).collect())
}

/// How many there are of them.
///
/// # Errors
/// See [`ClientError`].
pub(super) fn count(client: &Client, filters: &[Value]) -> Result<usize, ClientError> {
    let mut input = search(filters);
    input["MaxResults"] = json!(1);
    let total = client.sagemaker("Search", &input)?["TotalHits"]["Value"].as_u64();
    Ok(total.and_then(|total| usize::try_from(total).ok()).unwrap_or_default())
}

fn search(filters: &[Value]) -> Value {
    let mut input = json!({"Resource": "TrainingJob", "SortBy": "CreationTime", "SortOrder": "Descending"});
    if !filters.is_empty() {
        input["SearchExpression"] = json!({"Filters": filters});
    }
    input
}

/// A property and what is asked of it.
pub(super) fn filter(name: &str, operator: &str, value: &str) -> Value {
    json!({"Name": name, "Operator": operator, "Value": value})
}

/// Jobs that are trials of no tuning job.
pub(super) fn is_no_trial() -> Value {
    json!({"Name": "TuningJobArn", "Operator": "NotExists"})
}
