//! Which image names this binary serves: the built-in algorithms under SageMaker's names, the environments of the table, and `shoal/host`.

use std::path::PathBuf;

use shoal_algos::{
    images::{self, Tunable, TuningObjective},
    library,
};
use shoal_environments::{Engine, Environment, Found, Source, Table};
use shoal_link::{PythonEnvironment, Root};
use shoal_server::{Image, ImageError, Images};
use shoal_wire::{Goal, Objective, ParameterRange, RangeValues, ScalingType};

use crate::{environments::table_file, settings::Settings};

/// The table that a server of this binary is given.
pub(crate) struct OurImages {
    /// The user's rows of the table of images.
    pub(crate) table: PathBuf,
    /// Where images come from that are in no table.
    pub(crate) engine: EngineChoice,
}

/// The setting `engine`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineChoice {
    /// The first that is installed.
    Auto,
    /// This command.
    Command(String),
    /// None.
    None,
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
        let builtin = images::resolve(image).map_err(|error| ImageError(error.to_string()))?;
        let Some(builtin) = builtin else {
            return Ok(self.framework(image)?.map(Image::Python));
        };
        let found = library::find().map_err(|error| ImageError(format!("{image} cannot run here: {error}")))?;
        let definitions = builtin.metric_definitions().into_iter().map(|definition| (definition.name, definition.regex)).collect();
        Ok(Some(Image::Builtin {
            name: builtin.algorithm.name().to_owned(),
            metric_definitions: definitions,
            objectives: builtin.tuning_objectives().into_iter().map(objective).collect(),
            tunable: builtin.tunable().iter().map(range).collect(),
            library_dir: Some(found.directory.display().to_string()),
            variables: [(library::FILE_VARIABLE.to_owned(), found.file.display().to_string())].into(),
        }))
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
}

impl OurImages {
    /// Those of a server with these settings.
    pub(crate) fn of(settings: &Settings) -> Self {
        Self { table: table_file(&settings.data_dir), engine: settings.engine.clone() }
    }

    fn table(&self) -> Result<Table, ImageError> {
        Table::read(&self.table).map_err(|error| ImageError(error.to_string()))
    }

    /// An image that the container engine has, or can pull.
    fn of_engine(&self, image: &str) -> Result<Image, ImageError> {
        let unknown = |why: &str| {
            ImageError(format!(
                "The image {image:?} is none that this server can run: there are SageMaker's XGBoost images (sagemaker-xgboost:1.7-1 in every \
                 registry), its images of frameworks and those of your own (`shoal image list`), and shoal/host, which runs the request's \
                 ContainerEntrypoint on this machine. {why}"
            ))
        };
        let command = match &self.engine {
            EngineChoice::None => {
                return Err(unknown("The server's setting `engine` is none, so no container engine is asked for others."));
            }
            EngineChoice::Auto => None,
            EngineChoice::Command(command) => Some(&**command),
        };
        let found = Engine::find(command, &Source::of_this_process(None)).map_err(|error| unknown(&format!("For others, {error}.")))?;
        let engine = found.ok_or_else(|| {
            unknown("Others come from a container engine, and neither docker nor podman is on the server's PATH: install one, or `shoal image add` the image.")
        })?;
        let is_there = engine.inspect(image).map_err(|error| unknown(&error.to_string()))?.is_some();
        // A short name that is misspelt is better told now.
        if !is_there && !names_a_registry(image) {
            let name = engine.name();
            return Err(unknown(&format!(
                "{name} has no such image either: `{name} pull` or `{name} build` it, or name its registry so that the job pulls it."
            )));
        }
        Ok(Image::Root(Root::Engine { program: engine.program().display().to_string(), image: image.to_owned() }))
    }
}

/// `registry.example.com/x`, `localhost:5000/x`.
fn names_a_registry(image: &str) -> bool {
    image.split_once('/').is_some_and(|(first, _)| first.contains(['.', ':']) || first == "localhost")
}

fn objective(objective: TuningObjective) -> Objective {
    let goal = if objective.is_maximized { Goal::Maximize } else { Goal::Minimize };
    Objective { goal, metric: objective.name }
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
