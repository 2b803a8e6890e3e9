//! Which image names this binary serves: the built-in algorithms under SageMaker's names, the environments of the table, and `shoal/host`.

use std::path::PathBuf;

use shoal_algos::{
    images::{self, Tunable, TuningObjective},
    library,
};
use shoal_environments::{Environment, Found, Table};
use shoal_link::PythonEnvironment;
use shoal_server::{Image, ImageError, Images};
use shoal_wire::{Goal, Objective, ParameterRange, RangeValues, ScalingType};

/// The table that a server of this binary is given.
pub(crate) struct OurImages {
    /// The user's rows of the table of images.
    pub(crate) table: PathBuf,
}

impl Images for OurImages {
    fn resolve(&self, image: &str) -> Result<Image, ImageError> {
        if image == "shoal/host" {
            return Ok(Image::Host);
        }
        let builtin = images::resolve(image).map_err(|error| ImageError(error.to_string()))?;
        let Some(builtin) = builtin else {
            let unknown = || {
                ImageError(format!(
                    "The image {image:?} is none that this server can run: there are SageMaker's XGBoost images (sagemaker-xgboost:1.7-1 in every \
                     registry), its images of frameworks and those of your own (`shoal image list`), and shoal/host, which runs the request's \
                     ContainerEntrypoint on this machine."
                ))
            };
            return self.framework(image)?.map(Image::Python).ok_or_else(unknown);
        };
        let found = library::find().map_err(|error| ImageError(format!("{image} cannot run here: {error}")))?;
        let definitions = builtin.metric_definitions().into_iter().map(|definition| (definition.name, definition.regex)).collect();
        Ok(Image::Builtin {
            name: builtin.algorithm.name().to_owned(),
            metric_definitions: definitions,
            objectives: builtin.tuning_objectives().into_iter().map(objective).collect(),
            tunable: builtin.tunable().iter().map(range).collect(),
            library_dir: Some(found.directory.display().to_string()),
            variables: [(library::FILE_VARIABLE.to_owned(), found.file.display().to_string())].into(),
        })
    }

    fn framework(&self, image: &str) -> Result<Option<PythonEnvironment>, ImageError> {
        let found = Table::read(&self.table).and_then(|table| table.find(image)).map_err(|error| ImageError(error.to_string()))?;
        Ok(found.map(|Found { environment: Environment { name, pythons, lock }, notice }| PythonEnvironment {
            name,
            pythons,
            lock,
            notice,
        }))
    }
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
