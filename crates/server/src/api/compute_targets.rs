//! `Shoal.ListTargets`.

use shoal_launch::TargetReport;
use shoal_plane::{Host, Node};
use shoal_wire::{Error, KeyRole, ListTargets, Reply, TargetLine};

use super::{Api, Caller, blocking};

impl Api {
    /// Each compute target, with the state of its scheduler.
    pub(super) async fn list_targets(&self, _: ListTargets, caller: &Caller) -> Result<Reply, Error> {
        let launcher = self.launcher.clone();
        let sees = |name: &str| caller.sees().is_none_or(|own| own == name);
        let creators = self.team.all().into_iter().filter(|it| it.role != KeyRole::Reader && sees(&it.name));
        let creators = Vec::from_iter(creators.map(|member| member.name.clone()));
        let reports = blocking(move || Ok(launcher.reports(&creators))).await?;
        let attempts = self.attempts.all();
        let on = |is_there: &dyn Fn(&str) -> bool| -> u32 {
            let hosts = attempts.iter().map(|attempt| {
                let hosts = Host::all(attempt.allocation.instances);
                hosts.filter(|host| is_there(attempt.plan.node(*host))).count()
            });
            u32::try_from(hosts.sum::<usize>()).unwrap_or(u32::MAX)
        };
        let (with, here): (Vec<&Node>, Vec<&Node>) = self.capacity.nodes.iter().partition(|node| node.has_scheduler);
        let choice = &self.admission.targets;
        let local = TargetLine {
            name: Node::LOCAL.to_owned(),
            kind: "local".to_owned(),
            problem: None,
            is_default: choice.default.is_none(),
            instances: here.iter().map(|node| node.instances).fold(0, u32::saturating_add),
            submitted: on(&|name| with.iter().all(|node| node.name != name)),
            types: Vec::new(),
            details: Vec::new(),
        };
        let of_scheduler = |node: &&Node| {
            let report = reports.iter().find(|report| report.name == node.name).cloned().unwrap_or(TargetReport {
                name: node.name.clone(),
                kind: String::new(),
                details: Ok(Vec::new()),
            });
            let types = choice.all.iter().find(|target| target.name == node.name).map(|target| target.types.clone());
            TargetLine {
                name: node.name.clone(),
                kind: report.kind,
                problem: report.details.as_ref().err().cloned(),
                is_default: choice.default.as_ref() == Some(&node.name),
                instances: node.instances,
                submitted: on(&|name| name == node.name),
                types: types.unwrap_or_default(),
                details: report.details.unwrap_or_default(),
            }
        };
        let targets = Vec::from_iter(std::iter::once(local).chain(with.iter().map(of_scheduler)));
        Ok(Reply::list_targets(&targets))
    }
}
