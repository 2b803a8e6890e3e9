//! Rules by which objects expire, and what follows from them at a time. Pure: the server performs
//! it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shoal_store::{Expired, ObjectMeta, VersionMeta, VersionPlace};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A bucket's rules, as the store keeps them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    pub(crate) rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) is_enabled: bool,
    pub(crate) selection: Selection,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expiration: Option<Expiration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) noncurrent: Option<Noncurrent>,
    /// Days from the begin of an unfinished upload to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) abort_days: Option<u32>,
}

/// Which objects a rule is about; all of what is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Selection {
    pub(crate) form: Form,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tags: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) larger_than: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) smaller_than: Option<u64>,
}

/// How the selection was written, so that it is read as it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// A prefix beside the rule's actions.
    Prefix,
    /// A filter with one condition or none.
    #[default]
    Filter,
    /// A filter with several.
    And,
}

/// What becomes of current objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Expiration {
    Days(u32),
    /// From this time on, in milliseconds since the epoch.
    Date(u64),
    /// Nothing: delete markers go that hide nothing.
    MarkersAlone,
}

/// What becomes of versions that are not current any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Noncurrent {
    pub(crate) days: u32,
    /// The newest of a key, up to this number, stay whatever their age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) newer: Option<u32>,
}

/// When something ends, in milliseconds since the epoch, and by which rule.
pub(crate) type End<'a> = (u64, &'a str);

impl Lifecycle {
    /// Of the store's text.
    ///
    /// # Errors
    /// It is none.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// For the store.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).expect("rules are always JSON")
    }

    fn enabled(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.is_enabled)
    }

    /// When a current object expires.
    pub(crate) fn end_of(&self, object: &ObjectMeta) -> Option<End<'_>> {
        let rules = self.enabled().filter(|rule| rule.selection.matches(&object.key, Some(object)));
        rules.filter_map(|rule| Some((rule.expiration?.of_object(object.modified_ms)?, rule.id.as_str()))).min()
    }

    /// When an upload ends that is not completed.
    pub(crate) fn end_of_upload(&self, key: &str, created_ms: u64) -> Option<End<'_>> {
        let rules = self.enabled().filter(|rule| rule.selection.matches(key, None));
        rules.filter_map(|rule| Some((after_days(created_ms, rule.abort_days?), rule.id.as_str()))).min()
    }

    /// Whether an upload that was begun then has to end.
    pub fn ends_upload(&self, key: &str, created_ms: u64, now_ms: u64) -> bool {
        self.end_of_upload(key, created_ms).is_some_and(|(end, _)| end <= now_ms)
    }

    /// Whether any rule is about uploads.
    pub fn has_uploads(&self) -> bool {
        self.enabled().any(|rule| rule.abort_days.is_some())
    }

    /// Whether any rule is about objects or their versions.
    pub fn has_objects(&self) -> bool {
        self.enabled().any(|rule| rule.expiration.is_some() || rule.noncurrent.is_some())
    }

    fn ends_noncurrent(&self, version: &VersionMeta, since_ms: u64, newer: u32, now_ms: u64) -> bool {
        self.enabled().filter(|rule| rule.selection.matches(&version.key, version.object.as_ref())).any(|rule| {
            rule.noncurrent.is_some_and(|noncurrent| {
                after_days(since_ms, noncurrent.days) <= now_ms && noncurrent.newer.is_none_or(|most| newer >= most)
            })
        })
    }

    /// Whether a delete marker that hides nothing has to go.
    fn ends_marker(&self, key: &str, modified_ms: u64, now_ms: u64) -> bool {
        self.enabled().filter(|rule| rule.selection.matches(key, None)).any(|rule| match rule.expiration {
            None => false,
            Some(Expiration::MarkersAlone) => true,
            Some(expiration) => expiration.of_object(modified_ms).is_some_and(|end| end <= now_ms),
        })
    }
}

