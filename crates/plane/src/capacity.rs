//! What this machine has, and what an instance gets of it.
//!
//! - **CPUs are over-committed.** An instance competes by the weight of its type's cores, capped to
//!   the machine's. It counts on its share of the cores when it starts
//!   ([`Placement::share_cores`]): threads of one instance wait for each other, and a thread whose
//!   core another instance has holds up all of its own. The share of an instance that runs never
//!   changes, as programs start their threads once.
//! - **Memory is limited by the type.** A type that is too large for the machine is capped, and the
//!   job's status says so: each of N instances gets the smaller of the type's memory and an N-th of
//!   the machine's. So three `ml.m5.xlarge` (16 GiB each) on 24 GiB get 8 GiB each. N counts the
//!   instances of all groups of a job, so one job alone never needs more than the machine has.
//! - **What a job holds of the memory** is what it uses and a reserve ([`Packing::Use`]): most
//!   programs use a fraction of what AWS calls their type. Limits may add up to more than the
//!   machine has; if the machine runs short, the attempt that started last is ended and goes back
//!   to the queue ([`crate::pressure`]). Next time it holds what it used then. The oldest attempt
//!   is never ended, so work always gets on.
//! - An owner who wants no such end promises each instance its limit ([`Packing::Promise`]): limits
//!   never add up to more than the machine's memory, and a second training job of one
//!   `ml.m5.xlarge` on 24 GiB waits until the first is over, with the reason in its status.
//! - **GPUs are neither shared nor capped.** A job that wants more than the machine has is refused
//!   at creation.

use serde::{Deserialize, Serialize};

use crate::{Catalog, DefinitionSpec, GangSpec, InstanceType, Rejection, text::gib};

/// What a job holds of the machine's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Packing {
    /// What it is measured to use, and a reserve for each instance.
    Use,
    /// The limits of its instances.
    #[default]
    Promise,
}

/// Memory of an instance that is held for it beyond what it is measured to use: an eighth of its
/// limit, but at least this.
const LEAST_RESERVE_BYTES: u64 = 256 << 20;

/// What there is to give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// CPU cores; over-committed by weight, so a size and not a limit on the number of instances.
    pub cpus: u32,
    /// Memory for instances in all; a hard limit.
    pub memory_bytes: u64,
    /// GPUs in all; a hard limit.
    pub gpus: u32,
    /// Most instances at once.
    pub instances: u32,
    /// How memory is given.
    #[serde(default)]
    pub packing: Packing,
}

/// What each instance of a job gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Cores that it counts on: the type's, capped to the machine's and to its share of them when
    /// it starts.
    pub cpus: u32,
    /// cgroup v2 weight (100 per core).
    pub cpu_weight: u32,
    /// Limit: the type's memory, capped.
    pub memory_bytes: u64,
    /// GPU indexes of each instance, by host number - 1.
    pub gpus: Vec<Vec<u32>>,
    /// What was capped, as a sentence for the status message and the log.
    pub capped: Option<String>,
    /// Of several instance groups, what those behind the first get; the members above are the first
    /// one's then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Share>,
    /// Memory that the job holds beyond what it is measured to use; none: it holds the limits of
    /// its instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_bytes: Option<u64>,
}

/// What each instance of a group gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// How many they are.
    pub instances: u32,
    /// As [`Placement::cpus`].
    pub cpus: u32,
    /// As [`Placement::cpu_weight`].
    pub cpu_weight: u32,
    /// As [`Placement::memory_bytes`].
    pub memory_bytes: u64,
}

/// What must not be over-committed, of a whole job or of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Resources {
    pub(crate) memory_bytes: u64,
    pub(crate) gpus: u32,
    pub(crate) instances: u32,
}

impl Resources {
    pub(crate) fn covers(&self, demand: &Resources) -> bool {
        self.lacking(demand).is_none()
    }

