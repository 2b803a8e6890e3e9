//! What creation refuses beyond the request's own shape: images, S3 buckets and prefixes that are
//! not there.

pub(crate) mod debugger;
mod inputs;
mod places;

use std::sync::Arc;

use shoal_launch::{LaunchError, Launcher, Wants};
use shoal_plane::Node;
use shoal_store::{DataDir, Objects, ResourceKind, Rows};
use shoal_tuner::{SearcherSpec, near};
use shoal_wire::{
    CompletionCriteria, CreateTrainingJob, CreateTuningJob, Error, ErrorCode, MIN_INSTANCES_TAG, Objective, S3Uri,
    TARGET_TAG, TuningDefinition, check_warm_start,
};

use crate::{
    Builtin, BuiltinObjective, ComputeTargets, Image, ImageError, Images, NetworkOptions,
    budgets::Budgets,
    channels::MayRead,
    file_systems::FileSystems,
    internal::internal,
    options::{image_of, known_image_of},
    requests,
    tuning::Design,
};

use inputs::Inputs;
pub(crate) use inputs::mode_of;

/// What requests are checked against.
pub(crate) struct Admission {
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) images: Arc<dyn Images>,
    pub(crate) data_dir: Arc<DataDir>,
    pub(crate) network: NetworkOptions,
    pub(crate) targets: ComputeTargets,
    pub(crate) file_systems: Arc<FileSystems>,
    pub(crate) region: String,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) launcher: Arc<dyn Launcher>,
}

impl Admission {
    /// Refuses what could only fail later. Blocks on the store.
    ///
    /// # Errors
    /// `ValidationException` that names the field and what to do; `ResourceLimitExceeded` while a
    /// budget is spent that refuses jobs; `ServiceUnavailable` while the disk is full.
    pub(crate) fn check(
        &self,
        request: &CreateTrainingJob,
        creator: Option<&str>,
        may_read: &MayRead,
    ) -> Result<(), Error> {
        self.check_job(request, creator, may_read)?;
        self.budgets.check(&request.tags, &request.role_arn)
    }

    /// The same, whatever is spent.
    fn check_job(&self, request: &CreateTrainingJob, creator: Option<&str>, may_read: &MayRead) -> Result<(), Error> {
        self.data_dir.ensure_room().map_err(|error| {
            Error::new(ErrorCode::ServiceUnavailable, format!("no training job is taken now: {error}; free some"))
        })?;
        partition(&self.region, &request.role_arn)?;
        self.network.check(&request.tags)?;
        let target = self.targets.of(&request.tags, &request.resources)?;
        let name = target.as_deref().unwrap_or(Node::LOCAL);
        let in_container = self.targets.has_containers(name);
        let find = self.targets.image_finder(name);
        let image = image(find(&*self.images, request), request)?;
        elastic(&*self.images, request)?;
        if let Some(target) = &target {
            self.on_target(target, request, creator)?;
        }
        if let Some(target) = target.as_ref().filter(|_| in_container && request.enable_network_isolation) {
            return Err(Error::validation(format!(
                "EnableNetworkIsolation is not possible on the compute target {target}, whose instances have the network \
                 of their pods: limit that by a NetworkPolicy of the cluster, or choose the target local by the tag \
                 '{TARGET_TAG}'."
            )));
        }
        if let Some(target) = target.as_ref().filter(|_| request.enable_network_isolation)
            && request.resources.instance_count > 1
        {
            return Err(Error::validation(format!(
                "EnableNetworkIsolation with several instances is not possible on the compute target {target}, where they \
                 have the network of its nodes: ask for one instance, or choose the target local by the tag '{TARGET_TAG}'."
            )));
        }
        if let Some(target) = target.as_ref().filter(|_| request.min_instances.is_some()) {
            return Err(Error::validation(format!(
                "A job that continues with fewer instances (the tag '{MIN_INSTANCES_TAG}') runs on this machine alone, not \
                 on the compute target {target}: remove the tag, or choose the target local by the tag '{TARGET_TAG}'."
            )));
        }
        places::source(&self.objects, request)?;
        if let Some(config) = &request.checkpoint {
            places::checkpoints(&self.objects, &config.uri)?;
        }
        if let Some(uri) = request.script.as_ref().and_then(|script| script.output.as_ref()) {
            places::bucket(&self.objects, "hyperParameters.sagemaker_s3_output", uri)?;
        }
        if let Some(uri) = request.profiler.as_ref().and_then(|profiler| profiler.active_output()) {
            places::bucket(&self.objects, "profilerConfig.s3OutputPath", uri)?;
        }
        let (objects, file_systems, region) = (&*self.objects, &*self.file_systems, &*self.region);
        let inputs = Inputs { objects, file_systems, region, may_read, target: target.as_deref() };
        inputs.check(request, &image)?;
        debugger::check(&self.objects, &request.debugger)?;
        places::output(&self.objects, &request.output)
    }

