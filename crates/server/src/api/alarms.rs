//! CloudWatch's operations on alarms.

use shoal_runtime::alarm::AlarmState;
use shoal_store::{Cursor, Key, KeyTest, ResourceFilter, ResourceRow, ResourceSort, RowChange, SortOrder};
use shoal_wire::{
    DescribeAlarmHistory, DescribeAlarms, DescribeAlarmsForMetric, Error, ErrorCode, NamedAlarms, PutMetricAlarm,
    Reply, SetAlarmState,
};

use super::{Api, blocking, refused, token};
use crate::{
    alarms::{ALARM, Alarm, Change, HISTORY, View, change, configured, description, history_item, key_of},
    clock::now_ms,
    core::Present,
    hex::random_hex,
    identity::Identity,
    internal::internal,
    notifications::{TOPIC, TopicArn},
};

/// Alarms that a server can have. All are evaluated when a minute is over.
const MAX_ALARMS: usize = 5_000;
/// Why an alarm has a state before its first evaluation, as CloudWatch puts it.
const UNCHECKED: &str = "Unchecked: Initial alarm creation";

impl Api {
    pub(super) async fn put_alarm(&self, request: PutMetricAlarm) -> Result<Reply, Error> {
        let PutMetricAlarm { alarm, actions_enabled, raw } = request;
        for action in alarm.ok_actions.iter().chain(&alarm.alarm_actions).chain(&alarm.insufficient_data_actions) {
            check_action(action, &self.identity)?;
        }
        let count = self.alarm_rows().await?.len();
        let (uid, arn) = (random_hex(16).map_err(|error| internal(&error))?, self.alarm_arn(&alarm.name));
        let subject = format!("alarm {}", alarm.name);
        let edit = move |present: &Present<'_>| {
            let (now_ms, row) = (now_ms(), present.row(ALARM, &alarm.name)?);
            let is_new = row.is_none();
            if is_new && count >= MAX_ALARMS {
                let why = format!("This server has {MAX_ALARMS} alarms, which is the most that it can have.");
                return Err(Error::new(ErrorCode::ResourceLimitExceeded, why));
            }
            let view = match &row {
                Some(row) => Alarm::read(row).map_err(Error::validation)?.view,
                None => View {
                    state: AlarmState::InsufficientData,
                    reason: UNCHECKED.to_owned(),
                    reason_data: None,
                    updated_ms: now_ms,
                    transitioned_ms: now_ms,
                    configured_ms: now_ms,
                    actions_enabled,
                    items: 0,
                },
            };
            let row = row.unwrap_or_else(|| ResourceRow {
                uid,
                arn,
                created_ms: now_ms,
                ..ResourceRow::new(ALARM, &alarm.name)
            });
            let row = ResourceRow {
                keys: [Some(Key::Text(key_of(&alarm.metric.namespace, &alarm.metric.name))), None],
                request: raw.to_string().into_bytes(),
                spec: alarm.to_stored(),
                ..row
            };
            // A time of its own, so that evaluations of what was before are void.
            let configured_ms = now_ms.max(view.configured_ms + u64::from(!is_new));
            Ok(configured(&row, View { configured_ms, actions_enabled, ..view }, is_new, now_ms))
        };
        self.core.edit_rows(subject, edit).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    fn alarm_arn(&self, name: &str) -> String {
        format!("arn:aws:cloudwatch:{}:{}:alarm:{name}", self.identity.region, self.identity.account)
    }

    async fn alarm_rows(&self) -> Result<Vec<ResourceRow>, Error> {
        let rows = self.rows.clone();
        let filter = ResourceFilter { sort: ResourceSort::Name, limit: 2 * MAX_ALARMS, ..ResourceFilter::new(ALARM) };
        blocking(move || Ok(rows.list(&filter).map_err(|error| internal(&error))?.rows)).await
    }

    pub(super) async fn describe_alarms(&self, request: DescribeAlarms) -> Result<Reply, Error> {
        let question = token::question(&request)?;
        let after = match &request.next_token {
            Some(given) => Some(token::open(&question, given).map_err(|_| bad_token())?),
            None => None,
        };
        if !request.metric_alarms {
            return Ok(Reply::describe_alarms(&[], None));
        }
        let has_action = |row: &ResourceRow, prefix: &str| {
            let Ok(alarm) = Alarm::read(row) else { return false };
            let spec = alarm.spec;
            let mut all = spec.ok_actions.iter().chain(&spec.alarm_actions).chain(&spec.insufficient_data_actions);
            all.any(|arn| arn.starts_with(prefix))
        };
        let is_wanted = |row: &ResourceRow| {
            (request.names.is_empty() || request.names.contains(&row.name))
                && request.prefix.as_ref().is_none_or(|prefix| row.name.starts_with(prefix))
                && request.state.as_ref().is_none_or(|state| row.status == *state)
                && request.action_prefix.as_ref().is_none_or(|prefix| has_action(row, prefix))
                && after.as_ref().is_none_or(|after| row.name > *after)
        };
        let mut rows: Vec<ResourceRow> = self.alarm_rows().await?.into_iter().filter(is_wanted).collect();
        let has_more = rows.len() > request.max_records;
        rows.truncate(request.max_records);
        let next = rows.last().filter(|_| has_more).map(|row| token::seal(&question, &row.name));
        let alarms = rows.iter().map(description).collect::<Result<Vec<_>, _>>()?;
        Ok(Reply::describe_alarms(&alarms, next.as_deref()))
    }

