//! How keys are written in XML replies: as they are, or encoded as in an address.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::{CommonPrefix, EncodingType};
use s3s::{S3Result, s3_error};

/// How keys are written in the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Plain,
    Url,
}

impl Encoding {
    pub(crate) fn of(asked: Option<EncodingType>) -> S3Result<Self> {
        match asked {
            None => Ok(Self::Plain),
            Some(kind) if kind.as_str() == EncodingType::URL => Ok(Self::Url),
            Some(_) => Err(s3_error!(InvalidArgument, "Invalid Encoding Method specified in Request")),
        }
    }

    pub(crate) fn named(self) -> Option<EncodingType> {
        match self {
            Self::Plain => None,
            Self::Url => Some(EncodingType::from_static(EncodingType::URL)),
        }
    }

    pub(crate) fn text(self, text: String) -> String {
        match self {
            Self::Plain if text.contains(|letter| !in_xml(letter)) => {
                text.replace(|letter| !in_xml(letter), "\u{fffd}")
            }
            Self::Plain => text,
            Self::Url => url_encode(&text),
        }
    }

    pub(crate) fn common(self, prefixes: Vec<String>) -> Vec<CommonPrefix> {
        prefixes.into_iter().map(|prefix| CommonPrefix { prefix: Some(self.text(prefix)) }).collect()
    }
}

/// XML 1.0 has no way to write other characters; clients whose keys may have them ask for the
/// encoding.
pub(crate) fn in_xml(letter: char) -> bool {
    letter >= ' ' && !matches!(letter, '\u{fffe}' | '\u{ffff}') || matches!(letter, '\t' | '\n' | '\r')
}

/// What stays as it is in an encoded key. A space is `%20`: some clients read a `+` as a space and
/// some do not.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/').remove(b'*');

pub(crate) fn url_encode(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_encoded_for_xml() {
        for (key, expected) in [("a/b.c-d_e~f", "a/b.c-d_e~f"), ("a b+c", "a%20b%2Bc"), ("ö\n%", "%C3%B6%0A%25")] {
            assert_eq!(url_encode(key), expected);
        }
    }
}
