//! What the agents of an attempt are told: from the request of its training job, and from where and
//! how far the core has it run.

mod files_of_runs;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use shoal_launch::Launcher;
use shoal_link::{
    Assignment, Delivery, Elastic, Input, InstanceGroup, Limits, MetricDefinition, OutputCompression, ProfilerFile,
    Program, Resource, Root,
};
use shoal_plane::{AttemptId, Capacity, Host, Packing, TrialLaunch};
use shoal_runtime::steps::Launch;
use shoal_store::Rows;
use shoal_wire::{
    Channel, ChannelSource, CreateTrainingJob, DebugHook, OBJECTIVE_HYPERPARAMETER, Resources, RuleConfiguration,
    S3Uri, arn,
};

use crate::{
    Builtin, ComputeTargets, Image, Images, NetworkOptions,
    admission::mode_of,
    agent_rules::rule,
    attempts::Plan,
    channels::{Trees, may_read, may_write},
    clock::now_ms,
    file_systems::FileSystems,
    not_prepared::NotPrepared,
    places::{folder, intermediate, reads, writes},
    requests,
    team::Team,
    warm,
};

use files_of_runs::files_of_runs;

/// What plans are made from.
pub(crate) struct Plans {
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) trees: Arc<Trees>,
    pub(crate) images: Arc<dyn Images>,
    pub(crate) capacity: Capacity,
    pub(crate) network: NetworkOptions,
    pub(crate) file_systems: Arc<FileSystems>,
    pub(crate) region: String,
    pub(crate) account: String,
    pub(crate) lease_s: Option<u64>,
    pub(crate) grace_s: u32,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) team: Arc<Team>,
    pub(crate) targets: ComputeTargets,
}

