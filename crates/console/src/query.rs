//! Names and values behind the `?` of an address, and in forms.

use std::borrow::Cow;

/// Decoded pairs in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The value of a name; `None` if it is absent or empty, as an empty field of a form is.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, value)| known == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// The values of a name, in their order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(known, value)| known == name && !value.is_empty()).map(|(_, value)| &**value).collect()
    }

    /// The number of a name.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}

/// An address: a path and the pairs that have a value.
pub(crate) fn address(path: &str, pairs: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs.iter().filter(|(_, value)| !value.is_empty()));
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

/// A segment of a path, decoded.
pub(crate) fn decode(segment: &str) -> String {
    // The form's decoder, told that a plus is a plus.
    let text = segment.replace('+', "%2B");
    form_urlencoded::parse(text.replace('=', "%3D").replace('&', "%26").as_bytes())
        .map(|(name, _)| name)
        .next()
        .map(Cow::into_owned)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_and_segments() {
        let query = Query::parse("q=a+b%26c&empty=&n=12");
        assert_eq!(
            (query.get("q"), query.get("empty"), query.number("n"), query.number("q")),
            (Some("a b&c"), None, Some(12), None)
        );
        assert_eq!(Query::parse("run=b&run=&run=a").all("run"), ["b", "a"]);
        assert_eq!(address("/x", &[("q", "a b&c"), ("empty", "")]), "/x?q=a+b%26c");
        assert_eq!(address("/x", &[("empty", "")]), "/x");
        for (segment, expected) in [("a-b", "a-b"), ("a%2Fb", "a/b"), ("a+b=c&d", "a+b=c&d"), ("", "")] {
            assert_eq!(decode(segment), expected);
        }
    }
}
