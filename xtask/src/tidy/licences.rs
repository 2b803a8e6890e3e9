//! Every crate that we build can be had under a licence that deny.toml allows. (`cargo deny check`
//! says the same, and more; this needs nothing installed.)

use serde_json::Value;

/// Names and licence expressions of all foreign packages, from `cargo metadata`.
pub(super) fn packages(metadata: &Value) -> Vec<(String, String)> {
    let packages = metadata["packages"].as_array().into_iter().flatten().filter(|package| !package["source"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    packages.map(|package| (text(&package["name"]), text(&package["license"]))).collect()
}

/// The strings of deny.toml's `allow` list.
pub(super) fn allowed(deny: &str) -> Vec<String> {
    let list = deny.split_once("\nallow = [").map_or("", |(_, rest)| rest.split(']').next().unwrap_or_default());
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Complaints about packages that no allowed licence covers.
pub(super) fn check(packages: &[(String, String)], allowed: &[String]) -> Vec<String> {
    let refused = packages.iter().filter(|(_, licence)| !covered(licence, allowed));
    refused.map(|(name, licence)| format!("{name}: licence {licence:?} is not covered by deny.toml")).collect()
}

/// Whether an SPDX expression (or the older `A/B`) can be satisfied. With brackets it is a
/// conjunction of alternatives; without, `AND` binds closer than `OR`.
fn covered(expression: &str, allowed: &[String]) -> bool {
    let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
    let known = |licence: &str| allowed.iter().any(|known| known == licence.trim());
    if expression.contains('(') {
        plain.split(" AND ").all(|part| part.split(" OR ").any(known))
    } else {
        plain.split(" OR ").any(|part| part.split(" AND ").all(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_read() {
        let allowed =
            allowed("[licenses]\nallow = [\n    \"MIT\", # why\n    \"Apache-2.0\",\n    \"Unicode-3.0\",\n]\n");
        assert_eq!(allowed, ["MIT", "Apache-2.0", "Unicode-3.0"]);
        for (licence, expected) in [
            ("MIT", true),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0/MIT", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("GPL-3.0", false),
            ("", false),
        ] {
            assert_eq!(covered(licence, &allowed), expected, "{licence}");
        }
    }
}
