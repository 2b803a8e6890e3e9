//! How a job is cut to the nodes: sizes of its instances, before it is known where they are.

use super::{
    Capacity, Packing, Placement, Share, count,
    fit::{Demand, Fit, Wanted},
    resources::{Resources, divided},
};
use crate::{Catalog, DefinitionSpec, GangSpec, InstanceType, Node, Rejection, text::gib};

/// Memory of an instance that is held for it beyond what it is measured to use: an eighth of its
/// limit, but at least this.
const LEAST_RESERVE_BYTES: u64 = 256 << 20;

/// How a job would be cut to the nodes of a capacity.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cut<'a> {
    /// One at least.
    groups: Vec<Group<'a>>,
    /// As [`Placement::reserve_bytes`].
    reserve_bytes: Option<u64>,
    spans: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Group<'a> {
    kind: &'a InstanceType,
    instances: u32,
    memory_each: u64,
}

impl Group<'_> {
    fn limit_bytes(&self) -> u64 {
        self.memory_each.saturating_mul(self.instances.into())
    }

    fn reserve_bytes(&self) -> u64 {
        (self.memory_each / 8).max(LEAST_RESERVE_BYTES).min(self.memory_each).saturating_mul(self.instances.into())
    }
}

/// Sizes of a job's instances.
///
/// # Errors
/// [`Rejection::UnknownInstanceType`], or [`Rejection::NeverFits`] if no waiting helps.
pub(crate) fn cut<'a>(spec: &GangSpec, capacity: &Capacity, catalog: &'a Catalog) -> Result<Cut<'a>, Rejection> {
    cut_after(spec, 0, capacity, catalog)
}

/// The same for a job that used `used_bytes` in all when it was ended for want of memory.
///
/// # Errors
/// As [`cut`].
pub(crate) fn cut_after<'a>(
    spec: &GangSpec,
    used_bytes: u64,
    capacity: &Capacity,
    catalog: &'a Catalog,
) -> Result<Cut<'a>, Rejection> {
    let groups = spec
        .groups()
        .map(|(name, instances)| Ok((catalog.find(name)?, instances)))
        .collect::<Result<Vec<_>, Rejection>>()?;
    if spec.instances == 0 {
        return Err(Rejection::NeverFits("InstanceCount must be at least 1".to_owned()));
    }
    let capacity = &*capacity.of_target(spec.target.as_deref());
    if let Some(target) = &spec.target
        && capacity.nodes.is_empty()
    {
        return Err(Rejection::NeverFits(format!(
            "this server has no compute target {target}: choose one that `shoal targets` lists, or add [target.{target}] \
             to shoal.toml and start the server again"
        )));
    }
    // What a gang can have at most.
    let most = if capacity.spans { capacity.all().total() } else { roomiest(capacity) };
    let is_bound_to_one = !capacity.spans && capacity.nodes.len() > 1;
    if spec.instances > most.instances {
        return Err(Rejection::NeverFits(format!(
            "InstanceCount is {} and {} at most {} instances at once: ask for fewer instances",
            spec.instances,
            match &spec.target {
                Some(target) => format!("the compute target {target} gets"),
                None if is_bound_to_one => {
                    "all instances of a training job run on one node, and each node runs".to_owned()
                }
                None => "this server runs".to_owned(),
            },
            most.instances,
        )));
    }
    let of_group = |(kind, instances): &(&InstanceType, u32)| u64::from(kind.gpus) * u64::from(*instances);
    let gpus: u64 = groups.iter().map(of_group).sum();
    if gpus > u64::from(most.gpus) {
        return Err(too_many_gpus(&groups, gpus, most.gpus, capacity));
    }
    let of = |share: u64, used_bytes: u64| {
        let sized = |(kind, instances): &(&'a InstanceType, u32)| Group {
            kind,
            instances: *instances,
            memory_each: kind.memory_bytes.min(share),
        };
        let groups = Vec::from_iter(groups.iter().map(sized));
        let reserve_bytes = (capacity.packing == Packing::Use).then(|| {
            let limit: u64 = groups.iter().map(Group::limit_bytes).sum();
            groups.iter().map(Group::reserve_bytes).sum::<u64>().saturating_add(used_bytes).min(limit)
        });
        Cut { groups, reserve_bytes, spans: capacity.spans }
    };
    let all = capacity.all();
    let fits = |share: u64| {
        let cut = of(share, used_bytes);
        let instances = cut.groups.iter().flat_map(|group| (0..group.instances).map(|_| group.kind.gpus));
        let amounts = instances.map(|gpus| Resources { memory_bytes: share, gpus, instances: 1 });
        let equal = amounts.map(|amount| Wanted { amount, limit_bytes: share }).collect();
        let equal = Demand::New { each: equal, spans: true };
        [equal, cut.demand()].iter().all(|demand| demand.fit(&all, &all).is_some())
    };
    let wanted = groups.iter().map(|(kind, _)| kind.memory_bytes).max().unwrap_or(0);
    let on_one = share_on_one(spec.instances, gpus, capacity);
    let share = match on_one {
        Some(share) if !capacity.spans || share >= wanted => Some(share),
        on_one if capacity.spans => share_on_several(spec.instances, capacity, fits).max(on_one),
        _ => None,
    };
    match share {
        None => Err(Rejection::NeverFits(format!(
            "the instances fit on {} of this server together, as they need {} instance{} and {gpus} GPU{}: ask for \
             fewer instances, or for a smaller type",
            if capacity.spans { "no nodes" } else { "no node" },
            spec.instances,
            if spec.instances == 1 { "" } else { "s" },
            if gpus == 1 { "" } else { "s" },
        ))),
        Some(0) => Err(Rejection::NeverFits(format!(
            "{} of memory are too little for {} instances: ask for fewer instances",
            gib(most.memory_bytes),
            spec.instances
        ))),
        Some(share) => Ok(of(share, used_bytes)),
    }
}