    /// The first resource of which there is too little, how much is needed, how much there is.
    pub(crate) fn lacking(&self, demand: &Resources) -> Option<(&'static str, u64, u64)> {
        [
            ("gpus", demand.gpus.into(), self.gpus.into()),
            ("memory", demand.memory_bytes, self.memory_bytes),
            ("instances", demand.instances.into(), self.instances.into()),
        ]
        .into_iter()
        .find(|(_, needs, free)| needs > free)
    }

    pub(crate) fn plus(&self, other: &Resources) -> Resources {
        Resources {
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            gpus: self.gpus.saturating_add(other.gpus),
            instances: self.instances.saturating_add(other.instances),
        }
    }

    pub(crate) fn times(&self, number: u32) -> Resources {
        Resources {
            memory_bytes: self.memory_bytes.saturating_mul(number.into()),
            gpus: self.gpus.saturating_mul(number),
            instances: self.instances.saturating_mul(number),
        }
    }

    /// Nothing is ever below zero: a capacity that was lowered under running jobs is simply used
    /// up.
    pub(crate) fn minus(&self, other: &Resources) -> Resources {
        Resources {
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
            gpus: self.gpus.saturating_sub(other.gpus),
            instances: self.instances.saturating_sub(other.instances),
        }
    }
}

impl Capacity {
    pub(crate) fn resources(&self) -> Resources {
        Resources { memory_bytes: self.memory_bytes, gpus: self.gpus, instances: self.instances }
    }
}

impl Placement {
    /// What the instances of each group get, in the order of the instances.
    pub fn shares(&self) -> impl Iterator<Item = Share> {
        let Self { cpus, cpu_weight, memory_bytes, .. } = *self;
        let instances =
            self.others.iter().fold(count(self.gpus.len()), |left, share| left.saturating_sub(share.instances));
        let first = Share { instances, cpus, cpu_weight, memory_bytes };
        std::iter::once(first).chain(self.others.iter().copied())
    }

    /// What an instance gets, by its number from 1.
    pub fn share(&self, host: u32) -> Share {
        let mut last = 0;
        let of_host = self.shares().find(|share| {
            last += share.instances;
            host <= last
        });
        of_host.unwrap_or_else(|| self.shares().last().expect("the first group is always there"))
    }

    /// The weights of all instances together.
    pub(crate) fn weight(&self) -> u64 {
        self.shares().map(|share| u64::from(share.cpu_weight) * u64::from(share.instances)).sum()
    }

    /// Caps the cores of each instance to its share of the machine's, where the instances that run
    /// have `weight` together, these included. Whole cores, rounded down, so that the instances
    /// that start together never count on more than there are; one at least.
    pub(crate) fn share_cores(&mut self, machine_cpus: u32, weight: u64) {
        let share = |cpu_weight: u32| u64::from(machine_cpus) * u64::from(cpu_weight) / weight.max(1);
        let capped =
            |cpus: u32, cpu_weight: u32| u32::try_from(share(cpu_weight).max(1)).map_or(cpus, |share| cpus.min(share));
        self.cpus = capped(self.cpus, self.cpu_weight);
        for of_group in &mut self.others {
            of_group.cpus = capped(of_group.cpus, of_group.cpu_weight);
        }
    }

    /// The limits of all instances together.
    pub(crate) fn limit_bytes(&self) -> u64 {
        let of_group = |share: Share| share.memory_bytes.saturating_mul(share.instances.into());
        self.shares().map(of_group).fold(0, u64::saturating_add)
    }

    /// What the job holds until it is released, besides the memory that it is measured to use.
    pub(crate) fn holds(&self) -> Resources {
        Resources {
            memory_bytes: self.reserve_bytes.unwrap_or_else(|| self.limit_bytes()),
            gpus: count(self.gpus.iter().map(Vec::len).sum()),
            instances: count(self.gpus.len()),
        }
    }
}

pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// How a job would be cut to this machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cut {
    /// One at least.
    groups: Vec<Group>,
    capped: Option<String>,
    /// As [`Placement::reserve_bytes`].
    reserve_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Group {
    instances: u32,
    gpus_each: u32,
    cpus: u32,
    memory_each: u64,
}