    /// Refuses what the target's scheduler would refuse whenever it is asked.
    fn on_target(&self, target: &str, request: &CreateTrainingJob, creator: Option<&str>) -> Result<(), Error> {
        let types = request.resources.types();
        let gpus = types.iter().filter_map(|(kind, _)| self.budgets.catalog.get(kind)).map(|it| it.gpus).max();
        let kind = types.first().map_or("", |(kind, _)| *kind);
        let creator = creator.map(str::to_owned);
        let wants = Wants {
            kind: kind.to_owned(),
            gpus: gpus.unwrap_or(0),
            creator,
            directories: self.file_systems.directories(&request.channels, target),
            ..Wants::default()
        };
        self.launcher.check(&[target.to_owned()], &wants).map_err(|error| match error {
            LaunchError::NoUser { .. } => Error::validation(format!(
                "No such job can be run: {error}. Correct submit_as, token_command or users of \
                 [target.{target}] in shoal.toml, or choose another target by the tag '{TARGET_TAG}'."
            )),
            error => Error::validation(format!(
                "Invalid value \"{kind}\" at 'resourceConfig.instanceType': {error}. Correct [target.{target}] in \
                 shoal.toml, or choose another target by the tag '{TARGET_TAG}'."
            )),
        })
    }

    /// The same for a tuning job: for the training jobs of each definition, and what it starts
    /// from.
    ///
    /// # Errors
    /// As [`Self::check`]; `ResourceNotFound` for a parent that is not there.
    pub(crate) fn check_tuning(
        &self,
        request: &CreateTuningJob,
        creator: Option<&str>,
        may_read: &MayRead,
    ) -> Result<(), Error> {
        self.network.check(&request.tags)?;
        for definition in &request.definitions {
            self.check_job(&definition.training, creator, may_read)
                .map_err(|error| relocated(error, &definition.path))?;
            // Its trials get the tuning job's tags.
            self.budgets.check(&request.tags, &definition.training.role_arn)?;
            check_definition(&*self.images, request, definition)?;
        }
        let Some(warm_start) = &request.warm_start else { return Ok(()) };
        for name in &warm_start.parents {
            let Some(parent) = self.rows.resource(ResourceKind::TUNING_JOB, name).map_err(|error| internal(&error))?
            else {
                return Err(no_tuning_job(name));
            };
            if !parent.ended {
                return Err(Error::validation(format!(
                    "Invalid value at 'warmStartConfig.parentHyperParameterTuningJobs': the tuning job '{name}' is {}; \
                     parents must be Completed, \
                     Stopped or Failed.",
                    parent.status
                )));
            }
            check_warm_start(request, &requests::tuning_job(&parent)?)?;
        }
        Ok(())
    }
}

/// An error of a definition's training jobs, with the path of the definition before the member that
/// its message begins with. Tags are the tuning job's own.
fn relocated(error: Error, path: &str) -> Error {
    let message = &error.message;
    let message = match message.strip_prefix("Invalid value at '") {
        Some(member) if !member.starts_with("tags'") => format!("Invalid value at '{path}.{member}"),
        None if message.starts_with(char::is_lowercase) => format!("{path}.{message}"),
        _ => return error,
    };
    if error.code == ErrorCode::ValidationException { Error::validation(message) } else { error }
}

/// What of a definition needs no storage.
///
/// # Errors
/// `ValidationException`: a hyperparameter that the algorithm does not have, or an address of
/// checkpoints that leaves no room for names.
pub(crate) fn check_definition(
    images: &dyn Images,
    request: &CreateTuningJob,
    definition: &TuningDefinition,
) -> Result<(), Error> {
    if let Some(Image::Builtin(algorithm)) = known_image_of(images, &definition.training) {
        let tuned = definition.ranges.iter().map(|range| &range.name);
        known_hyperparameters(&algorithm, tuned, &format!("{}.hyperParameterRanges", definition.path))?;
    }
    match &definition.training.checkpoint {
        Some(config) => room_below(&config.uri, &request.name, &definition.path),
        None => Ok(()),
    }
}

/// Longest S3 URI of the API, and longest key of S3, in bytes.
const MOST_URI: usize = 1024;
/// What follows a tuning job's name in its training jobs' (`-1000000-0123abcd`), and then the name
/// of a file.
const BELOW: usize = 17 + 64;

/// Each training job keeps its checkpoints below the given place, under its own name: there is room
/// for that.
fn room_below(uri: &S3Uri, name: &str, path: &str) -> Result<(), Error> {
    let (length, most) = (uri.to_string().len(), MOST_URI - BELOW - name.len());
    if length <= most {
        return Ok(());
    }
    Err(Error::validation(format!(
        "Invalid value at '{path}.checkpointConfig.s3Uri': it is {length} characters long; with the names of training \
         jobs and of files below it at \
         most {most} are possible."
    )))
}

