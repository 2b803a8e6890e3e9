//! Instance groups: which there are, in which this instance is, and over which a distributed
//! program is launched, as SageMaker's toolkit sees them (sagemaker-training-toolkit,
//! `environment.py`).

use serde_json::{Value, json};

use crate::hyperparameters::Hyperparameters;
use crate::{Facts, GroupFacts};

/// The group's name when the request has no groups; toolkits look it up.
const LONE: &str = "homogeneousCluster";

/// Names the groups that a distribution is for: a list.
const DISTRIBUTION: &str = "sagemaker_distribution_instance_groups";

/// The groups of a job, one at least.
pub(crate) struct Groups {
    all: Vec<GroupFacts>,
    current: usize,
    /// Names.
    distribution: Vec<String>,
}

impl Groups {
    pub(crate) fn of(facts: &Facts, hyperparameters: &Hyperparameters) -> Self {
        let all = all(facts);
        let current = current(facts, &all);
        // Where it says nothing, it is for the group in which one looks.
        let named = hyperparameters.framework.get(DISTRIBUTION).and_then(Value::as_array);
        let named = named.map(|names| Vec::from_iter(names.iter().filter_map(Value::as_str).map(str::to_owned)));
        let distribution = match named.filter(|named| !named.is_empty()) {
            Some(named) => named,
            None if hyperparameters.is_distributed() => vec![all[current].name.clone()],
            None => Vec::new(),
        };
        Self { all, current, distribution }
    }

    /// That of this instance.
    pub(crate) fn current(&self) -> &GroupFacts {
        &self.all[self.current]
    }

    /// Names of all, in the order of the request.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.all.iter().map(|group| &*group.name).collect()
    }

    /// As `resourceconfig.json` has each.
    pub(crate) fn entries(&self) -> Vec<Value> {
        entries(&self.all)
    }

    /// Names of those that the distribution is for.
    pub(crate) fn of_distribution(&self) -> &[String] {
        &self.distribution
    }

    /// Whether this instance is in one of those.
    pub(crate) fn is_launched(&self) -> bool {
        self.distribution.contains(&self.current().name)
    }

    /// Instances of the groups that the distribution is for; the first of them is the first rank.
    pub(crate) fn hosts_of_distribution(&self) -> Vec<&str> {
        let groups = self.all.iter().filter(|group| self.distribution.contains(&group.name));
        groups.flat_map(|group| group.hosts.iter().map(String::as_str)).collect()
    }
}

/// What `resourceconfig.json` says of groups: the current one's name, and all.
pub(crate) fn of_config(facts: &Facts) -> (String, Vec<Value>) {
    let all = all(facts);
    (all[current(facts, &all)].name.clone(), entries(&all))
}

fn all(facts: &Facts) -> Vec<GroupFacts> {
    let sorted = |group: &GroupFacts| {
        let mut hosts = group.hosts.clone();
        hosts.sort_unstable();
        GroupFacts { hosts, ..group.clone() }
    };
    match &facts.groups[..] {
        [] => {
            let hosts = facts.sorted_hosts().into_iter().map(str::to_owned).collect();
            vec![GroupFacts { name: LONE.to_owned(), instance_type: facts.instance_type.clone(), hosts }]
        }
        groups => groups.iter().map(sorted).collect(),
    }
}

fn current(facts: &Facts, all: &[GroupFacts]) -> usize {
    all.iter().position(|group| group.hosts.iter().any(|host| host == facts.current_host())).unwrap_or(0)
}

fn entries(all: &[GroupFacts]) -> Vec<Value> {
    let entry = |it: &GroupFacts| json!({ "instance_group_name": it.name, "instance_type": it.instance_type, "hosts": it.hosts });
    all.iter().map(entry).collect()
}
