//! Versions of objects: which one an object is, and whether a bucket keeps them.

/// What S3 calls the version of a bucket that keeps none, in every place where it wants an id.
const NULL: &str = "null";

/// Letters of an id, all hexadecimal digits.
const ID_LETTERS: usize = 32;

/// Those of them that are the time.
const TIME_LETTERS: usize = 12;

/// Which version of its key an object is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Version {
    /// The only one: its bucket never kept any.
    #[default]
    Only,
    /// The one that was made while the bucket kept none.
    Null,
    /// One of many, by its id.
    Id(String),
}

impl Version {
    /// Of a row, where the null version has an empty id.
    pub(crate) fn of(id: String, versioning: Versioning) -> Self {
        match versioning {
            _ if !id.is_empty() => Self::Id(id),
            Versioning::Never => Self::Only,
            Versioning::Enabled | Versioning::Suspended => Self::Null,
        }
    }

    /// The id in answers about a version.
    pub fn id(&self) -> &str {
        match self {
            Self::Only | Self::Null => NULL,
            Self::Id(id) => id,
        }
    }

    /// The same in answers about an object, which name none where the bucket never kept any.
    pub fn shown(&self) -> Option<&str> {
        (*self != Self::Only).then(|| self.id())
    }

    /// Whether a version can have this id.
    pub fn is_id(text: &str) -> bool {
        text == NULL || text.len() == ID_LETTERS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }
}

/// Whether a bucket keeps what its objects were before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Versioning {
    /// It never did.
    #[default]
    Never,
    /// It does.
    Enabled,
    /// It did: earlier versions stay, and new objects replace the null version.
    Suspended,
}

impl Versioning {
    pub(crate) fn of(column: i64) -> Self {
        match column {
            0 => Self::Never,
            1 => Self::Enabled,
            _ => Self::Suspended,
        }
    }

    pub(crate) fn column(self) -> i64 {
        match self {
            Self::Never => 0,
            Self::Enabled => 1,
            Self::Suspended => 2,
        }
    }
}

/// An id as rows have it: empty for the null version.
pub(crate) fn id_in_row(id: &str) -> &str {
    if id == NULL { "" } else { id }
}

/// The id of a version at this place; `random` has at least as many digits as the time leaves.
pub(crate) fn id_at(place: i64, random: &str) -> String {
    let time = place.unsigned_abs();
    format!("{time:0TIME_LETTERS$x}{}", &random[..ID_LETTERS - TIME_LETTERS])
}

/// The place of the version with this id; `None`: the id does not have it.
pub(crate) fn place_of(id: &str) -> Option<i64> {
    let time = id.get(..TIME_LETTERS).filter(|_| Version::is_id(id))?;
    i64::from_str_radix(time, 16).ok().map(|time| -time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_where_its_version_is() {
        let random = "0123456789abcdef0123456789abcdef";
        let (older, newer) = (id_at(-1_700_000_000_000, random), id_at(-1_700_000_000_001, random));
        assert!(Version::is_id(&older) && older < newer, "{older} {newer}");
        assert_eq!(place_of(&newer), Some(-1_700_000_000_001));
        for (text, is_id) in [("null", true), ("", false), ("x", false), (&older[1..], false), (&older, true)] {
            assert_eq!(Version::is_id(text), is_id, "{text}");
        }
        assert_eq!(place_of("null"), None);
    }
}
