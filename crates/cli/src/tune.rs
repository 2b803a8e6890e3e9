//! `shoal tune`: one tuning job from flags, a file, or both; watched to its end.

mod live;
mod ranges;
mod refusal;
mod request;
mod strategy;

use std::{convert::Infallible, path::PathBuf};

use anyhow::Result;
use clap::Args;
use serde_json::Value;
use shoal_algos::Algorithms;
use shoal_environments::Table;

use crate::{
    client::{Client, ClientError, Noun},
    environments::table_file,
    exit::{Exit, UsageError},
    images::OurImages,
    interrupt::Farewell,
    output::{show, show_json},
    settings::ClientFlags,
    train::{self, Distribution, Script, TrainArgs},
    tuning,
};

/// For trials of a command, whose words are the same in all of them.
const FROM_A_FILE: &str = "the program behind -- gets the same arguments in every trial: it reads what is tuned from \
                           /opt/ml/input/config/hyperparameters.json";

/// Arguments of `shoal tune`. What is said here goes before what the file says.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
                        Examples:
  # Hyperband over XGBoost: 30 trials, 4 at once, none beyond 100 rounds
  shoal tune --image xgboost --channel train=train.csv --channel validation=validation.csv \\
                        --hp objective=binary:logistic --hp num_round=100 --objective validation:auc \\
    --range eta=0.01..0.5,log --range max_depth=2..10 --strategy hyperband --max-resource 100 --trials 30 --parallel 4

  # your own script with its directory and its arguments; what is tuned reaches it as arguments, too: --lr 0.0023 \
                        --optimizer adam
  shoal tune --channel train=train.csv --metric 'loss=loss: (\\S+)' --minimize loss --range lr=1e-5..1e-1,log \\
                        --choice optimizer=sgd,adam --trials 20 train.py --epochs 3

  # any other program; it gets no arguments, and reads what is tuned from /opt/ml/input/config/hyperparameters.json
  shoal tune --metric 'loss=loss: (\\S+)' --minimize loss --range lr=1e-5..1e-1,log -- /usr/local/bin/my-program

  # a CreateHyperParameterTuningJob request, one field changed
  shoal tune tuning.yaml --trials 50

Strategies: bayesian (default), random, grid, hyperband as SageMaker has them; tpe, cma-es, asha, mobster, pbt beyond \
                        it; a searcher and a
scheduler are joined by +, as in tpe+asha; JSON says more: --strategy \
                        '{\"searcher\":\"tpe\",\"objectives\":[{\"metric\":\"seconds\"}]}'.
