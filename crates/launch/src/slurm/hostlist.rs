//! Lists of nodes as Slurm writes them: `n[1-3,07],gpu1`.

/// The names of a list, in its order; what is not a list's syntax is one name.
pub(super) fn expand(list: &str) -> Vec<String> {
    parts(list).into_iter().flat_map(names).collect()
}

/// At the commas outside of brackets.
fn parts(list: &str) -> Vec<&str> {
    let mut depth = 0;
    let outside = |letter: char| {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    };
    list.split(outside).map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn names(part: &str) -> Vec<String> {
    let bracket = part.split_once('[').and_then(|(before, rest)| {
        let (inside, after) = rest.split_once(']')?;
        Some((before, inside, after))
    });
    let Some((before, inside, after)) = bracket else { return vec![part.to_owned()] };
    let numbers = inside.split(',').flat_map(range);
    numbers.flat_map(|number| names(after).into_iter().map(move |rest| format!("{before}{number}{rest}"))).collect()
}

/// `08-10`: with as many digits as the first has.
fn range(text: &str) -> Vec<String> {
    let bounds = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match bounds {
        Some((first, last)) => {
            let (first, last): (u32, u32) = (first, last);
            let width = text.find('-').unwrap_or_default();
            (first..=last).map(|number| format!("{number:0width$}")).collect()
        }
        None => vec![text.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded_in_their_order() {
        assert_eq!(expand("n1"), ["n1"]);
        assert_eq!(expand("n[1-3,7],gpu1"), ["n1", "n2", "n3", "n7", "gpu1"]);
        assert_eq!(expand("a[08-10]"), ["a08", "a09", "a10"]);
        assert_eq!(expand("r[1-2]n[1-2]"), ["r1n1", "r1n2", "r2n1", "r2n2"]);
        assert_eq!(expand(""), [""; 0]);
    }
}
