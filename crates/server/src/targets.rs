//! Compute targets: where the instances of a job run. `local` is this machine, or the nodes of its
//! launch command; the others have a scheduler of their own.

use shoal_plane::Node;
use shoal_wire::{CreateTrainingJob, Error, Resources, TARGET_TAG, Tag};

use crate::{
    Image, ImageError, Images,
    options::{image_in_container, image_of},
};

/// Finds the image of a job.
type FindImage = fn(&dyn Images, &CreateTrainingJob) -> Result<Image, ImageError>;

/// A compute target with a scheduler of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeTarget {
    /// Unique; none is called `local`.
    pub name: String,
    /// The instance types that it has; none: any.
    pub types: Vec<String>,
    /// Its instances are containers, which can have an image of the job's own.
    pub has_containers: bool,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComputeTargets {
    /// In the owner's order: of several that have a type, the first one gets its jobs.
    pub all: Vec<ComputeTarget>,
    /// Gets the jobs whose instance type no target names; none: `local`.
    pub default: Option<String>,
}

impl ComputeTargets {
    /// Whether instances are containers of this target; of `local` and its nodes they are not.
    pub(crate) fn has_containers(&self, name: &str) -> bool {
        self.all.iter().any(|target| target.name == name && target.has_containers)
    }

    /// What finds the image of a job on this target.
    pub(crate) fn image_finder(&self, name: &str) -> FindImage {
        if self.has_containers(name) { image_in_container } else { image_of }
    }

    /// The target of a job with these tags and instances; none is `local`.
    ///
    /// # Errors
    /// `ValidationException`: the tag names no target, or one that has no such instances.
    pub(crate) fn of(&self, tags: &[Tag], resources: &Resources) -> Result<Option<String>, Error> {
        let types = resources.types();
        let lacks = |target: &ComputeTarget| {
            let lacks = |kind: &&str| !target.types.is_empty() && !target.types.iter().any(|has| has == kind);
            types.iter().map(|(kind, _)| *kind).find(lacks).map(str::to_owned)
        };
        let Some(name) = tags.iter().find(|tag| tag.key == TARGET_TAG).map(|tag| tag.value.as_str()) else {
            let named = self.all.iter().find(|target| !target.types.is_empty() && lacks(target).is_none());
            return Ok(named.map(|target| target.name.clone()).or_else(|| self.default.clone()));
        };
        if name == Node::LOCAL {
            return Ok(None);
        }
        let refuse = |problem: String| {
            Err(Error::validation(format!("Invalid value \"{name}\" of the tag '{TARGET_TAG}': {problem}.")))
        };
        let Some(target) = self.all.iter().find(|target| target.name == name) else {
            let names = std::iter::once(Node::LOCAL).chain(self.all.iter().map(|target| target.name.as_str()));
            return refuse(format!("the compute targets of this server are {}", Vec::from_iter(names).join(", ")));
        };
        match lacks(target) {
            Some(kind) => {
                refuse(format!("that target has no instance type {kind}; it has {}", target.types.join(", ")))
            }
            None => Ok(Some(target.name.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_then_the_type_then_the_default_decides() {
        let target = |name: &str, types: &[&str]| ComputeTarget {
            name: name.to_owned(),
            types: types.iter().map(|kind| (*kind).to_owned()).collect(),
            has_containers: false,
        };
        let mut targets = ComputeTargets {
            all: vec![target("any", &[]), target("gpu", &["ml.p4d.24xlarge", "ml.g5.xlarge"])],
            default: None,
        };
        let of = |targets: &ComputeTargets, tag: Option<&str>, kind: &str| {
            let tags = tag.map(|value| Tag { key: TARGET_TAG.to_owned(), value: value.to_owned() });
            let resources = Resources {
                instance_type: kind.to_owned(),
                instance_count: 1,
                volume_gb: 1,
                keep_alive_s: 0,
                instance_groups: Vec::new(),
            };
            let target = targets.of(&Vec::from_iter(tags), &resources);
            target.map(|it| it.unwrap_or_else(|| "local".to_owned())).unwrap_or_else(|error| error.message)
        };
        assert_eq!(of(&targets, None, "ml.m5.large"), "local");
        assert_eq!(of(&targets, None, "ml.g5.xlarge"), "gpu");
        assert_eq!(of(&targets, Some("local"), "ml.g5.xlarge"), "local");
        assert_eq!(of(&targets, Some("any"), "ml.g5.xlarge"), "any");
        assert_eq!(
            of(&targets, Some("gpu"), "ml.m5.large"),
            "Invalid value \"gpu\" of the tag 'shoal:target': that target has no instance type ml.m5.large; it has \
             ml.p4d.24xlarge, ml.g5.xlarge."
        );
        assert_eq!(
            of(&targets, Some("k8s"), "ml.m5.large"),
            "Invalid value \"k8s\" of the tag 'shoal:target': the compute targets of this server are local, any, gpu."
        );
        targets.default = Some("any".to_owned());
        assert_eq!(of(&targets, None, "ml.m5.large"), "any");
    }
}