    pub(super) async fn alarms_for_metric(&self, request: DescribeAlarmsForMetric) -> Result<Reply, Error> {
        let key = key_of(&request.metric.namespace, &request.metric.name);
        let filter = ResourceFilter {
            keys: [Some(KeyTest::Is(Key::Text(key))), None],
            sort: ResourceSort::FirstKey,
            limit: MAX_ALARMS,
            ..ResourceFilter::new(ALARM)
        };
        let rows = self.rows.clone();
        let rows = blocking(move || Ok(rows.list(&filter).map_err(|error| internal(&error))?.rows)).await?;
        let sorted = |dimensions: &[(String, String)]| {
            let mut all = dimensions.to_vec();
            all.sort_unstable();
            all
        };
        let is_wanted = |row: &&ResourceRow| {
            let Ok(Alarm { spec, .. }) = Alarm::read(row) else { return false };
            sorted(&spec.metric.dimensions) == sorted(&request.metric.dimensions)
                && request.statistic_name.as_ref().is_none_or(|name| spec.statistic_name == *name)
                && request.period_s.is_none_or(|period_s| spec.period_s == period_s)
                && (request.unit.is_none() || spec.unit == request.unit)
        };
        let alarms = rows.iter().filter(is_wanted).map(description).collect::<Result<Vec<_>, _>>()?;
        Ok(Reply::describe_alarms_for_metric(&alarms))
    }

    /// All of them or none.
    pub(super) async fn delete_alarms(&self, request: NamedAlarms) -> Result<Reply, Error> {
        let edit = move |present: &Present<'_>| {
            let deleted = |name: String| match present.row(ALARM, &name)? {
                Some(_) => Ok(RowChange::Delete(ALARM, name)),
                None => Err(no_alarm(&name)),
            };
            request.alarm_names.into_iter().map(deleted).collect()
        };
        self.core.edit_rows("deleted alarms".to_owned(), edit).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    /// Until it is evaluated again.
    pub(super) async fn set_alarm_state(&self, request: SetAlarmState) -> Result<Reply, Error> {
        let identity = self.identity.clone();
        let edit = move |present: &Present<'_>| {
            let row = present.row(ALARM, &request.name)?.ok_or_else(|| no_alarm(&request.name))?;
            let alarm = Alarm::read(&row).map_err(Error::validation)?;
            let state = match request.state.as_str() {
                "OK" => AlarmState::Ok,
                "ALARM" => AlarmState::Alarm,
                _ => AlarmState::InsufficientData,
            };
            let set = Change { state, reason: request.reason, data: request.reason_data };
            change(&row, &alarm, set, &identity, now_ms(), |topic| Ok(present.row(TOPIC, topic)?.is_some()))
        };
        self.core.edit_rows("alarm".to_owned(), edit).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    /// Names of no alarm are left aside, as AWS does.
    pub(super) async fn enable_alarm_actions(&self, request: NamedAlarms, is_enabled: bool) -> Result<Reply, Error> {
        let edit = move |present: &Present<'_>| {
            let mut changes = Vec::new();
            for name in request.alarm_names {
                let Some(row) = present.row(ALARM, &name)? else { continue };
                let view = Alarm::read(&row).map_err(Error::validation)?.view;
                if view.actions_enabled != is_enabled {
                    changes.extend(configured(&row, View { actions_enabled: is_enabled, ..view }, false, now_ms()));
                }
            }
            Ok(changes)
        };
        self.core.edit_rows("actions of alarms".to_owned(), edit).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    pub(super) async fn alarm_history(&self, request: DescribeAlarmHistory) -> Result<Reply, Error> {
        let question = token::question(&request)?;
        let after = match &request.next_token {
            Some(given) => {
                let place = token::open(&question, given).map_err(|_| bad_token())?;
                Some(place.parse::<Cursor>().map_err(|error| internal(&error))?)
            }
            None => None,
        };
        if !request.metric_alarms {
            return Ok(Reply::describe_alarm_history(&[], None));
        }
        let filter = ResourceFilter {
            parent: request.name,
            status: request.item_type,
            // Both bounds of a filter are exclusive.
            created_after_ms: request.start_ms.map(|ms| ms.saturating_sub(1)),
            created_before_ms: request.end_ms.map(|ms| ms.saturating_add(1)),
            order: if request.oldest_first { SortOrder::Ascending } else { SortOrder::Descending },
            after,
            limit: request.max_records,
            ..ResourceFilter::new(HISTORY)
        };
        let rows = self.rows.clone();
        let page = blocking(move || rows.list(&filter).map_err(|error| internal(&error))).await?;
        let items = page.rows.iter().map(history_item).collect::<Result<Vec<_>, _>>()?;
        let next = page.next.map(|next| token::seal(&question, &next.to_string()));
        Ok(Reply::describe_alarm_history(&items, next.as_deref()))
    }
}

/// Alarms notify topics of this server, and do nothing else.
fn check_action(arn: &str, identity: &Identity) -> Result<(), Error> {
    match TopicArn::parse(arn, identity) {
        Ok(TopicArn { subscription: None, .. }) => Ok(()),
        _ => Err(Error::validation(format!(
            "Invalid action '{}': Shoal's alarms notify topics of this server, {}.",
            arn.escape_debug(),
            TopicArn::of("NAME", identity)
        ))),
    }
}

fn no_alarm(name: &str) -> Error {
    Error::new(ErrorCode::ResourceNotFound, format!("There is no alarm {}.", name.escape_debug()))
}

fn bad_token() -> Error {
    Error::new(
        ErrorCode::InvalidNextToken,
        "The NextToken was not given out for these filters: give the token of the page before unchanged.",
    )
}
