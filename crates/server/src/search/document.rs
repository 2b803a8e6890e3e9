//! One training job's properties, small and quick to look through.

use std::{
    cmp::Ordering,
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

use shoal_wire::{Condition, PropertyValue, Test, Wanted};

/// Characters of a text that orders look at.
const KEY_CHARACTERS: usize = 128;
/// Set in a value that is a number's place; else it is a text's.
const NUMBER: u32 = 1 << 31;

/// A property by number.
pub(super) type Property = u32;

/// Texts of all documents, each kept once.
#[derive(Default)]
pub(super) struct Texts {
    texts: Vec<Box<str>>,
    /// By hash: of two texts that share one, the later is kept as often as it comes.
    known: HashMap<u64, u32>,
    hasher: RandomState,
}

impl Texts {
    fn keep(&mut self, text: &str) -> u32 {
        let hash = self.hasher.hash_one(text);
        if let Some(number) = self.known.get(&hash)
            && &*self.texts[*number as usize] == text
        {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).expect("memory ends before numbers do");
        self.texts.push(text.into());
        self.known.entry(hash).or_insert(number);
        number
    }
}

/// A value of a property: eight bytes, of which there are millions.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The property's number, shifted, and the item's (0 without, at most 255).
    place: u32,
    value: u32,
}

const ITEM_BITS: u32 = 8;

/// Values in the order of their places.
pub(super) struct Document {
    entries: Box<[Entry]>,
    numbers: Box<[f64]>,
}

/// A document that is being written.
#[derive(Default)]
pub(super) struct Writer {
    entries: Vec<Entry>,
    numbers: Vec<f64>,
}

/// What a document is ordered by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Key<T> {
    Number(f64),
    Text(T),
    Absent,
}

impl Key<&str> {
    pub(super) fn to_owned(self) -> Key<String> {
        match self {
            Key::Number(number) => Key::Number(number),
            Key::Text(text) => Key::Text(text.to_owned()),
            Key::Absent => Key::Absent,
        }
    }

    /// Numbers before texts, both before what is absent.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Key::Number(one), Key::Number(two)) => one.total_cmp(two),
            (Key::Text(one), Key::Text(two)) => one.cmp(two),
            (Key::Absent, Key::Absent) => Ordering::Equal,
            (Key::Number(_), _) | (_, Key::Absent) => Ordering::Less,
            (_, Key::Number(_)) | (Key::Absent, _) => Ordering::Greater,
        }
    }
}

impl Key<String> {
    pub(super) fn as_str(&self) -> Key<&str> {
        match self {
            Key::Number(number) => Key::Number(*number),
            Key::Text(text) => Key::Text(text),
            Key::Absent => Key::Absent,
        }
    }
}

impl Writer {
    pub(super) fn push(&mut self, texts: &mut Texts, property: Property, item: usize, value: PropertyValue<'_>) {
        let value = match value {
            PropertyValue::Text(text) => texts.keep(text),
            PropertyValue::Number(number) => {
                self.numbers.push(number);
                NUMBER | u32::try_from(self.numbers.len() - 1).expect("a request has few numbers")
            }
        };
        let item = u32::from(u8::try_from(item).unwrap_or(u8::MAX));
        self.entries.push(Entry { place: property << ITEM_BITS | item, value });
    }

    pub(super) fn finish(mut self) -> Document {
        // Stable: values of one place stay as they came.
        self.entries.sort_by_key(|entry| entry.place);
        Document { entries: self.entries.into(), numbers: self.numbers.into() }
    }
}

impl Document {
    /// Whether the condition holds. Properties are by number; several of them are the parts of one.
    pub(super) fn meets(&self, condition: &Condition<Vec<Property>>, texts: &Texts) -> bool {
        match condition {
            Condition::All(parts) => parts.iter().all(|part| self.meets(part, texts)),
            Condition::Any(parts) => parts.iter().any(|part| self.meets(part, texts)),
            Condition::Property(properties, test) => self.passes(properties, None, test, texts),
            Condition::Item(tests) => {
                let items =
                    tests.iter().flat_map(|(properties, _)| properties).flat_map(|property| self.values(*property));
                let last = items.map(|entry| entry.place & 0xff).max().unwrap_or(0);
                (1..=last)
                    .any(|item| tests.iter().all(|(properties, test)| self.passes(properties, Some(item), test, texts)))
            }
        }
    }

