//! Lifecycle configurations as documents: what is understood of one, with AWS's refusals, and how
//! it is written.

use std::collections::{BTreeMap, BTreeSet};

use s3s::dto::{
    AbortIncompleteMultipartUpload, BucketLifecycleConfiguration, ExpirationStatus, LifecycleExpiration, LifecycleRule,
    LifecycleRuleAndOperator, LifecycleRuleFilter, NoncurrentVersionExpiration, Tag, Timestamp, TimestampFormat,
};
use s3s::{S3Result, s3_error};

use crate::attributes::{signed, timestamp};
use crate::lifecycle::{Expiration, Form, Lifecycle, Noncurrent, Rule, Selection};
use crate::tags;

/// S3's limits.
const MOST_RULES: usize = 1000;
const LONGEST_ID: usize = 255;
const MOST_NEWER: i32 = 100;

const DAY_S: u64 = 24 * 60 * 60;

/// The rules of a document.
///
/// # Errors
/// AWS's for what it does not accept; `NotImplemented` for transitions.
pub(crate) fn read(document: BucketLifecycleConfiguration) -> S3Result<Lifecycle> {
    if !(1..=MOST_RULES).contains(&document.rules.len()) {
        return Err(malformed("a lifecycle configuration has 1 to 1000 rules"));
    }
    let has_filters = document.rules.iter().any(|rule| rule.filter.is_some());
    if has_filters && document.rules.iter().any(|rule| rule.filter.is_none() && rule.prefix.is_some()) {
        return Err(s3_error!(
            InvalidRequest,
            "Base level prefix cannot be used in Lifecycle V2, prefixes are only supported in the Filter."
        ));
    }
    let mut ids: BTreeSet<String> = BTreeSet::new();
    for id in document.rules.iter().filter_map(given_id) {
        if id.len() > LONGEST_ID {
            return Err(s3_error!(InvalidArgument, "ID length should not exceed allowed limit of 255"));
        }
        if !ids.insert(id.to_owned()) {
            return Err(s3_error!(
                InvalidArgument,
                "Rule ID must be unique. Found same ID for more than one rule: {}",
                id
            ));
        }
    }
    let mut free = (1..).map(|number| format!("rule-{number}")).filter(|id| !ids.contains(id));
    let rules = document.rules.into_iter().map(|rule| {
        let id = given_id(&rule).map(str::to_owned).or_else(|| free.next()).unwrap_or_default();
        read_rule(id, rule)
    });
    Ok(Lifecycle { rules: rules.collect::<S3Result<_>>()? })
}

fn given_id(rule: &LifecycleRule) -> Option<&str> {
    rule.id.as_deref().filter(|id| !id.is_empty())
}

fn read_rule(id: String, rule: LifecycleRule) -> S3Result<Rule> {
    if rule.transitions.is_some_and(|all| !all.is_empty())
        || rule.noncurrent_version_transitions.is_some_and(|all| !all.is_empty())
    {
        return Err(s3_error!(
            NotImplemented,
            "Rule {} has a transition, and there are no storage classes to move objects to: leave it out.",
            id
        ));
    }
    let is_enabled = match rule.status.as_str() {
        ExpirationStatus::ENABLED => true,
        ExpirationStatus::DISABLED => false,
        _ => return Err(malformed("the Status of a rule is Enabled or Disabled")),
    };
    let selection = match (rule.prefix, rule.filter) {
        (Some(_), Some(_)) => return Err(malformed("a rule has a Filter or a Prefix, not both")),
        (None, None) => return Err(malformed("a rule has a Filter, which may be empty")),
        (Some(prefix), None) => Selection { form: Form::Prefix, prefix: Some(prefix), ..Selection::default() },
        (None, Some(filter)) => read_filter(filter)?,
    };
    let expiration = rule.expiration.map(read_expiration).transpose()?;
    let noncurrent = rule.noncurrent_version_expiration.map(|action| read_noncurrent(&action)).transpose()?;
    let abort = rule.abort_incomplete_multipart_upload;
    let abort_days = abort
        .map(|abort| positive(abort.days_after_initiation, "DaysAfterInitiation", "AbortIncompleteMultipartUpload"))
        .transpose()?;
    if expiration.is_none() && noncurrent.is_none() && abort_days.is_none() {
        return Err(s3_error!(InvalidRequest, "At least one action needs to be specified in a rule"));
    }
    let named = [
        ("AbortIncompleteMultipartUpload", abort_days.is_some()),
        ("ExpiredObjectDeleteMarker", expiration == Some(Expiration::MarkersAlone)),
    ];
    // An upload and a delete marker have neither.
    for (action, _) in named.into_iter().filter(|(_, is_there)| *is_there) {
        if !selection.tags.is_empty() {
            return Err(s3_error!(InvalidRequest, "{} cannot be specified with Tags.", action));
        }
        if selection.larger_than.is_some() || selection.smaller_than.is_some() {
            return Err(s3_error!(InvalidRequest, "{} cannot be specified with Object Size.", action));
        }
    }
    Ok(Rule { id, is_enabled, selection, expiration, noncurrent, abort_days })
}

