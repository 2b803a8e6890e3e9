//! `shoal jobs profile`: what a training job spends its time on, as findings and as one page.

use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use serde_json::{Value, json};
use shoal_profile::{HostStacks, Profile, findings, page};
use shoal_wire::DESCRIBE_PROFILE;

use super::visit::{End, Visit, broken};
use crate::{
    client::{Client, Noun},
    duration::duration,
    exit::Exit,
    output::{show, show_json},
    settings::ClientFlags,
    whole_file,
};

/// Arguments of `shoal jobs profile`.
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// Training job's name.
    name: String,
    /// Where to write the page: one file that loads nothing [default: NAME-profile.html].
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Sample the stacks of all processes for this time, 20 times a second, as in 30s; the job must
    /// be running.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    stacks: Option<Duration>,
    /// Print the profile as JSON, and write no page.
    #[arg(long, conflicts_with = "html")]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Asks, samples, writes.
pub(crate) fn run(args: &ProfileArgs) -> Result<Exit> {
    let client = Arc::new(Client::connect(&args.settings)?);
    let stacks = args.stacks.map(|time| stacks(&client, &args.name, time)).transpose()?.unwrap_or_default();
    let answer = client.sagemaker(DESCRIBE_PROFILE, &json!({"TrainingJobName": args.name}));
    let mut answer = answer.map_err(|error| client.explained(error, Noun::TrainingJob, "profile", &args.name))?;
    let profile: Profile = serde_json::from_value(answer["Profile"].take())
        .map_err(|error| client.not_understood(format!("the profile: {error}")))?;
    let profile = Profile { stacks, ..profile };
    if args.json {
        show_json(&serde_json::to_value(&profile).context("could not write the profile as JSON")?)?;
        return Ok(Exit::Ok);
    }
    let path = args.html.clone().unwrap_or_else(|| PathBuf::from(format!("{}-profile.html", args.name)));
    whole_file::write(&path, &page(&profile))?;
    show(&text(&profile))?;
    show(&format!("{}\n", path.display()))?;
    Ok(Exit::Ok)
}

/// The findings in plain sentences.
fn text(profile: &Profile) -> String {
    let found = findings(profile);
    if found.is_empty() {
        return "nothing stands out\n".to_owned();
    }
    let line = |(number, it): (usize, &shoal_profile::Finding)| {
        format!("{}. {}: {}\n   {}\n", number + 1, it.title, it.text, it.advice)
    };
    found.iter().enumerate().map(line).collect()
}

/// Samples all instances at the same time.
fn stacks(client: &Arc<Client>, name: &str, time: Duration) -> Result<Vec<HostStacks>> {
    let answer = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": name}));
    let description = answer.map_err(|error| client.explained(error, Noun::TrainingJob, "profile", name))?;
    let count = description["ResourceConfig"]["InstanceCount"].as_u64();
    let instances = count.and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
    let sample = |rank: u32| {
        let (client, name) = (client.clone(), name.to_owned());
        thread::spawn(move || sampled(&client, &name, rank, time))
    };
    let threads = Vec::from_iter((0..instances).map(sample));
    threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("sampling panicked")))).collect()
}

fn sampled(client: &Arc<Client>, name: &str, rank: u32, time: Duration) -> Result<HostStacks> {
    let what: Value = json!({ "Seconds": time.as_secs().max(1) });
    let visit = Visit::start(client, name, rank, what)?;
    let mut text = Vec::new();
    let end = visit.read(|is_stderr, bytes| {
        if !is_stderr {
            text.extend_from_slice(bytes);
        }
        Ok(())
    })?;
    if let End::Broken(reason) = end {
        return Err(broken(name, rank, &reason));
    }
    let folded = String::from_utf8_lossy(&text).into_owned();
    let host = format!("algo-{}", rank + 1);
    // Agents of earlier versions show the stacks once, as text.
    if !folded.trim_end().lines().last().is_some_and(|line| line.starts_with("# ")) {
        bail!(
            "{host} of training job {name} has an agent of an earlier version, which cannot sample; use `shoal jobs stacks`"
        );
    }
    Ok(HostStacks { host, folded })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_numbered_sentences() {
        let mut profile = Profile { end_s: 100.0, ..Profile::default() };
        assert_eq!(text(&profile), "nothing stands out\n");
        let rank = json!({"Host": "algo-1", "Steps": 1000, "TotalS": 90.0, "WaitingS": 45.0, "P50Ms": 90.0});
        profile.ranks = vec![serde_json::from_value(rank).unwrap()];
        let shown = text(&profile);
        assert!(shown.starts_with("1. Steps wait for data: 50 % of the steps' time"), "{shown}");
    }
}
