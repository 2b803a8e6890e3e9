//! Which environment has the modules that a script imports.

use crate::{Environment, Table, table::plain};

/// Modules that are in a package of another name.
const PACKAGES: [(&str, &str); 11] = [
    ("sklearn", "scikit-learn"),
    ("xgboost", "xgboost-cpu"),
    ("tensorflow", "tensorflow-cpu"),
    ("yaml", "pyyaml"),
    ("PIL", "pillow"),
    ("cv2", "opencv-python-headless"),
    ("skimage", "scikit-image"),
    ("dateutil", "python-dateutil"),
    ("bs4", "beautifulsoup4"),
    ("sagemaker_containers", "sagemaker-training"),
    ("attr", "attrs"),
];

/// In every environment, so that they tell nothing of what it is for.
const INSTALLERS: [&str; 3] = ["pip", "setuptools", "wheel"];

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

/// First names of the modules that a Python source imports, wherever in it, each once. What a line
/// of a string looks like is taken for it.
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
    /// The image whose environment is for most of these modules; `None` if no environment is for
    /// any. Only packages that an environment is for count: what those bring along (requests, six)
    /// is no reason to fetch gigabytes. A module that few environments are for counts for more, and
    /// of equals the first of the table is taken, which is the smaller one.
    pub fn image_for(&self, modules: &[String]) -> Option<Choice> {
        let candidates = Vec::from_iter(self.untagged());
        let holders = |module: &str| candidates.iter().filter(|candidate| candidate.is_for(module)).count();
        let counts =
            Vec::from_iter(modules.iter().map(|module| (module, holders(module))).filter(|(_, count)| *count > 0));
        // Of seven environments at most, so that every share is a whole number.
        let weight = |candidate: &Candidate| -> usize {
            counts.iter().filter(|(module, _)| candidate.is_for(module)).map(|(_, count)| 420 / count.min(&7)).sum()
        };
        let mut best: Option<(usize, &Candidate)> = None;
        for candidate in &candidates {
            let weight = weight(candidate);
            if weight > best.map_or(0, |(most, _)| most) {
                best = Some((weight, candidate));
            }
        }
        let (_, Candidate { image, environment, .. }) = best?;
        let has = counts.iter().map(|(module, _)| *module).filter(|module| has(environment, module));
        let is_elsewhere = |module: &&String| candidates.iter().any(|it| self::has(&it.environment, module));
        let lacks = modules.iter().filter(|module| !self::has(environment, module)).filter(is_elsewhere);
        let [has, lacks] = [has.cloned().collect(), lacks.cloned().collect()];
        Some(Choice { image: image.clone(), environment: environment.name.clone(), has, lacks })
    }

    /// The first image of each environment that needs no tag. A lock file that cannot be read is no
    /// candidate here; whoever names its image hears why.
    fn untagged(&self) -> impl Iterator<Item = Candidate> {
        self.environments().filter_map(|name| {
            let (image, ..) = self.images().find(|(pattern, of, _)| *of == name && !pattern.contains([':', '*']))?;
            let direct =
                self.direct(name).map(|names| names.filter(|name| !INSTALLERS.contains(name)).map(plain).collect());
            Some(Candidate { image: image.to_owned(), environment: self.environment(name).ok().flatten()?, direct })
        })
    }
}

/// An image that a script may get.
struct Candidate {
    image: String,
    environment: Environment,
    /// Packages that its environment is for; of a user's own lock all that it pins.
    direct: Option<Vec<String>>,
}

impl Candidate {
    fn is_for(&self, module: &str) -> bool {
        match &self.direct {
            Some(direct) => packages(module).any(|package| direct.contains(&plain(package))),
            None => has(&self.environment, module) && !INSTALLERS.contains(&module),
        }
    }
}

fn has(environment: &Environment, module: &str) -> bool {
    packages(module).any(|package| environment.pinned(package).is_some())
}

/// In which packages a module may be.
fn packages(module: &str) -> impl Iterator<Item = &str> {
    let other = PACKAGES.iter().find(|(known, _)| *known == module).map(|(_, package)| *package);
    [module].into_iter().chain(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_import_is_found_once() {
        let source = "import os, sys as system\nimport torch.nn as nn\nfrom torch import optim\n    from sklearn.svm \
                      import SVC  # why\nfrom . import own\n\
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
            (&["scipy"], Some("sagemaker-scikit-learn")),
            (&["keras"], Some("tensorflow-training")),
            (&["os", "json", "my_own"], None),
            // What packages bring along.
            (&["google"], None),
            (&["requests", "psutil", "attr", "six", "jinja2", "networkx", "setuptools"], None),
            (&[], None),
        ] {
            let modules = Vec::from_iter(modules.iter().map(|module| (*module).to_owned()));
            let choice = table.image_for(&modules);
            assert_eq!(choice.as_ref().map(|choice| choice.image.as_str()), expected, "{modules:?}: {choice:?}");
        }
        let modules = ["torch", "networkx", "scipy", "transformers", "xgboost"].map(str::to_owned);
        let choice = table.image_for(&modules).unwrap();
        assert_eq!(
            (choice.environment.as_str(), choice.lacks),
            ("huggingface", vec!["xgboost".to_owned()]),
            "it has the rest"
        );
    }
}