Ctrl-C leaves the tuning job running; `shoal tuning stop NAME` ends it.")]
pub(crate) struct TuneArgs {
    /// A script, whose directory is uploaded and behind which stand its own arguments; or a
    /// CreateHyperParameterTuningJob request as JSON or YAML, `-` from standard input.
    #[arg(value_name = "SCRIPT|FILE")]
    file: Option<PathBuf>,
    /// Tuning job's name, at most 32 characters [default: made from image and time].
    #[arg(long)]
    name: Option<String>,
    /// A number to tune: `eta=0.01..0.5,log`, `max_depth=2..10`. Whole numbers on both sides but
    /// 0..1 make it an integer; `,float` makes it none.
    #[arg(long = "range", value_name = "NAME=MIN..MAX[,log|revlog|auto][,float]")]
    ranges: Vec<String>,
    /// A choice to tune.
    #[arg(long = "choice", value_name = "NAME=VALUE,VALUE..")]
    choices: Vec<String>,
    /// The metric to optimise; more is better, unless its name tells otherwise (loss, error, rmse,
    /// ...).
    #[arg(long, value_name = "METRIC", conflicts_with_all = ["minimize", "maximize"])]
    objective: Option<String>,
    /// The metric to make as small as possible.
    #[arg(long, value_name = "METRIC", conflicts_with = "maximize")]
    minimize: Option<String>,
    /// The metric to make as great as possible.
    #[arg(long, value_name = "METRIC")]
    maximize: Option<String>,
    /// How to search: a name, or an object as JSON (or a file of it) with any of searcher,
    /// scheduler, conditions, objectives and grid [default: bayesian].
    #[arg(long)]
    strategy: Option<String>,
    /// Most trials [default: 20; a grid has its own number].
    #[arg(long, value_name = "N")]
    trials: Option<u32>,
    /// Most trials at once [default: 2].
    #[arg(long, value_name = "N")]
    parallel: Option<u32>,
    /// Units of resource (reports of the objective) before which no trial is stopped.
    #[arg(long, value_name = "N")]
    min_resource: Option<u32>,
    /// Units of resource after which a trial is whole.
    #[arg(long, value_name = "N")]
    max_resource: Option<u32>,
    /// Stop trials that are worse than the median of those before them.
    #[arg(long)]
    early_stopping: bool,
    /// End when the objective is this good.
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    target: Option<f64>,
    /// End the tuning job after this time, at least 120.
    #[arg(long, value_name = "SECONDS")]
    max_seconds: Option<u64>,
    /// Of all that is random: the same seed and the same order of results give the same trials.
    #[arg(long)]
    seed: Option<u64>,
    /// Learn from an earlier tuning job of the same data and algorithm.
    #[arg(long, value_name = "TUNING_JOB")]
    warm_start: Vec<String>,
    /// Image: `xgboost`, any AWS name of it or of a framework (`shoal image list`), or `shoal/host`
    /// [default: for a script by what it imports, for a command shoal/host].
    #[arg(long)]
    image: Option<String>,
    /// Number of instances of each trial [default: 1].
    #[arg(long, value_name = "N")]
    instances: Option<u32>,
    /// Instance type [default: ml.m5.large].
    #[arg(long, value_name = "TYPE")]
    instance_type: Option<String>,
    /// An input: s3://..., or a local file or directory, which is uploaded. `,sharded` divides
    /// files over instances.
    #[arg(long, value_name = "NAME=SOURCE[,sharded][,CONTENT/TYPE]")]
    channel: Vec<String>,
    /// A hyperparameter that all trials share.
    #[arg(long = "hp", value_name = "NAME=VALUE")]
    hyperparameters: Vec<String>,
    /// A metric: the first group of this regular expression, looked for in every log line.
    #[arg(long = "metric", value_name = "NAME=REGEX")]
    metrics: Vec<String>,
    /// An environment variable of the training program.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Where artifacts go [default: the default bucket].
    #[arg(long, value_name = "S3_URI")]
    output: Option<String>,
    /// Keep `/opt/ml/checkpoints` here, each trial's below its own name: what lets trials pause and
    /// go on.
    #[arg(long, value_name = "S3_URI")]
    checkpoints: Option<String>,
    /// Stop a trial after this time [default: 86400].
    #[arg(long, value_name = "SECONDS")]
    max_runtime: Option<u64>,
    /// What the trials reach outside, as far as the server's owner permits: none, allow-list or
    /// host (the tag shoal:network).
    #[arg(long, value_name = "MODE")]
    network: Option<String>,
    /// Compute target that runs the trials: local or one of shoal.toml; `shoal targets` lists them
    /// (the tag shoal:target).
    #[arg(long, value_name = "NAME")]
    compute_target: Option<String>,
    /// Directory that is uploaded with a script, without what its .gitignore and .shoalignore name
    /// [default: the script's].
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    /// What starts a script on several instances as one program.
    #[arg(long, value_enum)]
    distribution: Option<Distribution>,
    /// Write the report's page here at the end.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Do not wait for the end.
    #[arg(long)]
    detach: bool,
    /// Print the request and send nothing: nothing is uploaded or created, and no server is needed.
    #[arg(long)]
    dry_run: bool,
    /// The study as JSON at the end (with --detach CreateHyperParameterTuningJob's answer).
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
    #[arg(hide = true, value_name = "WORD", value_parser = train::misplaced)]
    _misplaced: Option<Infallible>,
    /// The training program and its arguments, run in each instance; behind a script its arguments.
    #[arg(last = true)]
    command: Vec<String>,
}

impl TuneArgs {
    /// What the trials have of `shoal train`.
    fn trial(&self) -> TrainArgs {
        TrainArgs {
            file: self.file.clone(),
            source: self.source.clone(),
            distribution: self.distribution,
            image: self.image.clone(),
            instances: self.instances,
            instance_type: self.instance_type.clone(),
            channel: self.channel.clone(),
            hyperparameters: self.hyperparameters.clone(),
            metrics: self.metrics.clone(),
            environment: self.environment.clone(),
            output: self.output.clone(),
            checkpoints: self.checkpoints.clone(),
            max_runtime: self.max_runtime,
            command: self.command.clone(),
            ..TrainArgs::default()
        }
    }
}

