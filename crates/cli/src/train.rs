//! `shoal train`: one training job from flags, a file, or both; watched to its end.

pub(crate) mod builtin;
mod delivery;
mod limits;
mod members;
pub(crate) mod request;
mod script;
mod source;
mod unseen;
mod upload;
mod words;

use std::{convert::Infallible, io::Read, path::PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;
use shoal_algos::Algorithms;
use shoal_environments::Table;

pub(crate) use self::{
    delivery::deliver,
    members::check as check_members,
    script::{Distribution, Script, is_uploaded},
    upload::{place_somewhere, plan, run as upload},
    words::separate,
};

use crate::{
    client::Client,
    environments::table_file,
    exit::{Exit, UsageError},
    interrupt::Farewell,
    output::{show, show_json},
    settings::ClientFlags,
    watch,
};

/// Arguments of `shoal train`. What is said here goes before what the file says.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
                        Examples:
  # XGBoost on a local file; it is uploaded to the default bucket
  shoal train --image xgboost --channel train=train.csv --hp objective=binary:logistic --hp num_round=50

  # three instances, each with its part of the files
  shoal train --image xgboost --instances 3 --channel train=s3://data/train/,sharded --hp num_round=50

  # your own script with its directory and its arguments, and a metric read from its log
  shoal train --logs --channel train=train.csv --metric 'loss=loss: (\\S+)' train.py --epochs 3

  # any program of this machine's own /usr
  shoal train -- sh -c 'hostname; nproc'

  # a CreateTrainingJob request, one field changed
  shoal train job.yaml --name second-try

Ctrl-C leaves the job running; `shoal jobs stop NAME` ends it.")]
pub(crate) struct TrainArgs {
    /// A script, whose directory is uploaded and behind which stand its own arguments; or a
    /// CreateTrainingJob request as JSON or YAML, `-` from standard input.
    #[arg(value_name = "SCRIPT|FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Training job's name [default: made from image and time].
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Image: `xgboost`, any AWS name of it or of a framework (`shoal image list`), or `shoal/host`
    /// [default: for a script by what it imports, for a command shoal/host].
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// Number of instances [default: 1].
    #[arg(long, value_name = "N")]
    pub(crate) instances: Option<u32>,
    /// Instance type [default: ml.m5.large].
    #[arg(long, value_name = "TYPE")]
    pub(crate) instance_type: Option<String>,
    /// An input: s3://..., or a local file or directory, which is uploaded. `,sharded` divides
    /// files over instances.
    #[arg(long, value_name = "NAME=SOURCE[,sharded][,CONTENT/TYPE]")]
    pub(crate) channel: Vec<String>,
    /// A hyperparameter.
    #[arg(long = "hp", value_name = "NAME=VALUE")]
    pub(crate) hyperparameters: Vec<String>,
    /// A metric: the first group of this regular expression, looked for in every log line.
    #[arg(long = "metric", value_name = "NAME=REGEX")]
    pub(crate) metrics: Vec<String>,
    /// An environment variable of the training program.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub(crate) environment: Vec<String>,
    /// Where artifacts go [default: the default bucket].
    #[arg(long, value_name = "S3_URI")]
    pub(crate) output: Option<String>,
    /// Keep `/opt/ml/checkpoints` here: restored before the program starts, mirrored while it runs.
    #[arg(long, value_name = "S3_URI")]
    pub(crate) checkpoints: Option<String>,
    /// Stop after this time [default: 86400].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) max_runtime: Option<u64>,
    /// Managed spot training: the job may be interrupted, and resumes from its checkpoints
    /// (EnableManagedSpotTraining).
    #[arg(long)]
    pub(crate) spot: bool,
    /// Stop after this time, waiting included; for --spot [default: --max-runtime].
    #[arg(long, value_name = "SECONDS", requires = "spot")]
    pub(crate) max_wait: Option<u64>,
    /// How often the job is tried again after a fault of its instances, 1 to 30 (RetryStrategy).
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,
    /// What the job reaches outside, as far as the server's owner permits: none, allow-list or host
    /// (the tag shoal:network).
    #[arg(long, value_name = "MODE")]
    pub(crate) network: Option<String>,
    /// Compute target that runs the instances: local or one of shoal.toml; `shoal targets` lists
    /// them (the tag shoal:target).
    #[arg(long, alias = "compute-target", value_name = "NAME")]
    pub(crate) target: Option<String>,
    /// A tag of the training job.
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    pub(crate) tags: Vec<String>,
    /// Measure the program's steps, for `shoal jobs profile` (ProfilerConfig; its events go to the
    /// output).
    #[arg(long)]
    pub(crate) profile: bool,
    /// Count the job to this experiment, which is created if there is none (ExperimentConfig).
    #[arg(long, value_name = "NAME")]
    pub(crate) experiment: Option<String>,
    /// Continue with this number of instances when others are lost or needed by other jobs, and use
    /// new ones when there is room (the tag shoal:min-instances). The script must be elastic:
    /// docs/elastic.md.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) min_instances: Option<u32>,
    /// Directory that is uploaded with a script, without what its .gitignore and .shoalignore name
    /// [default: the script's].
    #[arg(long, value_name = "DIR")]
    pub(crate) source: Option<PathBuf>,
    /// What starts a script on several instances as one program.
    #[arg(long, value_enum)]
    pub(crate) distribution: Option<Distribution>,
    /// Print every log line while waiting.
    #[arg(long)]
    pub(crate) logs: bool,
    /// Do not wait for the end.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Print the request and send nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The last DescribeTrainingJob's answer (with --detach CreateTrainingJob's) as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: ClientFlags,
    #[arg(hide = true, value_name = "WORD", value_parser = misplaced)]
    pub(crate) _misplaced: Option<Infallible>,
    /// The training program and its arguments, run in each instance; behind a script its arguments.
    #[arg(last = true)]
    pub(crate) command: Vec<String>,
    /// Arguments of a script that are no hyperparameters.
    #[arg(skip)]
    pub(crate) arguments: Vec<String>,
}

/// A second word in a file's place is a command's: what trains stands behind `--`.
pub(crate) fn misplaced(_: &str) -> Result<Infallible, String> {
    Err("a training program stands behind `--`, and a script before its arguments: `shoal train train.py --epochs 3`"
        .to_owned())
}

/// Creates the job and waits for its end.
pub(crate) fn run(mut args: TrainArgs, algorithms: Algorithms) -> Result<Exit> {
    let settings = args.settings.settings()?;
    let table = Table::read(&table_file(&settings.data_dir))?;
    let script = Script::take(&mut args, &table).map_err(UsageError)?;
    for note in script.iter().flat_map(|script| &script.notes) {
        eprintln!("{note}");
    }
    is_uploaded(&args.command).map_err(UsageError)?;
    let args = &args;
    let file = args.file.as_ref().map(read).transpose()?;
    if let (Some(path), Some(request)) = (&args.file, &file) {
        members::check("CreateTrainingJob", request)
            .map_err(|unknown| UsageError(format!("{}: {unknown}", path.display())))?;
    }
    let (mut request, uploads) = request::build(args, file, &settings, crate::client::now_ms()).map_err(UsageError)?;
    limits::check(&request).map_err(UsageError)?;
    builtin::check(&request, algorithms).map_err(UsageError)?;
    let name = request["TrainingJobName"].as_str().unwrap_or_default().to_owned();
    let folder = format!("{}{name}", settings.default_prefix);
    if args.dry_run {
        plan(&uploads, &folder, &mut request, &settings.default_bucket)?;
        if let Some(script) = &script {
            script.plan(&folder, &mut request, &settings.default_bucket);
        }
        show_json(&request)?;
        return Ok(Exit::Ok);
    }
    let client = Client::connect(&args.settings)?;
    if let Some(experiment) = &args.experiment {
        create_experiment(&client, experiment)?;
    }
    let answer = deliver(&client, &settings.default_bucket, |delivery| {
        upload(delivery, &uploads, &folder, &mut request)?;
        if let Some(script) = &script {
            script.upload(delivery, &folder, &mut request)?;
        }
        Ok(client.sagemaker("CreateTrainingJob", &request)?)
    })?;
    if args.detach {
        if args.json {
            show_json(&answer)?;
        } else {
            show(&format!("{name}\n"))?;
        }
        return Ok(Exit::Ok);
    }
    let _farewell = Farewell::about(&name)?;
    let description = watch::until_end(
        client.clone(),
        &args.settings,
        &name,
        if args.logs { watch::Show::Logs } else { watch::Show::Status },
    )?;
    if args.json {
        show_json(&description)?;
    } else {
        show(&watch::summary(&description))?;
    }
    if let Some(note) = unseen::note(&client, &request, &description)? {
        eprintln!("{note}");
    }
    Ok(watch::exit(&description))
}

fn create_experiment(client: &Client, name: &str) -> Result<()> {
    let named = serde_json::json!({"ExperimentName": name});
    match client.sagemaker("DescribeExperiment", &named) {
        Err(error) if error.is_not_found() => drop(client.sagemaker("CreateExperiment", &named)?),
        found => drop(found?),
    }
    Ok(())
}

/// A request file. JSON is read as such, for its better messages; everything else as YAML.
pub(crate) fn read(path: &PathBuf) -> Result<Value> {
    let shown = path.display();
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("could not read standard input")?;
        text
    } else {
        std::fs::read_to_string(path).with_context(|| {
            format!(
                "could not read {shown} as a request file (a script ends in .py or .sh, and any other training program \
                 stands behind `--`)"
            )
        })?
    };
    let value = if path.extension().is_some_and(|extension| extension == "json") {
        serde_json::from_str(&text).map_err(|error| UsageError(format!("{shown} is not JSON: {error}")))?
    } else {
        serde_saphyr::from_str(&text).map_err(|error| UsageError(format!("{shown} is not YAML: {error}")))?
    };
    Ok(value)
}