/// The most of each resource that one node has.
fn roomiest(capacity: &Capacity) -> Resources {
    let most = |of: fn(&Resources) -> u64| capacity.nodes.iter().map(|node| of(&node.resources())).max().unwrap_or(0);
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Resources {
        memory_bytes: most(|it| it.memory_bytes),
        gpus: small(most(|it| it.gpus.into())),
        instances: small(most(|it| it.instances.into())),
    }
}

fn too_many_gpus(groups: &[(&InstanceType, u32)], gpus: u64, most: u32, capacity: &Capacity) -> Rejection {
    let wanting: Vec<_> = groups.iter().filter(|(kind, _)| kind.gpus > 0).collect();
    let named = wanting.iter().map(|(kind, instances)| format!("{instances} of {}", kind.name));
    let number = if most == 0 { "none".to_owned() } else { most.to_string() };
    Rejection::NeverFits(format!(
        "{} need{} {gpus} {} GPU{} and {}: choose an instance type without GPUs, or give this type none in \
         instance-types.txt and start the server again",
        Vec::from_iter(named).join(" and "),
        if matches!(wanting[..], [(_, 1)]) { "s" } else { "" },
        wanting[0].0.gpu_kind,
        if gpus == 1 { "" } else { "s" },
        match capacity.nodes.len() {
            1 => format!("this machine has {number}"),
            _ if capacity.spans => format!("all nodes together have {number}"),
            _ => format!("the node that has most of them has {number}"),
        }
    ))
}

/// Whole MiB, so that the number is the same in the cgroup, in messages and in the program.
fn part(memory_bytes: u64, instances: u32) -> u64 {
    (memory_bytes / u64::from(instances.max(1))) >> 20 << 20
}

