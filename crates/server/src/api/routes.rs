//! The operations that are served, and what answers each; those of plain resources are in
//! `resource_types`. `cargo xtask codegen` reads the names and generates their table from AWS's
//! service models (`wire/src/constraints`); the operations of `shoal` are ours and stand in
//! `wire/src/operations.rs`.

use std::pin::Pin;

use shoal_wire::{Call, Error, ErrorCode, Reply, budgets::NotificationChange};

use super::{Api, Caller, resource_types};

/// What answers a call whose input was read.
pub(crate) type Answer = Box<dyn for<'a> FnOnce(&'a Api, &'a Caller) -> Answering<'a> + Send>;
type Answering<'a> = Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send + 'a>>;

/// A service model, an operation's name, and what reads its input.
type Route = (&'static str, &'static str, fn(Call) -> Result<Answer, Error>);

/// Reads a call's input.
///
/// # Errors
/// The first rule that it breaks.
pub(crate) fn read(call: Call) -> Result<Answer, Error> {
    if let Some((of, verb)) = resource_types::operation(call.operation) {
        return answer(move |api, caller| Box::pin(api.plain.answer(of, verb, call, caller)));
    }
    let name = call.operation.name;
    let service = call.operation.service.scope();
    match ROUTES.iter().find(|(model, operation, _)| *operation == name && scope_of(model) == service) {
        Some((.., read)) => read(call),
        None => Err(Error::new(
            ErrorCode::UnknownOperationException,
            format!("Shoal does not serve the operation \"{}\".", name.escape_debug()),
        )),
    }
}

/// The service of a model, as signatures name it.
fn scope_of(model: &str) -> &str {
    match model {
        "sagemaker-metrics" | "shoal" => "sagemaker",
        "cloudwatch" => "monitoring",
        model => model,
    }
}

/// Fixes the closure's lifetimes.
fn answer(work: impl for<'a> FnOnce(&'a Api, &'a Caller) -> Answering<'a> + Send + 'static) -> Result<Answer, Error> {
    Ok(Box::new(work))
}

macro_rules! routes {
    (|$api:ident, $caller:ident| $($model:literal { $($operation:ident($input:pat) => $answer:expr,)* })*) => {
        static ROUTES: &[Route] = &[$($(($model, stringify!($operation), |call| {
            let input = call.read()?;
            answer(move |$api, $caller| {
                // Most answers do not depend on the caller.
                let _ = $caller;
                Box::pin(async move {
                    let $input = input;
                    $answer
                })
            })
        }),)*)*];
    };
}

