//! How to search, as it is typed: a strategy of the API, or one beyond it by its name, as JSON, or
//! in a file. What cannot be one is told here, before anything is sent.

use std::path::Path;

use serde_json::{Map, Value, json};
use shoal_tuner::{
    SchedulerSpec, SearcherSpec,
    named::{self, Resources},
    near,
};

use super::request::longest;
use crate::train;

/// Strategies that the API has, as they are typed here.
const OF_THE_API: [(&str, &str); 4] =
    [("bayesian", "Bayesian"), ("random", "Random"), ("grid", "Grid"), ("hyperband", "Hyperband")];

/// What chooses a strategy beyond the API's.
pub(super) const TAG: &str = "shoal:strategy";

/// What an object may say.
const MEMBERS: [&str; 6] = ["strategy", "searcher", "scheduler", "conditions", "objectives", "grid"];

/// What is asked for.
#[derive(Debug, PartialEq)]
pub(super) enum Strategy {
    /// The API's name of it.
    OfTheApi(&'static str),
    /// A name that the API does not have.
    Named(String),
    /// Its parts.
    Parts(Map<String, Value>),
}

impl Strategy {
    /// The strategy of a name, of an object in JSON, or of a file that holds such an object (JSON
    /// or YAML).
    ///
    /// # Errors
    /// JSON or file cannot be read, hold no object, or say what there is not; the text names what
    /// there is.
    pub(super) fn of(typed: &str) -> Result<Self, String> {
        if let Some((_, api)) = OF_THE_API.iter().find(|(name, _)| name.eq_ignore_ascii_case(typed)) {
            return Ok(Self::OfTheApi(api));
        }
        let path = Path::new(typed);
        let object = if typed.trim_start().starts_with('{') {
            serde_json::from_str(typed)
                .map_err(|error| format!("--strategy: it begins with {{ and is no JSON: {error}"))?
        } else if path.is_file() {
            train::read(&path.to_path_buf()).map_err(|error| format!("--strategy: {error:#}"))?
        } else if path
            .extension()
            .is_some_and(|end| ["json", "yaml", "yml"].iter().any(|known| end.eq_ignore_ascii_case(known)))
        {
            return Err(format!("--strategy: there is no file {typed}"));
        } else {
            is_named(typed)?;
            return Ok(Self::Named(typed.to_owned()));
        };
        let Value::Object(parts) = object else {
            return Err(format!("--strategy: a JSON object with {} is needed, not {object}", MEMBERS.join(", ")));
        };
        check_parts(&parts)?;
        Ok(Self::Parts(parts))
    }

    /// What plain clients are shown; the tag says more.
    pub(super) fn in_the_api(&self) -> &'static str {
        match self {
            Self::OfTheApi(name) => name,
            Self::Named(_) | Self::Parts(_) => "Bayesian",
        }
    }

    /// As it is typed, in few words.
    pub(super) fn name(&self) -> String {
        match self {
            Self::OfTheApi(name) => name.to_lowercase(),
            Self::Named(name) => name.clone(),
            Self::Parts(parts) => Value::Object(parts.clone()).to_string(),
        }
    }

    /// It tries all combinations, and ends then.
    pub(super) fn is_grid(&self) -> bool {
        match self {
            Self::OfTheApi(name) => *name == "Grid",
            Self::Named(name) => matches!(parts_of(name), Ok((SearcherSpec::Grid(_), _))),
            Self::Parts(parts) => {
                let searcher = parts.get("searcher").map(|it| it.get("kind").unwrap_or(it));
                parts.contains_key("grid") || searcher.is_some_and(|kind| kind == "grid")
            }
        }
    }

    /// It decides by itself which trials go on; the name of what does.
    pub(super) fn scheduler(&self) -> Option<String> {
        match self {
            Self::OfTheApi(name) => (*name == "Hyperband").then(|| "hyperband".to_owned()),
            Self::Named(name) => match parts_of(name) {
                Ok((_, SchedulerSpec::None)) | Err(_) => None,
                Ok((_, scheduler)) => json!(scheduler).get("kind").and_then(Value::as_str).map(str::to_owned),
            },
            Self::Parts(parts) => {
                let said = parts
                    .get("scheduler")
                    .map(|it| it.get("kind").unwrap_or(it))
                    .and_then(Value::as_str)
                    .map(str::to_owned);
                let of_name = || {
                    parts
                        .get("strategy")
                        .and_then(Value::as_str)
                        .and_then(|name| Self::Named(name.to_owned()).scheduler())
                };
                said.filter(|kind| kind != "none").or_else(of_name)
            }
        }
    }