fn read_filter(filter: LifecycleRuleFilter) -> S3Result<Selection> {
    let LifecycleRuleFilter { and, object_size_greater_than, object_size_less_than, prefix, tag } = filter;
    let one = [object_size_greater_than.is_some(), object_size_less_than.is_some(), prefix.is_some(), tag.is_some()];
    let count = one.into_iter().filter(|is_there| *is_there).count() + usize::from(and.is_some());
    if count > 1 {
        return Err(malformed("a Filter has one condition; several are in its And"));
    }
    let (form, both) = match and {
        None => {
            let tags = tag.map(|tag| vec![tag]);
            (Form::Filter, LifecycleRuleAndOperator { object_size_greater_than, object_size_less_than, prefix, tags })
        }
        Some(and) => (Form::And, and),
    };
    let pairs = both.tags.unwrap_or_default().into_iter();
    let pairs = pairs.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default()));
    let selection = Selection {
        form,
        prefix: both.prefix,
        tags: tags::of_object(pairs)?,
        larger_than: size(both.object_size_greater_than, 0, "ObjectSizeGreaterThan")?,
        smaller_than: size(both.object_size_less_than, 1, "ObjectSizeLessThan")?,
    };
    let sizes = [selection.larger_than, selection.smaller_than].into_iter().flatten().count();
    if form == Form::And && usize::from(selection.prefix.is_some()) + selection.tags.len() + sizes < 2 {
        return Err(malformed("the And of a Filter has at least two conditions"));
    }
    match (selection.larger_than, selection.smaller_than) {
        (Some(larger), Some(smaller)) if smaller <= larger => Err(s3_error!(
            InvalidRequest,
            "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'"
        )),
        _ => Ok(selection),
    }
}

fn size(given: Option<i64>, least: u64, name: &str) -> S3Result<Option<u64>> {
    let Some(given) = given else { return Ok(None) };
    match u64::try_from(given) {
        Ok(size) if size >= least => Ok(Some(size)),
        _ => Err(s3_error!(InvalidArgument, "'{}' should be at least {}", name, least)),
    }
}

fn read_expiration(action: LifecycleExpiration) -> S3Result<Expiration> {
    let LifecycleExpiration { date, days, expired_object_delete_marker } = action;
    match (date, days, expired_object_delete_marker) {
        (None, Some(days), None) => positive(Some(days), "Days", "Expiration").map(Expiration::Days),
        (Some(date), None, None) => midnight(&date).map(Expiration::Date),
        (None, None, Some(true)) => Ok(Expiration::MarkersAlone),
        (None, None, Some(false)) => {
            Err(s3_error!(InvalidRequest, "An ExpiredObjectDeleteMarker that is false does nothing: leave it out."))
        }
        _ => Err(malformed("an Expiration has one of Days, Date and ExpiredObjectDeleteMarker")),
    }
}