impl Group {
    fn limit_bytes(&self) -> u64 {
        self.memory_each.saturating_mul(self.instances.into())
    }

    fn reserve_bytes(&self) -> u64 {
        (self.memory_each / 8).max(LEAST_RESERVE_BYTES).min(self.memory_each).saturating_mul(self.instances.into())
    }
}

/// Sizes of a job's instances on this machine.
///
/// # Errors
/// [`Rejection::UnknownInstanceType`], or [`Rejection::NeverFits`] if no waiting helps.
pub(crate) fn cut(spec: &GangSpec, capacity: &Capacity, catalog: &Catalog) -> Result<Cut, Rejection> {
    cut_after(spec, 0, capacity, catalog)
}

/// The same for a job that used `used_bytes` in all when it was ended for want of memory.
///
/// # Errors
/// As [`cut`].
pub(crate) fn cut_after(
    spec: &GangSpec,
    used_bytes: u64,
    capacity: &Capacity,
    catalog: &Catalog,
) -> Result<Cut, Rejection> {
    let groups = spec
        .groups()
        .map(|(name, instances)| Ok((catalog.find(name)?, instances)))
        .collect::<Result<Vec<_>, Rejection>>()?;
    if spec.instances == 0 {
        return Err(Rejection::NeverFits("InstanceCount must be at least 1".to_owned()));
    }
    if spec.instances > capacity.instances {
        return Err(Rejection::NeverFits(format!(
            "InstanceCount is {} and this server runs at most {} instances at once: ask for fewer instances",
            spec.instances, capacity.instances
        )));
    }
    let of_group = |(kind, instances): &(&InstanceType, u32)| u64::from(kind.gpus) * u64::from(*instances);
    let gpus: u64 = groups.iter().map(of_group).sum();
    if gpus > u64::from(capacity.gpus) {
        let wanting: Vec<_> = groups.iter().filter(|(kind, _)| kind.gpus > 0).collect();
        let named = wanting.iter().map(|(kind, instances)| format!("{instances} of {}", kind.name));
        return Err(Rejection::NeverFits(format!(
            "{} need{} {gpus} {} GPU{} and this machine has {}: choose an instance type without GPUs, or give this \
             type none in instance-types.txt and start the \
             server again",
            Vec::from_iter(named).join(" and "),
            if matches!(wanting[..], [(_, 1)]) { "s" } else { "" },
            wanting[0].0.gpu_kind,
            if gpus == 1 { "" } else { "s" },
            if capacity.gpus == 0 { "none".to_owned() } else { capacity.gpus.to_string() },
        )));
    }
    // Whole MiB, so that the number is the same in the cgroup, in messages and in the program.
    let share = (capacity.memory_bytes / u64::from(spec.instances)) >> 20 << 20;
    if share == 0 {
        return Err(Rejection::NeverFits(format!(
            "{} of memory are too little for {} instances: ask for fewer instances",
            gib(capacity.memory_bytes),
            spec.instances
        )));
    }
    let sized = |(kind, instances): (&InstanceType, u32)| {
        let (cpus, memory_each) = (kind.cpus.min(capacity.cpus).max(1), kind.memory_bytes.min(share));
        (Group { instances, gpus_each: kind.gpus, cpus, memory_each }, capped(kind, cpus, memory_each))
    };
    let (groups, capped): (Vec<_>, Vec<_>) = groups.into_iter().map(sized).unzip();
    let capped = Vec::from_iter(capped.into_iter().flatten()).join("; ");
    let reserve_bytes = (capacity.packing == Packing::Use).then(|| {
        let limit: u64 = groups.iter().map(Group::limit_bytes).sum();
        groups.iter().map(Group::reserve_bytes).sum::<u64>().saturating_add(used_bytes).min(limit)
    });
    Ok(Cut { groups, capped: (!capped.is_empty()).then_some(capped), reserve_bytes })
}

