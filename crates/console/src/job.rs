//! A training job's page.

use askama::Template;
use http::Response;
use serde_json::{Map, Value};
use shoal_plane::{JobView, PendingReason, TuningName};
use shoal_store::{CheckpointRow, ResourceKind, ResourceRow};
use shoal_wire::{ChannelSource, CreateTrainingJob, InputMode, S3DataType, Stored, WarmPool, arn};

use super::{
    Console, Visit, amounts, blocking,
    cost::{Cost, cost},
    files::{Place, place},
    frame::{Frame, PageError, rendered},
    jobs::instances,
    logs::{self, Wanted, lines_html},
    now_ms,
    query::address,
    recipe,
    responses::Body,
    sources::{ImageKind, Sources},
    status::{Badge, badge},
    timeline::{Phase, timeline},
    utilization,
};

/// Most checkpoint files that are looked at.
const MOST_RECEIPTS: usize = 200;

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: Frame,
    name: String,
    arn: String,
    badge: Badge,
    live: bool,
    can_stop: bool,
    failure: Option<String>,
    waiting: Option<Waiting>,
    /// Whose trial it is.
    tuning: Option<TuningName>,
    program: String,
    command: String,
    instances: String,
    created_ms: u64,
    duration_ms: Option<u64>,
    /// Since when it runs, while it does.
    since_ms: Option<u64>,
    cost: Option<Cost>,
    phases: Vec<Phase>,
    message: String,
    /// The last value of each metric.
    metrics: Vec<(String, String)>,
    rules: Vec<RuleRow>,
    /// The last samples of its instances.
    utilization: Vec<(String, String)>,
    hosts: Vec<String>,
    log: String,
    log_before: String,
    log_after: String,
    log_more: bool,
    inputs: Vec<Place>,
    outputs: Place,
    /// Tensors and TensorBoard's event files.
    observed: Vec<Place>,
    checkpoints: Option<Checkpoints>,
    hyperparameters: Vec<(String, String)>,
    resources: Vec<(&'static str, String)>,
    environment: Vec<(String, String)>,
    tags: Vec<(String, String)>,
    boto3: String,
    aws_cli: String,
    grace_s: u32,
}

/// Where checkpoints go, and the latest receipts.
struct Checkpoints {
    uri: String,
    files: Vec<Receipt>,
    more: bool,
}

/// A checkpoint file that is safe.
struct Receipt {
    path: String,
    address: String,
    size: String,
    saved_ms: u64,
    /// Who saved it, and what.
    note: String,
}

/// A rule, of Debugger or of the profiler, and what it found.
struct RuleRow {
    name: String,
    status: &'static str,
    details: String,
}

struct Waiting {
    place: String,
    lacks: String,
}

/// What a job runs, in a few words: its built-in algorithm, its script, or its command with the
/// names of files alone.
pub(super) fn program(
    sources: &Sources,
    image: Option<&str>,
    script: Option<&str>,
    entrypoint: &[String],
    arguments: &[String],
) -> String {
    if let Some(script) = script.filter(|_| entrypoint.is_empty()) {
        return script.to_owned();
    }
    let image = image.unwrap_or_default();
    match sources.server.image(image) {
        ImageKind::Builtin(algorithm) => algorithm,
        ImageKind::Environment if !entrypoint.is_empty() => {
            let words = entrypoint.iter().chain(arguments);
            let short = |word: &String| {
                if word.starts_with('/') { word.rsplit('/').next().unwrap_or(word).to_owned() } else { word.clone() }
            };
            words.map(short).collect::<Vec<_>>().join(" ")
        }
        ImageKind::Environment | ImageKind::Unknown => image.to_owned(),
    }
}

/// The command as it was given; empty for built-in algorithms and scripts.
fn command(request: &CreateTrainingJob) -> String {
    [&request.algorithm.entrypoint[..], &request.algorithm.arguments[..]].concat().join(" ")
}

/// Why a job waits, beside words that say that it does: its place, and what lacks.
pub(super) fn why_it_waits(reason: &PendingReason) -> (String, String) {
    let text = reason.to_string();
    let why = text.strip_prefix("Waiting for capacity: ").or(text.strip_prefix("Waiting for ")).unwrap_or(&text);
    let (lacks, place) = why.rsplit_once("; ").unwrap_or((why, "in the queue"));
    (place.to_owned(), lacks.to_owned())
}

impl Console {
    pub(super) async fn job_page(&self, visit: &Visit, name: &str) -> Result<Response<Body>, PageError> {
        let row = self.row(name).await?;
        let view = self.current_view(&row).await?;
        let (console, frame) = (self.clone(), visit.frame(name));
        blocking(move || Ok(rendered(&console.job(frame, &row, &view)?))).await
    }