routes! { |api, caller|
    "sagemaker" {
        CreateTrainingJob(request) => api.create_training_job(request, caller).await,
        DescribeTrainingJob(request) => api.describe_training_job(request, caller).await,
        ListTrainingJobs(request) => api.list_training_jobs(request, caller).await,
        StopTrainingJob(request) => api.stop_training_job(request).await,
        UpdateTrainingJob(request) => api.update_training_job(request).await,
        DeleteTrainingJob(request) => api.delete_training_job(request).await,
        CreateHyperParameterTuningJob(request) => api.create_tuning_job(request, caller).await,
        DescribeHyperParameterTuningJob(request) => api.describe_tuning_job(request, caller).await,
        ListHyperParameterTuningJobs(request) => api.list_tuning_jobs(request, caller).await,
        StopHyperParameterTuningJob(request) => api.stop_tuning_job(request).await,
        DeleteHyperParameterTuningJob(request) => api.delete_tuning_job(request).await,
        ListTrainingJobsForHyperParameterTuningJob(request) => api.list_trials(request).await,
        AssociateTrialComponent(call) => api.plain.associate(call).await,
        DisassociateTrialComponent(call) => api.plain.disassociate(call).await,
        AddAssociation(call) => api.plain.add_association(call, caller.creator()).await,
        DeleteAssociation(call) => api.plain.delete_association(call).await,
        ListAssociations(call) => api.plain.seen_by(caller).list_associations(call).await,
        QueryLineage(call) => api.plain.seen_by(caller).query_lineage(call).await,
        Search(request) => api.search(request, caller).await,
        AddTags(request) => api.add_tags(request).await,
        ListTags(request) => api.list_tags(request).await,
        DeleteTags(request) => api.delete_tags(request).await,
    }
    "sagemaker-metrics" {
        BatchPutMetrics(request) => api.put_metrics(request, &caller.holder).await,
        BatchGetMetrics(queries) => api.get_metrics(queries).await,
    }
    "shoal" {
        AddKey(request) => api.add_key(request).await,
        ListKeys(()) => api.list_keys(),
        RotateKey(request) => api.rotate_key(request).await,
        RemoveKey(request) => api.remove_key(request).await,
        InterruptTrainingJob(request) => api.interrupt_training_job(request).await,
        ListCheckpoints(request) => api.list_checkpoints(request).await,
        ListCosts(request) => api.list_costs(request).await,
        ListQuotas(request) => api.list_quotas(request, caller).await,
        ListTargets(request) => api.list_targets(request, caller).await,
        DescribeProfile(request) => api.describe_profile(request).await,
        DescribeUtilization(request) => api.describe_utilization(request).await,
        DescribeStudy(request) => api.describe_study(request).await,
        ListNotifications(request) => api.topics.notifications(request).await,
        UpdateHyperParameterTuningJob(update) => api.update_tuning_job(update).await,
        StartVisit(request) => api.start_visit(request, caller).await,
        FeedVisit(request) => api.feed_visit(request).await,
        ReadVisit(request) => api.read_visit(request).await,
    }
    "sts" {
        GetCallerIdentity(()) => Ok(api.caller_identity(caller)),
        AssumeRole(request) => api.assume_role(request, caller),
    }
    "iam" {
        GetRole(request) => api.get_role(request),
        GetUser(request) => api.get_user(&request, caller),
        ListRoles(request) => api.list_roles(&request),
        SimulatePrincipalPolicy(request) => api.simulate_policy(&request),
    }
    "logs" {
        CreateLogGroup(change) => api.change_logs(change).await,
        DeleteLogGroup(change) => api.change_logs(change).await,
        PutRetentionPolicy(change) => api.change_logs(change).await,
        DeleteRetentionPolicy(change) => api.change_logs(change).await,
        CreateLogStream(change) => api.change_logs(change).await,
        DeleteLogStream(change) => api.change_logs(change).await,
        PutLogEvents(change) => api.change_logs(change).await,
        DescribeLogGroups(request) => api.log_groups(request).await,
        DescribeLogStreams(request) => api.log_streams(request).await,
        FilterLogEvents(request) => api.filter_log_events(request).await,
        GetLogEvents(request) => api.log_events(request).await,
    }
    "budgets" {
        CreateBudget(request) => api.budgets.create(request).await,
        UpdateBudget(request) => api.budgets.update(request).await,
        DeleteBudget(request) => api.budgets.delete(request).await,
        DescribeBudget(request) => api.budgets(move |it| it.describe(&request)).await,
        DescribeBudgets(request) => api.budgets(move |it| it.list(&request)).await,
        DescribeBudgetPerformanceHistory(request) => api.budgets(move |it| it.history(&request)).await,
        DescribeNotificationsForBudget(request) => api.budgets(move |it| it.notifications(&request)).await,
        DescribeBudgetNotificationsForAccount(request) => api.budgets(move |it| it.all_notifications(&request)).await,
        DescribeSubscribersForNotification(request) => api.budgets(move |it| it.subscribers(&request)).await,
        CreateNotification(request) => api.budgets.change_notifications(request, NotificationChange::Create).await,
        UpdateNotification(request) => api.budgets.change_notifications(request, NotificationChange::Update).await,
        DeleteNotification(request) => api.budgets.change_notifications(request, NotificationChange::Delete).await,
        CreateSubscriber(request) => api.budgets.change_notifications(request, NotificationChange::Subscribe).await,
        UpdateSubscriber(request) => api.budgets.change_notifications(request, NotificationChange::Resubscribe).await,
        DeleteSubscriber(request) => api.budgets.change_notifications(request, NotificationChange::Unsubscribe).await,
        TagResource(request) => api.budgets.tag(request).await,
        UntagResource(request) => api.budgets.untag(request).await,
        ListTagsForResource(request) => api.budgets(move |it| it.tags(&request)).await,
    }
    "cloudtrail" {
        LookupEvents(request) => api.lookup_events(request).await,
    }
    "cloudwatch" {
        GetMetricData(request) => api.metric_data(request).await,
        GetMetricStatistics(request) => api.metric_statistics(request).await,
        ListMetrics(request) => api.list_metrics(request).await,
        PutMetricData(request) => api.put_metric_data(request).await,
        PutMetricAlarm(request) => api.put_alarm(request).await,
        DescribeAlarms(request) => api.describe_alarms(request).await,
        DescribeAlarmsForMetric(request) => api.alarms_for_metric(request).await,
        DeleteAlarms(request) => api.delete_alarms(request).await,
        SetAlarmState(request) => api.set_alarm_state(request).await,
        EnableAlarmActions(request) => api.enable_alarm_actions(request, true).await,
        DisableAlarmActions(request) => api.enable_alarm_actions(request, false).await,
        DescribeAlarmHistory(request) => api.alarm_history(request).await,
    }
    "sns" {
        CreateTopic(request) => api.topics.create(request).await,
        DeleteTopic(request) => api.topics.delete(request).await,
        ListTopics(request) => api.topics.list(request).await,
        GetTopicAttributes(request) => api.topics.attributes(request).await,
        SetTopicAttributes(request) => api.topics.set_attribute(request).await,
        Subscribe(request) => api.topics.subscribe(request).await,
        ConfirmSubscription(request) => api.topics.confirm(request, true).await,
        Unsubscribe(request) => api.topics.unsubscribe(request, true).await,
        ListSubscriptions(request) => api.topics.subscriptions(request).await,
        ListSubscriptionsByTopic(request) => api.topics.subscriptions_of(request).await,
        GetSubscriptionAttributes(request) => api.topics.subscription_attributes(request).await,
        Publish(request) => api.topics.publish(request).await,
        TagResource(request) => api.topics.tag(request).await,
        UntagResource(request) => api.topics.untag(request).await,
        ListTagsForResource(request) => api.topics.tags(request).await,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_has_the_operations_that_are_answered() {
        let plain = || resource_types::operations().map(|name| ("sagemaker", name));
        let names = || ROUTES.iter().map(|(model, name, _)| (scope_of(model), *name)).chain(plain());
        let answered: BTreeSet<_> = names().collect();
        let served: BTreeSet<_> = shoal_wire::operations().map(|it| (it.service.scope(), it.name)).collect();
        assert_eq!(answered, served, "run `cargo xtask codegen`");
        assert_eq!(
            (names().count(), shoal_wire::operations().count()),
            (served.len(), served.len()),
            "a name is there twice"
        );
    }
}