fn capped(kind: &InstanceType, cpus: u32, memory: u64) -> Option<String> {
    let mut parts = Vec::new();
    if cpus < kind.cpus {
        parts.push(format!("{cpus} CPUs instead of {}", kind.cpus));
    }
    if memory < kind.memory_bytes {
        parts.push(format!("{} of memory instead of {}", gib(memory), gib(kind.memory_bytes)));
    }
    (!parts.is_empty())
        .then(|| format!("{} capped to this machine: each instance has {}", kind.name, parts.join(" and ")))
}

impl Cut {
    pub(crate) fn demand(&self) -> Resources {
        let of_group = |group: &Group| Resources {
            memory_bytes: group.limit_bytes(),
            gpus: group.gpus_each.saturating_mul(group.instances),
            instances: group.instances,
        };
        let all = self.groups.iter().map(of_group).fold(Resources::default(), |all, group| all.plus(&group));
        Resources { memory_bytes: self.reserve_bytes.unwrap_or(all.memory_bytes), ..all }
    }

    /// Takes GPUs from the front of `free_gpus`, which holds enough of them.
    pub(crate) fn place(self, free_gpus: &mut Vec<u32>) -> Placement {
        let each = self.groups.iter().flat_map(|group| (0..group.instances).map(|_| group.gpus_each as usize));
        let gpus = each.map(|wanted| free_gpus.drain(..wanted.min(free_gpus.len())).collect()).collect();
        let share = |group: &Group| Share {
            instances: group.instances,
            cpus: group.cpus,
            cpu_weight: group.cpus.saturating_mul(100).min(10_000),
            memory_bytes: group.memory_each,
        };
        let mut shares = self.groups.iter().map(share);
        let Share { cpus, cpu_weight, memory_bytes, .. } = shares.next().expect("one at least");
        Placement {
            cpus,
            cpu_weight,
            memory_bytes,
            gpus,
            capped: self.capped,
            others: shares.collect(),
            reserve_bytes: self.reserve_bytes,
        }
    }
}

/// What a user should know who asks for more training jobs at once than the machine runs, even when
/// it does nothing else.
pub fn parallel_notice(
    definitions: &[DefinitionSpec],
    wanted: u32,
    capacity: &Capacity,
    catalog: &Catalog,
) -> Option<String> {
    let cuts = definitions.iter().filter_map(|definition| cut(&definition.training, capacity, catalog).ok());
    let most = |demand: &Resources| {
        let all = capacity.resources();
        let of = |needs: u64, has: u64| has.checked_div(needs).unwrap_or(u64::MAX);
        let gpus = |number: u64| format!("{number} GPU{}", if number == 1 { "" } else { "s" });
        let instances = |number: u64| format!("{number} instance{}", if number == 1 { "" } else { "s" });
        [
            (of(demand.memory_bytes, all.memory_bytes), gib(demand.memory_bytes) + " of memory", gib(all.memory_bytes)),
            (of(demand.gpus.into(), all.gpus.into()), gpus(demand.gpus.into()), all.gpus.to_string()),
            (
                of(demand.instances.into(), all.instances.into()),
                instances(demand.instances.into()),
                all.instances.to_string(),
            ),
        ]
        .into_iter()
        .min_by_key(|(fit, ..)| *fit)
    };
    let (fit, needs, has) = cuts.filter_map(|cut| most(&cut.demand())).min_by_key(|(fit, ..)| *fit)?;
    let verb = if fit == 1 { "fits" } else { "fit" };
    (fit < u64::from(wanted)).then(|| {
        let advice = match capacity.packing {
            Packing::Promise => "; packing = \"use\" in shoal.toml counts what they use instead",
            Packing::Use => "",
        };
        format!(
            "{wanted} training jobs in parallel are requested, {fit} {verb} here: each needs {needs}, and there is \
             {has} in all{advice}"
        )
    })
}
