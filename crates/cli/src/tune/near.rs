//! The name that was meant, it seems.

use shoal_plane::edits;

/// `; did you mean eta?` if one of the names that there are is much like this one, else nothing.
pub(super) fn near<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let wrong = wrong.to_lowercase();
    let distance = |name: &str| edits(&name.to_lowercase(), &wrong);
    let nearest = known.into_iter().min_by_key(|name| distance(name));
    let close = |name: &&str| {
        let most = name.chars().count().max(wrong.chars().count());
        distance(name) * 2 <= most || name.to_lowercase().starts_with(&wrong)
    };
    nearest.filter(close).map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_alike_was_meant() {
        assert_eq!(near("etaa", ["eta", "gamma"]), "; did you mean eta?");
        assert_eq!(near("validation:acc", ["validation:auc", "train:auc"]), "; did you mean validation:auc?");
        assert_eq!(near("momentum", ["eta", "gamma"]), "");
    }
}
