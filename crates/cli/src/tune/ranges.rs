//! `--range` and `--choice` as the API's parameter ranges.

use serde_json::{Value, json};

/// A flag's range: which of the API's lists it belongs to, and its entry there.
///
/// # Errors
/// It cannot be read; the text shows how it is written.
pub(super) fn range(text: &str) -> Result<(&'static str, Value), String> {
    let wanted = || format!("--range {text}: wanted NAME=MIN..MAX, as in eta=0.01..0.5,log");
    let (name, rest) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wanted)?;
    let mut words = rest.split(',');
    let (min, max) = words.next().and_then(|ends| ends.split_once("..")).ok_or_else(wanted)?;
    let is_number = |end: &str| end.parse::<f64>().is_ok_and(f64::is_finite);
    if !is_number(min) || !is_number(max) {
        return Err(wanted());
    }
    let is_whole = |end: &str| end.parse::<i64>().is_ok();
    // A share, as of dropout or of rows, and not a choice between two numbers.
    let is_share = (min, max) == ("0", "1");
    let (mut list, mut scaling) = (
        if is_whole(min) && is_whole(max) && !is_share {
            "IntegerParameterRanges"
        } else {
            "ContinuousParameterRanges"
        },
        "Auto",
    );
    for word in words {
        match word {
            "log" => scaling = "Logarithmic",
            "revlog" => scaling = "ReverseLogarithmic",
            "linear" => scaling = "Linear",
            "auto" => scaling = "Auto",
            "float" => list = "ContinuousParameterRanges",
            other => return Err(format!("--range {text}: {other:?} is none of log, revlog, linear, auto, float")),
        }
    }
    makes_sense(list, min, max, scaling).map_err(|what| format!("--range {text}: {what}"))?;
    Ok((list, json!({"Name": name, "MinValue": min, "MaxValue": max, "ScalingType": scaling})))
}

/// There are values between the ends, and the scale has all of them.
fn makes_sense(list: &str, min: &str, max: &str, scaling: &str) -> Result<(), String> {
    let (Ok(least), Ok(most)) = (min.parse::<f64>(), max.parse::<f64>()) else { return Ok(()) };
    if least > most {
        return Err(format!("{min} is greater than {max}; the smaller end stands first"));
    }
    match scaling {
        "Logarithmic" if least <= 0.0 => {
            let first = if most > 0.0 { format!(", as in {}..{max},log", most / 1000.0) } else { String::new() };
            Err(format!(
                "a logarithmic range holds numbers above 0, and this one begins at {min}; raise its smaller \
                 end{first}, or leave out log"
            ))
        }
        "ReverseLogarithmic" if list == "IntegerParameterRanges" => {
            Err("revlog is for fractions, and this is a range of whole numbers".to_owned())
        }
        "ReverseLogarithmic" if least < 0.0 || most >= 1.0 => {
            Err("revlog is for numbers from 0 to below 1, as in momentum=0..0.999,revlog".to_owned())
        }
        _ => Ok(()),
    }
}

/// Most values of a choice.
const MOST_VALUES: usize = 30;

/// A flag's choice.
///
/// # Errors
/// It cannot be read.
pub(super) fn choice(text: &str) -> Result<Value, String> {
    let (name, values) = text
        .split_once('=')
        .filter(|(name, values)| !name.is_empty() && !values.is_empty())
        .ok_or_else(|| format!("--choice {text}: wanted NAME=VALUE,VALUE.."))?;
    let values: Vec<&str> = values.split(',').collect();
    if let Some(twice) = values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)) {
        return Err(format!("--choice {text}: {:?} is there twice", twice.1));
    }
    if values.len() > MOST_VALUES {
        return Err(format!("--choice {text}: it has {} values, and {MOST_VALUES} are allowed", values.len()));
    }
    Ok(json!({"Name": name, "Values": values}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        for (text, list, min, scaling) in [
            ("eta=0.01..0.5,log", "ContinuousParameterRanges", "0.01", "Logarithmic"),
            ("depth=2..10", "IntegerParameterRanges", "2", "Auto"),
            ("depth=2..10,float", "ContinuousParameterRanges", "2", "Auto"),
            ("dropout=0..1", "ContinuousParameterRanges", "0", "Auto"),
            ("lr=1e-5..1e-1,log", "ContinuousParameterRanges", "1e-5", "Logarithmic"),
            ("m=-1.5..-0.5,linear", "ContinuousParameterRanges", "-1.5", "Linear"),
            ("momentum=0..0.99,revlog", "ContinuousParameterRanges", "0", "ReverseLogarithmic"),
        ] {
            let (found, range) = range(text).unwrap();
            assert_eq!(
                (found, range["MinValue"].as_str(), range["ScalingType"].as_str()),
                (list, Some(min), Some(scaling)),
                "{text}"
            );
        }
        assert_eq!(choice("a=b,c").unwrap(), json!({"Name": "a", "Values": ["b", "c"]}));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("eta", "wanted NAME=MIN..MAX"),
            ("eta=1", "wanted NAME=MIN..MAX"),
            ("=1..2", "wanted NAME=MIN..MAX"),
            ("eta=a..2", "wanted NAME=MIN..MAX"),
            ("eta=1..inf", "wanted NAME=MIN..MAX"),
            ("eta=1..2,fast", "\"fast\" is none of log"),
            ("eta=1..0.5", "1 is greater than 0.5; the smaller end stands first"),
            ("eta=0..1,log", "above 0, and this one begins at 0; raise its smaller end, as in 0.001..1,log"),
            ("depth=2..9,revlog", "a range of whole numbers"),
            ("m=0.5..1.0,revlog", "from 0 to below 1"),
        ] {
            let message = range(text).unwrap_err();
            assert!(message.starts_with(&format!("--range {text}: ")) && message.contains(expected), "{message}");
        }
        assert!(choice("a=").unwrap_err().starts_with("--choice a=: wanted"));
        assert_eq!(choice("a=b,c,b").unwrap_err(), "--choice a=b,c,b: \"b\" is there twice");
        let many: Vec<String> = (0..31).map(|number| number.to_string()).collect();
        assert!(
            choice(&format!("a={}", many.join(","))).unwrap_err().ends_with("it has 31 values, and 30 are allowed")
        );
    }
}
