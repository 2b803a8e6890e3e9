//! Which roles may call which operation. What is not declared here is for owners alone, so that a
//! new operation is refused to everyone else until it is declared.

use shoal_wire::{KeyRole, Operation, Service};

/// Who may call an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// All roles: it shows no resources of others and changes none.
    Everyone,
    /// It reads: a user what is own, a reader all.
    Reads,
    /// It reads what belongs to all together: users may not.
    Overview,
    /// It creates or changes: a user what is own, a reader nothing.
    Changes,
    /// Owners.
    Owner,
}

impl Access {
    /// Whether this role may call the operation at all. What a user's call names is checked then.
    pub(crate) fn permits(self, role: KeyRole) -> bool {
        match (role, self) {
            (KeyRole::Owner, _) | (_, Self::Everyone | Self::Reads) => true,
            (KeyRole::User, Self::Changes) | (KeyRole::Reader, Self::Overview) => true,
            (KeyRole::User, Self::Overview | Self::Owner) | (KeyRole::Reader, Self::Changes | Self::Owner) => false,
        }
    }
}

/// Who may call an operation.
pub(crate) fn access(operation: &Operation) -> Access {
    DECLARED
        .iter()
        .find(|(service, _, names)| *service == operation.service && names.contains(&operation.name))
        .map_or(Access::Owner, |(_, access, _)| *access)
}

