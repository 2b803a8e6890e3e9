//! What a server would refuse of a tuning job, before anything is sent or uploaded. The rules are
//! the server's (`shoal_server::check_tuning_request`) and the algorithm's; here are only the
//! words: which flag it is about, and what to type instead.

use serde_json::{Map, Value};
use shoal_algos::{Algorithm, Algorithms, Resource};
use shoal_server::{Images, check_tuning_request};
use shoal_tuner::near;

use super::{TuneArgs, strategy::Strategy};
use crate::train::{self, Script, builtin, request::Upload};

/// Looks at a request as flags and file have made it, with what is still to be uploaded.
///
/// # Errors
/// The first mistake, and what to do about it.
pub(super) fn check(
    request: &Value,
    (uploads, script): (&[Upload], Option<&Script>),
    args: &TuneArgs,
    algorithms: Algorithms,
    images: &dyn Images,
) -> Result<(), String> {
    let config = &request["HyperParameterTuningJobConfig"];
    let one = request.get("TrainingJobDefinition").map(|raw| ("trainingJobDefinition".to_owned(), raw));
    let listed = request["TrainingJobDefinitions"].as_array().into_iter().flatten();
    let listed = listed.zip(1..).map(|(raw, number)| (format!("trainingJobDefinitions.{number}.member"), raw));
    let definitions: Vec<_> =
        one.into_iter().chain(listed).map(|(path, raw)| Definition::of(path, config, raw, algorithms)).collect();
    definitions.iter().try_for_each(Definition::fits_the_algorithm)?;
    let mut sent = request.clone();
    if let Some(definition) = sent.get_mut("TrainingJobDefinition") {
        train::place_somewhere(uploads, definition);
        if let Some(script) = script {
            script.place_somewhere(definition);
        }
    }
    let Err(error) = check_tuning_request(sent, images) else { return Ok(()) };
    let at = definitions.iter().position(|definition| error.message.contains(&definition.path)).unwrap_or(0);
    let explained =
        definitions.get(at).and_then(|definition| Refusal(&error.message).explained(request, definition, args));
    Err(explained.unwrap_or(error.message))
}

/// One training job definition with what the tuning job says of it.
struct Definition<'a> {
    /// In a server's messages.
    path: String,
    raw: &'a Value,
    /// The metric that is optimised.
    metric: &'a str,
    /// Name, which list of `ParameterRanges`, and its values as they are typed: both ends, or all.
    ranges: Vec<(&'a str, &'a str, Vec<&'a str>)>,
    fixed: Option<&'a Map<String, Value>>,
    algorithm: Option<&'static Algorithm>,
    /// The resource parameters of all algorithms.
    resources: Vec<Resource>,
}

impl<'a> Definition<'a> {
    fn of(path: String, config: &'a Value, raw: &'a Value, algorithms: Algorithms) -> Self {
        let first = |here: &'a Value, there: &'a Value| if here.is_object() { here } else { there };
        let objective = first(&raw["TuningObjective"], &config["HyperParameterTuningJobObjective"]);
        let ranges = first(&raw["HyperParameterRanges"], &config["ParameterRanges"]);
        Self {
            path,
            raw,
            metric: objective["MetricName"].as_str().unwrap_or_default(),
            ranges: ranges
                .as_object()
                .into_iter()
                .flatten()
                .flat_map(|(list, entries)| ranges_of(list, entries))
                .collect(),
            fixed: raw["StaticHyperParameters"].as_object(),
            algorithm: builtin::of(raw, &raw["StaticHyperParameters"], algorithms),
            resources: algorithms.iter().filter_map(|algorithm| algorithm.hyperparameters.resource).collect(),
        }
    }

    fn is_fixed(&self, name: &str) -> bool {
        self.fixed.is_some_and(|fixed| fixed.contains_key(name))
    }