    fn passes(&self, properties: &[Property], item: Option<u32>, test: &Test, texts: &Texts) -> bool {
        let has = |property: &Property| self.has(*property, item, &test.wanted, texts);
        test.negated != properties.iter().any(has)
    }

    fn has(&self, property: Property, item: Option<u32>, wanted: &Wanted, texts: &Texts) -> bool {
        let of_item = |entry: &&Entry| item.is_none_or(|item| entry.place & 0xff == item);
        self.values(property).iter().filter(of_item).any(|entry| wanted.passes(self.value(*entry, texts)))
    }

    /// What an order by this property goes by: its first value; of texts that spell numbers, the
    /// number.
    pub(super) fn key<'a>(&self, property: Option<Property>, texts: &'a Texts) -> Key<&'a str> {
        let entry = property.and_then(|property| self.values(property).first());
        match entry.map(|entry| self.value(*entry, texts)) {
            Some(PropertyValue::Text(text)) => match PropertyValue::Text(text).number() {
                Some(number) => Key::Number(number),
                None => Key::Text(text.char_indices().nth(KEY_CHARACTERS).map_or(text, |(end, _)| &text[..end])),
            },
            Some(PropertyValue::Number(number)) => Key::Number(number),
            None => Key::Absent,
        }
    }

    /// The key of the first of these properties that is there.
    pub(super) fn first_key<'a>(&self, properties: &[Property], texts: &'a Texts) -> Key<&'a str> {
        let mut keys = properties.iter().map(|property| self.key(Some(*property), texts));
        keys.find(|key| *key != Key::Absent).unwrap_or(Key::Absent)
    }

    /// The first value of a property.
    pub(super) fn first<'a>(&self, property: Property, texts: &'a Texts) -> Option<PropertyValue<'a>> {
        self.values(property).first().map(|entry| self.value(*entry, texts))
    }

    /// All texts of a property.
    pub(super) fn texts<'a>(&'a self, property: Property, texts: &'a Texts) -> impl Iterator<Item = &'a str> {
        self.values(property).iter().filter_map(|entry| match self.value(*entry, texts) {
            PropertyValue::Text(text) => Some(text),
            PropertyValue::Number(_) => None,
        })
    }

    /// The first value of each property.
    pub(super) fn each_first<'a>(&self, texts: &'a Texts, each: &mut impl FnMut(Property, PropertyValue<'a>)) {
        let mut before = None;
        for entry in &self.entries {
            let property = entry.place >> ITEM_BITS;
            if before.replace(property) != Some(property) {
                each(property, self.value(*entry, texts));
            }
        }
    }

    fn values(&self, property: Property) -> &[Entry] {
        let start = self.entries.partition_point(|entry| entry.place >> ITEM_BITS < property);
        let count = self.entries[start..].iter().take_while(|entry| entry.place >> ITEM_BITS == property).count();
        &self.entries[start..start + count]
    }

    fn value<'a>(&self, entry: Entry, texts: &'a Texts) -> PropertyValue<'a> {
        if entry.value & NUMBER == 0 {
            PropertyValue::Text(&texts.texts[entry.value as usize])
        } else {
            PropertyValue::Number(self.numbers[(entry.value & !NUMBER) as usize])
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_wire::Comparison;

    use super::*;

    const NAME: Property = 1;
    const TAG_KEY: Property = 2;
    const TAG_VALUE: Property = 3;

    fn is(text: &str) -> Test {
        Test { negated: false, wanted: Wanted::Text(text.to_owned()) }
    }

    fn written(texts: &mut Texts, values: &[(Property, usize, PropertyValue<'_>)]) -> Document {
        let mut writer = Writer::default();
        for (property, item, value) in values {
            writer.push(texts, *property, *item, *value);
        }
        writer.finish()
    }

    #[test]
    fn keys_have_a_total_order() {
        let numbers = [f64::NEG_INFINITY, -1.0, 0.0, 2.0, f64::INFINITY];
        let ordered: Vec<Key<&str>> =
            numbers.into_iter().map(Key::Number).chain(["", "a", "é"].map(Key::Text)).chain([Key::Absent]).collect();
        for (at, one) in ordered.iter().enumerate() {
            for (other_at, other) in ordered.iter().enumerate() {
                assert_eq!(one.compare(other), at.cmp(&other_at), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn an_item_passes_all_tests_or_it_is_another_one() {
        let mut texts = Texts::default();
        let text = PropertyValue::Text;
        // Written in any order; items are numbered from 1.
        let document = written(
            &mut texts,
            &[
                (TAG_VALUE, 2, text("trees")),
                (TAG_KEY, 1, text("team")),
                (TAG_KEY, 2, text("model")),
                (TAG_VALUE, 1, text("blue")),
                (NAME, 0, text("a")),
            ],
        );
        let item =
            |key: &str, value: &str| Condition::Item(vec![(vec![TAG_KEY], is(key)), (vec![TAG_VALUE], is(value))]);
        assert!(document.meets(&item("team", "blue"), &texts));
        assert!(!document.meets(&item("team", "trees"), &texts), "key and value are of two items");
        let property = |property, test| Condition::Property(vec![property], test);
        assert!(document.meets(&property(TAG_VALUE, is("trees")), &texts), "any item's");
        let negated = |text: &str| Test { negated: true, ..is(text) };
        assert!(!document.meets(&property(TAG_VALUE, negated("trees")), &texts));
        assert!(document.meets(&property(99, negated("trees")), &texts), "what is not there is not that");
        assert!(!document.meets(&property(99, Test { negated: false, wanted: Wanted::Anything }), &texts));
        let (yes, no) = (property(NAME, is("a")), property(NAME, is("b")));
        for (all, any, expected) in [(vec![], vec![], (true, false)), (vec![&yes, &no], vec![&no, &yes], (false, true))]
        {
            let owned = |parts: Vec<&Condition<Vec<Property>>>| parts.into_iter().cloned().collect::<Vec<_>>();
            let found = (
                document.meets(&Condition::All(owned(all)), &texts),
                document.meets(&Condition::Any(owned(any)), &texts),
            );
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn items_beyond_the_last_number_are_still_found() {
        let mut texts = Texts::default();
        let names: Vec<String> = (1..=400).map(|item| format!("value-{item}")).collect();
        let values: Vec<_> =
            names.iter().enumerate().map(|(at, name)| (TAG_VALUE, at + 1, PropertyValue::Text(name))).collect();
        let document = written(&mut texts, &values);
        for wanted in ["value-1", "value-255", "value-256", "value-400"] {
            assert!(document.meets(&Condition::Item(vec![(vec![TAG_VALUE], is(wanted))]), &texts), "{wanted}");
        }
        assert!(!document.meets(&Condition::Item(vec![(vec![TAG_VALUE], is("value-401"))]), &texts));
    }

    #[test]
    fn an_order_goes_by_the_first_value_and_by_numbers_where_texts_spell_them() {
        let mut texts = Texts::default();
        let long = "é".repeat(KEY_CHARACTERS + 1);
        let document = written(
            &mut texts,
            &[
                (1, 0, PropertyValue::Text("10")),
                (2, 0, PropertyValue::Number(2.5)),
                (2, 0, PropertyValue::Number(1.0)),
                (3, 0, PropertyValue::Text("ten")),
                (4, 0, PropertyValue::Text(&long)),
                (5, 0, PropertyValue::Text("inf")),
            ],
        );
        let key = |property| document.key(property, &texts);
        assert_eq!([key(Some(1)), key(Some(2))], [Key::Number(10.0), Key::Number(2.5)]);
        assert_eq!(key(Some(3)), Key::Text("ten"));
        assert_eq!(key(Some(4)), Key::Text(&long[..2 * KEY_CHARACTERS]), "cut between characters");
        assert_eq!(key(Some(5)), Key::Text("inf"), "no number that an order could go by");
        assert_eq!([key(Some(6)), key(None)], [Key::Absent, Key::Absent]);
        let above = Test {
            negated: false,
            wanted: Wanted::Number { comparison: Comparison::Greater, value: 9.0, whole: false },
        };
        assert!(document.meets(&Condition::Property(vec![1], above.clone()), &texts), "a text that spells a number");
        assert!(!document.meets(&Condition::Property(vec![3], above), &texts));
    }

    #[test]
    fn a_text_is_kept_once() {
        let mut texts = Texts::default();
        let kept: Vec<u32> = ["a", "b", "a", "", "b", ""].map(|text| texts.keep(text)).to_vec();
        assert_eq!(kept, [0, 1, 0, 2, 1, 2]);
    }
}
