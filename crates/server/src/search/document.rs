//! One training job's properties as bytes that a search runs through.

use std::cmp::Ordering;

use shoal_wire::{Condition, PropertyValue, Test, Wanted};

/// Characters of a text that orders look at.
const KEY_CHARACTERS: usize = 128;

const CONTAINER: u8 = 0;
const NUMBER: u8 = 1;
const TEXT: u8 = 2;

/// Entries one after another: the property's number (4 bytes), the item (1; 0 for none), the kind (1), then a number (8), or a text's length
/// in bytes (2) and the text. Little end first.
pub(super) struct Document(Box<[u8]>);

/// A document that is being written.
pub(super) struct Writer(Vec<u8>);

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
    pub(super) fn push(&mut self, property: u32, item: usize, value: PropertyValue<'_>) {
        self.0.extend(property.to_le_bytes());
        self.0.push(u8::try_from(item).unwrap_or(u8::MAX));
        match value {
            PropertyValue::Container => self.0.push(CONTAINER),
            PropertyValue::Number(number) => {
                self.0.push(NUMBER);
                self.0.extend(number.to_le_bytes());
            }
            PropertyValue::Text(text) => {
                let text = &text[..text.floor_char_boundary(usize::from(u16::MAX))];
                let length = u16::try_from(text.len()).expect("cut to what two bytes count");
                self.0.push(TEXT);
                self.0.extend(length.to_le_bytes());
                self.0.extend(text.as_bytes());
            }
        }
    }

    pub(super) fn finish(self) -> Document {
        Document(self.0.into())
    }
}

impl Document {
    pub(super) fn writer() -> Writer {
        Writer(Vec::new())
    }

    /// Whether the condition holds. A property without a number is one that no document has.
    pub(super) fn meets(&self, condition: &Condition<Option<u32>>) -> bool {
        match condition {
            Condition::All(parts) => parts.iter().all(|part| self.meets(part)),
            Condition::Any(parts) => parts.iter().any(|part| self.meets(part)),
            Condition::Property(property, test) => self.passes(*property, None, test),
            Condition::Item(tests) => {
                let ours = self.entries().filter(|entry| tests.iter().any(|(property, _)| *property == Some(entry.property)));
                let last = ours.map(|entry| entry.item).max().unwrap_or(0);
                (1..=last).any(|item| tests.iter().all(|(property, test)| self.passes(*property, Some(item), test)))
            }
        }
    }

    fn passes(&self, property: Option<u32>, item: Option<u8>, test: &Test) -> bool {
        test.negated != property.is_some_and(|property| self.has(property, item, &test.wanted))
    }

    fn has(&self, property: u32, item: Option<u8>, wanted: &Wanted) -> bool {
        self.entries()
            .filter(|entry| entry.property == property && item.is_none_or(|item| entry.item == item))
            .any(|entry| wanted.passes(entry.value()))
    }

    /// What an order by this property goes by: its first value; of texts that spell numbers, the number.
    pub(super) fn key(&self, property: Option<u32>) -> Key<&str> {
        let entry = property.and_then(|property| self.entries().find(|entry| entry.property == property));
        match entry.map(|entry| entry.value()) {
            Some(PropertyValue::Text(text)) => match PropertyValue::Text(text).number() {
                Some(number) => Key::Number(number),
                None => Key::Text(text.char_indices().nth(KEY_CHARACTERS).map_or(text, |(end, _)| &text[..end])),
            },
            Some(PropertyValue::Number(number)) => Key::Number(number),
            Some(PropertyValue::Container) | None => Key::Absent,
        }
    }

    fn entries(&self) -> Entries<'_> {
        Entries(&self.0)
    }
}

struct Entry<'a> {
    property: u32,
    item: u8,
    kind: u8,
    value: &'a [u8],
}

impl<'a> Entry<'a> {
    fn value(&self) -> PropertyValue<'a> {
        match self.kind {
            NUMBER => PropertyValue::Number(f64::from_le_bytes(self.value.try_into().expect("eight bytes"))),
            TEXT => PropertyValue::Text(std::str::from_utf8(self.value).expect("written from a text")),
            _ => PropertyValue::Container,
        }
    }
}

struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let (property, rest) = self.0.split_first_chunk()?;
        let ([item, kind], rest) = rest.split_first_chunk().expect("an entry is written whole");
        let (length, rest) = match *kind {
            TEXT => {
                let (length, rest) = rest.split_first_chunk().expect("an entry is written whole");
                (usize::from(u16::from_le_bytes(*length)), rest)
            }
            NUMBER => (8, rest),
            _ => (0, rest),
        };
        let (value, rest) = rest.split_at(length);
        self.0 = rest;
        Some(Entry { property: u32::from_le_bytes(*property), item: *item, kind: *kind, value })
    }
}
