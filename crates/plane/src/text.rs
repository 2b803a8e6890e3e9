//! Texts of bounded length, and sizes as people read them.

/// At most `most` characters, the first ones.
pub(crate) fn first_characters(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// At most `most` characters, the last ones; whole lines, unless the last one alone is too long.
pub(crate) fn last_lines(text: &str, most: usize) -> String {
    let last = last_characters(text, most);
    match last.split_once('\n') {
        Some((_, lines)) if last.len() < text.len() => lines.to_owned(),
        _ => last,
    }
}

/// At most `most` characters, the last ones.
pub(crate) fn last_characters(text: &str, most: usize) -> String {
    let skip = text.chars().count().saturating_sub(most);
    text.chars().skip(skip).collect()
}

/// `16.0 GiB`, rounded down: what is free must not look like enough.
pub(crate) fn gib(bytes: u64) -> String {
    let tenths = (u128::from(bytes) * 10) >> 30;
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}
