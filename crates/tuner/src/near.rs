//! The name that was meant, it seems: for everything that people type, strategies, metrics,
//! hyperparameters, images, members of requests.

/// Bytes of a name's beginning that tell it.
const LEAST_BEGINNING: usize = 2;

/// `; did you mean eta?` if one of the names that there are is much like this one, else nothing.
/// Case does not count.
#[must_use]
pub fn near<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let wrong = wrong.to_lowercase();
    let distance = |name: &str| edits(&name.to_lowercase(), &wrong);
    let continues = |name: &str| wrong.len() >= LEAST_BEGINNING && name.to_lowercase().starts_with(&wrong);
    // What was not typed to its end comes before what was mistyped.
    let nearest = known.into_iter().min_by_key(|name| (!continues(name), distance(name)));
    let close = |name: &&str| continues(name) || distance(name) * 2 <= name.chars().count().max(wrong.chars().count());
    nearest
        .filter(|_| !wrong.is_empty())
        .filter(close)
        .map(|name| format!("; did you mean {name}?"))
        .unwrap_or_default()
}

/// Levenshtein's distance (of at most the first 64 characters of `b`), row by row: how many letters
/// were mistyped.
#[must_use]
pub fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitution = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substitution.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_alike_was_meant() {
        assert_eq!(near("etaa", ["eta", "gamma"]), "; did you mean eta?");
        assert_eq!(near("max_dept", ["gamma", "max_depth", "max_bin"]), "; did you mean max_depth?");
        assert_eq!(near("pytorch", ["xgboost", "pytorch-training"]), "; did you mean pytorch-training?");
        assert_eq!(near("Validation:acc", ["validation:auc", "train:auc"]), "; did you mean validation:auc?");
        for none in ["momentum", ""] {
            assert_eq!(near(none, ["eta", "gamma"]), "");
        }
    }
}