    /// The row of a job.
    pub(super) async fn row(&self, name: &str) -> Result<ResourceRow, PageError> {
        let (sources, name) = (self.sources.clone(), name.to_owned());
        blocking(move || {
            sources.rows.resource(ResourceKind::TRAINING_JOB, &name)?.ok_or_else(|| {
                PageError::not_found(&format!("There is no training job {name}. It may have been deleted."))
            })
        })
        .await
    }

    fn job(&self, frame: Frame, row: &ResourceRow, view: &JobView) -> Result<JobPage, PageError> {
        let (sources, now) = (&self.sources, now_ms());
        let request = CreateTrainingJob::restore(&row.spec, &row.request)?;
        let chunk = logs::earlier(&sources.telemetry, &row.name, &Wanted::default(), None)?;
        let end_ms = view.training_end.map_or(now, |end| end.0);
        let (resources, algorithm) = (&request.resources, &request.algorithm);
        let script = request.script.as_ref().map(|script| script.program.as_str());
        let can_stop = frame.may_change() && !view.ended && view.status == shoal_plane::JobStatus::InProgress;
        Ok(JobPage {
            frame,
            name: row.name.clone(),
            arn: row.arn.clone(),
            badge: badge(view),
            live: !view.ended,
            can_stop,
            failure: view.failure_reason.clone(),
            waiting: view.pending.as_ref().map(|reason| {
                let (place, lacks) = why_it_waits(reason);
                let place = if reason.place == 1 { "Next in the queue".to_owned() } else { place };
                Waiting { place, lacks: lacks[..1].to_uppercase() + &lacks[1..] }
            }),
            tuning: view.trial.as_ref().map(|trial| trial.tuning.clone()),
            program: program(
                sources,
                algorithm.training_image.as_deref(),
                script,
                &algorithm.entrypoint,
                &algorithm.arguments,
            ),
            command: command(&request),
            instances: instances(&resources.types()),
            created_ms: row.created_ms,
            duration_ms: view.training_start.map(|start| end_ms.saturating_sub(start.0)),
            since_ms: view.training_start.filter(|_| view.training_end.is_none()).map(|start| start.0),
            cost: cost(view, &resources.types(), &sources.catalog, now),
            phases: timeline(view, now),
            message: view.transitions.last().map(|it| it.message.clone()).unwrap_or_default(),
            metrics: latest(sources, row)?,
            rules: rules(&request, view),
            utilization: utilization::latest(&sources.telemetry, &row.name)?,
            hosts: logs::hosts(&sources.telemetry, &row.name)?,
            log: lines_html(&chunk),
            log_before: chunk.before.to_string(),
            log_after: chunk.after.to_string(),
            log_more: chunk.more,
            inputs: inputs(sources, &request)?,
            outputs: outputs(sources, &request)?,
            observed: observed(sources, &request)?,
            checkpoints: checkpoints(sources, &request)?,
            hyperparameters: request.hyperparameters.clone().into_iter().collect(),
            resources: facts(&request, view, &row.arn, sources.server.warm_pool(&row.name)?.as_ref()),
            environment: request.environment.clone().into_iter().collect(),
            tags: tags(&row.tags),
            boto3: recipe::boto3(&request.raw),
            aws_cli: recipe::aws_cli(&request.raw),
            grace_s: sources.grace_s,
        })
    }
}

fn latest(sources: &Sources, row: &ResourceRow) -> Result<Vec<(String, String)>, PageError> {
    let mut values = Vec::new();
    for metric in sources.telemetry.metrics(&row.name)? {
        let ends = sources.telemetry.sketch_points(&row.name, &metric, 2)?;
        values.extend(ends.last().map(|point| (metric, amounts::value(point.value))));
    }
    Ok(values)
}

fn inputs(sources: &Sources, request: &CreateTrainingJob) -> Result<Vec<Place>, PageError> {
    let note = |channel: &shoal_wire::Channel| {
        let kind = channel.s3().and_then(|source| match source.data_type {
            S3DataType::S3Prefix => None,
            S3DataType::ManifestFile => Some("manifest"),
            S3DataType::AugmentedManifestFile => Some("augmented manifest"),
        });
        let mode = match channel.input_mode {
            InputMode::File => None,
            InputMode::FastFile => Some("FastFile"),
            InputMode::Pipe => Some("Pipe"),
        };
        [kind, channel.content_type.as_deref(), Some(channel.distribution().as_str()), mode]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    };
    let places = request.channels.iter().map(|channel| match &channel.source {
        ChannelSource::S3(source) => place(&sources.objects, &channel.name, &source.uri, note(channel)),
        ChannelSource::FileSystem { file_system } => Ok(Place {
            label: channel.name.clone(),
            uri: format!("{}:/{}", file_system.id, file_system.directory),
            note: if file_system.is_writable { "read and written" } else { "read" }.to_owned(),
            files: Vec::new(),
            more: false,
        }),
    });
    Ok(places.collect::<Result<_, _>>()?)
}

