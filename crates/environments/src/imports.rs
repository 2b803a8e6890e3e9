//! Which environment has the modules that a script imports.

use crate::{Environment, Table};

/// Modules that are in a package of another name.
const PACKAGES: [(&str, &str); 12] = [
    ("sklearn", "scikit-learn"),
    ("xgboost", "xgboost-cpu"),
    ("tensorflow", "tensorflow-cpu"),
    ("yaml", "pyyaml"),
    ("PIL", "pillow"),
    ("cv2", "opencv-python-headless"),
    ("skimage", "scikit-image"),
    ("dateutil", "python-dateutil"),
    ("google", "protobuf"),
    ("bs4", "beautifulsoup4"),
    ("sagemaker_containers", "sagemaker-training"),
    ("attr", "attrs"),
];

/// An image for a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// As `--image` takes it: `pytorch-training`.
    pub image: String,
    /// Its environment.
    pub environment: String,
    /// Which of the modules it has, in the order in which they are imported.
    pub has: Vec<String>,
    /// Which of them another environment has, and this one has not.
    pub lacks: Vec<String>,
}

/// First names of the modules that a Python source imports, wherever in it, each once. What a line of a string looks like is taken for it.
pub fn imports(source: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in source.lines().map(str::trim_start) {
        let line = line.split('#').next().unwrap_or_default();
        let names = match (line.strip_prefix("import "), line.strip_prefix("from ")) {
            (Some(names), _) => names,
            (_, Some(rest)) => rest.split_once(" import").map_or("", |(name, _)| name),
            _ => continue,
        };
        for name in names.split(',') {
            let name = name.trim().split([' ', '.']).next().unwrap_or_default();
            let is_name = !name.is_empty() && name.chars().all(|it| it.is_alphanumeric() || it == '_');
            if is_name && !found.iter().any(|known| known == name) {
                found.push(name.to_owned());
            }
        }
    }
    found
}

impl Table {
    /// The image whose environment has most of these modules; `None` if no environment has any. A module that few environments have counts for more, and of
    /// equals the first of the table is taken, which is the smaller one.
    pub fn image_for(&self, modules: &[String]) -> Option<Choice> {
        let candidates = Vec::from_iter(self.untagged());
        let holders = |module: &str| candidates.iter().filter(|(_, environment)| has(environment, module)).count();
        let counts = Vec::from_iter(modules.iter().map(|module| (module, holders(module))).filter(|(_, count)| *count > 0));
        // Of seven environments at most, so that every share is a whole number.
        let weight = |environment: &Environment| -> usize {
            counts.iter().filter(|(module, _)| has(environment, module)).map(|(_, count)| 420 / count.min(&7)).sum()
        };
        let mut best: Option<(usize, &(String, Environment))> = None;
        for candidate in &candidates {
            let weight = weight(&candidate.1);
            if weight > best.map_or(0, |(most, _)| most) {
                best = Some((weight, candidate));
            }
        }
        let (_, (image, environment)) = best?;
        let (has, lacks): (Vec<_>, Vec<_>) =
            counts.iter().map(|(module, _)| (*module).clone()).partition(|module| has(environment, module));
        Some(Choice { image: image.clone(), environment: environment.name.clone(), has, lacks })
    }

    /// The first image of each environment that needs no tag. A lock file that cannot be read is no candidate here; whoever names its image hears why.
    fn untagged(&self) -> impl Iterator<Item = (String, Environment)> {
        self.environments().filter_map(|name| {
            let (image, ..) = self.images().find(|(pattern, of, _)| *of == name && !pattern.contains([':', '*']))?;
            Some((image.to_owned(), self.environment(name).ok().flatten()?))
        })
    }
}

fn has(environment: &Environment, module: &str) -> bool {
    let other = PACKAGES.iter().find(|(known, _)| *known == module).map(|(_, package)| *package);
    environment.pinned(module).is_some() || other.is_some_and(|package| environment.pinned(package).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_import_is_found_once() {
        let source = "import os, sys as system\nimport torch.nn as nn\nfrom torch import optim\n    from sklearn.svm import SVC  # why\nfrom . import own\n\
                      from .own import x\nimportant = 1\ntry:\n    import numpy\nexcept ImportError:\n    pass\n";
        assert_eq!(imports(source), ["os", "sys", "torch", "sklearn", "numpy"]);
    }

    #[test]
    fn the_environment_follows_from_what_is_imported() {
        let table = Table::shipped().unwrap();
        for (modules, expected) in [
            (&["os", "torch", "numpy"][..], Some("pytorch-training")),
            (&["torch", "sklearn", "pandas"], Some("pytorch-training")),
            (&["sklearn"], Some("sagemaker-scikit-learn")),
            (&["numpy", "pandas"], Some("sagemaker-scikit-learn")),
            (&["xgboost", "sklearn"], Some("sagemaker-xgboost")),
            (&["tensorflow", "numpy"], Some("tensorflow-training")),
            (&["transformers", "torch"], Some("huggingface-pytorch-training")),
            (&["os", "json", "my_own"], None),
            (&[], None),
        ] {
            let modules = Vec::from_iter(modules.iter().map(|module| (*module).to_owned()));
            let choice = table.image_for(&modules);
            assert_eq!(choice.as_ref().map(|choice| choice.image.as_str()), expected, "{modules:?}: {choice:?}");
        }
    }
}