/// The most memory that each of n instances can have on one node; none: no node has room for all of
/// them.
fn share_on_one(instances: u32, gpus: u64, capacity: &Capacity) -> Option<u64> {
    let roomy = capacity.nodes.iter().filter(|node| node.instances >= instances && u64::from(node.gpus) >= gpus);
    roomy.map(|node| part(node.memory_bytes, instances)).max()
}

/// The same on several nodes, where `fits` tells whether empty nodes have room with such a share.
fn share_on_several(instances: u32, capacity: &Capacity, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let of_node = |node: &Node| {
        let (memory_bytes, most) = (node.memory_bytes, node.instances.min(instances));
        (1..=most).map(move |instances| part(memory_bytes, instances))
    };
    let mut shares = Vec::from_iter(capacity.nodes.iter().flat_map(of_node));
    shares.sort_unstable();
    shares.dedup();
    // Smaller instances fit where larger ones do; the one that is returned was tried.
    let (mut found, mut from, mut to) = (None, 0, shares.len());
    while from < to {
        let middle = usize::midpoint(from, to);
        if fits(shares[middle]) {
            (found, from) = (Some(shares[middle]), middle + 1);
        } else {
            to = middle;
        }
    }
    found
}

/// `place`: `this machine`, or its name where there are several.
fn capped(kind: &InstanceType, cpus: u32, memory: u64, place: &str) -> Option<String> {
    let mut parts = Vec::new();
    if cpus < kind.cpus {
        parts.push(format!("{cpus} CPUs instead of {}", kind.cpus));
    }
    if memory < kind.memory_bytes {
        parts.push(format!("{} of memory instead of {}", gib(memory), gib(kind.memory_bytes)));
    }
    (!parts.is_empty()).then(|| format!("{} capped to {place}: each instance has {}", kind.name, parts.join(" and ")))
}

impl Cut<'_> {
    /// What each instance holds beside the memory that it is measured to use.
    pub(crate) fn demand(&self) -> Demand {
        let instances = || self.groups.iter().flat_map(|group| (0..group.instances).map(move |_| group));
        let limits = Vec::from_iter(instances().map(|group| group.memory_each));
        let memory = self.reserve_bytes.map_or_else(|| limits.clone(), |reserve| divided(reserve, &limits));
        let of_instance = |(group, memory_bytes): (&Group<'_>, u64)| Wanted {
            amount: Resources { memory_bytes, gpus: group.kind.gpus, instances: 1 },
            limit_bytes: group.memory_each,
        };
        Demand::New { each: instances().zip(memory).map(of_instance).collect(), spans: self.spans }
    }

    /// Takes GPUs from the front of each node's `free_gpus`, which hold enough of them.
    pub(crate) fn place(self, fit: &Fit, capacity: &Capacity, free_gpus: &mut [Vec<u32>]) -> Placement {
        let gpus_each = self.groups.iter().flat_map(|group| (0..group.instances).map(|_| group.kind.gpus));
        let take = |(wanted, node): (u32, &usize)| {
            // Its scheduler chooses them, and numbers those of an instance from 0.
            if capacity.nodes[*node].has_scheduler {
                return (0..wanted).collect();
            }
            let free = &mut free_gpus[*node];
            free.drain(..(wanted as usize).min(free.len())).collect()
        };
        let gpus: Vec<Vec<u32>> = gpus_each.zip(&fit.nodes).map(take).collect();
        let mut nodes = &fit.nodes[..];
        let (mut shares, mut notes) = (Vec::new(), Vec::new());
        for Group { kind, instances, memory_each } in &self.groups {
            let of_group;
            (of_group, nodes) = nodes.split_at((*instances as usize).min(nodes.len()));
            let cpus = of_group.iter().map(|node| capacity.nodes[*node].cpus).min().unwrap_or(0);
            let cpus = kind.cpus.min(cpus).max(1);
            notes.extend(capped(kind, cpus, *memory_each, &place_of(of_group, capacity)));
            let cpu_weight = cpus.saturating_mul(100).min(10_000);
            shares.push(Share { instances: *instances, cpus, cpu_weight, memory_bytes: *memory_each });
        }
        let mut shares = shares.into_iter();
        let Share { cpus, cpu_weight, memory_bytes, .. } = shares.next().expect("one at least");
        let is_named = capacity.nodes.iter().any(|node| node.name != Node::LOCAL);
        let names = fit.nodes.iter().filter(|_| is_named).map(|node| capacity.nodes[*node].name.clone());
        Placement {
            cpus,
            cpu_weight,
            memory_bytes,
            gpus,
            capped: (!notes.is_empty()).then(|| notes.join("; ")),
            others: shares.collect(),
            reserve_bytes: self.reserve_bytes,
            nodes: names.collect(),
        }
    }
}

