//! Which image names this binary serves: the built-in algorithms under SageMaker's names, the
//! environments of the table, and `shoal/host`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use shoal_algos::{Algorithm, Algorithms, Tunable};
use shoal_environments::{Engine, Environment, EnvironmentError, Found, LiveTable, Source, Table, TableError};
use shoal_link::{PythonEnvironment, Root};
use shoal_server::{Builtin, BuiltinObjective, Image, ImageError, Images};
use shoal_tuner::near;
use shoal_wire::{Goal, Objective, ParameterRange, RangeValues, ScalingType};

use crate::{
    environments::table_file,
    settings::{EngineChoice, Settings},
};

/// An engine's answer holds for so long.
const REMEMBERED: Duration = Duration::from_secs(5);

/// The table that a server of this binary is given.
pub(crate) struct OurImages {
    /// Which images are built-in algorithms.
    algorithms: Algorithms,
    /// Environments and directories, the user's rows first.
    table: LiveTable,
    /// Where images come from that are in no table.
    engine: EngineChoice,
    /// Whether the engine answers, and when that was learnt. Who holds it asks the engine: the
    /// others wait, and take its answer, so that an engine that hangs holds each of them up for one
    /// time only.
    answered: Mutex<Option<Answer>>,
}

/// What was learnt of the engine.
struct Answer {
    at: Instant,
    /// `None` if none is installed, and a text if none answers.
    engine: Result<Option<Engine>, String>,
}

impl Images for OurImages {
    fn resolve(&self, image: &str) -> Result<Image, ImageError> {
        self.known(image)?.map_or_else(|| self.of_engine(image), Ok)
    }

    fn known(&self, image: &str) -> Result<Option<Image>, ImageError> {
        if image == "shoal/host" {
            return Ok(Some(Image::Host));
        }
        if let Some(directory) = self.table()?.root(image) {
            return Ok(Some(Image::Root(Root::Directory { path: directory.display().to_string() })));
        }
        match self.algorithms.resolve(image).map_err(|error| ImageError(error.to_string()))? {
            Some(found) => Ok(Some(Image::Builtin(builtin(found.algorithm, image)?))),
            None => Ok(self.framework(image)?.map(Image::Python)),
        }
    }

    fn framework(&self, image: &str) -> Result<Option<PythonEnvironment>, ImageError> {
        let table = self.table()?;
        if table.root(image).is_some() {
            return Ok(None);
        }
        let found = table.find(image).map_err(|error| ImageError(error.to_string()))?;
        Ok(found.map(|Found { environment: Environment { name, pythons, lock }, notice }| PythonEnvironment {
            name,
            pythons,
            lock,
            notice,
        }))
    }

    fn metric_definitions(&self, image: &str) -> Vec<(String, String)> {
        let is_replaced = self.table().is_ok_and(|table| table.root(image).is_some());
        let found = self.algorithms.resolve(image).ok().flatten().filter(|_| !is_replaced);
        let metrics = found.iter().flat_map(|found| (found.algorithm.metrics)());
        metrics.map(|metric| (metric.name, metric.regex)).collect()
    }

    fn resources(&self) -> Vec<String> {
        self.algorithms
            .iter()
            .filter_map(|algorithm| Some(algorithm.hyperparameters.resource?.name.to_owned()))
            .collect()
    }
}

impl OurImages {
    /// Those of a server with these settings.
    pub(crate) fn of(settings: &Settings, algorithms: Algorithms) -> Self {
        Self {
            algorithms,
            table: LiveTable::new(table_file(&settings.data_dir)),
            engine: settings.engine.clone(),
            answered: Mutex::new(None),
        }
    }