    /// A built-in algorithm takes each hyperparameter, each value and each channel; its trials
    /// would fail one by one otherwise.
    fn fits_the_algorithm(&self) -> Result<(), String> {
        let Some(algorithm) = self.algorithm else { return Ok(()) };
        let fixed =
            self.fixed.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?, "--hp")));
        let tuned = self.ranges.iter().flat_map(|(name, list, values)| {
            let flag = if *list == "CategoricalParameterRanges" { "--choice" } else { "--range" };
            values.iter().map(move |value| (*name, *value, flag))
        });
        builtin::hyperparameters(algorithm, fixed.chain(tuned))?;
        let has = |name: &str| self.is_fixed(name) || self.ranges.iter().any(|(tuned, ..)| *tuned == name);
        builtin::required(algorithm, has, ", or tune it")?;
        builtin::channels(algorithm, self.raw)
    }

    fn metric_definitions(&self) -> &'a [Value] {
        self.raw["AlgorithmSpecification"]["MetricDefinitions"].as_array().map_or(&[], Vec::as_slice)
    }

    fn wants_an_objective(&self) -> String {
        let examples = match self.algorithm {
            Some(algorithm) => {
                let names: Vec<String> = algorithm.objectives().take(3).map(|(name, _)| name).collect();
                format!("; this image has {}, and more", names.join(", "))
            }
            None => format!("; {}", how_to_read("loss")),
        };
        format!("what shall be optimised? Give --objective METRIC, or --minimize or --maximize METRIC{examples}")
    }

    fn wants_a_range(&self) -> String {
        let tunable = self.algorithm.map_or(&[][..], |algorithm| algorithm.hyperparameters.tunable);
        let recommended = tunable.iter().filter(|it| !self.is_fixed(it.name)).take(3);
        let ranges: Vec<String> = recommended.map(|it| format!("--range {}={}..{}", it.name, it.min, it.max)).collect();
        let example = if ranges.is_empty() {
            "--range lr=1e-5..1e-1,log for a number, --choice optimizer=sgd,adam for a choice".to_owned()
        } else {
            format!("as in {}", ranges.join(" "))
        };
        format!("what shall be tuned? Give --range NAME=MIN..MAX or --choice NAME=VALUE,VALUE.. ({example})")
    }

    fn wants_a_reader(&self) -> String {
        let metric = self.metric;
        let names: Vec<&str> = self.metric_definitions().iter().filter_map(|it| it["Name"].as_str()).collect();
        if names.is_empty() {
            return format!(
                "the objective {metric}: nothing reads it from what the program prints; {}",
                how_to_read(metric)
            );
        }
        let (hint, verb) = (near(metric, names.iter().copied()), if names.len() == 1 { "is" } else { "are" });
        format!("the objective {metric}: no --metric has this name{hint}; there {verb} {}", names.join(", "))
    }

    fn wants_a_known_objective(&self, algorithm: &Algorithm) -> String {
        let names: Vec<String> = algorithm.objectives().map(|(name, _)| name).collect();
        let (hint, name) = (near(self.metric, names.iter().map(String::as_str)), algorithm.name);
        format!(
            "the objective {}: {name} has no such metric for tuning{hint} (it has {})",
            self.metric,
            names.join(", ")
        )
    }

    fn wants_a_resource(&self, strategy: &str) -> String {
        let metric = if self.metric.is_empty() { "the objective" } else { self.metric };
        let unit = self
            .algorithm
            .and_then(|algorithm| algorithm.hyperparameters.resource)
            .map_or("epochs", |resource| resource.unit);
        let mut given = self.resources.iter().filter_map(|resource| self.fixed?.get(resource.name)?.as_str());
        let example = given.next().unwrap_or("81");
        format!(
            "--strategy {strategy} has to know after how many values of {metric} ({unit}) a trial is whole: give \
             --max-resource N, as in \
             --max-resource {example}"
        )
    }
}

/// Where a message is about, and the flag that says it.
const FLAGS: [(&str, &str); 13] = [
    ("resourceLimits.maxNumberOfTrainingJobs", "--trials"),
    ("resourceLimits.maxParallelTrainingJobs", "--parallel"),
    ("resourceLimits.maxRuntimeInSeconds", "--max-seconds"),
    ("hyperbandStrategyConfig.minResource", "--min-resource"),
    ("hyperbandStrategyConfig.maxResource", "--max-resource"),
    ("stoppingCondition.maxRuntimeInSeconds", "--max-runtime"),
    ("resourceConfig.instanceCount", "--instances"),
    ("resourceConfig.instanceType", "--instance-type"),
    ("outputDataConfig.s3OutputPath", "--output"),
    ("algorithmSpecification.trainingImage", "--image"),
    ("staticHyperParameters", "--hp"),
    ("environment", "--env"),
    ("inputDataConfig", "--channel"),
];

/// A server's message: the path of a member in quotes, and what is wrong with it.
struct Refusal<'a>(&'a str);