fn outputs(sources: &Sources, request: &CreateTrainingJob) -> Result<Place, PageError> {
    let output = arn::output(&request.output.s3_output_path, &request.name, "");
    Ok(place(&sources.objects, "output", &output, String::new())?)
}

fn observed(sources: &Sources, request: &CreateTrainingJob) -> Result<Vec<Place>, PageError> {
    let debugger = &request.debugger;
    let tensors = debugger.hook.as_ref().map(|hook| ("tensors", hook.place(&request.name)));
    let board = debugger.tensor_board.as_ref().map(|board| ("TensorBoard", board.place(&request.name)));
    let places = tensors.into_iter().chain(board);
    Ok(places.map(|(name, uri)| place(&sources.objects, name, &uri, String::new())).collect::<Result<_, _>>()?)
}

fn rules(request: &CreateTrainingJob, view: &JobView) -> Vec<RuleRow> {
    let row = |rule: &shoal_wire::RuleConfiguration| {
        let (status, details, _) = view.rule_status(&rule.name);
        RuleRow { name: rule.name.clone(), status, details: details.unwrap_or_default().to_owned() }
    };
    request.debugger.rules.iter().chain(&request.debugger.profiler_rules).map(row).collect()
}

fn checkpoints(sources: &Sources, request: &CreateTrainingJob) -> Result<Option<Checkpoints>, PageError> {
    let Some(config) = &request.checkpoint else { return Ok(None) };
    let (bucket, prefix) = (&config.uri.bucket, config.uri.folder());
    let mut rows = sources.rows.checkpoints(&request.name, ("", 0), MOST_RECEIPTS + 1)?;
    let more = rows.len() > MOST_RECEIPTS;
    rows.truncate(MOST_RECEIPTS);
    rows.sort_by_key(|row| std::cmp::Reverse(row.saved_ms));
    let receipt = |row: CheckpointRow| Receipt {
        address: address("/console/object", &[("bucket", bucket), ("key", &format!("{prefix}{}", row.path))]),
        size: amounts::bytes(row.bytes),
        saved_ms: row.saved_ms,
        note: format!("saved by algo-{}, SHA-256 {}", row.host, row.sha256),
        path: row.path,
    };
    Ok(Some(Checkpoints { uri: config.uri.to_string(), files: rows.into_iter().map(receipt).collect(), more }))
}

/// `Available, kept for 12 s`, `Reused, by another-job`.
fn kept(pool: &WarmPool) -> String {
    let time = pool.retained_s.map(|s| format!(", kept for {}", amounts::duration(s * 1000))).unwrap_or_default();
    let by = pool.reused_by.as_ref().map(|job| format!(", by {job}")).unwrap_or_default();
    format!("{}{time}{by}", pool.status)
}

fn facts(
    request: &CreateTrainingJob,
    view: &JobView,
    arn: &str,
    pool: Option<&WarmPool>,
) -> Vec<(&'static str, String)> {
    let (resources, stopping) = (&request.resources, &request.stopping);
    let seconds = |s: u64| amounts::duration(s * 1000);
    let yes = |flag: bool| flag.then(|| "yes".to_owned());
    let facts = [
        ("Instance type", Some(Vec::from_iter(resources.types().into_iter().map(|(kind, _)| kind)).join(", "))),
        ("Instances", Some(resources.instance_count.to_string())),
        ("Image", request.algorithm.training_image.clone()),
        ("Command", Some(command(request))),
        ("Most run time", Some(seconds(stopping.max_runtime_s))),
        ("Most time in the queue", stopping.max_pending_s.map(seconds)),
        ("Trained for", view.training_s.map(seconds)),
        ("Network isolation", yes(request.enable_network_isolation)),
        ("Spot training", yes(request.enable_managed_spot_training)),
        ("Warm pool", pool.map(kept)),
        ("Attempt", view.attempt.clone().map(Into::into)),
        ("Role", Some(request.role_arn.clone())),
        ("ARN", Some(arn.to_owned())),
    ];
    facts.into_iter().filter_map(|(label, value)| Some((label, value.filter(|value| !value.is_empty())?))).collect()
}

/// Pairs of a row's tags, which are as the API has them.
fn tags(json: &[u8]) -> Vec<(String, String)> {
    let tags: Vec<Map<String, Value>> = serde_json::from_slice::<Option<_>>(json).ok().flatten().unwrap_or_default();
    let text =
        |tag: &Map<String, Value>, name: &str| tag.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    tags.iter().map(|tag| (text(tag, "Key"), text(tag, "Value"))).collect()
}