    /// The same, with trials stopped that are worse than the median, if nothing else decides.
    pub(super) fn with_early_stopping(self) -> Self {
        match self {
            Self::Named(name) if Self::Named(name.clone()).scheduler().is_none() => {
                Self::Named(format!("{name}+median"))
            }
            other => other,
        }
    }

    /// The value of the tag [`TAG`]; none for what the API has itself. Objects are in base64, since
    /// tags have no braces and quotes.
    ///
    /// # Errors
    /// It is too long for a tag.
    pub(super) fn tag(&self) -> Result<Option<String>, String> {
        let parts = match self {
            Self::OfTheApi(_) => return Ok(None),
            Self::Named(name) => return Ok(Some(name.clone())),
            Self::Parts(parts) => parts,
        };
        let text = base64_simd::STANDARD.encode_to_string(Value::Object(parts.clone()).to_string());
        let most = longest(&["Tags", "Value"]);
        if text.len() > most {
            return Err(format!(
                "--strategy: it is {} characters long as the value of the tag {TAG} (in base64), and {most} are \
                 allowed; leave out what is the default",
                text.len()
            ));
        }
        Ok(Some(text))
    }
}

/// Resources that satisfy everybody: names are looked at here, not amounts.
const SOME: Resources = Resources { min: Some(1), max: Some(81), eta: Some(3) };

fn parts_of(name: &str) -> Result<(SearcherSpec, SchedulerSpec), String> {
    named::Strategy::named(name, SOME).map(|it| (it.searcher, it.scheduler)).map_err(|error| error.to_string())
}

/// There is such a strategy.
fn is_named(typed: &str) -> Result<(), String> {
    let Some(unknown) = typed.split('+').map(str::trim).find(|part| parts_of(part).is_err()) else { return Ok(()) };
    let known: Vec<String> =
        named::names().chain(["asha_stopping", "hyperband_stopping"]).map(|name| name.replace('_', "-")).collect();
    let hint = near(&unknown.to_lowercase().replace('_', "-"), known.iter().map(String::as_str));
    Err(format!("--strategy {typed}: there is no strategy {unknown:?}{hint}; `shoal tuner` lists them"))
}

/// Every member is one, and every option that is given exists.
fn check_parts(parts: &Map<String, Value>) -> Result<(), String> {
    if let Some(unknown) = parts.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(format!(
            "--strategy: there is no {unknown:?}{}; an object has any of {}",
            near(unknown, MEMBERS),
            MEMBERS.join(", ")
        ));
    }
    if let Some(name) = parts.get("strategy") {
        is_named(name.as_str().ok_or_else(|| format!("--strategy: strategy is a name, not {name}"))?)?;
    }
    let searcher = |given: &Value| Ok(json!(named::searcher(given).map_err(|error| error.to_string())?));
    let scheduler = |given: &Value| Ok(json!(named::scheduler(given, SOME).map_err(|error| error.to_string())?));
    let kinds = |known: &'static [(&str, &str)]| known.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    if let Some(given) = parts.get("searcher") {
        check_part("searcher", given, &kinds(named::SEARCHERS), searcher)?;
    }
    if let Some(given) = parts.get("scheduler") {
        check_part("scheduler", given, &kinds(named::SCHEDULERS), scheduler)?;
    }
    if let Some(Value::Object(options)) = parts.get("grid") {
        let mut options = options.clone();
        options.insert("kind".to_owned(), json!("grid"));
        check_part("grid", &Value::Object(options), &["grid"], searcher)?;
    }
    Ok(())
}