impl Plans {
    /// What an attempt's agents are told; makes their channels ready.
    ///
    /// # Errors
    /// Why the job fails.
    pub(crate) fn plan(
        &self,
        request: &CreateTrainingJob,
        creator: Option<String>,
        launch: &Launch,
    ) -> Result<Plan, NotPrepared> {
        let Launch { attempt, placement, lease_s, trial, .. } = launch;
        let instances = launch.instances;
        let is_remote = self.launcher.is_remote(&placement.nodes);
        let inputs = self.trees.for_agents(is_remote);
        let member = creator.as_deref().map(|creator| self.team.creator(creator));
        let inputs = inputs.of_reader(may_read(member.clone(), self.trees.objects(), &self.account));
        let find = self.targets.image_finder(placement.node(Host::FIRST));
        let image = find(&*self.images, request).map_err(|error| error.0)?;
        let groups = groups(&request.resources);
        // Of each channel and host; none where it is for other groups.
        let mut found: Vec<BTreeMap<Host, (Input, Delivery)>> = Vec::with_capacity(request.channels.len());
        for channel in &request.channels {
            let hosts = Vec::from_iter(Host::all(instances).filter(|host| is_for(channel, &groups, *host)));
            let hosts_of = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
            let made = self.channel(&inputs, attempt, channel, &image, (placement.node(Host::FIRST), hosts_of))?;
            found.push(hosts.into_iter().zip(made).collect());
        }
        let checkpoint = match &request.checkpoint {
            None => None,
            Some(config) => Some(shoal_link::Checkpoint {
                local_path: config.local_path.clone(),
                uri: config.uri.to_string(),
                tree: self
                    .checkpoints_before(&inputs, attempt, &config.uri, trial.as_ref())?
                    .map(|tree| inputs.input(&tree)),
            }),
        };
        let hosts: Vec<String> = Host::all(instances).map(|host| host.to_string()).collect();
        let (mut python, mut root) = (None, None);
        let own = || -> Result<Program, NotPrepared> {
            let (entrypoint, arguments) = (request.algorithm.entrypoint.clone(), request.algorithm.arguments.clone());
            if !entrypoint.is_empty() {
                return Ok(Program::Host { entrypoint, arguments });
            }
            let source = request.script.as_ref().and_then(|script| script.source.as_ref());
            let source = source.map(|uri| inputs.prepare_object(attempt, uri)).transpose()?;
            Ok(Program::Script { source: source.map(|tree| inputs.input(&tree)), arguments })
        };
        let program = match image {
            Image::Builtin(Builtin { name, library_dirs, variables, .. }) => {
                let image = request.algorithm.training_image.clone().unwrap_or_default();
                // On another machine they are somewhere else.
                let (library_dirs, variables) = if is_remote { Default::default() } else { (library_dirs, variables) };
                Program::Builtin { name, image, library_dirs, variables }
            }
            Image::Host => own()?,
            Image::Root(of) => {
                let is_own = !request.algorithm.entrypoint.is_empty()
                    || matches!(of, Root::Directory { .. }) && request.script.is_some();
                let program = if is_own { own()? } else { of_image(&of, &request.algorithm.arguments) };
                root = Some(of);
                program
            }
            Image::Python(environment) => {
                python = Some(environment);
                own()?
            }
        };
        let rules = request.debugger.rules.iter().map(|it| debug_rule(&inputs, attempt, it));
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        let metric_definitions: Vec<_> = match &request.algorithm.metric_definitions[..] {
            [] => self.images.metric_definitions(request.algorithm.training_image.as_deref().unwrap_or_default()),
            given => given.iter().map(|it| (it.name.clone(), it.regex.clone())).collect(),
        };
        let metric_definitions: Vec<_> =
            metric_definitions.into_iter().map(|(name, regex)| MetricDefinition { name, regex }).collect();
        // An image with a program of its own sees to it by itself, if that is a toolkit.
        let mirrored = intermediate(request).filter(|_| matches!(program, Program::Script { .. }));
        if let (Some(member), Some(uri)) = (&member, &mirrored)
            && !may_write(member, self.trees.objects(), &self.account, &uri.bucket, &uri.prefix)
        {
            return Err(format!("the key that created the job may not write its intermediate output to {uri}").into());
        }
        let events = request.profiler.as_ref().and_then(|profiler| profiler.place(&request.name));
        let events = events.filter(|_| !matches!(program, Program::Builtin { .. }));
        let assignments = Host::all(instances)
            .map(|host| Assignment {
                job_name: request.name.clone(),
                job_arn: arn::training_job(&self.region, &self.account, &request.name),
                region: self.region.clone(),
                host: host.0,
                hosts: hosts.clone(),
                instance_type: group_of(&groups, host)
                    .map_or(&request.resources.instance_type, |group| &group.instance_type)
                    .clone(),
                groups: groups.clone(),
                hyperparameters: request.hyperparameters.clone(),
                environment: request.environment.clone(),
                channels: request
                    .channels
                    .iter()
                    .zip(&found)
                    .filter_map(|(channel, found)| {
                        let (tree, delivery) = found.get(&host)?.clone();
                        Some(shoal_link::Channel {
                            name: channel.name.clone(),
                            tree,
                            delivery,
                            content_type: channel.content_type.clone(),
                            distribution: channel.distribution().as_str().to_owned(),
                            record_wrapper: channel.record_wrapper.as_str().to_owned(),
                        })
                    })
                    .collect(),
                program: program.clone(),
                python: python.clone(),
                root: root.clone(),
                metric_definitions: metric_definitions.clone(),
                // A trial's objective is the first host's alone.
                objective: objective(request).filter(|_| host == Host::FIRST),
                limits: Limits {
                    memory_bytes: placement.share(host).memory_bytes,
                    together_bytes: together_bytes(&self.capacity, placement.node(host)),
                    cpus: placement.share(host).cpus,
                    cpu_weight: placement.share(host).cpu_weight,
                    pids: 4096,
                    // Built-in algorithms write their model and little else.
                    disk_bytes: Some(u64::from(request.resources.volume_gb) << 30)
                        .filter(|_| !matches!(program, Program::Builtin { .. })),
                    gpus: host.index().and_then(|index| placement.gpus.get(index)).cloned().unwrap_or_default(),
                },
                endpoint: None,
                // Built-in algorithms connect to nothing outside, so they get no proxy.
                egress: self.network.egress(request).filter(|_| !matches!(program, Program::Builtin { .. })),
                checkpoint: checkpoint.clone(),
                intermediate: mirrored.as_ref().map(ToString::to_string),
                debug_hook: request.debugger.hook.as_ref().map(|hook| debug_hook(hook, &request.name)),
                rules: rules.clone(),
                profiler_rules: request.debugger.profiler_rules.iter().map(rule).collect(),
                tensor_board: request.debugger.tensor_board.as_ref().map(|board| shoal_link::TensorBoard {
                    local_path: board.local_path.clone(),
                    uri: board.place(&request.name).to_string(),
                }),
                output_compression: match request.output.compression {
                    shoal_wire::OutputCompression::Gzip => OutputCompression::Gzip,
                    shoal_wire::OutputCompression::None => OutputCompression::None,
                },
                lease_s: self.lease_s.unwrap_or(*lease_s),
                grace_s: self.grace_s,
                resource: trial.as_ref().map(|trial| Resource {
                    from: trial.from.into(),
                    until: trial.to.map(u64::from),
                    max: trial.max.map(u64::from),
                }),
                elastic: request.min_instances.map(|min_instances| Elastic { min_instances, joins: false }),
                warm: trial.is_some() || request.resources.keep_alive_s > 0,
                machine_network: None,
                // As it is when the agent connects.
                sampling: None,
                profiler: request.profiler.as_ref().map(|profiler| ProfilerFile {
                    interval_ms: profiler.interval_ms,
                    parameters: profiler.parameters.clone(),
                    is_disabled: profiler.is_disabled,
                    uri: events.as_ref().map(ToString::to_string),
                }),
            })
            .collect();
        // Each attempt has streams of its own, though a retry may follow within the second.
        let epoch = now_ms() / 1000 + u64::from(launch.number) - 1;
        let mut plan = Plan {
            version: Plan::VERSION,
            job: request.name.clone().into(),
            attempt: attempt.clone(),
            streams: hosts.iter().map(|host| format!("{}/{host}-{epoch}", request.name)).collect(),
            reads: [reads(request), files_of_runs(request, &self.region, &self.account)].concat(),
            writes: [writes(request), files_of_runs(request, &self.region, &self.account)].concat(),
            isolated: request.enable_network_isolation,
            checkpoints: request.checkpoint.as_ref().map(|config| folder(&config.uri)),
            intermediate: mirrored.as_ref().map(folder),
            tensors: request.debugger.hook.as_ref().map(|hook| folder(&hook.place(&request.name))),
            tensor_board: request.debugger.tensor_board.as_ref().map(|it| folder(&it.place(&request.name))),
            profiler: events.as_ref().map(folder),
            assignments,
            nodes: placement.nodes.clone(),
            longest_s: Some(*lease_s),
            creator,
            reuse: None,
            allocation_id: None,
        };
        plan.reuse = match trial {
            Some(trial) => Some(warm::policy_of_trial(&plan, trial.tuning.clone())),
            None => warm::policy_of_job(&plan, request),
        };
        Ok(plan)
    }

