//! Where named tensors lie in one flat space, and which server has which part of it.

use std::{collections::BTreeMap, ops::Range};

use crate::Error;

/// Parts of the flat space begin at multiples of so many elements.
const GRAIN: usize = 32;

/// Named tensors in one flat space of f32 elements, cut into equal parts, one for each server,
/// whatever the tensors' sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    tensors: BTreeMap<String, Range<usize>>,
    len: usize,
    servers: usize,
}

impl Layout {
    /// Tensors by name and number of elements, in their order; at least one server.
    pub(super) fn new(tensors: &[(String, usize)], servers: usize) -> Result<Self, Error> {
        let mut layout = Self { tensors: BTreeMap::new(), len: 0, servers };
        for (name, len) in tensors {
            let start = layout.len;
            // As bytes, too.
            layout.len = start
                .checked_add(*len)
                .filter(|len| *len <= isize::MAX as usize / size_of::<f32>())
                .ok_or_else(|| Error::Config {
                    problem: format!(
                        "parameter server: with {name:?}, of {len} elements, the tensors are more than memory can be"
                    ),
                })?;
            if layout.tensors.insert(name.clone(), start..layout.len).is_some() {
                return Err(Error::Config {
                    problem: format!("parameter server: two tensors are named {name:?}; names must differ"),
                });
            }
        }
        Ok(layout)
    }

    /// The part of the flat space that the server at place `place` has.
    pub(super) fn part(&self, place: usize) -> Range<usize> {
        let grains = self.len.div_ceil(GRAIN);
        let at = |place: usize| (grains * place / self.servers * GRAIN).min(self.len);
        at(place)..at(place + 1)
    }

    /// What must be asked of whom for a tensor: place of the server, where its part of the tensor
    /// begins in the server's part, and which elements of the tensor that is.
    pub(super) fn pieces(&self, name: &str, len: usize) -> Result<Vec<(usize, usize, Range<usize>)>, Error> {
        let refuse = |problem: String| Err(Error::Config { problem: format!("parameter server: {problem}") });
        let Some(tensor) = self.tensors.get(name) else {
            let known: Vec<_> = self.tensors.keys().map(String::as_str).collect();
            return refuse(format!("there is no tensor {name:?}; there are {}", known.join(", ")));
        };
        if tensor.len() != len {
            return refuse(format!("tensor {name:?} has {} elements, not {len}", tensor.len()));
        }
        let of_server = |place: usize| {
            let part = self.part(place);
            let (start, end) = (part.start.max(tensor.start), part.end.min(tensor.end));
            (start < end).then(|| (place, start - part.start, start - tensor.start..end - tensor.start))
        };
        Ok((0..self.servers).filter_map(of_server).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_equal_and_pieces_are_whole() {
        let sizes = [7, 1000, 0, 123_456, 31];
        let tensors: Vec<_> = sizes.iter().enumerate().map(|(i, len)| (format!("t{i}"), *len)).collect();
        for servers in 1..=9 {
            let layout = Layout::new(&tensors, servers).expect("names differ");
            let parts: Vec<_> = (0..servers).map(|place| layout.part(place)).collect();
            assert_eq!((parts[0].start, parts[servers - 1].end), (0, sizes.iter().sum()));
            assert!(parts.windows(2).all(|two| two[0].end == two[1].start));
            let (least, most) = (parts.iter().map(Range::len).min(), parts.iter().map(Range::len).max());
            assert!(most.expect("some") - least.expect("some") <= 2 * GRAIN, "{servers} servers: {parts:?}");
            let mut start = 0;
            for (name, len) in &tensors {
                let mut next = 0;
                for (place, at, range) in layout.pieces(name, *len).expect("a tensor") {
                    assert_eq!(range.start, next);
                    assert_eq!(parts[place].start + at, start + range.start, "where it lies in the flat space");
                    assert!(at + range.len() <= parts[place].len());
                    next = range.end;
                }
                assert_eq!(next, *len, "all of {name}");
                start += len;
            }
        }
    }

    #[test]
    fn mistakes_are_named() {
        let tensors = [("a".to_owned(), 3), ("b".to_owned(), 4)];
        let layout = Layout::new(&tensors, 2).expect("names differ");
        assert!(layout.pieces("c", 3).expect_err("no c").to_string().contains("there are a, b"));
        assert!(layout.pieces("b", 3).expect_err("4").to_string().contains("has 4 elements, not 3"));
        assert!(Layout::new(&[("a".to_owned(), 3), ("a".to_owned(), 4)], 1).is_err());
        let huge = [("a".to_owned(), 1 << 60), ("b".to_owned(), usize::MAX - 7)];
        assert!(Layout::new(&huge, 1).expect_err("too much").to_string().contains("with \"b\""));
    }
}
