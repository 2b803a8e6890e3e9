//! What the pictures of a tuning job's page are drawn of: rungs, parallel coordinates, what
//! mattered, as in the page of `shoal tuning report`.

use http::Response;
use serde_json::{Value, json};
use shoal_wire::{
    DESCRIBE_STUDY, Error, ErrorCode, StudyDescription,
    study_pictures::{best, data},
};

use super::{
    Console,
    frame::PageError,
    responses::{Body, answer},
};

/// Most trials that pictures have, the first ones.
const MOST_TRIALS: usize = 5_000;

impl Console {
    /// Data of the pictures, of the definition that the best trial is of.
    pub(super) async fn study(&self, name: &str) -> Result<Response<Body>, PageError> {
        let study = self.whole_study(name).await.map_err(|error| match error.code {
            ErrorCode::ResourceNotFound | ErrorCode::ValidationException => PageError::not_found(&error.message),
            _ => error.into(),
        })?;
        let definition = best(&study).map_or(0, |(trial, _)| trial.definition as usize);
        Ok(answer("application/json", data(&study, definition).to_string()))
    }

    async fn whole_study(&self, name: &str) -> Result<StudyDescription, Error> {
        let mut whole = StudyDescription::default();
        let mut token = Value::Null;
        loop {
            let mut wanted = json!({"HyperParameterTuningJobName": name});
            if !token.is_null() {
                wanted["NextToken"] = token;
            }
            let page = self.sources.server.call(DESCRIBE_STUDY, wanted).await?;
            token = page["NextToken"].clone();
            let mut page: StudyDescription = serde_json::from_value(page)
                .map_err(|error| Error::new(ErrorCode::InternalFailure, error.to_string()))?;
            page.trials.splice(..0, whole.trials);
            whole = page;
            if token.is_null() || whole.trials.len() >= MOST_TRIALS {
                return Ok(whole);
            }
        }
    }
}
