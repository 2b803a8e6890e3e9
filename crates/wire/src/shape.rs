//! Shapes of service models with their limits, as the constraint table is made of them.

use crate::pattern::Pattern;

/// A shape of a service model, with its limits. Sizes and lengths are inclusive.
#[derive(Debug)]
pub(crate) enum Shape {
    Structure(&'static [Member]),
    String {
        min: u64,
        max: u64,
        pattern: Option<Pattern>,
    },
    Enum(&'static [&'static str]),
    List {
        min: u64,
        max: u64,
        member: &'static Self,
    },
    Map {
        min: u64,
        max: u64,
        key: &'static Self,
        value: &'static Self,
    },
    /// Whole numbers of so many bits; any number without.
    Number {
        bits: Option<u8>,
        min: f64,
        max: f64,
    },
    Boolean,
    Timestamp,
}

/// A member of a structure.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    pub(crate) shape: &'static Shape,
}
