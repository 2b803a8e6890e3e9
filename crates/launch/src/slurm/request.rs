//! What a job is to have, however it is submitted.

use super::script::script;
use super::{Nodes, SlurmOptions};
use crate::AllocationSpec;
use crate::record::Submitted;

/// A job that is to be submitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) comment: String,
    pub(super) script: String,
    /// Whose job it is to be; none: the caller's.
    pub(super) user: Option<String>,
    pub(super) hosts: u32,
    pub(super) nodes: Nodes,
    /// Of each host; 0: as the cluster has it. Likewise the next two.
    pub(super) cpus: u32,
    pub(super) megabytes: u64,
    pub(super) gpus: u32,
    pub(super) minutes: Option<u64>,
    /// Options of `sbatch`, as `--NAME=VALUE`: the target's, then the type's.
    pub(super) options: Vec<String>,
}

impl Request {
    pub(super) fn of(options: &SlurmOptions, spec: &AllocationSpec, job: &Submitted) -> Self {
        let wants = &spec.wants;
        let of_type = options.types.get(&wants.kind).cloned().unwrap_or_default();
        let nodes = of_type.nodes.unwrap_or(options.nodes);
        let program = options.program.as_ref().unwrap_or(&spec.program).to_string_lossy().into_owned();
        Self {
            name: job.name.clone(),
            comment: wants.label.clone(),
            script: script(options, spec, job, &program, nodes != Nodes::Packed),
            user: job.user.clone(),
            hosts: u32::try_from(job.hosts.len()).unwrap_or(u32::MAX),
            nodes,
            cpus: wants.cpus,
            megabytes: wants.memory_bytes.div_ceil(1 << 20),
            gpus: wants.gpus,
            minutes: wants.seconds.map(|seconds| seconds.div_ceil(60).max(1)),
            options: [&options.args[..], &of_type.args].concat(),
        }
    }

    /// Memory for each core, where instances share nodes as they come.
    pub(super) fn megabytes_per_cpu(&self) -> u64 {
        self.megabytes.div_ceil(self.cpus.max(1).into())
    }

    /// Arguments of `sbatch`.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut args: Vec<String> = [
            "--parsable",
            "--no-requeue",
            // All of `commands::ENVIRONMENT`. For a list of names slurmd runs a login shell, which
            // takes up to a second.
            "--export=ALL",
            "--output=/dev/null",
            "--input=/dev/null",
        ]
        .map(str::to_owned)
        .to_vec();
        args.push(format!("--job-name={}", self.name));
        args.push(format!("--comment={}", self.comment));
        let Self { hosts, cpus, megabytes, gpus, .. } = self;
        let of_cpus = (*cpus > 0).then(|| format!("--cpus-per-task={cpus}"));
        if self.nodes != Nodes::Packed {
            args.extend([format!("--nodes={hosts}-{hosts}"), "--ntasks-per-node=1".to_owned()]);
        }
        match self.nodes {
            Nodes::Exclusive => args.extend(["--exclusive".to_owned(), "--mem=0".to_owned()]),
            Nodes::Spread => {
                args.extend(of_cpus);
                args.extend((*megabytes > 0).then(|| format!("--mem={megabytes}M")));
                args.extend((*gpus > 0).then(|| format!("--gpus-per-node={gpus}")));
            }
            Nodes::Packed => {
                args.push(format!("--ntasks={hosts}"));
                args.extend(of_cpus);
                args.extend((*megabytes > 0).then(|| format!("--mem-per-cpu={}M", self.megabytes_per_cpu())));
                args.extend((*gpus > 0).then(|| format!("--gpus-per-task={gpus}")));
            }
        }
        args.extend(self.minutes.map(|minutes| format!("--time={minutes}")));
        args.extend(self.options.iter().cloned());
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_spread_alone_or_packed() {
        let request = |nodes| Request { hosts: 2, nodes, cpus: 4, megabytes: 1000, gpus: 1, ..Request::default() };
        let of = |nodes| request(nodes).arguments().split_off(7);
        assert_eq!(
            of(Nodes::Spread),
            ["--nodes=2-2", "--ntasks-per-node=1", "--cpus-per-task=4", "--mem=1000M", "--gpus-per-node=1"]
        );
        assert_eq!(of(Nodes::Exclusive), ["--nodes=2-2", "--ntasks-per-node=1", "--exclusive", "--mem=0"]);
        assert_eq!(of(Nodes::Packed), ["--ntasks=2", "--cpus-per-task=4", "--mem-per-cpu=250M", "--gpus-per-task=1"]);
    }
}