/// A part's kind is known, and what it is told it also says of itself: it has that option.
fn check_part(
    what: &str,
    given: &Value,
    kinds: &[&str],
    read: impl Fn(&Value) -> Result<Value, String>,
) -> Result<(), String> {
    let kind = given.get("kind").unwrap_or(given).as_str().unwrap_or_default();
    let plain = kind.to_lowercase().replace(['-', ' '], "_");
    if !kinds.contains(&plain.as_str()) {
        let hint = if kind.is_empty() { String::new() } else { near(&plain, kinds.iter().copied()) };
        return Err(format!("--strategy: there is no {what} {kind:?}{hint}; `shoal tuner` lists them"));
    }
    let usual = read(&json!({ "kind": kind })).map_err(|error| format!("--strategy: {error}"))?;
    // Options that are absent by default say themselves back once they are given.
    let known = |(name, value): &(&String, &Value)| match read(&json!({"kind": kind, name.as_str(): value})) {
        _ if usual.get(name.as_str()).is_some() => true,
        Ok(understood) => understood.get(name.as_str()).is_some(),
        Err(error) => !error.contains("unknown field"),
    };
    if let Some((unknown, _)) = given.as_object().into_iter().flatten().find(|option| !known(option)) {
        let hint = near(
            unknown,
            usual.as_object().into_iter().flat_map(Map::keys).map(String::as_str).filter(|name| *name != "kind"),
        );
        return Err(format!("--strategy: the {what} {kind} has no option {unknown:?}{hint}"));
    }
    read(given).map(|_| ()).map_err(|error| format!("--strategy: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(strategy: &Strategy) -> String {
        String::from_utf8(base64_simd::STANDARD.decode_to_vec(strategy.tag().unwrap().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn names_are_names() {
        assert_eq!(Strategy::of("HyperBand"), Ok(Strategy::OfTheApi("Hyperband")));
        assert_eq!(Strategy::of("tpe+asha").unwrap().tag(), Ok(Some("tpe+asha".to_owned())));
    }

    #[test]
    fn objects_are_sent_in_base64() {
        let it = Strategy::of(r#" {"grid": {"points": 3}} "#).unwrap();
        assert_eq!((it.in_the_api(), it.is_grid()), ("Bayesian", true));
        assert_eq!(decoded(&it), r#"{"grid":{"points":3}}"#);
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("a.json", r#"{"searcher": "tpe"}"#), ("b.yaml", "searcher: tpe\n")] {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            assert_eq!(decoded(&Strategy::of(path.to_str().unwrap()).unwrap()), r#"{"searcher":"tpe"}"#);
        }
    }

    #[test]
    fn mistakes_are_told() {
        for (typed, said) in [
            ("{oops", "is no JSON"),
            ("none.json", "no file none.json"),
            ("tpee", "there is no strategy \"tpee\"; did you mean tpe?"),
            ("tpe+hyperbnd", "no strategy \"hyperbnd\"; did you mean hyperband?"),
            (r#"{"sercher": "tpe"}"#, "no \"sercher\"; did you mean searcher?"),
            (r#"{"searcher": "tp"}"#, "no searcher \"tp\"; did you mean tpe?"),
            (r#"{"searcher": {"kind": "bayes"}}"#, "no searcher \"bayes\""),
            (
                r#"{"scheduler": {"kind": "asha", "max_resouce": 9}}"#,
                "the scheduler asha has no option \"max_resouce\"; did you mean max_resource?",
            ),
            (r#"{"scheduler": {"kind": "asha", "eta": "x"}}"#, "--strategy: scheduler: invalid type"),
            (r#"{"grid": {"point": 3}}"#, "the grid grid has no option \"point\"; did you mean points?"),
            (r#"{"strategy": "none at all"}"#, "there is no strategy \"none at all\""),
        ] {
            let error = Strategy::of(typed).unwrap_err();
            assert!(error.contains(said), "{typed}: {error}");
        }
        let long: Vec<String> = (0..30).map(|number| format!(r#"{{"metric":"metric-{number}"}}"#)).collect();
        let long = Strategy::of(&format!(r#"{{"objectives":[{}]}}"#, long.join(","))).unwrap();
        assert!(long.tag().unwrap_err().contains("256 are allowed"));
    }

    #[test]
    fn every_option_of_every_part_is_known() {
        for (kind, _) in named::SEARCHERS {
            let options = json!(named::searcher(&json!(kind)).unwrap());
            Strategy::of(&json!({ "searcher": options }).to_string()).unwrap();
        }
        for (kind, _) in named::SCHEDULERS {
            let options = json!(named::scheduler(&json!(kind), SOME).unwrap());
            Strategy::of(&json!({ "scheduler": options }).to_string()).unwrap();
        }
        // Absent where nobody has said it.
        Strategy::of(r#"{"searcher": {"kind": "bayesian", "initial": 5}}"#).unwrap();
    }

    #[test]
    fn who_decides_is_known() {
        for (typed, scheduler) in [
            ("random", None),
            ("hyperband", Some("hyperband")),
            ("tpe", None),
            ("tpe+asha", Some("asha")),
            ("mobster", Some("asha")),
            (r#"{"searcher":"tpe"}"#, None),
            (r#"{"scheduler":"median"}"#, Some("median")),
            (r#"{"scheduler":{"kind":"asha","max_resource":9}}"#, Some("asha")),
            (r#"{"strategy":"bohb"}"#, Some("hyperband")),
        ] {
            let strategy = Strategy::of(typed).unwrap();
            assert_eq!(strategy.scheduler().as_deref(), scheduler, "{typed}");
        }
        assert_eq!(Strategy::of("tpe").unwrap().with_early_stopping().name(), "tpe+median");
    }
}