    /// Whether instances reach each other by the network of their machines: several of them on a
    /// compute target, which chooses the machines.
    pub(crate) fn has_machine_network(&self, launch: &Launch) -> bool {
        let node = self.capacity.node(launch.placement.node(Host::FIRST));
        launch.instances > 1 && node.is_some_and(|node| node.has_scheduler)
    }

    /// What each of the hosts that have a channel finds there.
    fn channel(
        &self,
        inputs: &Trees,
        attempt: &AttemptId,
        channel: &Channel,
        image: &Image,
        (node, hosts): (&str, u32),
    ) -> Result<Vec<(Input, Delivery)>, NotPrepared> {
        match &channel.source {
            ChannelSource::S3(source) => inputs.prepare(attempt, channel, source, mode_of(channel, image), hosts),
            ChannelSource::FileSystem { file_system } => {
                let root = self.file_systems.directory(file_system, inputs.is_remote().then_some(node));
                let root = root.map_err(|why| format!("ClientError: channel {}: {why}", channel.name))?;
                let below = file_system.directory.clone();
                let delivery = Delivery::Directory { below, is_writable: file_system.is_writable };
                Ok(vec![(Input::Local(root.display().to_string()), delivery); hosts as usize])
            }
        }
    }

    /// What an attempt goes on from: what earlier ones have left, or else the trial that it is to
    /// begin with has.
    fn checkpoints_before(
        &self,
        inputs: &Trees,
        attempt: &AttemptId,
        uri: &S3Uri,
        trial: Option<&TrialLaunch>,
    ) -> Result<Option<PathBuf>, NotPrepared> {
        let own = inputs.prepare_checkpoints(attempt, uri)?;
        let Some(origin) = trial.and_then(|trial| trial.origin.as_ref()).filter(|_| own.is_none()) else {
            return Ok(own);
        };
        match requests::of_training_job(&*self.rows, origin)?.checkpoint {
            Some(config) => inputs.prepare_checkpoints(attempt, &config.uri),
            None => Ok(None),
        }
    }
}

