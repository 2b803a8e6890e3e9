//! `Shoal.ListQuotas`.

use shoal_plane::QuotaUse;
use shoal_wire::{Error, ListQuotas, QuotaAmount, QuotaLine, Reply};

use super::{Api, Caller, refused};
use crate::{
    QuotaOptions,
    core::Refusal,
    quotas::{OWNER, Space},
};

impl Api {
    /// What each user and each tag with a quota uses, and may use; to users their own, and tags'.
    pub(super) async fn list_quotas(&self, _: ListQuotas, caller: &Caller) -> Result<Reply, Error> {
        let mut uses = self.core.quota_use().await.ok_or_else(|| refused(&Refusal::Stopping))?;
        let names = self.team.all();
        let users = names.iter().map(|member| member.name.as_str()).chain([OWNER]);
        // Those who have nothing, and no quota of their own.
        let quotas = &self.capacity.quotas;
        for user in users {
            let name = format!("user:{user}");
            if uses.iter().all(|it| it.name != name) {
                let limits = quotas.of_user(user);
                let used_s = quotas.half_life_s.map(|_| 0.0);
                uses.push(QuotaUse { name, limits, held: shoal_plane::Amounts::default(), used_s });
            }
        }
        let own = caller.sees().map(|name| format!("user:{name}"));
        uses.retain(|it| own.as_ref().is_none_or(|own| it.name == *own || it.name.starts_with("tag:")));
        uses.sort_by_key(|it| (it.name.starts_with("tag:"), it.name.clone()));
        let line = |it: &QuotaUse| line(&self.quotas.options, it, self.quotas.space(&it.name));
        Ok(Reply::list_quotas(&Vec::from_iter(uses.iter().map(line))))
    }
}

fn line(options: &QuotaOptions, it: &QuotaUse, space: Space) -> QuotaLine {
    let (user, most) = (it.name.strip_prefix("user:").map(|user| options.of(user)), options.space(&it.name));
    let amount = |used: u64, limit: Option<u32>| QuotaAmount { used: Some(used), limit: limit.map(u64::from) };
    let stored = |used: Option<u64>, limit: Option<u64>| QuotaAmount { used: used.filter(|_| limit.is_some()), limit };
    QuotaLine {
        name: it.name.clone(),
        jobs: amount(it.held.jobs, it.limits.jobs),
        instances: amount(it.held.instances, it.limits.instances),
        gpus: amount(it.held.gpus, it.limits.gpus),
        stored_bytes: stored(space.stored_bytes, most.stored_bytes),
        log_bytes: stored(space.log_bytes, most.log_bytes),
        requests_per_s: user.and_then(|user| user.requests_per_s),
        max_priority: user.and_then(|user| user.max_priority),
        used_s: it.used_s,
    }
}