fn place_of(nodes: &[usize], capacity: &Capacity) -> String {
    let mut names = Vec::from_iter(nodes.iter().filter_map(|node| capacity.name_of(*node)));
    names.dedup();
    match names[..] {
        [] => "this machine".to_owned(),
        [name] => format!("node {name}"),
        _ => "its nodes".to_owned(),
    }
}

/// What a user should know who asks for more training jobs at once than the nodes run, even when
/// they do nothing else.
pub fn parallel_notice(
    definitions: &[DefinitionSpec],
    wanted: u32,
    capacity: &Capacity,
    catalog: &Catalog,
) -> Option<String> {
    let all = capacity.all().total();
    let cuts = definitions.iter().filter_map(|definition| cut(&definition.training, capacity, catalog).ok());
    let most = |cut: Cut<'_>| {
        let demand = cut.demand();
        let total = demand.total();
        let of = |needs: u64, has: u64| has.checked_div(needs).unwrap_or(u64::MAX);
        let gpus = |number: u64| format!("{number} GPU{}", if number == 1 { "" } else { "s" });
        let instances = |number: u64| format!("{number} instance{}", if number == 1 { "" } else { "s" });
        let scarcest = [
            (of(total.memory_bytes, all.memory_bytes), gib(total.memory_bytes) + " of memory", gib(all.memory_bytes)),
            (of(total.gpus.into(), all.gpus.into()), gpus(total.gpus.into()), all.gpus.to_string()),
            (
                of(total.instances.into(), all.instances.into()),
                instances(total.instances.into()),
                all.instances.to_string(),
            ),
        ]
        .into_iter()
        .min_by_key(|(fit, ..)| *fit);
        let (fit, needs, has) = scarcest?;
        let fit = if capacity.nodes.len() == 1 { fit } else { fit.min(placed(&demand, wanted, capacity)) };
        Some((fit, needs, has))
    };
    let (fit, needs, has) = cuts.filter_map(most).min_by_key(|(fit, ..)| *fit)?;
    let verb = if fit == 1 { "fits" } else { "fit" };
    (fit < u64::from(wanted)).then(|| {
        let advice = match capacity.packing {
            Packing::Promise if capacity.nodes.len() == 1 && capacity.nodes[0].name == Node::LOCAL => {
                "; packing = \"use\" in shoal.toml counts what they use instead"
            }
            Packing::Promise | Packing::Use => "",
        };
        let place = match capacity.nodes.len() {
            1 => "in all".to_owned(),
            nodes => format!("in all, on {nodes} nodes"),
        };
        format!(
            "{wanted} training jobs in parallel are requested, {fit} {verb} here: each needs {needs}, and there is \
             {has} {place}{advice}"
        )
    })
}

/// How many of this demand empty nodes have room for, up to `wanted`.
fn placed(demand: &Demand, wanted: u32, capacity: &Capacity) -> u64 {
    let all = capacity.all();
    let mut room = all.clone();
    let one_more = |_: &u32| {
        demand.fit(&room, &all).is_some_and(|fit| {
            room = room.minus(&fit.taken);
            true
        })
    };
    count((0..wanted).take_while(one_more).count()).into()
}
