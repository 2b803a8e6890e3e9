//! How to search, as it is typed: a strategy of the API, or one beyond it by its name, as JSON, or in a file.

use std::path::Path;

use serde_json::Value;

use crate::train;

/// Strategies that the API has, as they are typed here.
const OF_THE_API: [(&str, &str); 4] = [("bayesian", "Bayesian"), ("random", "Random"), ("grid", "Grid"), ("hyperband", "Hyperband")];

/// What chooses a strategy beyond the API's.
pub(super) const TAG: &str = "shoal:strategy";

/// Longest value of a tag.
const MOST_TAG: usize = 256;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// The API's name of it.
    OfTheApi(&'static str),
    /// The value of the tag [`TAG`].
    Beyond(String),
}

impl Strategy {
    /// The strategy of a name, of an object in JSON, or of a file that holds such an object (JSON or YAML).
    ///
    /// # Errors
    /// JSON or file cannot be read, hold no object, or are too much for a tag.
    pub(super) fn of(typed: &str) -> Result<Self, String> {
        if let Some((_, api)) = OF_THE_API.iter().find(|(name, _)| name.eq_ignore_ascii_case(typed)) {
            return Ok(Self::OfTheApi(api));
        }
        let path = Path::new(typed);
        let object = if typed.trim_start().starts_with('{') {
            serde_json::from_str(typed).map_err(|error| format!("--strategy: it begins with {{ and is no JSON: {error}"))?
        } else if path.is_file() {
            train::read(&path.to_path_buf()).map_err(|error| format!("--strategy: {error:#}"))?
        } else if path.extension().is_some_and(|end| ["json", "yaml", "yml"].iter().any(|known| end.eq_ignore_ascii_case(known))) {
            return Err(format!("--strategy: there is no file {typed}"));
        } else {
            return Ok(Self::Beyond(typed.to_owned()));
        };
        encoded(&object).map(Self::Beyond)
    }

    /// What plain clients are shown; the tag says more.
    pub(super) fn in_the_api(&self) -> &'static str {
        match self {
            Self::OfTheApi(name) => name,
            Self::Beyond(_) => "Bayesian",
        }
    }
}

/// In base64, since tags have no braces and quotes.
fn encoded(strategy: &Value) -> Result<String, String> {
    if !strategy.is_object() {
        return Err(format!(
            "--strategy: a JSON object with searcher, scheduler, conditions, objectives or grid is needed, not {strategy}"
        ));
    }
    let text = base64_simd::STANDARD.encode_to_string(strategy.to_string());
    if text.len() > MOST_TAG {
        return Err(format!(
            "--strategy: it is {} characters long as the value of the tag {TAG} (in base64), and {MOST_TAG} are allowed; leave out what is the default",
            text.len()
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(strategy: Strategy) -> String {
        let Strategy::Beyond(text) = strategy else { panic!("{strategy:?}") };
        String::from_utf8(base64_simd::STANDARD.decode_to_vec(text).unwrap()).unwrap()
    }

    #[test]
    fn names_are_names() {
        assert_eq!(Strategy::of("HyperBand"), Ok(Strategy::OfTheApi("Hyperband")));
        assert_eq!(Strategy::of("tpe+asha"), Ok(Strategy::Beyond("tpe+asha".to_owned())));
    }

    #[test]
    fn objects_are_sent_in_base64() {
        let it = Strategy::of(r#" {"grid": {"points": 3}} "#).unwrap();
        assert_eq!(it.in_the_api(), "Bayesian");
        assert_eq!(decoded(it), r#"{"grid":{"points":3}}"#);
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("a.json", r#"{"searcher": "tpe"}"#), ("b.yaml", "searcher: tpe\n")] {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            assert_eq!(decoded(Strategy::of(path.to_str().unwrap()).unwrap()), r#"{"searcher":"tpe"}"#);
        }
    }

    #[test]
    fn mistakes_are_told() {
        let long = format!(r#"{{"searcher":"{}"}}"#, "x".repeat(200));
        for (typed, said) in [("{oops", "is no JSON"), ("none.json", "no file none.json"), (long.as_str(), "256 are allowed")] {
            let error = Strategy::of(typed).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