/// All that is not for owners alone.
const DECLARED: &[(Service, Access, &[&str])] = &[
    (Service::Sts, Access::Everyone, &["GetCallerIdentity", "AssumeRole"]),
    (Service::Iam, Access::Everyone, &["GetRole", "ListRoles", "SimulatePrincipalPolicy", "GetUser"]),
    (Service::SageMaker, Access::Everyone, &["ListTargets", "ListQuotas"]),
    (
        Service::SageMaker,
        Access::Reads,
        &[
            "DescribeTrainingJob",
            "ListTrainingJobs",
            "DescribeHyperParameterTuningJob",
            "ListHyperParameterTuningJobs",
            "ListTrainingJobsForHyperParameterTuningJob",
            "DescribeModel",
            "ListModels",
            "DescribeExperiment",
            "ListExperiments",
            "DescribeTrial",
            "ListTrials",
            "DescribeTrialComponent",
            "ListTrialComponents",
            "DescribeAction",
            "ListActions",
            "DescribeArtifact",
            "ListArtifacts",
            "DescribeContext",
            "ListContexts",
            "ListAssociations",
            "QueryLineage",
            "Search",
            "ListTags",
            "BatchGetMetrics",
            "ListCheckpoints",
            "DescribeProfile",
            "DescribeUtilization",
            "DescribeStudy",
        ],
    ),
    (
        Service::SageMaker,
        Access::Changes,
        &[
            "CreateTrainingJob",
            "StopTrainingJob",
            "UpdateTrainingJob",
            "DeleteTrainingJob",
            "InterruptTrainingJob",
            "CreateHyperParameterTuningJob",
            "StopHyperParameterTuningJob",
            "UpdateHyperParameterTuningJob",
            "DeleteHyperParameterTuningJob",
            "CreateModel",
            "DeleteModel",
            "CreateExperiment",
            "UpdateExperiment",
            "DeleteExperiment",
            "CreateTrial",
            "UpdateTrial",
            "DeleteTrial",
            "CreateTrialComponent",
            "UpdateTrialComponent",
            "DeleteTrialComponent",
            "AssociateTrialComponent",
            "DisassociateTrialComponent",
            "CreateAction",
            "UpdateAction",
            "DeleteAction",
            "CreateArtifact",
            "UpdateArtifact",
            "DeleteArtifact",
            "CreateContext",
            "UpdateContext",
            "DeleteContext",
            "AddAssociation",
            "DeleteAssociation",
            "AddTags",
            "DeleteTags",
            "BatchPutMetrics",
            "StartVisit",
            "FeedVisit",
            "ReadVisit",
        ],
    ),
    (Service::SageMaker, Access::Overview, &["ListCosts", "ListNotifications", "ListKeys"]),
    (Service::Logs, Access::Reads, &["DescribeLogStreams", "FilterLogEvents", "GetLogEvents"]),
    (Service::Logs, Access::Everyone, &["DescribeLogGroups"]),
    (Service::CloudWatch, Access::Reads, &["GetMetricData", "GetMetricStatistics", "ListMetrics"]),
    (Service::CloudWatch, Access::Changes, &["PutMetricData"]),
    (Service::CloudWatch, Access::Overview, &["DescribeAlarms", "DescribeAlarmsForMetric", "DescribeAlarmHistory"]),
    (
        Service::Budgets,
        Access::Overview,
        &[
            "DescribeBudget",
            "DescribeBudgets",
            "DescribeBudgetPerformanceHistory",
            "DescribeNotificationsForBudget",
            "DescribeBudgetNotificationsForAccount",
            "DescribeSubscribersForNotification",
            "ListTagsForResource",
        ],
    ),
    (
        Service::Sns,
        Access::Overview,
        &[
            "ListTopics",
            "GetTopicAttributes",
            "ListSubscriptions",
            "ListSubscriptionsByTopic",
            "GetSubscriptionAttributes",
            "ListTagsForResource",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use shoal_wire::operations;

    use super::*;

    /// How the names of operations that change nothing begin.
    const READING: [&str; 6] = ["Describe", "Get", "List", "BatchGet", "Query", "Search"];
    /// Those that change nothing and whose names say otherwise, or the other way about.
    const READING_TOO: [&str; 3] = ["FilterLogEvents", "SimulatePrincipalPolicy", "AssumeRole"];

    fn reads(name: &str) -> bool {
        READING.iter().any(|verb| name.starts_with(verb)) || READING_TOO.contains(&name)
    }

    #[test]
    fn a_reader_may_call_only_what_reads_by_its_name() {
        for operation in operations() {
            let may_read = access(operation).permits(KeyRole::Reader);
            assert!(!may_read || reads(operation.name), "{} changes something", operation.name);
        }
    }

    #[test]
    fn what_is_not_declared_is_for_owners_alone() {
        let declared: BTreeSet<_> =
            DECLARED.iter().flat_map(|(of, _, names)| names.iter().map(|name| (of.scope(), *name))).collect();
        for operation in operations() {
            let is_declared = declared.contains(&(operation.service.scope(), operation.name));
            for (role, expected) in
                [(KeyRole::Owner, true), (KeyRole::User, is_declared), (KeyRole::Reader, is_declared)]
            {
                let permitted = access(operation).permits(role);
                assert!(expected || !permitted, "{} for {role:?}", operation.name);
                assert!(role != KeyRole::Owner || permitted, "{}", operation.name);
            }
        }
        let served: BTreeSet<_> = operations().map(|it| (it.service.scope(), it.name)).collect();
        let unknown: Vec<_> = declared.difference(&served).collect();
        assert!(unknown.is_empty(), "declared and not served: {unknown:?}");
        let count: usize = DECLARED.iter().map(|(.., names)| names.len()).sum();
        assert_eq!(count, declared.len(), "declared twice");
    }

    /// Keys, what spends the owner's money or mails, and groups of logs that all share.
    #[test]
    fn what_is_the_owners_is_refused_to_others() {
        let named = |service: Service, name: &str| {
            operations().find(|it| it.service == service && it.name == name).unwrap_or_else(|| panic!("{name}"))
        };
        for (service, names) in [
            (Service::SageMaker, &["AddKey", "RotateKey", "RemoveKey"][..]),
            (Service::Logs, &["CreateLogGroup", "DeleteLogGroup", "PutLogEvents", "DeleteLogStream"]),
            (Service::Budgets, &["CreateBudget", "UpdateBudget", "DeleteBudget", "TagResource"]),
            (Service::Sns, &["CreateTopic", "Publish", "Subscribe", "DeleteTopic"]),
            (Service::CloudWatch, &["PutMetricAlarm", "DeleteAlarms", "SetAlarmState"]),
        ] {
            for name in names {
                let access = access(named(service, name));
                assert!(!access.permits(KeyRole::User) && !access.permits(KeyRole::Reader), "{name}: {access:?}");
            }
        }
    }
}