/// Creates the tuning job and waits for its end.
pub(crate) fn run(args: &TuneArgs, algorithms: Algorithms) -> Result<Exit> {
    let settings = args.settings.settings()?;
    let mut trial = args.trial();
    let script = Script::take(&mut trial, &Table::read(&table_file(&settings.data_dir))?).map_err(UsageError)?;
    for note in script.iter().flat_map(|script| &script.notes) {
        eprintln!("{note}");
    }
    train::is_uploaded(&trial.command).map_err(UsageError)?;
    let file = trial.file.as_ref().map(train::read).transpose()?;
    if let (Some(path), Some(request)) = (&trial.file, &file) {
        train::check_members("CreateHyperParameterTuningJob", request)
            .map_err(|unknown| UsageError(format!("{}: {unknown}", path.display())))?;
    }
    let (mut request, uploads) =
        request::build(args, &trial, file, &settings, crate::client::now_ms()).map_err(UsageError)?;
    refusal::check(&request, (&uploads, script.as_ref()), args, algorithms, &OurImages::of(&settings, algorithms))
        .map_err(UsageError)?;
    if !args.command.is_empty() && script.is_none() {
        eprintln!("{FROM_A_FILE}");
    }
    if args.dry_run {
        let name = format!("{}{}", settings.default_prefix, name_of(&request));
        if let Some(definition) = request.get_mut("TrainingJobDefinition") {
            train::plan(&uploads, &name, definition, &settings.default_bucket)?;
            if let Some(script) = &script {
                script.plan(&name, definition, &settings.default_bucket);
            }
        }
        show_json(&request)?;
        return Ok(Exit::Ok);
    }
    let client = Client::connect(&args.settings)?;
    let name = name_of(&request);
    let folder = format!("{}{name}", settings.default_prefix);
    let (answer, notice) = train::deliver(&client, &settings.default_bucket, |delivery| {
        if request["TrainingJobDefinition"].is_object() {
            let definition = &mut request["TrainingJobDefinition"];
            train::upload(delivery, &uploads, &folder, definition)?;
            if let Some(script) = &script {
                script.upload(delivery, &folder, definition)?;
            }
        }
        let created = client.sagemaker_with_notice("CreateHyperParameterTuningJob", &request);
        created.map_err(|error| about_parents(error, &args.warm_start))
    })?;
    if let Some(notice) = notice {
        eprintln!("{notice}");
    }
    if args.detach {
        if args.json {
            show_json(&answer)?;
        } else {
            show(&format!("{name}\n"))?;
        }
        return Ok(Exit::Ok);
    }
    let _farewell = Farewell::about_tuning(&name)?;
    let study = live::until_end(client, &args.settings, &name)?;
    if args.json {
        show_json(&serde_json::to_value(&study)?)?;
    } else {
        show(&tuning::summary(&study, 5))?;
    }
    if let Some(path) = &args.report {
        tuning::report::write(&study, None, path)?;
        show(&format!("\n{}\n", path.display()))?;
    }
    Ok(match study.hyper_parameter_tuning_job_status.as_str() {
        "Failed" => Exit::Failed,
        "Stopped" => Exit::Stopped,
        _ => Exit::Ok,
    })
}

fn name_of(request: &Value) -> String {
    request["HyperParameterTuningJobName"].as_str().unwrap_or_default().to_owned()
}

/// What is not there can only be a tuning job that this one was to start from.
fn about_parents(error: ClientError, parents: &[String]) -> anyhow::Error {
    match parents.iter().find(|name| error.is_not_found() && error.to_string().contains(name.as_str())) {
        Some(name) => error.about_a(Noun::TuningJob, name).context(format!("--warm-start {name}")),
        None => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_script_of_its_own_is_tuned() {
        use clap::Parser;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("train.py"), "import os").unwrap();
        let script = dir.path().join("train.py").display().to_string();
        let made = |typed: &str| -> Result<Value, String> {
            let words = Vec::from_iter(typed.split(' ').map(|word| word.replace("train.py", &script).into()));
            let command =
                crate::Cli::parse_from(train::separate(words, &<crate::Cli as clap::CommandFactory>::command()))
                    .command;
            let crate::Command::Tune(args) = command else { panic!("shoal tune") };
            let mut trial = args.trial();
            let script = Script::take(&mut trial, &Table::shipped().unwrap())?.expect("a script");
            let typed =
                crate::settings::Typed::gather(&std::collections::BTreeMap::new(), &|_| None, &|_| Ok(None)).unwrap();
            let settings = crate::settings::Settings::of(&typed).unwrap();
            let (mut request, uploads) = request::build(&args, &trial, None, &settings, 0)?;
            refusal::check(
                &request,
                (&uploads, Some(&script)),
                &args,
                shoal_algos::BUILT_IN,
                &OurImages::of(&settings, shoal_algos::BUILT_IN),
            )?;
            script.plan("t", &mut request["TrainingJobDefinition"], "bucket");
            Ok(request)
        };
        let flags = "shoal tune --minimize loss --metric loss=loss:(.*) --range lr=0.1..0.5 --trials 3";
        let request = made(&format!("{flags} train.py --epochs 3")).unwrap();
        let definition = &request["TrainingJobDefinition"];
        assert_eq!(definition["AlgorithmSpecification"]["TrainingImage"], "shoal/host");
        let fixed = &definition["StaticHyperParameters"];
        assert_eq!((&fixed["epochs"], &fixed["sagemaker_program"]), (&json!("3"), &json!("train.py")));
        let source = fixed["sagemaker_submit_directory"].as_str().unwrap_or_default();
        assert!(source.starts_with("s3://bucket/t/source/") && source.ends_with("/sourcedir.tar.gz"), "{source}");
        // An algorithm's image starts the script, too, with its own hyperparameters.
        made(&format!("{flags} --image sagemaker-xgboost:1.7-1 train.py --epochs 3")).unwrap();
        let fixed = made(&format!("{flags} train.py --lr 3")).unwrap_err();
        assert!(fixed.contains("--range or --choice lr tunes, and so does a script's argument --lr"), "{fixed}");
    }

    #[test]
    fn a_tuning_job_is_not_a_training_job() {
        let request = json!({"TrainingJobName": "x"});
        let message = train::check_members("CreateHyperParameterTuningJob", &request).unwrap_err();
        assert!(message.starts_with("CreateHyperParameterTuningJob has no TrainingJobName"), "{message}");
    }
}
