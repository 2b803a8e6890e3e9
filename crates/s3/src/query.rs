//! The parameters of an address, decoded as the framework decodes them: a name with escapes
//! (`version%49d`) must not pass a check and then be served as `versionId`.

/// Names and values, in the order of the address.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(query: Option<&str>) -> Self {
        Self(form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names().any(|given| given == name)
    }

    /// The first value of this name; empty where it has none.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.find(|given| given == name)
    }

    /// The value of the first parameter with such a name.
    pub(crate) fn find(&self, is_wanted: impl Fn(&str) -> bool) -> Option<&str> {
        self.0.iter().find(|(given, _)| is_wanted(given)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_however_it_is_written() {
        for text in ["versionId=a%2Fb", "x&version%49d=a/b", "%76ersionId=a%2fb&versionId=c"] {
            assert_eq!(Query::of(Some(text)).get("versionId"), Some("a/b"), "{text}");
        }
        assert_eq!(Query::of(Some("a+b=c+d")).get("a b"), Some("c d"));
        assert_eq!(Query::of(Some("versioning&versionid=1")).get("versionId"), None);
        assert!(Query::of(Some("acl")).has("acl") && !Query::of(None).has(""));
    }
}