/// A rule over tensors, with its source and the tensors of other training jobs.
fn debug_rule(inputs: &Trees, attempt: &AttemptId, given: &RuleConfiguration) -> Result<shoal_link::Rule, NotPrepared> {
    let place = |uri: &str| uri.parse::<S3Uri>().map_err(|error| format!("ClientError: {uri}: {error}"));
    let source = given.source().map(|uri| inputs.prepare_source(attempt, &place(uri)?)).transpose()?;
    let other_runs = given.other_runs().into_iter().map(|uri| {
        let made = inputs.prepare_folder(attempt, &place(uri)?)?;
        made.ok_or_else(|| NotPrepared::Failed(format!("ClientError: there are no tensors below {uri} any more")))
    });
    let other_runs = other_runs.collect::<Result<Vec<_>, NotPrepared>>()?;
    Ok(shoal_link::Rule {
        source: source.map(|tree| inputs.input(&tree)),
        other_runs: other_runs.iter().map(|tree| inputs.input(tree)).collect(),
        ..rule(given)
    })
}

/// The memory that all instances on a node have in common, where their limits may add up to more.
fn together_bytes(capacity: &Capacity, node: &str) -> Option<u64> {
    let node = capacity.node(node).filter(|node| capacity.packing == Packing::Use && !node.has_scheduler)?;
    Some(node.memory_bytes)
}

/// What is run of an image when the request names no program: as SageMaker does, the image's own
/// with `train`.
fn of_image(root: &Root, arguments: &[String]) -> Program {
    let train = || vec!["train".to_owned()];
    match root {
        Root::Engine { .. } | Root::Container { .. } => {
            Program::Image { arguments: if arguments.is_empty() { train() } else { arguments.to_vec() } }
        }
        // It starts nothing by itself.
        Root::Directory { .. } => Program::Host { entrypoint: train(), arguments: arguments.to_vec() },
    }
}

/// The request's instance groups, with their hosts.
fn groups(resources: &Resources) -> Vec<InstanceGroup> {
    let mut hosts = Host::all(resources.instance_count);
    let group = |it: &shoal_wire::InstanceGroup| InstanceGroup {
        name: it.name.clone(),
        instance_type: it.instance_type.clone(),
        hosts: hosts.by_ref().take(it.instance_count as usize).map(|host| host.to_string()).collect(),
    };
    resources.instance_groups.iter().map(group).collect()
}

fn group_of(groups: &[InstanceGroup], host: Host) -> Option<&InstanceGroup> {
    let name = host.to_string();
    groups.iter().find(|group| group.hosts.contains(&name))
}

/// Whether an instance has the channel.
fn is_for(channel: &Channel, groups: &[InstanceGroup], host: Host) -> bool {
    let of = channel.s3().map_or(&[][..], |source| &source.instance_groups);
    of.is_empty() || group_of(groups, host).is_some_and(|group| of.contains(&group.name))
}

fn debug_hook(hook: &DebugHook, job: &str) -> shoal_link::DebugHook {
    shoal_link::DebugHook {
        local_path: hook.local_path.clone(),
        uri: hook.place(job).to_string(),
        output_path: hook.uri.to_string(),
        parameters: hook.parameters.clone(),
        collections: hook.collections.iter().map(|it| (it.name.clone(), it.parameters.clone())).collect(),
    }
}

