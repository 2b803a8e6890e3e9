//! Log groups and streams of users' own: they are made, filled and deleted as at AWS.

use shoal_store::{TRAINING_JOBS, Telemetry};
use shoal_wire::{Error, ErrorCode, LogChange, RejectedLogEvents, Reply};

use super::{Api, logs::check_group};
use crate::{clock::now_ms, internal::internal};

/// Events from further in the future are rejected.
const MAX_AHEAD_MS: u64 = 2 * 60 * 60 * 1000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Events that are older are rejected.
const MAX_AGE_MS: u64 = 14 * DAY_MS;

impl Api {
    pub(super) async fn change_logs(&self, change: LogChange) -> Result<Reply, Error> {
        let telemetry = self.telemetry.clone();
        self.writing(move || perform(&telemetry, change)).await
    }
}

fn perform(telemetry: &Telemetry, change: LogChange) -> Result<Reply, Error> {
    let no_stream = || Error::new(ErrorCode::ResourceNotFound, "The specified log stream does not exist.");
    let has_stream = |group: &str, stream: &str| -> Result<bool, Error> {
        let found = telemetry.streams_of(group, stream, None, 1).map_err(|error| internal(&error))?;
        Ok(found.first().is_some_and(|found| found.name == stream))
    };
    match change {
        LogChange::CreateGroup { group } => {
            let is_new =
                group != TRAINING_JOBS && telemetry.create_log_group(&group).map_err(|error| internal(&error))?;
            if !is_new {
                return Err(Error::new(ErrorCode::ResourceInUse, "The specified log group already exists"));
            }
        }
        LogChange::DeleteGroup { group } => {
            check_group(telemetry, &group)?;
            telemetry.delete_log_group(&group).map_err(|error| internal(&error))?;
        }
        LogChange::SetRetention { group, days } => {
            check_group(telemetry, &group)?;
            telemetry.set_log_retention(&group, days).map_err(|error| internal(&error))?;
        }
        LogChange::CreateStream { group, stream } => {
            check_group(telemetry, &group)?;
            if !telemetry.create_log_stream(&group, &stream).map_err(|error| internal(&error))? {
                return Err(Error::new(ErrorCode::ResourceInUse, "The specified log stream already exists"));
            }
        }
        LogChange::DeleteStream { group, stream } => {
            check_group(telemetry, &group)?;
            if !has_stream(&group, &stream)? {
                return Err(no_stream());
            }
            telemetry.delete_log_stream(&group, &stream).map_err(|error| internal(&error))?;
        }
        LogChange::PutEvents { group, stream, events } => {
            check_group(telemetry, &group)?;
            let groups = telemetry.log_groups().map_err(|error| internal(&error))?;
            let retention = groups.iter().find(|found| found.name == group).and_then(|found| found.retention_days);
            let (accepted, rejected) = divide(&events, now_ms(), retention);
            if !telemetry.put_log_events(&group, &stream, accepted).map_err(|error| internal(&error))? {
                return Err(no_stream());
            }
            return Ok(Reply::put_log_events(&rejected));
        }
    }
    Ok(Reply::done())
}

