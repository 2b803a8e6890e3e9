//! AWS shapes as plain types to and from http requests and responses; SigV4; error codes; the
//! constraint table and its validator. Pure.
//!
//! A request goes [`route()`] -> [`sigv4::verify`] -> [`parse()`] -> [`Call`] -> [`Input`], and a
//! [`Reply`] or an [`Error`] goes back through [`respond`] or [`respond_error`]. One table has the
//! [`Operation`]s that are served with the constraints of their inputs and the members of their
//! outputs; it is generated from AWS's service models. What a table cannot say stands beside the
//! inputs' types. S3 is not here: its requests are only recognised ([`Route::S3`]). Nothing here
//! reads a clock or does I/O.

mod alarms;
pub mod arn;
pub mod budgets;
mod call;
mod checkpoints;
pub mod client;
mod cloudtrail;
mod cloudwatch;
mod compute_targets;
mod constraints;
mod costs;
mod error;
mod filter_logs;
mod filter_pattern;
mod headline;
mod identity;
mod interruption;
mod log_changes;
mod logs;
pub mod no_effect;
mod notifications;
mod operation;
mod operations;
mod parse;
mod pattern;
mod profile;
pub mod proof;
mod query;
mod quotas;
mod refusal;
mod reply;
mod route;
mod s3_uri;
mod search;
mod shape;
pub mod sigv4;
mod sns;
mod stored;
mod study;
pub mod study_pictures;
pub mod tags;
mod team;
pub mod timestamp;
mod training_job;
mod trial_metrics;
mod tuning_job;
mod utilization;
mod validate;
mod visits;
mod xml;

pub use alarms::{
    AlarmDescription, AlarmHistoryItem, DescribeAlarmHistory, DescribeAlarms, DescribeAlarmsForMetric, MetricAlarm,
    NamedAlarms, PutMetricAlarm, SetAlarmState,
};
pub use call::{Call, Input};
pub use checkpoints::{CheckpointReceipt, LIST_CHECKPOINTS, ListCheckpoints};
pub use cloudtrail::{AuditEvent, LookupAttribute, LookupEvents};
pub use cloudwatch::{
    Datapoint, GetMetricData, GetMetricStatistics, ListMetrics, Metric, MetricDatum, MetricQuery, MetricResult,
    MetricSample, PutMetricData, Span, Statistic,
};
pub use compute_targets::{LIST_TARGETS, ListTargets, TargetLine};
pub use constraints::{TextLimits, Unknown, text_limits, unknown_member};
pub use costs::{CostDay, CostGroup, CostLine, LIST_COSTS, ListCosts};
pub use error::{Error, ErrorCode};
pub use filter_logs::{DescribeLogGroups, FilterLogEvents, FilteredLogEvent, LogGroup, Streams};
pub use filter_pattern::FilterPattern;
pub use headline::headline;
pub use identity::{
    AssumeRole, AssumedRole, Evaluation, GetRole, GetUser, ListRoles, Paging, Role, SimulatePrincipalPolicy,
};
pub use interruption::INTERRUPT_TRAINING_JOB;
pub use log_changes::{LogChange, RejectedLogEvents};
pub use logs::{DescribeLogStreams, GetLogEvents, LogEvent, LogStream, LogStreamOrder};
pub use notifications::{LIST_NOTIFICATIONS, ListNotifications, NotificationLine};
pub use operation::Operation;
pub use operations::{operation, operations};
pub use parse::{MAX_REQUEST_BYTES, check_tuning_job, parse};
pub use profile::{DESCRIBE_PROFILE, DescribeProfile};
pub use quotas::{LIST_QUOTAS, ListQuotas, QuotaAmount, QuotaLine};
pub use reply::{NOTICE, Reply, respond, respond_error};
pub use route::{Protocol, Route, Service, route};
pub use s3_uri::{S3Uri, S3UriError};
pub use search::{
    Comparison, Condition, PropertyValue, Search, SearchResource, Test, Wanted, properties, search_record,
};
pub use sns::{
    ConfirmSubscription, CreateTopic, Envelope, EnvelopeKind, ListAll, ListByTopic, ListTopicTags, MessageAttribute,
    NamedSubscription, NamedTopic, Publish, PublishedMessage, SetTopicAttributes, Subscribe, SubscriptionSummary,
    TagTopic, TopicProtocol, UntagTopic,
};
pub use stored::{Described, Stored, stored_description};
pub use study::{
    DESCRIBE_STUDY, DescribeStudy, StudyDefinition, StudyDescription, StudyImportance, StudyObjective, StudyParameter,
    StudyTrial, UPDATE_TUNING_JOB, UpdateTuningJob,
};
pub use tags::{
    AddTags, DeleteTags, ListTags, MIN_INSTANCES_TAG, NETWORK_TAG, PRIORITY_TAG, TARGET_TAG, Tag, priority,
};
pub use team::{ADD_KEY, AddKey, KeyRole, KeySummary, LIST_KEYS, NamedKey, OWNER_NAME, REMOVE_KEY, ROTATE_KEY};
pub use training_job::{
    Algorithm, Channel, ChannelSource, CheckpointConfig, Collection, CreateTrainingJob, DebugHook, Debugger,
    Distribution, ExperimentConfig, FileSystemSource, FinalMetric, InputMode, InstanceGroup, InterruptTrainingJob,
    MetricDefinition, NamedTrainingJob, Output, OutputCompression, Profiler, RecordWrapper, Resources, RuleAction,
    RuleConfiguration, RuleStatus, S3DataType, S3Source, Script, SortOrder, StatusTransition, Stopping, TensorBoard,
    TrainingJobDescription, TrainingJobSummary, UpdateTrainingJob, WarmPool, is_hook_parameter, nearest_hook_parameter,
};
pub use trial_metrics::{BatchPutMetrics, RawMetric, SeriesAxis, SeriesQuery, SeriesResult, SeriesStatistic};
pub use tuning_job::{
    AutoParameter, Child, CompletionCriteria, CreateTuningJob, Goal, ListTrials, NamedTuningJob,
    OBJECTIVE_HYPERPARAMETER, Objective, ObjectiveCounters, ParameterRange, RangeValues, ResourceLimits, STRATEGY_TAG,
    ScalingType, Strategy, TrainingJobCounters, TrialSortBy, TrialSummary, TuningDefinition, TuningJobDescription,
    TuningJobSummary, WarmStart, check_warm_start, tuning_search_record,
};
pub use utilization::{DESCRIBE_UTILIZATION, DescribeUtilization, HostUtilization, MetricUtilization};
pub use visits::{
    FEED_VISIT, FeedVisit, READ_VISIT, ReadVisit, START_VISIT, StartVisit, VisitOutput, VisitResult, VisitTerminal,
};
