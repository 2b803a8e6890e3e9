//! Stopping a training job: the API's own call, after a question.

use askama::Template;
use http::Response;

use super::{
    Console, Visit,
    frame::{Frame, PageError, rendered},
    responses::{Body, see_other},
    sources::Stop,
};

#[derive(Template)]
#[template(path = "stop.html")]
struct StopPage<'a> {
    frame: Frame,
    name: &'a str,
    grace_s: u32,
}

impl Console {
    /// The question as a page of its own, for browsers without JavaScript.
    pub(super) async fn stop_page(&self, visit: &Visit, name: &str) -> Result<Response<Body>, PageError> {
        let row = self.row(name).await?;
        if row.ended {
            return Ok(see_other(&format!("/console/jobs/{name}")));
        }
        Ok(rendered(&StopPage { frame: visit.frame(&format!("Stop {name}")), name, grace_s: self.sources.grace_s }))
    }

    pub(super) async fn stop(&self, name: &str) -> Result<Response<Body>, PageError> {
        // A job that is not there has a page of its own for that.
        self.row(name).await?;
        self.sources.server.stop(Stop::TrainingJob(name.to_owned())).await?;
        Ok(see_other(&format!("/console/jobs/{name}")))
    }
}