/// Something ends the tuning job: a limit, a criterion, or a grid that has been walked through.
/// Strategies of ours are known only here.
///
/// # Errors
/// `ValidationException` that says what could end it.
pub(crate) fn check_end(request: &CreateTuningJob, designs: &[Design]) -> Result<(), Error> {
    let is_limited = request.limits.max_jobs.is_some() || request.limits.max_runtime_s.is_some();
    let is_grid = designs.iter().all(|design| matches!(design.study.searcher, SearcherSpec::Grid(_)));
    if is_limited || is_grid || request.completion != CompletionCriteria::default() {
        return Ok(());
    }
    Err(Error::validation(
        "Invalid value at 'hyperParameterTuningJobConfig.resourceLimits.maxNumberOfTrainingJobs': nothing would end \
         the tuning job; give it, \
         MaxRuntimeInSeconds, or a completion criterion.",
    ))
}

/// There is no such tuning job, in AWS's words.
pub(crate) fn no_tuning_job(name: &str) -> Error {
    Error::new(
        ErrorCode::ResourceNotFound,
        format!("Amazon SageMaker can't find a tuning job called {name}. Type another name."),
    )
}

/// What the tuning job optimises can be: metrics that are read from the trials' lines, and of a
/// built-in algorithm one that it tells a tuning job.
///
/// # Errors
/// `ValidationException` that names the metric, and those that there are.
pub(crate) fn check_objectives(
    images: &dyn Images,
    request: &CreateTuningJob,
    designs: &[Design],
) -> Result<(), Error> {
    request.definitions.iter().zip(designs).try_for_each(|(definition, design)| {
        let image = known_image_of(images, &definition.training);
        if let Some(Image::Builtin(algorithm)) = &image {
            objective_of_builtin(request, definition, &algorithm.objectives)?;
        }
        let algorithm = &definition.training.algorithm;
        let names: Vec<String> = match &algorithm.metric_definitions[..] {
            [] => {
                let supplied = images.metric_definitions(algorithm.training_image.as_deref().unwrap_or_default());
                supplied.into_iter().map(|(name, _)| name).collect()
            }
            given => given.iter().map(|metric| metric.name.clone()).collect(),
        };
        let mut objectives = design.objectives.iter();
        let Some(unknown) = objectives.find(|objective| !names.contains(&objective.metric)) else { return Ok(()) };
        let hint = near(&unknown.metric, names.iter().map(String::as_str));
        let known = if names.is_empty() {
            "there are none".to_owned()
        } else {
            format!("those are {}{hint}", names.join(", "))
        };
        let known = if known.ends_with('?') { known } else { format!("{known}.") };
        Err(Error::validation(format!(
            "A metric is required for this hyperparameter tuning job objective. Provide a metric in the metric \
             definitions. The objective's metric \
             '{}' is not among the metric definitions of {}: {known}",
            unknown.metric, definition.path
        )))
    })
}

/// The image would refuse the objective in each trial.
fn objective_of_builtin(
    request: &CreateTuningJob,
    definition: &TuningDefinition,
    objectives: &[BuiltinObjective],
) -> Result<(), Error> {
    let Objective { metric, goal } = &definition.objective;
    let image = definition.training.algorithm.training_image.as_deref().unwrap_or_default();
    let field = match request
        .raw
        .get("HyperParameterTuningJobConfig")
        .and_then(|config| config.get("HyperParameterTuningJobObjective"))
    {
        Some(_) => "hyperParameterTuningJobConfig.hyperParameterTuningJobObjective".to_owned(),
        None => format!("{}.tuningObjective", definition.path),
    };
    let Some(known) = objectives.iter().find(|known| known.objective.metric == *metric) else {
        let names: Vec<&str> = objectives.iter().map(|known| known.objective.metric.as_str()).collect();
        let hint =
            Some(near(metric, names.iter().copied())).filter(|hint| !hint.is_empty()).unwrap_or_else(|| ".".to_owned());
        return Err(Error::validation(format!(
            "Invalid value at '{field}.metricName': the objective metric for the hyperparameter tuning job, \
             [{metric}], isn't valid for the \
             [{image}] algorithm{hint} Choose a valid objective metric: {}.",
            names.join(", ")
        )));
    };
    if known.objective.goal != *goal {
        return Err(Error::validation(format!(
            "Invalid value at '{field}.type': the objective metric type, [{}], isn't valid for the objective metric \
             [{metric}] of the [{image}] \
             algorithm. Choose a valid objective metric type: {}.",
            goal.as_str(),
            known.objective.goal.as_str()
        )));
    }
    let is_given = |name: &String| {
        [&definition.static_hyperparameters, &definition.training.hyperparameters]
            .iter()
            .any(|given| given.contains_key(name))
    };
    if let Some(needed) = &known.channel
        && !definition.training.channels.iter().any(|channel| channel.name == *needed)
        && !known.unless.as_ref().is_some_and(is_given)
    {
        let names = Vec::from_iter(definition.training.channels.iter().map(|channel| channel.name.as_str()));
        return Err(Error::validation(format!(
            "Invalid value at '{field}.metricName': the objective metric [{metric}] is measured on the channel \
             {needed}, and {} has {}: add it to \
             InputDataConfig.",
            definition.path,
            if names.is_empty() { "no channels".to_owned() } else { format!("only {}", names.join(", ")) }
        )));
    }
    Ok(())
}