impl Refusal<'_> {
    fn has(&self, part: &str) -> bool {
        self.0.contains(part)
    }

    /// What stands between these two.
    fn between(&self, before: &str, after: &str) -> Option<&str> {
        Some(self.0.split_once(before)?.1.split_once(after)?.0)
    }

    /// In the words of the command line; `None` for what no flag says.
    fn explained(&self, request: &Value, definition: &Definition<'_>, args: &TuneArgs) -> Option<String> {
        let config = &request["HyperParameterTuningJobConfig"];
        let metric = definition.metric;
        Some(match () {
            () if self.has("'hyperParameterTuningJobName'") => {
                self.name(request["HyperParameterTuningJobName"].as_str().unwrap_or_default())
            }
            () if self.has("Objective': it is required") => definition.wants_an_objective(),
            () if self.has("there is nothing to tune") => definition.wants_a_range(),
            () if self.has("is tuned, too") => {
                let name = self.between("the hyperparameter '", "'")?;
                format!(
                    "--hp {name} fixes what --range or --choice {name} tunes, and so does a script's argument \
                     --{name}; a hyperparameter is one or the \
                     other: leave one out"
                )
            }
            () if self.has("it has no group") => {
                let place: usize = self.between("metricDefinitions.", ".")?.parse().ok()?;
                let given = definition.metric_definitions().get(place.checked_sub(1)?)?;
                let (name, regex) = (given["Name"].as_str()?, given["Regex"].as_str()?);
                format!(
                    "--metric '{name}={regex}': the value is what the first group of the expression finds, and it has \
                     none; put the number in \
                     parentheses, as in 'loss: (\\S+)'"
                )
            }
            () if self.has("Grid is for categorical") => {
                let name = self.between("only, and '", "'")?;
                format!(
                    "--strategy grid tries every combination of choices, and {name} is a range: list its values \
                     (--choice {name}=A,B,C), or say in how \
                     many steps ranges are walked: --strategy '{{\"grid\":{{\"points\":5}}}}'"
                )
            }
            () if self.has("is greater than the MaxResource") => {
                let given = &config["StrategyConfig"]["HyperbandStrategyConfig"];
                format!(
                    "--min-resource {} is greater than --max-resource {}",
                    given["MinResource"], given["MaxResource"]
                )
            }
            () if self.has("MaxResource parameter is not provided") || self.has("max_resource") => {
                let typed = args.strategy.as_deref().and_then(|typed| Strategy::of(typed).ok());
                definition.wants_a_resource(&typed.map_or_else(|| "hyperband".to_owned(), |it| it.name()))
            }
            () if self.has("is not among the metric definitions") => definition.wants_a_reader(),
            () if self.has("isn't valid for the objective metric") => {
                let (better, flag) = if self.has("objective metric type: Maximize") {
                    ("more", "maximize")
                } else {
                    ("less", "minimize")
                };
                format!("the objective {metric}: better is {better}; give --{flag} {metric}")
            }
            () if self.has("isn't valid for the [") => definition.wants_a_known_objective(definition.algorithm?),
            () if self.has("is measured on the channel") => {
                let channel = self.between("is measured on the channel ", ",")?;
                format!(
                    "the objective {metric} is measured on the channel {channel}, and there is none: give --channel \
                     {channel}=FILE"
                )
            }
            () if self.has("checkpointConfig.s3Uri'") => {
                self.checkpoints(definition.raw["CheckpointConfig"]["S3Uri"].as_str()?)?
            }
            () => return self.by_flag(),
        })
    }

    /// The flag, and the server's own words behind the path.
    fn by_flag(&self) -> Option<String> {
        let path = self.between(" at '", "'")?;
        let (_, flag) = FLAGS.iter().find(|(place, _)| path.contains(place))?;
        let behind = self.0.split_once(path)?.1.trim_start_matches(['\'', ':', ' ']);
        Some(format!("{flag}: {}", behind.trim_start_matches("failed to satisfy constraint: ")))
    }

    fn name(&self, name: &str) -> String {
        match self
            .0
            .split_once("less than or equal to ")
            .map(|(_, most)| most.chars().take_while(char::is_ascii_digit).collect::<String>())
        {
            Some(most) => format!(
                "--name {name}: a tuning job's name has {most} characters at most, as its trials' names begin with it; \
                 this one has {}",
                name.chars().count()
            ),
            None => format!("--name {name}: a tuning job's name is of letters, digits, and hyphens between them"),
        }
    }

    fn checkpoints(&self, uri: &str) -> Option<String> {
        match self.between("checkpointConfig.s3Uri': it is ", " characters") {
            Some(length) => {
                let most = self.between("at most ", " are possible")?;
                Some(format!(
                    "--checkpoints: the address is {length} characters long; with the names of trials and of files \
                     below it at most {most} are possible"
                ))
            }
            None if uri.starts_with("s3://") => {
                self.0.split_once("checkpointConfig.s3Uri': ").map(|(_, what)| format!("--checkpoints: {what}"))
            }
            None => Some(format!(
                "--checkpoints {uri}: wanted s3://BUCKET/PREFIX; checkpoints are kept in this server's S3, not in a \
                 directory"
            )),
        }
    }
}

