//! CloudTrail's `LookupEvents` over the audit log: the newest events first.

use std::{fs, io};

use shoal_wire::{AuditEvent, LookupAttribute, LookupEvents, arn, timestamp};

use super::{chain::Line, files::Directory, record::Record};

/// A page of events.
pub(crate) struct Found {
    pub(crate) events: Vec<AuditEvent>,
    /// Events before this number are on the next page.
    pub(crate) next: Option<u64>,
}

impl Directory {
    /// Events that a request asks for, before the one of this number.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn lookup(&self, request: &LookupEvents, before: Option<u64>, region: &str) -> io::Result<Found> {
        let mut events = Vec::new();
        for path in self.files()?.into_iter().rev() {
            let text = match fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                read => read?,
            };
            for line in String::from_utf8_lossy(&text).lines().rev() {
                let Ok(line) = serde_json::from_str::<Line>(line) else { continue };
                let at_ms = timestamp::parse(&line.record.time).unwrap_or_default();
                if before.is_some_and(|before| line.number >= before) || !matches(request, &line.record, at_ms) {
                    continue;
                }
                if events.len() == request.limit {
                    let next = events.last().map(|(number, _)| *number);
                    return Ok(Found { events: events.into_iter().map(|(_, event)| event).collect(), next });
                }
                events.push((line.number, event(line.record, at_ms, region)));
            }
        }
        Ok(Found { events: events.into_iter().map(|(_, event)| event).collect(), next: None })
    }
}

fn matches(request: &LookupEvents, record: &Record, at_ms: u64) -> bool {
    let is_named =
        |wanted: &str| record.resources.iter().any(|it| it == wanted || it.rsplit(['/', ':']).next() == Some(wanted));
    request.start_ms.is_none_or(|start| at_ms >= start)
        && request.end_ms.is_none_or(|end| at_ms <= end)
        && match &request.attribute {
            None => true,
            Some(LookupAttribute::EventId(id)) => record.id == *id,
            Some(LookupAttribute::EventName(name)) => record.operation == *name,
            Some(LookupAttribute::ReadOnly(is_read)) => record.read == *is_read,
            Some(LookupAttribute::Username(name)) => record.user == *name,
            Some(LookupAttribute::ResourceName(name)) => is_named(name),
            Some(LookupAttribute::ResourceType(kind)) => record.resources.iter().any(|it| kind_of(it) == *kind),
            Some(LookupAttribute::EventSource(source)) => source_of(&record.service) == *source,
            Some(LookupAttribute::AccessKeyId(id)) => record.key == *id,
        }
}

fn source_of(service: &str) -> String {
    format!("{service}.amazonaws.com")
}

/// `AWS::SageMaker::TrainingJob`, as CloudFormation names kinds; empty for what has none.
fn kind_of(resource: &str) -> String {
    if resource.starts_with("arn:aws:s3:::") {
        let kind = if resource.contains('/') { "Object" } else { "Bucket" };
        return format!("AWS::S3::{kind}");
    }
    let Some(resource) = arn::resource(resource) else { return String::new() };
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<String>()
    };
    let words = resource.kind.split('-').filter(|word| !word.is_empty());
    format!("AWS::SageMaker::{}", words.map(capital).collect::<String>())
}

fn event(record: Record, at_ms: u64, region: &str) -> AuditEvent {
    AuditEvent {
        resources: record.resources.iter().map(|name| (kind_of(name), name.clone())).collect(),
        source: source_of(&record.service),
        region: region.to_owned(),
        id: record.id,
        name: record.operation,
        is_read: record.read,
        access_key_id: record.key,
        at_ms,
        user: record.user,
        arn: record.arn,
        address: record.source,
        agent: record.agent,
        error: Some(record.error).filter(|code| !code.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{
        AuditLog,
        writer::tests::{owner, record},
    };

    #[test]
    fn events_are_found_by_attribute_and_page() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::new(dir.path());
        let (log, thread) = AuditLog::open(directory.clone(), owner(), None).unwrap();
        let arn = "arn:aws:sagemaker:us-east-1:123456789012:training-job/titanic".to_owned();
        for at in 0..7_u64 {
            let user = if at % 2 == 0 { "anna" } else { "ben" };
            let time = timestamp::iso8601_ms(1_700_000_000_000 + at);
            let resources = if at == 3 { vec![arn.clone()] } else { Vec::new() };
            log.note(Record { time, resources, key: format!("AKIA{at}"), ..record(&format!("Stop{at}"), user) });
        }
        log.end();
        thread.join().unwrap();
        let names = |attribute: Option<LookupAttribute>, start_ms, end_ms, limit| {
            let request = LookupEvents { attribute, start_ms, end_ms, limit, next_token: None };
            let (mut names, mut before) = (String::new(), None);
            loop {
                let found = directory.lookup(&request, before, "us-east-1").unwrap();
                assert!(found.events.len() <= limit);
                names.extend(found.events.iter().map(|event| event.name[4..].to_owned()));
                match found.next {
                    None => return names,
                    next => (before, names) = (next, names + " "),
                }
            }
        };
        let text = str::to_owned;
        let at = |ms: u64| Some(1_700_000_000_000 + ms);
        for (attribute, start, end, expected) in [
            (None, None, None, "654 321 0"),
            (None, at(2), at(4), "432"),
            (Some(LookupAttribute::Username(text("ben"))), None, None, "531"),
            (Some(LookupAttribute::Username(text("Ben"))), None, None, ""),
            (Some(LookupAttribute::EventName(text("Stop5"))), None, None, "5"),
            (Some(LookupAttribute::ResourceName(text("titanic"))), None, None, "3"),
            (Some(LookupAttribute::ResourceName(arn)), None, None, "3"),
            (Some(LookupAttribute::ResourceType(text("AWS::SageMaker::TrainingJob"))), None, None, "3"),
            (Some(LookupAttribute::AccessKeyId(text("AKIA2"))), None, None, "2"),
            (Some(LookupAttribute::EventId(text("id-Stop6-anna"))), None, None, "6"),
            (Some(LookupAttribute::EventSource(text("sagemaker.amazonaws.com"))), at(6), None, "6"),
            (Some(LookupAttribute::ReadOnly(true)), None, None, ""),
        ] {
            assert_eq!(names(attribute.clone(), start, end, 3), expected, "{attribute:?} {start:?} {end:?}");
        }
    }
}