fn read_noncurrent(action: &NoncurrentVersionExpiration) -> S3Result<Noncurrent> {
    let days = positive(action.noncurrent_days, "NoncurrentDays", "NoncurrentVersionExpiration")?;
    let newer = action.newer_noncurrent_versions.map(|newer| match newer {
        1..=MOST_NEWER => Ok(newer.unsigned_abs()),
        _ => Err(s3_error!(InvalidArgument, "'NewerNoncurrentVersions' should be between 1 and {}", MOST_NEWER)),
    });
    Ok(Noncurrent { days, newer: newer.transpose()? })
}

fn positive(given: Option<i32>, name: &str, action: &str) -> S3Result<u32> {
    let Some(days) = given else { return Err(malformed("an action has its days")) };
    u32::try_from(days)
        .ok()
        .filter(|days| *days > 0)
        .ok_or_else(|| s3_error!(InvalidArgument, "'{}' for {} action must be a positive integer", name, action))
}

/// A date in milliseconds since the epoch.
fn midnight(date: &Timestamp) -> S3Result<u64> {
    let mut text = Vec::new();
    let written = date.format(TimestampFormat::EpochSeconds, &mut text).is_ok();
    let seconds: Option<u64> = String::from_utf8(text).ok().filter(|_| written).and_then(|text| text.parse().ok());
    match seconds {
        Some(seconds) if seconds % DAY_S == 0 => Ok(seconds * 1000),
        _ => Err(s3_error!(InvalidArgument, "'Date' must be at midnight GMT")),
    }
}

/// A rule as it was given.
pub(crate) fn write(rule: Rule) -> LifecycleRule {
    let Rule { id, is_enabled, selection, expiration, noncurrent, abort_days } = rule;
    let count = |days: u32| i32::try_from(days).unwrap_or(i32::MAX);
    let status = if is_enabled { ExpirationStatus::ENABLED } else { ExpirationStatus::DISABLED };
    let (prefix, filter) = match selection.form {
        Form::Prefix => (selection.prefix, None),
        Form::Filter | Form::And => (None, Some(write_filter(selection))),
    };
    LifecycleRule {
        abort_incomplete_multipart_upload: abort_days
            .map(|days| AbortIncompleteMultipartUpload { days_after_initiation: Some(count(days)) }),
        expiration: expiration.map(|expiration| match expiration {
            Expiration::Days(days) => LifecycleExpiration { days: Some(count(days)), ..Default::default() },
            Expiration::Date(ms) => LifecycleExpiration { date: Some(timestamp(ms)), ..Default::default() },
            Expiration::MarkersAlone => {
                LifecycleExpiration { expired_object_delete_marker: Some(true), ..Default::default() }
            }
        }),
        filter,
        id: Some(id),
        noncurrent_version_expiration: noncurrent.map(|noncurrent| NoncurrentVersionExpiration {
            newer_noncurrent_versions: noncurrent.newer.map(count),
            noncurrent_days: Some(count(noncurrent.days)),
        }),
        noncurrent_version_transitions: None,
        prefix,
        status: ExpirationStatus::from_static(status),
        transitions: None,
    }
}

fn write_filter(selection: Selection) -> LifecycleRuleFilter {
    let mut tags = written(selection.tags);
    let both = LifecycleRuleAndOperator {
        object_size_greater_than: selection.larger_than.map(signed),
        object_size_less_than: selection.smaller_than.map(signed),
        prefix: selection.prefix,
        tags: None,
    };
    match selection.form {
        Form::And => {
            let and = LifecycleRuleAndOperator { tags: Some(tags).filter(|tags| !tags.is_empty()), ..both };
            LifecycleRuleFilter { and: Some(and), ..LifecycleRuleFilter::default() }
        }
        Form::Prefix | Form::Filter => LifecycleRuleFilter {
            and: None,
            object_size_greater_than: both.object_size_greater_than,
            object_size_less_than: both.object_size_less_than,
            prefix: both.prefix,
            tag: tags.pop(),
        },
    }
}

