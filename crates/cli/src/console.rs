//! `shoal console`: a link that opens the web console, signed in.

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;

use crate::{
    client::{Client, ClientError, Noun},
    exit::Exit,
    output::{show, show_json},
    settings::ClientFlags,
};

/// Arguments of `shoal console`.
#[derive(Debug, Args)]
#[command(
    after_help = "The link signs in one browser, once, within ten minutes; the session then lasts two weeks. It is \
                  made from the \
                        server's keys, here or in the environment (`shoal env`).\n\nA server on another machine: \
                        forward its port with \
                        `ssh -L 9777:127.0.0.1:9777 HOST`, run `shoal console` there, and open the link here."
)]
pub(crate) struct ConsoleArgs {
    /// The page to open: a training job's, or a tuning job's.
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Prints the link.
pub(crate) fn run(args: &ConsoleArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let page = match &args.job {
        Some(job) => Some(page_of(&client, job)?),
        None => {
            // A link to a server that does not answer, or that has other keys, would only
            // disappoint.
            client.sagemaker("ListTrainingJobs", &json!({ "MaxResults": 1 }))?;
            None
        }
    };
    let keys = client.keys();
    if keys.session_token.is_some() {
        bail!(
            "these are a training job's temporary keys, and the console is the owner's; run `shoal console` where the \
             server's keys are"
        );
    }
    let token = keys.console_token(crate::client::now_ms()).context("could not make a link")?;
    let next = page.map(|page| format!("&next={page}")).unwrap_or_default();
    let url = format!("{}/console/sign-in?token={token}{next}", client.url());
    if args.json {
        show_json(&json!({ "url": url }))?;
    } else {
        show(&format!("{url}\n"))?;
    }
    Ok(Exit::Ok)
}

/// The page of the training job of this name, or of the tuning job.
fn page_of(client: &Client, name: &str) -> Result<String> {
    match client.sagemaker("DescribeTrainingJob", &json!({ "TrainingJobName": name })) {
        Ok(_) => return Ok(format!("/console/jobs/{name}")),
        Err(error) if !error.is_not_found() => return Err(error.about(name)),
        Err(_) => {}
    }
    match client.sagemaker("DescribeHyperParameterTuningJob", &json!({ "HyperParameterTuningJobName": name })) {
        Ok(_) => Ok(format!("/console/tuning/{name}")),
        Err(error) if error.is_not_found() => {
            Err(ClientError::NoJob(Noun::Either, name.to_owned(), String::new()).into())
        }
        Err(error) => Err(error.about_a(Noun::TuningJob, name)),
    }
}