/// The metric that a tuning job looks at, in the request of its trial.
fn objective(request: &CreateTrainingJob) -> Option<String> {
    request.hyperparameters.get(OBJECTIVE_HYPERPARAMETER).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shoal_wire::Stored as _;

    use super::*;

    fn request(changes: &Value) -> CreateTrainingJob {
        let mut request = json!({
            "TrainingJobName": "job",
            "RoleArn": "arn:aws:iam::123456789012:role/r",
            "AlgorithmSpecification": {
                "TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]},
            "OutputDataConfig": {"S3OutputPath": "s3://bkt/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 3, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        });
        for (member, value) in changes.as_object().into_iter().flatten() {
            request[member] = value.clone();
        }
        match CreateTrainingJob::from_raw(request) {
            Ok(request) => request,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn channel(name: &str, uri: &str, groups: &[&str]) -> Value {
        let mut source = json!({"S3DataType": "S3Prefix", "S3Uri": uri});
        if !groups.is_empty() {
            source["InstanceGroupNames"] = json!(groups);
        }
        json!({"ChannelName": name, "DataSource": {"S3DataSource": source}})
    }

    #[test]
    fn hosts_are_divided_among_the_groups_in_their_order() {
        let group = |name: &str, kind: &str, count: u32| json!({"InstanceGroupName": name, "InstanceType": kind, "InstanceCount": count});
        let request = request(&json!({
            "ResourceConfig": {"VolumeSizeInGB": 1, "InstanceGroups": [
                group("big", "ml.m5.xlarge", 1), group("small", "ml.m5.large", 2)]},
            "InputDataConfig": [
                channel("all", "s3://bkt/all", &[]), channel("two", "s3://bkt/two", &["small"]),
                channel("both", "s3://bkt/both", &["small", "big"])],
        }));
        let groups = groups(&request.resources);
        let hosts: Vec<_> = groups.iter().map(|group| (group.name.as_str(), group.hosts.join(" "))).collect();
        assert_eq!(hosts, [("big", "algo-1".to_owned()), ("small", "algo-2 algo-3".to_owned())]);
        let types = (1..=4).map(|host| group_of(&groups, Host(host)).map(|group| group.instance_type.as_str()));
        assert_eq!(Vec::from_iter(types), [Some("ml.m5.xlarge"), Some("ml.m5.large"), Some("ml.m5.large"), None]);
        let of = |channel: usize| {
            (1..=3).filter(|host| is_for(&request.channels[channel], &groups, Host(*host))).collect::<Vec<u32>>()
        };
        assert_eq!([of(0), of(1), of(2)], [vec![1, 2, 3], vec![2, 3], vec![1, 2, 3]]);
    }

    #[test]
    fn a_jobs_keys_open_what_is_its_own() {
        let source = "s3://src/code/sourcedir.tar.gz";
        let request = request(&json!({
            "AlgorithmSpecification": {"TrainingImage": "shoal/host", "TrainingInputMode": "File"},
            "InputDataConfig": [channel("train", "s3://data/train", &[]), channel("test", "s3://data/test/", &[])],
            "CheckpointConfig": {"S3Uri": "s3://kept/here"},
            "HyperParameters": {"sagemaker_program": "a.py", "sagemaker_submit_directory": source,
                "sagemaker_s3_output": "s3://mid/"},
        }));
        let pairs = |places: Vec<(String, String)>| {
            places.into_iter().map(|(bucket, prefix)| format!("{bucket} {prefix}")).collect::<Vec<_>>()
        };
        assert_eq!(
            pairs(reads(&request)),
            ["data train", "data test/", "src code/sourcedir.tar.gz", "kept here/"],
            "a folder of checkpoints is no beginning of another one's name"
        );
        assert_eq!(pairs(writes(&request)), ["bkt out/job/output/", "kept here/", "mid job/output/intermediate/"]);
        let least = self::request(&json!({}));
        assert_eq!(files_of_runs(&least, "us-east-1", "123456789012"), []);
        let of_run = self::request(&json!({"ExperimentConfig": {"RunName": "Forest-Run"}}));
        assert_eq!(
            pairs(files_of_runs(&of_run, "us-east-1", "123456789012")),
            [
                "sagemaker-us-east-1-123456789012 trial-component-artifacts/forest-run/",
                "sagemaker-us-east-1-123456789012 trial-component-artifacts/job-aws-training-job/"
            ]
        );
        assert_eq!((pairs(reads(&least)), pairs(writes(&least))), (Vec::new(), vec!["bkt out/job/output/".to_owned()]));
    }

    #[test]
    fn an_image_without_a_command_is_started_as_sagemaker_does() {
        let engine = Root::Engine { program: "podman".to_owned(), image: "mine".to_owned() };
        let container = Root::Container { image: "mine".to_owned() };
        let directory = Root::Directory { path: "/image".to_owned() };
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        for (root, arguments, expected) in [
            (&engine, &[][..], Program::Image { arguments: words(&["train"]) }),
            (&engine, &["fit", "-v"][..], Program::Image { arguments: words(&["fit", "-v"]) }),
            (&container, &[][..], Program::Image { arguments: words(&["train"]) }),
            (&directory, &["-v"][..], Program::Host { entrypoint: words(&["train"]), arguments: words(&["-v"]) }),
        ] {
            assert_eq!(of_image(root, &words(arguments)), expected, "{root:?} {arguments:?}");
        }
    }
}