fn written(tags: BTreeMap<String, String>) -> Vec<Tag> {
    tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect()
}

fn malformed(why: &str) -> s3s::S3Error {
    s3_error!(
        MalformedXML,
        "The XML you provided was not well-formed or did not validate against our published schema: {}.",
        why
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> LifecycleRule {
        LifecycleRule {
            abort_incomplete_multipart_upload: None,
            expiration: Some(LifecycleExpiration { days: Some(3), ..Default::default() }),
            filter: Some(LifecycleRuleFilter::default()),
            id: None,
            noncurrent_version_expiration: None,
            noncurrent_version_transitions: None,
            prefix: None,
            status: ExpirationStatus::from_static(ExpirationStatus::ENABLED),
            transitions: None,
        }
    }

    fn tag(key: &str) -> Tag {
        Tag { key: Some(key.to_owned()), value: Some("v".to_owned()) }
    }

    fn read_rules(rules: Vec<LifecycleRule>) -> Result<Lifecycle, String> {
        read(BucketLifecycleConfiguration { rules }).map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn a_configuration_is_read_as_it_was_written() {
        let filter = |filter| LifecycleRule { filter: Some(filter), ..rule() };
        let and = LifecycleRuleAndOperator {
            prefix: Some("a/".to_owned()),
            tags: Some(vec![tag("k"), tag("l")]),
            object_size_greater_than: Some(1),
            object_size_less_than: Some(9),
        };
        let noncurrent = NoncurrentVersionExpiration { newer_noncurrent_versions: Some(2), noncurrent_days: Some(1) };
        let abort = AbortIncompleteMultipartUpload { days_after_initiation: Some(7) };
        let date = LifecycleExpiration { date: Some(timestamp(86_400_000)), ..Default::default() };
        let marker = LifecycleExpiration { expired_object_delete_marker: Some(true), ..Default::default() };
        let given = vec![
            LifecycleRule { id: Some("rule-1".to_owned()), ..rule() },
            filter(LifecycleRuleFilter { and: Some(and), ..Default::default() }),
            filter(LifecycleRuleFilter { tag: Some(tag("k")), ..Default::default() }),
            filter(LifecycleRuleFilter { prefix: Some(String::new()), ..Default::default() }),
            LifecycleRule { expiration: Some(date), noncurrent_version_expiration: Some(noncurrent), ..rule() },
            LifecycleRule {
                expiration: Some(marker),
                abort_incomplete_multipart_upload: Some(abort),
                status: ExpirationStatus::from_static(ExpirationStatus::DISABLED),
                ..rule()
            },
        ];
        let lifecycle = read_rules(given.clone()).unwrap();
        let ids: Vec<&str> = lifecycle.rules.iter().map(|rule| rule.id.as_str()).collect();
        assert_eq!(ids, ["rule-1", "rule-2", "rule-3", "rule-4", "rule-5", "rule-6"]);
        for (given, read) in given.into_iter().zip(lifecycle.rules) {
            let written = write(read);
            assert_eq!(LifecycleRule { id: written.id.clone(), ..given }, written);
        }
        let old = vec![LifecycleRule { prefix: Some("a/".to_owned()), filter: None, ..rule() }];
        let read = read_rules(old).unwrap().rules.remove(0);
        assert_eq!((write(read.clone()).prefix.as_deref(), write(read).filter), (Some("a/"), None));
    }

    #[test]
    fn what_aws_refuses_is_refused() {
        let filter = |filter| LifecycleRule { filter: Some(filter), ..rule() };
        let expiration = |expiration| LifecycleRule { expiration: Some(expiration), ..rule() };
        let days = |days| LifecycleExpiration { days: Some(days), ..Default::default() };
        let noncurrent = |days, newer| LifecycleRule {
            noncurrent_version_expiration: Some(NoncurrentVersionExpiration {
                newer_noncurrent_versions: newer,
                noncurrent_days: days,
            }),
            ..rule()
        };
        let sizes = |larger, smaller| LifecycleRuleAndOperator {
            object_size_greater_than: larger,
            object_size_less_than: smaller,
            ..Default::default()
        };
        let and = |and| filter(LifecycleRuleFilter { and: Some(and), ..Default::default() });
        let tagged = || LifecycleRuleFilter { tag: Some(tag("k")), ..Default::default() };
        let abort = |days| Some(AbortIncompleteMultipartUpload { days_after_initiation: days });
        let named = |id: &str| LifecycleRule { id: Some(id.to_owned()), ..rule() };
        let old = || LifecycleRule { filter: None, prefix: Some(String::new()), ..rule() };
        let status = |status: &'static str| LifecycleRule { status: ExpirationStatus::from_static(status), ..rule() };
        let marker = |value| LifecycleExpiration { expired_object_delete_marker: Some(value), ..Default::default() };
        let date = |ms| LifecycleExpiration { date: Some(timestamp(ms)), ..Default::default() };
        for (rules, expected) in [
            (vec![], "MalformedXML"),
            (vec![rule(); 1001], "MalformedXML"),
            (vec![status("On")], "MalformedXML"),
            (vec![LifecycleRule { filter: None, ..rule() }], "MalformedXML"),
            (vec![LifecycleRule { prefix: Some(String::new()), ..rule() }], "MalformedXML"),
            (vec![rule(), old()], "InvalidRequest"),
            (vec![named("a"), named("a")], "InvalidArgument"),
            (vec![named(&"a".repeat(256))], "InvalidArgument"),
            (vec![LifecycleRule { expiration: None, ..rule() }], "InvalidRequest"),
            (vec![LifecycleRule { transitions: Some(vec![Default::default()]), ..rule() }], "NotImplemented"),
            (
                vec![LifecycleRule { noncurrent_version_transitions: Some(vec![Default::default()]), ..rule() }],
                "NotImplemented",
            ),
            (vec![expiration(days(0))], "InvalidArgument"),
            (vec![expiration(days(-1))], "InvalidArgument"),
            (vec![expiration(date(1000))], "InvalidArgument"),
            (vec![expiration(LifecycleExpiration::default())], "MalformedXML"),
            (vec![expiration(LifecycleExpiration { days: Some(1), ..marker(true) })], "MalformedXML"),
            (vec![expiration(marker(false))], "InvalidRequest"),
            (vec![LifecycleRule { filter: Some(tagged()), ..expiration(marker(true)) }], "InvalidRequest"),
            (vec![noncurrent(None, Some(1))], "MalformedXML"),
            (vec![noncurrent(Some(0), None)], "InvalidArgument"),
            (vec![noncurrent(Some(1), Some(0))], "InvalidArgument"),
            (vec![noncurrent(Some(1), Some(101))], "InvalidArgument"),
            (vec![LifecycleRule { abort_incomplete_multipart_upload: abort(Some(0)), ..rule() }], "InvalidArgument"),
            (vec![LifecycleRule { abort_incomplete_multipart_upload: abort(None), ..rule() }], "MalformedXML"),
            (
                vec![LifecycleRule { abort_incomplete_multipart_upload: abort(Some(1)), ..filter(tagged()) }],
                "InvalidRequest",
            ),
            (vec![filter(LifecycleRuleFilter { prefix: Some(String::new()), ..tagged() })], "MalformedXML"),
            (vec![and(sizes(Some(1), None))], "MalformedXML"),
            (vec![and(sizes(Some(5), Some(5)))], "InvalidRequest"),
            (vec![and(sizes(Some(-1), Some(5)))], "InvalidArgument"),
            (vec![and(sizes(Some(0), Some(0)))], "InvalidArgument"),
        ] {
            assert_eq!(read_rules(rules.clone()).unwrap_err(), expected, "{rules:?}");
        }
    }
}
