//! Lines of ranks out of what `mpirun --tag-output` prints, and how they are shown: as
//! sagemaker-training-toolkit does (`process.py`), each with its rank and host.
//!
//! `mpirun` (Open MPI 4) prints what a rank has written as it comes, and its tag before each piece,
//! also in the middle of a line: `[1,0]<stdout>:loss=[1,1]<stdout>:loss=[1,0]<stdout>:0.5`. Here
//! each rank's pieces become its lines again.

use std::collections::BTreeMap;

/// Longest line of a rank; what is longer becomes several.
const MOST: usize = 256 << 10;

/// Where ranks run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Names of the instances, in the order of ranks.
    pub hosts: Vec<String>,
    /// Ranks on each.
    pub per_host: u32,
}

impl Places {
    /// The host of a rank; empty for a rank beyond the places.
    pub fn host(&self, rank: u32) -> &str {
        self.hosts.get((rank / self.per_host.max(1)) as usize).map_or("", String::as_str)
    }
}

/// One of `mpirun`'s two streams, taken apart.
#[derive(Debug, Default)]
pub struct RankLines {
    /// Behind each tag is a blank, as Open MPI 5 has it.
    blank: bool,
    /// What has come of each rank's unfinished line.
    open: BTreeMap<u32, Vec<u8>>,
}

/// A line, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankLine {
    /// Who has said it; `None`: `mpirun` itself.
    pub rank: Option<u32>,
    /// What.
    pub text: Vec<u8>,
}

impl RankLine {
    /// As it stands in the log: `[1,mpirank:0,algo-1]<stdout>:text`.
    pub fn shown(&self, places: &Places, stream: &str) -> Vec<u8> {
        let tag =
            self.rank.map_or_else(String::new, |rank| format!("[1,mpirank:{rank},{}]<{stream}>:", places.host(rank)));
        [tag.as_bytes(), &self.text].concat()
    }
}

impl RankLines {
    /// For a stream whose tags have a blank behind them (Open MPI 5) or none (Open MPI 4).
    pub fn new(blank: bool) -> Self {
        Self { blank, ..Self::default() }
    }

    /// Takes a line as `mpirun` printed it, without its end, and gives those that it finishes.
    pub fn push(&mut self, line: &[u8]) -> Vec<RankLine> {
        let mut finished = Vec::new();
        let (mut rank, mut rest) = (None, line);
        loop {
            let next = tag(rest);
            let piece = next.map_or(rest, |(begin, ..)| &rest[..begin]);
            match rank {
                Some(rank) => {
                    let open: &mut Vec<u8> = self.open.entry(rank).or_default();
                    open.extend_from_slice(piece.strip_prefix(b" ").filter(|_| self.blank).unwrap_or(piece));
                    if next.is_none() || open.len() >= MOST {
                        finished.push(RankLine { rank: Some(rank), text: std::mem::take(open) });
                    }
                }
                None if next.is_none() || !piece.is_empty() => {
                    finished.push(RankLine { rank: None, text: piece.to_owned() });
                }
                None => {}
            }
            let Some((_, of, end)) = next else { return finished };
            (rank, rest) = (Some(of), &rest[end..]);
        }
    }

    /// What is left of lines without an end.
    pub fn finish(self) -> Vec<RankLine> {
        let left = self.open.into_iter().filter(|(_, text)| !text.is_empty());
        left.map(|(rank, text)| RankLine { rank: Some(rank), text }).collect()
    }
}

/// The first `[1,RANK]<stdout>:` in the bytes: where it begins, the rank, and where it ends.
fn tag(bytes: &[u8]) -> Option<(usize, u32, usize)> {
    (0..bytes.len()).filter(|at| bytes[*at] == b'[').find_map(|begin| {
        let rest = bytes[begin..].strip_prefix(b"[1,")?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let rank = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
        let rest = &rest[digits..];
        let length = [&b"]<stdout>:"[..], b"]<stderr>:"].into_iter().find(|end| rest.starts_with(end))?.len();
        Some((begin, rank, begin + 3 + digits + length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(blank: bool, lines: &[&str]) -> Vec<String> {
        let places = Places { hosts: ["algo-1", "algo-2"].map(str::to_owned).to_vec(), per_host: 2 };
        let mut of_ranks = RankLines::new(blank);
        let mut all = Vec::from_iter(lines.iter().flat_map(|line| of_ranks.push(line.as_bytes())));
        all.extend(of_ranks.finish());
        all.iter().map(|line| String::from_utf8(line.shown(&places, "stdout")).unwrap()).collect()
    }

    #[test]
    fn pieces_become_the_lines_of_their_ranks() {
        // What Open MPI 4.1.4 prints of print("loss", 0.5) on two ranks at once, and its own words.
        let pieces = [
            "[1,0]<stdout>:loss[1,3]<stdout>:loss[1,0]<stdout>: [1,0]<stdout>:0.5[1,0]<stdout>:",
            "[1,3]<stdout>: 0.25",
            "mpirun: bye",
        ];
        let expected =
            ["[1,mpirank:0,algo-1]<stdout>:loss 0.5", "[1,mpirank:3,algo-2]<stdout>:loss 0.25", "mpirun: bye"];
        assert_eq!(shown(false, &pieces), expected);
        assert_eq!(
            shown(true, &["[1,2]<stdout>:   indented", "[1,2]<stdout>: "]),
            ["[1,mpirank:2,algo-2]<stdout>:  indented", "[1,mpirank:2,algo-2]<stdout>:"]
        );
        // A line without its end is not lost, and what is no tag is text.
        assert_eq!(
            shown(
                false,
                &["", "[1,1]<stdout>:[1,x]<stdout>: [2,1]<stdout>: [1,1]", "said [1,0]<stdout>:open[1,1]<stdout>:end"]
            ),
            [
                "",
                "[1,mpirank:1,algo-1]<stdout>:[1,x]<stdout>: [2,1]<stdout>: [1,1]",
                "said ",
                "[1,mpirank:1,algo-1]<stdout>:end",
                "[1,mpirank:0,algo-1]<stdout>:open"
            ]
        );
    }

    #[test]
    fn a_line_without_an_end_is_bounded() {
        let (mut lines, piece) = (RankLines::new(false), format!("[1,0]<stdout>:{}[1,1]<stdout>:", "x".repeat(1000)));
        let finished: usize = (0..2000)
            .flat_map(|_| lines.push(piece.as_bytes()))
            .filter(|line| line.rank == Some(0))
            .map(|line| line.text.len())
            .sum();
        assert!(finished > 1_500_000 && lines.open[&0].len() < MOST, "{finished}");
    }
}