impl Expiration {
    fn of_object(self, modified_ms: u64) -> Option<u64> {
        match self {
            Self::Days(days) => Some(after_days(modified_ms, days)),
            Self::Date(date) => Some(date),
            Self::MarkersAlone => None,
        }
    }
}

impl Selection {
    /// `object`: a delete marker has none, and neither tags nor a size.
    fn matches(&self, key: &str, object: Option<&ObjectMeta>) -> bool {
        let Self { prefix, tags, larger_than, smaller_than, .. } = self;
        let is_plain = tags.is_empty() && larger_than.is_none() && smaller_than.is_none();
        let fits = |object: &ObjectMeta| {
            tags.iter().all(|(name, value)| object.attributes.tags.get(name) == Some(value))
                && larger_than.is_none_or(|least| object.size > least)
                && smaller_than.is_none_or(|most| object.size < most)
        };
        prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix)) && object.map_or(is_plain, fits)
    }
}

/// This number of days later, at the next midnight (UTC), as AWS counts.
fn after_days(from_ms: u64, days: u32) -> u64 {
    (from_ms / DAY_MS + u64::from(days) + 1) * DAY_MS
}

/// The day (UTC) of a time; everything that expires by days does so at its beginning.
pub fn day_of(now_ms: u64) -> u64 {
    now_ms / DAY_MS
}

/// Decides about a bucket's versions, which it takes in the order of a list. Pages may end
/// anywhere.
#[derive(Debug)]
pub struct Judge {
    lifecycle: Lifecycle,
    now_ms: u64,
    key: String,
    /// Versions of the key with content that are not current and have been taken.
    newer: u32,
    /// Something of the key stays.
    is_kept: bool,
    /// The key's current delete marker, and when it was made.
    marker: Option<(VersionPlace, u64)>,
}

impl Judge {
    /// By these rules at this time.
    pub fn new(lifecycle: Lifecycle, now_ms: u64) -> Self {
        Self { lifecycle, now_ms, key: String::new(), newer: 0, is_kept: false, marker: None }
    }

    /// What expires, now that this version is known.
    pub fn take(&mut self, version: &VersionMeta) -> Vec<Expired> {
        let mut expired = Vec::new();
        if version.key != self.key {
            expired.extend(self.end());
            self.key.clone_from(&version.key);
        }
        match (version.noncurrent_ms, &version.object) {
            (None, None) => self.marker = Some((version.into(), version.modified_ms)),
            (None, Some(object)) => {
                self.is_kept = true;
                if self.lifecycle.end_of(object).is_some_and(|(end, _)| end <= self.now_ms) {
                    expired.push(Expired::Current { key: object.key.clone(), id: object.id.clone() });
                }
            }
            (Some(since_ms), object) => {
                match self.lifecycle.ends_noncurrent(version, since_ms, self.newer, self.now_ms) {
                    true => expired.push(Expired::Noncurrent(version.into())),
                    false => self.is_kept = true,
                }
                // Delete markers are nothing that could be kept in place of content.
                self.newer += u32::from(object.is_some());
            }
        }
        expired
    }

    /// What expires, now that all versions of the key are known.
    pub fn end(&mut self) -> Option<Expired> {
        let (marker, is_kept) = (self.marker.take(), self.is_kept);
        (self.newer, self.is_kept) = (0, false);
        let (place, modified_ms) = marker.filter(|_| !is_kept)?;
        self.lifecycle.ends_marker(&self.key, modified_ms, self.now_ms).then_some(Expired::Marker(place))
    }
}

#[cfg(test)]
mod tests {
    use shoal_store::{Attributes, DataDir, DeleteCondition, Objects, Versioning};

    use super::*;

    const HOUR_MS: u64 = DAY_MS / 24;

    fn rule(expiration: Option<Expiration>) -> Rule {
        Rule {
            id: "r".to_owned(),
            is_enabled: true,
            selection: Selection::default(),
            expiration,
            noncurrent: None,
            abort_days: None,
        }
    }