    /// Whether the setting `engine` names a command that is there.
    ///
    /// # Errors
    /// It does not; the text says what to do.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match &self.engine {
            EngineChoice::Command(command) if !Engine::is_installed(command, &Source::of_this_process(None)) => {
                anyhow::bail!(
                    "the setting `engine` is {command:?}, and there is no such command on PATH: name docker, podman, a \
                     path, auto or none"
                )
            }
            _ => Ok(()),
        }
    }

    /// The container engine that answers; `None` without one.
    ///
    /// # Errors
    /// One is there and does not answer.
    pub(crate) fn engine(&self) -> Result<Option<Engine>, EnvironmentError> {
        match &self.engine {
            EngineChoice::None => Ok(None),
            EngineChoice::Auto => Engine::find(None, &Source::of_this_process(None)),
            EngineChoice::Command(command) => Engine::find(Some(command), &Source::of_this_process(None)),
        }
    }

    /// Environments of the table, for each the first versions of Python that it can have.
    ///
    /// # Errors
    /// The user's rows are wrong.
    pub(crate) fn environments(&self) -> Result<Vec<Environment>, ImageError> {
        let (table, told) = (self.table()?, |error: TableError| ImageError(error.to_string()));
        let names: Vec<_> = table.environments().collect();
        Ok(names
            .into_iter()
            .map(|name| table.environment(name).map_err(told))
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flatten()
            .collect())
    }

    fn table(&self) -> Result<Arc<Table>, ImageError> {
        self.table.get().map_err(|error| ImageError(error.to_string()))
    }

    /// The image that was meant, it seems, by its name without registry and tag; ends the sentence
    /// in which it stands.
    pub(crate) fn near(&self, image: &str) -> String {
        let plain = |image: &str| {
            image.rsplit('/').next().unwrap_or(image).split([':', '@', '*']).next().unwrap_or_default().to_owned()
        };
        let table = self.table().unwrap_or_default();
        let rows = table.images().map(|(pattern, ..)| pattern).chain(table.roots().map(|(pattern, _)| pattern));
        let repositories =
            self.algorithms.iter().flat_map(|algorithm| algorithm.repositories).map(|repository| repository.name);
        let known = Vec::from_iter(repositories.chain(rows).map(plain));
        let hint = match image.strip_prefix("shoal") {
            Some(_) => near(image, ["shoal/host"]),
            None => near(&plain(image), known.iter().map(String::as_str)),
        };
        if hint.is_empty() { ".".to_owned() } else { hint }
    }

    /// An image that the container engine has, or can pull.
    fn of_engine(&self, image: &str) -> Result<Image, ImageError> {
        let near = self.near(image);
        let unknown = |why: &str| {
            let newest = |algorithm: &Algorithm| {
                Some(format!("{}, {}", algorithm.title, algorithm.repositories.first()?.newest()))
            };
            let builtins = Vec::from_iter(self.algorithms.iter().filter_map(newest)).join("; ");
            ImageError(format!(
                "The image {image:?} is none that this server can run{near} There are SageMaker's images of built-in \
                 algorithms ({builtins}; in every \
                 registry), its images of frameworks and those of your own (`shoal image list`), and shoal/host, which \
                 runs the request's \
                 ContainerEntrypoint on this machine. {why}"
            ))
        };
        if self.engine == EngineChoice::None {
            return Err(unknown(
                "The server's setting `engine` is none, so no container engine is asked for others: `shoal image add` \
                 the image.",
            ));
        }
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = answered.take().filter(|answer| answer.at.elapsed() < REMEMBERED);
        let answer = fresh.unwrap_or_else(|| {
            let engine = self.engine().map_err(|error| error.to_string());
            Answer { at: Instant::now(), engine }
        });
        let found = answered.insert(answer).engine.clone();
        let found = found.map_err(|error| unknown(&format!("For others, {error}.")))?;
        let engine = found.ok_or_else(|| {
            unknown(
                "Others come from a container engine, and neither docker nor podman is on the server's PATH: \
                     install one, or `shoal image add` the image.",
            )
        })?;
        let inspected = engine.inspect(image).inspect_err(|error| {
            if let EnvironmentError::NoAnswer { .. } = error {
                *answered = Some(Answer { at: Instant::now(), engine: Err(error.to_string()) });
            }
        });
        drop(answered);
        let is_there = inspected.map_err(|error| unknown(&error.to_string()))?.is_some();
        // A short name that is misspelt is better told now.
        if !is_there && !names_a_registry(image) {
            let name = engine.name();
            return Err(unknown(&format!(
                "{name} has no such image either: `{name} pull` or `{name} build` it, or name its registry so that the \
                 job pulls it."
            )));
        }
        Ok(Image::Root(Root::Engine { program: engine.program().display().to_string(), image: image.to_owned() }))
    }
}

/// `registry.example.com/x`, `localhost:5000/x`.
fn names_a_registry(image: &str) -> bool {
    image.split_once('/').is_some_and(|(first, _)| first.contains(['.', ':']) || first == "localhost")
}

