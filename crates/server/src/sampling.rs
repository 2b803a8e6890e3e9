//! How the instances of a training job are sampled, and by which rules samples are judged: by the
//! server's setting and the job's `ProfilerConfig` and `ProfilerRuleConfigurations`, which may
//! change while the job runs.

use std::sync::Arc;

use shoal_link::{Assignment, Order, Rule, SampleTable};
use shoal_store::{Rows, SystemColumn, SystemRow, SystemTable};
use shoal_wire::CreateTrainingJob;

use crate::{agent_rules::rule, attempts::Attempts, requests};

/// What decides it.
#[derive(Clone)]
pub(crate) struct Sampling {
    pub(crate) rows: Arc<dyn Rows>,
    /// Milliseconds between two samples; `None` is none but the profiler's.
    pub(crate) interval_ms: Option<u32>,
}

impl Sampling {
    /// Puts into an assignment how the instances of this job are sampled now, and the rules that
    /// judge the samples; the same as orders.
    pub(crate) fn assign(&self, job: &str, assignment: &mut Assignment) -> Vec<Order> {
        let (sampling, rules) = self.of(job);
        assignment.sampling = Some(sampling);
        // They may have changed since the attempt was planned.
        if let Some(rules) = &rules {
            assignment.profiler_rules.clone_from(rules);
        }
        orders(sampling, rules)
    }

    fn of(&self, job: &str) -> (shoal_link::Sampling, Option<Vec<Rule>>) {
        let request = requests::of_training_job(&*self.rows, job);
        let profiler = request.as_ref().ok().and_then(|request| request.profiler.as_ref());
        if let Err(error) = &request {
            tracing::warn!("training job {job}: it is sampled without a profiler: {error}");
        }
        let profile_ms = profiler.filter(|it| it.active_output().is_some()).map(|it| it.interval_ms);
        let rules = request.as_ref().ok().map(rules);
        (shoal_link::Sampling { interval_ms: self.interval_ms, profile_ms }, rules)
    }

    /// The job's `ProfilerConfig` or its rules have changed, durably.
    pub(crate) fn changed(&self, attempts: &Attempts, job: &str) {
        // An agent that is not connected is sent the order when it is, and one that connects
        // from now on is served by the job's row.
        let (sampling, rules) = self.of(job);
        let orders = orders(sampling, rules);
        for attempt in attempts.all().iter().filter(|attempt| &*attempt.plan.job == job) {
            orders.iter().for_each(|order| attempt.order_all(order));
        }
    }
}

fn orders(sampling: shoal_link::Sampling, rules: Option<Vec<Rule>>) -> Vec<Order> {
    let rules = rules.map(|rules| Order::ProfilerRules { rules });
    std::iter::once(Order::Sample(sampling)).chain(rules).collect()
}

/// Where the profiler is switched off nothing is judged.
fn rules(request: &CreateTrainingJob) -> Vec<Rule> {
    let is_disabled = request.profiler.as_ref().is_some_and(|profiler| profiler.is_disabled);
    request.debugger.profiler_rules.iter().filter(|_| !is_disabled).map(rule).collect()
}

/// Samples as they are stored.
pub(crate) fn stored(tables: Vec<SampleTable>) -> Vec<SystemTable> {
    let column = |it: shoal_link::SampleColumn| SystemColumn { metric: it.metric, gpu: it.gpu, rank: it.rank };
    let row = |it: shoal_link::SampleRow| SystemRow {
        at_ms: it.at_ms,
        is_profiled: it.is_profiled,
        values: it.values.into_iter().map(|value| value as f32).collect(),
    };
    let table = |it: SampleTable| SystemTable {
        columns: it.columns.into_iter().map(column).collect(),
        rows: it.rows.into_iter().map(row).collect(),
    };
    tables.into_iter().map(table).collect()
}