    fn object(key: &str, size: u64, modified_ms: u64, tag: &str) -> ObjectMeta {
        ObjectMeta {
            key: key.to_owned(),
            size,
            etag: String::new(),
            modified_ms,
            id: String::new(),
            attributes: Attributes {
                tags: BTreeMap::from([("kind".to_owned(), tag.to_owned())]),
                ..Attributes::default()
            },
            version: shoal_store::Version::default(),
            passthrough: None,
        }
    }

    #[test]
    fn days_are_rounded_to_the_next_midnight() {
        for (from_ms, days, expected) in
            [(10 * HOUR_MS, 3, 4 * DAY_MS), (0, 1, 2 * DAY_MS), (DAY_MS - 1, 1, 2 * DAY_MS), (DAY_MS, 1, 3 * DAY_MS)]
        {
            assert_eq!(after_days(from_ms, days), expected, "{from_ms} {days}");
        }
    }

    #[test]
    fn a_rule_is_about_what_its_selection_names() {
        let tags = |tag: &str| BTreeMap::from([("kind".to_owned(), tag.to_owned())]);
        let prefix = || Some("logs/".to_owned());
        for (selection, object_matches, marker_matches) in [
            (Selection::default(), true, true),
            (Selection { prefix: prefix(), ..Selection::default() }, true, true),
            (Selection { prefix: Some("log/".to_owned()), ..Selection::default() }, false, false),
            (Selection { tags: tags("raw"), ..Selection::default() }, true, false),
            (Selection { tags: tags("clean"), ..Selection::default() }, false, false),
            (Selection { larger_than: Some(9), ..Selection::default() }, true, false),
            (Selection { larger_than: Some(10), ..Selection::default() }, false, false),
            (Selection { smaller_than: Some(11), ..Selection::default() }, true, false),
            (Selection { smaller_than: Some(10), ..Selection::default() }, false, false),
            (
                Selection { prefix: prefix(), tags: tags("raw"), larger_than: Some(10), ..Selection::default() },
                false,
                false,
            ),
        ] {
            assert_eq!(
                selection.matches("logs/a", Some(&object("logs/a", 10, 0, "raw"))),
                object_matches,
                "{selection:?}"
            );
            assert_eq!(selection.matches("logs/a", None), marker_matches, "{selection:?}");
        }
    }

    #[test]
    fn the_earliest_of_the_enabled_rules_counts() {
        let named = |id: &str, days| Rule { id: id.to_owned(), ..rule(Some(Expiration::Days(days))) };
        let off = Rule { is_enabled: false, ..named("off", 1) };
        let markers = rule(Some(Expiration::MarkersAlone));
        let dated = Rule { id: "dated".to_owned(), ..rule(Some(Expiration::Date(9 * DAY_MS))) };
        let lifecycle = |rules: &[&Rule]| Lifecycle { rules: rules.iter().copied().cloned().collect() };
        let made = object("k", 1, HOUR_MS, "raw");
        for (rules, expected) in [
            (vec![&off, &markers], None),
            (vec![&dated, &off], Some((9 * DAY_MS, "dated"))),
            (vec![&dated], Some((9 * DAY_MS, "dated"))),
        ] {
            assert_eq!(lifecycle(&rules).end_of(&made), expected);
        }
        let (ten, five) = (named("ten", 10), named("five", 5));
        assert_eq!(lifecycle(&[&ten, &five, &dated]).end_of(&made), Some((6 * DAY_MS, "five")));
        let upload = Rule { abort_days: Some(2), ..rule(None) };
        let uploads = lifecycle(&[&five, &upload]);
        assert_eq!(uploads.end_of_upload("k", HOUR_MS), Some((3 * DAY_MS, "r")));
        assert!(uploads.ends_upload("k", HOUR_MS, 3 * DAY_MS) && !uploads.ends_upload("k", HOUR_MS, 3 * DAY_MS - 1));
    }