/// What a server needs to know of an algorithm.
///
/// # Errors
/// A library that it needs is not there.
fn builtin(algorithm: &Algorithm, image: &str) -> Result<Builtin, ImageError> {
    let (mut library_dirs, mut variables) = (Vec::new(), BTreeMap::new());
    for library in algorithm.libraries {
        let found = library.find().map_err(|error| ImageError(format!("{image} cannot run here: {error}")))?;
        library_dirs.push(found.directory.display().to_string());
        variables.insert(library.variable.to_owned(), found.file.display().to_string());
    }
    let objective = |(metric, objective): (String, shoal_algos::Objective)| BuiltinObjective {
        objective: Objective { goal: if objective.is_maximized { Goal::Maximize } else { Goal::Minimize }, metric },
        channel: objective.measured_on.map(|it| it.channel.to_owned()),
        unless: objective.measured_on.and_then(|it| Some(it.unless?.to_owned())),
    };
    let declared = &algorithm.hyperparameters;
    Ok(Builtin {
        name: algorithm.name.to_owned(),
        hyperparameters: (declared.names)().into_iter().map(str::to_owned).collect(),
        objectives: algorithm.objectives().map(objective).collect(),
        tunable: declared.tunable.iter().map(range).collect(),
        resource: declared.resource.map(|resource| resource.name.to_owned()),
        resumes: algorithm.resumes,
        library_dirs,
        variables,
    })
}

/// A recommended range as the API has ranges.
#[expect(clippy::cast_possible_truncation, reason = "ends of whole ranges are small whole numbers")]
fn range(tunable: &Tunable) -> ParameterRange {
    let scaling = ScalingType::Linear;
    let values = match tunable.is_whole {
        true => RangeValues::Integer { min: tunable.min as i64, max: tunable.max as i64, scaling },
        false => RangeValues::Continuous { min: tunable.min, max: tunable.max, scaling },
    };
    ParameterRange { name: tunable.name.to_owned(), values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_algos::BUILT_IN;
    use std::fs;
    use std::process::Command;

    #[test]
    fn a_misspelt_image_is_told_the_one_that_was_meant() {
        let images = OurImages {
            algorithms: BUILT_IN,
            table: LiveTable::new("/nowhere/environments.txt".into()),
            engine: EngineChoice::None,
            answered: Mutex::new(None),
        };
        for (image, expected) in [
            ("xgbost", "; did you mean xgboost? There are"),
            (
                "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgbost:1.7-1",
                "; did you mean sagemaker-xgboost? There are",
            ),
            ("pytorch:2.1", "; did you mean pytorch-training? There are"),
            ("shoal/hosts", "; did you mean shoal/host? There are"),
            ("me/trainer", " can run. There are"),
        ] {
            let ImageError(why) = images.resolve(image).unwrap_err();
            assert!(why.contains(expected), "{image}: {why}");
        }
    }

    #[test]
    fn metric_definitions_are_an_images_own() {
        let temp = tempfile::tempdir().unwrap();
        let table = temp.path().join("environments.txt");
        let images = OurImages {
            algorithms: BUILT_IN,
            table: LiveTable::new(table.clone()),
            engine: EngineChoice::None,
            answered: Mutex::new(None),
        };
        let names =
            |image: &str| images.metric_definitions(image).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert!(names("sagemaker-xgboost:1.7-1").contains(&"validation:auc".to_owned()));
        assert!(names("sagemaker-scikit-learn:1.2-1").is_empty() && names("sagemaker-xgboost:7").is_empty());
        fs::write(table, "rootfs sagemaker-xgboost:* /srv/mine\n").unwrap();
        assert!(names("sagemaker-xgboost:1.7-1").is_empty(), "it is another image");
    }

    #[test]
    fn an_engine_that_failed_a_moment_ago_is_not_asked_again() {
        let temp = tempfile::tempdir().unwrap();
        let (engine, log) = (temp.path().join("engine"), temp.path().join("log"));
        let source = temp.path().join("engine.sh");
        fs::write(&source, format!("#!/bin/sh\necho \"$@\" >> {}\necho it is down >&2; exit 1\n", log.display()))
            .unwrap();
        // By another process: what this one has open for writing, a child that another test starts
        // just now would hold open, too, and then it is busy.
        assert!(Command::new("install").args(["-m", "755"]).args([&source, &engine]).status().unwrap().success());
        let images = OurImages {
            algorithms: BUILT_IN,
            table: LiveTable::new(temp.path().join("environments.txt")),
            engine: EngineChoice::Command(engine.display().to_string()),
            answered: Mutex::new(None),
        };
        let learnt = |at| images.answered.lock().unwrap().as_mut().unwrap().at = at;
        for _ in 0..3 {
            let ImageError(why) = images.resolve("docker.io/me/trainer:1").unwrap_err();
            assert!(why.contains("no container engine answers it: it is down"), "{why}");
            // However slow this machine is.
            learnt(Instant::now() + Duration::from_secs(3600));
        }
        assert!(fs::read_to_string(&log).unwrap().lines().eq(["version"]));
        learnt(Instant::now() - REMEMBERED);
        images.resolve("docker.io/me/trainer:1").unwrap_err();
        assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 2, "later it is");
    }
}