/// A role is of the partition that the server's region is of.
fn partition(region: &str, role: &str) -> Result<(), Error> {
    let ours = match region.split('-').next() {
        Some("cn") => "aws-cn",
        Some("us") if region.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    };
    match role.split(':').nth(1) {
        Some(partition) if partition != ours => Err(Error::validation(format!(
            "Invalid value at 'roleArn': '{role}' is of the partition {partition}, and the region {region} is of \
             {ours}."
        ))),
        _ => Ok(()),
    }
}

/// Only the user's own program can continue without some of its instances.
fn elastic(images: &dyn Images, request: &CreateTrainingJob) -> Result<(), Error> {
    let is_builtin = matches!(image_of(images, request), Ok(Image::Builtin(_)));
    if request.min_instances.is_some() && is_builtin {
        return Err(Error::validation(format!(
            "Invalid value at 'tags': a built-in algorithm needs all of its instances; leave the tag \
             '{MIN_INSTANCES_TAG}' out."
        )));
    }
    Ok(())
}

fn image(found: Result<Image, ImageError>, request: &CreateTrainingJob) -> Result<Image, Error> {
    if request.algorithm.training_image.is_none() {
        return Err(Error::validation(
            "algorithmSpecification.algorithmName: this server has no Marketplace or registered algorithms; give \
             algorithmSpecification.trainingImage",
        ));
    }
    let image = found.map_err(|error| Error::validation(format!("algorithmSpecification.trainingImage: {error}")))?;
    let fits = match &image {
        Image::Host if request.algorithm.entrypoint.is_empty() && request.script.is_none() => Err(Error::validation(
            "algorithmSpecification.containerEntrypoint: image shoal/host runs the program that containerEntrypoint \
             names, or the script that the \
             hyperparameter sagemaker_program names, and there is neither",
        )),
        Image::Builtin(Builtin { name, .. })
            if !request.algorithm.entrypoint.is_empty() || !request.algorithm.arguments.is_empty() =>
        {
            Err(Error::validation(format!(
                "algorithmSpecification.containerEntrypoint: {name} is a program of its own here and takes no command; \
                 run yours by image shoal/host, or leave containerEntrypoint and containerArguments out"
            )))
        }
        Image::Builtin(Builtin { name, .. }) if request.script.is_some() => Err(Error::validation(format!(
            "hyperParameters.sagemaker_program: {name} runs in algorithm mode here, and there is no environment for \
             scripts; \
             run yours by image shoal/host"
        ))),
        Image::Python(environment) if request.algorithm.entrypoint.is_empty() && request.script.is_none() => {
            Err(Error::validation(format!(
                "hyperParameters.sagemaker_program: the environment {} runs the script that this hyperparameter names, \
                 or the program that \
                 containerEntrypoint names, and there is neither",
                environment.name
            )))
        }
        Image::Builtin(algorithm) => {
            known_hyperparameters(algorithm, request.hyperparameters.keys(), "hyperParameters")
        }
        Image::Host | Image::Python(_) | Image::Root(_) => Ok(()),
    };
    fits.map(|()| image)
}

/// A built-in algorithm has all of these hyperparameters; it would refuse others when it starts, in
/// the same words.
fn known_hyperparameters<'a>(
    algorithm: &Builtin,
    given: impl IntoIterator<Item = &'a String>,
    field: &str,
) -> Result<(), Error> {
    let Builtin { name, hyperparameters: known, .. } = algorithm;
    let Some(unknown) = given.into_iter().find(|name| !known.contains(name)) else { return Ok(()) };
    // Those that begin with an underscore are the service's own.
    let hint = near(unknown, known.iter().map(String::as_str).filter(|name| !name.starts_with('_')));
    Err(Error::validation(format!(
        "Invalid value at '{field}': {name} has no such hyperparameter. Extraneous hyperparameter found: \
         {unknown}{hint}"
    )))
}

#[cfg(test)]
mod tests;