    #[test]
    fn rules_of_the_store_are_read_as_they_were() {
        let full = Rule {
            selection: Selection { form: Form::And, larger_than: Some(1), ..Selection::default() },
            noncurrent: Some(Noncurrent { days: 3, newer: Some(2) }),
            abort_days: Some(7),
            ..rule(Some(Expiration::Date(DAY_MS)))
        };
        let lifecycle = Lifecycle { rules: vec![full, rule(Some(Expiration::MarkersAlone))] };
        assert_eq!(Lifecycle::read(&lifecycle.text()).unwrap(), lifecycle);
        // What is stored stays readable.
        let stored =
            r#"{"rules":[{"id":"r","is_enabled":true,"selection":{"form":"Filter"},"expiration":{"Days":3}}]}"#;
        assert_eq!(Lifecycle::read(stored).unwrap().rules, [rule(Some(Expiration::Days(3)))]);
    }

    /// Versions as a bucket has them: `k` with four earlier ones, `m` behind a marker, and a marker
    /// alone.
    fn versions() -> Vec<VersionMeta> {
        let temp = tempfile::tempdir().unwrap();
        let objects = Objects::open(&DataDir::open(temp.path()).unwrap()).unwrap();
        objects.create_bucket("b").unwrap();
        objects.set_versioning("b", Versioning::Enabled).unwrap();
        let put = |key: &str| objects.put("b", key, b"content", &Attributes::default()).unwrap();
        (0..5).for_each(|_| drop(put("k")));
        put("m");
        objects.delete("b", "m").unwrap();
        let gone = put("n").version;
        objects.delete("b", "n").unwrap();
        objects.delete_if("b", "n", Some(gone.id()), &DeleteCondition::default()).unwrap();
        objects.walk_versions("b", &VersionPlace::default(), 99).unwrap()
    }

    /// What expires: the key, and `c`urrent, `n`oncurrent or `m`arker.
    fn judged(lifecycle: &Lifecycle, versions: &[VersionMeta], now_ms: u64) -> String {
        let mut judge = Judge::new(lifecycle.clone(), now_ms);
        let mut expired: Vec<Expired> = versions.iter().flat_map(|version| judge.take(version)).collect();
        expired.extend(judge.end());
        let key_of = |place: &VersionPlace| {
            versions.iter().find(|version| VersionPlace::from(*version) == *place).unwrap().key.clone()
        };
        let texts = expired.iter().map(|one| match one {
            Expired::Current { key, .. } => format!("{key}c"),
            Expired::Noncurrent(place) => format!("{}n", key_of(place)),
            Expired::Marker(place) => format!("{}m", key_of(place)),
        });
        texts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn versions_and_markers_expire_by_their_own_rules() {
        let versions = versions();
        let now = versions[0].modified_ms;
        let noncurrent = |newer| Rule { noncurrent: Some(Noncurrent { days: 1, newer }), ..rule(None) };
        let (later, early) = (now + 2 * DAY_MS, now + HOUR_MS / 1000);
        let both = || vec![noncurrent(None), rule(Some(Expiration::MarkersAlone))];
        for (rules, at, expected) in [
            (vec![rule(Some(Expiration::Days(1)))], later, "kc nm"),
            (vec![rule(Some(Expiration::Days(1)))], early, ""),
            (vec![rule(Some(Expiration::Date(now)))], now, "kc nm"),
            (vec![rule(Some(Expiration::MarkersAlone))], now, "nm"),
            (vec![noncurrent(None)], early, ""),
            (vec![noncurrent(None)], later, "kn kn kn kn mn"),
            (vec![noncurrent(Some(3))], later, "kn"),
            (vec![noncurrent(Some(4))], later, ""),
            // The marker hides nothing once its version has gone.
            (both(), later, "kn kn kn kn mn mm nm"),
            (vec![Rule { is_enabled: false, ..noncurrent(None) }], later, ""),
        ] {
            let lifecycle = Lifecycle { rules };
            assert_eq!(judged(&lifecycle, &versions, at), expected, "{lifecycle:?}");
        }
    }
}
