//! `shoal runs`: trial components (runs of the SDK, training jobs that belong to an experiment),
//! listed and compared.

mod compare;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::{
    client::Client,
    exit::Exit,
    output::{show, show_json, table, time_text},
    settings::ClientFlags,
};

/// Metrics of a line in a list.
const LISTED_METRICS: usize = 3;
/// The ending of a training job's component.
const OF_TRAINING_JOB: &str = "-aws-training-job";

/// Subcommands of `shoal runs`.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, the newest first: status, time, last values of metrics.
    List(ListArgs),
    /// Show runs side by side: parameters that differ, and metrics.
    Compare(CompareArgs),
}

/// Arguments of `shoal runs list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Those of this experiment alone.
    #[arg(long, value_name = "NAME")]
    experiment: Option<String>,
    /// Runs that are listed at most.
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
    /// Search's results as they are.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Arguments of `shoal runs compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Names of trial components, or of training jobs.
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    names: Vec<String>,
    /// Names are those of runs of this experiment, as the SDK has them: run_name in
    /// Run(experiment_name=..., run_name=...).
    #[arg(long, value_name = "NAME")]
    experiment: Option<String>,
    /// Parameters that are the same, too.
    #[arg(long)]
    all: bool,
    /// The descriptions of the runs as a list.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Runs a subcommand.
pub(crate) fn run(command: &RunsCommand) -> Result<Exit> {
    match command {
        RunsCommand::List(args) => list(args),
        RunsCommand::Compare(args) => compare(args),
    }
}

fn list(args: &ListArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let mut input =
        json!({"Resource": "ExperimentTrialComponent", "SortBy": "CreationTime", "SortOrder": "Descending"});
    if let Some(experiment) = &args.experiment {
        let filter = json!({"Name": "Parents.ExperimentName", "Operator": "Equals", "Value": experiment});
        input["SearchExpression"] = json!({"Filters": [filter]});
    }
    let found = client.list("Search", "Results", input, args.limit)?;
    let runs: Vec<Value> = found.into_iter().map(|mut result| result["TrialComponent"].take()).collect();
    if args.json {
        show_json(&Value::Array(runs))?;
    } else if runs.is_empty() {
        if let Some(name) = &args.experiment {
            client.sagemaker("DescribeExperiment", &json!({"ExperimentName": name})).map_err(|error| {
                match error.is_not_found() {
                    true => anyhow::Error::from(error).context(format!("there is no experiment {name}")),
                    false => error.into(),
                }
            })?;
        }
        let of = args.experiment.as_ref().map_or(String::new(), |name| format!(" in the experiment {name}"));
        show(&format!(
            "There are no runs{of}: with Run(experiment_name=...) of the SDK, or ExperimentConfig in a training job's \
             request, makes one.\n"
        ))?;
    } else {
        let mut rows = vec![["NAME", "STATUS", "CREATED", "METRICS"].map(str::to_owned).to_vec()];
        rows.extend(runs.iter().map(row));
        show(&table(&rows))?;
    }
    Ok(Exit::Ok)
}

fn row(run: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let metrics = run["Metrics"].as_array().into_iter().flatten().take(LISTED_METRICS);
    let metrics = metrics.map(|metric| format!("{}={}", text(&metric["MetricName"]), compare::number(&metric["Last"])));
    vec![
        text(&run["TrialComponentName"]),
        text(&run["Status"]["PrimaryStatus"]),
        time_text(&run["CreationTime"]),
        metrics.collect::<Vec<_>>().join(" "),
    ]
}

fn compare(args: &CompareArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let names = args.names.iter().map(|name| component(args.experiment.as_deref(), name));
    let runs = names.map(|name| described(&client, &name)).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        show_json(&Value::Array(runs))?;
    } else {
        show(&compare::text(&runs, args.all))?;
    }
    Ok(Exit::Ok)
}

/// The trial component's name of a run: the SDK puts the experiment's name before it.
fn component(experiment: Option<&str>, run: &str) -> String {
    let Some(experiment) = experiment else { return run.to_owned() };
    let prefix = format!("{experiment}-").to_lowercase();
    if run.to_lowercase().starts_with(&prefix) { run.to_lowercase() } else { format!("{prefix}{run}").to_lowercase() }
}

/// The trial component of this name, or that of the training job of this name.
fn described(client: &Client, name: &str) -> Result<Value> {
    let describe = |name: &str| client.sagemaker("DescribeTrialComponent", &json!({"TrialComponentName": name}));
    let found = match describe(name) {
        Err(error) if error.is_not_found() => describe(&format!("{name}{OF_TRAINING_JOB}")),
        described => described,
    };
    found.map_err(|error| match error.is_not_found() {
        true => anyhow!(
            "there is no run {name}: no trial component and no training job has this name; `shoal runs list` shows all, \
             and --experiment NAME takes the run_name of the SDK"
        ),
        false => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::component;

    #[test]
    fn a_run_of_an_experiment_has_its_name_before_its_own() {
        assert_eq!(component(Some("Vision"), "lr-0"), "vision-lr-0");
        assert_eq!(component(Some("vision"), "vision-lr-0"), "vision-lr-0");
        assert_eq!(component(None, "Lr-0"), "Lr-0");
    }
}