/// `--metric` for a program whose lines nobody knows.
fn how_to_read(metric: &str) -> String {
    format!(
        "give --metric '{metric}=REGEX', whose first group is the value: --metric '{metric}={metric}: (\\S+)' reads \
         lines such as {metric}: 0.25"
    )
}

fn ranges_of<'a>(list: &'a str, entries: &'a Value) -> impl Iterator<Item = (&'a str, &'a str, Vec<&'a str>)> {
    entries.as_array().into_iter().flatten().filter_map(move |entry| {
        let values = match entry["Values"].as_array() {
            Some(values) => values.iter().filter_map(Value::as_str).collect(),
            None => [&entry["MinValue"], &entry["MaxValue"]].into_iter().filter_map(Value::as_str).collect(),
        };
        Some((entry["Name"].as_str()?, list, values))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_algos::BUILT_IN;

    use crate::{images::OurImages, settings::Settings, tune::request::build};

    fn said(args: TuneArgs) -> String {
        let args = TuneArgs { command: vec!["true".to_owned()], metrics: vec!["loss=loss: (.*)".to_owned()], ..args };
        let settings = Settings::of_flags(&[("data_dir", "/nowhere")]).unwrap();
        let (request, uploads) = build(&args, &args.trial(), None, &settings, 0).unwrap();
        check(&request, (&uploads, None), &args, BUILT_IN, &OurImages::of(&settings, BUILT_IN))
            .err()
            .unwrap_or_default()
    }

    fn usual() -> TuneArgs {
        TuneArgs { minimize: Some("loss".to_owned()), ranges: vec!["lr=0.1..0.5".to_owned()], ..TuneArgs::default() }
    }

    #[test]
    fn strategies_that_need_a_resource_ask_for_it() {
        for (typed, needs) in [
            ("random", false),
            ("hyperband", true),
            ("tpe", false),
            ("asha", true),
            ("tpe+asha", true),
            ("mobster", true),
            (r#"{"searcher":"tpe"}"#, false),
            (r#"{"scheduler":"median"}"#, false),
            (r#"{"scheduler":{"kind":"asha","max_resource":9}}"#, false),
            (r#"{"strategy":"bohb"}"#, true),
        ] {
            let of = |max_resource| said(TuneArgs { strategy: Some(typed.to_owned()), max_resource, ..usual() });
            let expected = if needs {
                format!("--strategy {typed} has to know after how many values of loss")
            } else {
                String::new()
            };
            let refused = of(None);
            assert!(refused.starts_with(&expected) && refused.is_empty() != needs, "{typed}: {refused}");
            if needs {
                assert_eq!(of(Some(9)), "", "{typed}");
            }
        }
    }

    #[test]
    fn what_a_server_would_refuse_is_told_by_its_flag() {
        let name = |name: &str| said(TuneArgs { name: Some(name.to_owned()), ..usual() });
        assert!(
            name(&"x".repeat(33)).contains("has 32 characters at most")
                && name(&"x".repeat(33)).ends_with("this one has 33")
        );
        assert!(name("a_b").contains("--name a_b: a tuning job's name is of letters, digits"), "{}", name("a_b"));
        let limits = |min, max| {
            said(TuneArgs {
                strategy: Some("hyperband".to_owned()),
                min_resource: Some(min),
                max_resource: Some(max),
                ..usual()
            })
        };
        assert_eq!(
            (limits(1, 9), limits(9, 3)),
            (String::new(), "--min-resource 9 is greater than --max-resource 3".to_owned())
        );
        let run = |trials, max_seconds| said(TuneArgs { trials: Some(trials), max_seconds, ..usual() });
        assert_eq!(
            (run(1, Some(120)), run(0, None)),
            (String::new(), "--trials: Member must have value greater than or equal to 1".to_owned())
        );
        assert_eq!(run(1, Some(119)), "--max-seconds: Member must have value greater than or equal to 120");
        assert!(limits(1, 20_001).starts_with("--max-resource: 20001 is more than 20000"), "{}", limits(1, 20_001));
        let kept = |uri: String| said(TuneArgs { checkpoints: Some(uri), ..usual() });
        assert_eq!(kept("s3://bucket/kept".to_owned()), "");
        assert!(kept("s3://b/kept".to_owned()).starts_with("--checkpoints: 's3://b/kept' is not an S3 location"));
        assert!(kept("/tmp/kept".to_owned()).contains("--checkpoints /tmp/kept: wanted s3://BUCKET/PREFIX"));
        assert!(
            kept(format!("s3://bucket/{}", "x".repeat(1000)))
                .contains("--checkpoints: the address is 1012 characters long")
        );
    }
}
