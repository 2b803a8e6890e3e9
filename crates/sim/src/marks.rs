//! What programs write says which instance has written it, and in what order.

/// More than any instance writes.
const LIFE_LINES: u32 = 1000;
const LIFE_PARTS: u32 = 8;

/// A line of an instance that was started so often.
pub(crate) fn numbered(life: u32, line: u32) -> u32 {
    life.saturating_sub(1) * LIFE_LINES + line
}

/// A part of its model.
pub(crate) fn part_of(life: u32, part: u32) -> u8 {
    u8::try_from(life % (256 / LIFE_PARTS) * LIFE_PARTS + part).expect("a byte")
}

/// Whether these are the first lines of one instance or several, one after the other.
pub(crate) fn are_whole(lines: &[u32]) -> bool {
    let mut before = 0;
    lines.iter().all(|line| {
        let follows = *line == before + 1 || line % LIFE_LINES == 1 && *line > before;
        before = *line;
        follows
    })
}
