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

    /// Numbers before texts.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Key::Number(one), Key::Number(two)) => one.total_cmp(two),
            (Key::Text(one), Key::Text(two)) => one.cmp(two),
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