/// The events, which are in chronological order, that are neither too old nor too new, and which
/// are.
fn divide(events: &[(u64, String)], now_ms: u64, retention_days: Option<u32>) -> (&[(u64, String)], RejectedLogEvents) {
    let before = |ms: u64| events.partition_point(|(at_ms, _)| *at_ms < ms);
    let old = before(now_ms.saturating_sub(MAX_AGE_MS));
    let expired = retention_days.map_or(0, |days| before(now_ms.saturating_sub(u64::from(days) * DAY_MS)));
    let new = before(now_ms + MAX_AHEAD_MS + 1);
    let rejected = RejectedLogEvents {
        too_new_start: (new < events.len()).then_some(new),
        too_old_end: (old > 0).then_some(old),
        expired_end: (expired > old).then_some(expired),
    };
    (&events[old.max(expired).min(new)..new], rejected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_an_age() {
        let now = 100 * DAY_MS;
        let at = |days: [u64; 5]| days.map(|day| (day * DAY_MS, String::new()));
        let events = at([80, 90, 95, 100, 101]);
        let (accepted, rejected) = divide(&events, now, Some(7));
        assert_eq!(accepted, &events[2..4]);
        assert_eq!(rejected, RejectedLogEvents { too_new_start: Some(4), too_old_end: Some(1), expired_end: Some(2) });
        assert_eq!(divide(&events[1..4], now, None), (&events[1..4], RejectedLogEvents::default()));
    }

    #[test]
    fn groups_and_streams_are_made_once_and_changed_only_where_they_are() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let group = || "mine".to_owned();
        let stream = || "s".to_owned();
        let put = |text: &str| LogChange::PutEvents {
            group: group(),
            stream: stream(),
            events: vec![(now_ms(), text.to_owned())],
        };
        let training_jobs = || TRAINING_JOBS.to_owned();
        let (gone, taken) = (Some(ErrorCode::ResourceNotFound), Some(ErrorCode::ResourceInUse));
        let steps = [
            (LogChange::DeleteGroup { group: group() }, gone),
            (LogChange::SetRetention { group: group(), days: Some(1) }, gone),
            (LogChange::CreateStream { group: group(), stream: stream() }, gone),
            (LogChange::DeleteStream { group: group(), stream: stream() }, gone),
            (put("no group"), gone),
            (LogChange::CreateGroup { group: training_jobs() }, taken),
            (LogChange::CreateGroup { group: group() }, None),
            (LogChange::CreateGroup { group: group() }, taken),
            (put("no stream"), gone),
            (LogChange::CreateStream { group: group(), stream: "st".to_owned() }, None),
            // Its name is the beginning of another one's.
            (LogChange::DeleteStream { group: group(), stream: stream() }, gone),
            (put("no stream"), gone),
            (LogChange::CreateStream { group: group(), stream: stream() }, None),
            (LogChange::CreateStream { group: group(), stream: stream() }, taken),
            (put("first"), None),
            (put("second"), None),
            (LogChange::SetRetention { group: training_jobs(), days: Some(1) }, None),
            (LogChange::CreateStream { group: training_jobs(), stream: stream() }, None),
        ];
        for (change, expected) in steps {
            let text = format!("{change:?}");
            assert_eq!(perform(&telemetry, change).err().map(|error| error.code), expected, "{text}");
        }
        let texts = |group: &str| {
            let group = group.to_owned();
            let query =
                shoal_store::LogQuery { group, stream: stream(), limit: 9, max_bytes: 999, ..Default::default() };
            let page = telemetry.read_logs(&query).unwrap();
            page.map(|page| page.events.into_iter().map(|event| event.text).collect::<Vec<_>>())
        };
        assert_eq!(texts("mine"), Some(vec!["first".to_owned(), "second".to_owned()]));
        assert_eq!(texts(TRAINING_JOBS), Some(Vec::new()), "a stream of the same name in another group");
        perform(&telemetry, LogChange::DeleteGroup { group: group() }).unwrap();
        assert_eq!(texts("mine"), None);
        assert!(perform(&telemetry, LogChange::CreateGroup { group: group() }).is_ok(), "the name is free again");
    }

    #[test]
    fn an_event_is_accepted_up_to_its_bounds() {
        let now = 100 * DAY_MS;
        let accepted = |at_ms: u64, retention: Option<u32>| {
            let events = [(at_ms, String::new())];
            let (accepted, rejected) = divide(&events, now, retention);
            assert_eq!(accepted.is_empty(), rejected != RejectedLogEvents::default(), "{at_ms} {retention:?}");
            accepted.len() == 1
        };
        assert_eq!([0, 1].map(|late| accepted(now + MAX_AHEAD_MS + late, None)), [true, false]);
        assert_eq!([0, 1].map(|early| accepted(now - MAX_AGE_MS - early, None)), [true, false]);
        assert_eq!([0, 1].map(|early| accepted(now - 3 * DAY_MS - early, Some(3))), [true, false]);
        assert_eq!(
            [0, 1].map(|early| accepted(now - MAX_AGE_MS - early, Some(3653))),
            [true, false],
            "the shorter one"
        );
        assert_eq!(divide(&[], now, Some(1)), (&[][..], RejectedLogEvents::default()));
        // A clock that is far behind: everything is too new, and nothing underflows.
        assert_eq!(divide(&[(now, String::new())], 0, Some(u32::MAX)).1.too_new_start, Some(0));
    }
}
