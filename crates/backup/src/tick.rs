//! A tick as bytes: the pages and files that changed since the tick before it. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::manifest::{deflate, inflate};

const MAGIC: &[u8; 8] = b"SHOALTK1";
const SUM_BYTES: usize = 32;

/// What changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tick {
    pub(crate) about: About,
    /// Contents that were copied for it.
    pub(crate) contents: Vec<String>,
    pub(crate) databases: Vec<Pages>,
    pub(crate) files: Vec<Change>,
}

/// Which tick it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) run: String,
    pub(crate) number: u64,
    pub(crate) taken_ms: u64,
    pub(crate) jobs_running: u64,
}

/// Of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) name: String,
    pub(crate) page_bytes: u32,
    /// All that it has now.
    pub(crate) page_count: u32,
    pub(crate) pages: BTreeMap<u32, Vec<u8>>,
}

/// Of a small file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has these bytes from this place on, and ends there.
    Write { path: String, mode: u32, at: u64, bytes: Vec<u8> },
    /// It is gone.
    Remove { path: String },
}

/// Mode, place and length of what a file has got; none for one that is gone.
type Written = (u32, u64, usize);

#[derive(Serialize, Deserialize)]
struct Header {
    about: About,
    contents: Vec<String>,
    databases: Vec<(String, u32, u32, Vec<u32>)>,
    files: Vec<(String, Option<Written>)>,
}

impl Tick {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.contents.is_empty()
            && self.databases.iter().all(|database| database.pages.is_empty())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let header = Header {
            about: self.about.clone(),
            contents: self.contents.clone(),
            databases: self
                .databases
                .iter()
                .map(|it| (it.name.clone(), it.page_bytes, it.page_count, it.pages.keys().copied().collect()))
                .collect(),
            files: self
                .files
                .iter()
                .map(|change| match change {
                    Change::Write { path, mode, at, bytes } => (path.clone(), Some((*mode, *at, bytes.len()))),
                    Change::Remove { path } => (path.clone(), None),
                })
                .collect(),
        };
        let header = crate::manifest::to_json(&header);
        let mut body = (header.len() as u64).to_le_bytes().to_vec();
        body.extend(header);
        self.databases.iter().flat_map(|database| database.pages.values()).for_each(|page| body.extend(page));
        for change in &self.files {
            if let Change::Write { bytes, .. } = change {
                body.extend(bytes);
            }
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(deflate(&body));
        let sum = Sha256::digest(&bytes);
        bytes.extend(sum);
        bytes
    }

    /// `None`: it is not what was written.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM_BYTES)?)?;
        if Sha256::digest(content)[..] != *sum {
            return None;
        }
        let body = inflate(content.strip_prefix(MAGIC)?).ok()?;
        let (length, rest) = body.split_at_checked(8)?;
        let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
        let (header, mut rest) = rest.split_at_checked(length)?;
        let header: Header = serde_json::from_slice(header).ok()?;
        let mut take = |count: usize| {
            let (taken, others) = rest.split_at_checked(count)?;
            rest = others;
            Some(taken.to_vec())
        };
        let mut databases = Vec::new();
        for (name, page_bytes, page_count, numbers) in header.databases {
            let pages = numbers.into_iter().map(|number| Some((number, take(page_bytes as usize)?)));
            databases.push(Pages { name, page_bytes, page_count, pages: pages.collect::<Option<_>>()? });
        }
        let mut files = Vec::new();
        for (path, written) in header.files {
            files.push(match written {
                Some((mode, at, length)) => Change::Write { path, mode, at, bytes: take(length)? },
                None => Change::Remove { path },
            });
        }
        Some(Self { about: header.about, contents: header.contents, databases, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_comes_back_or_is_known_to_be_damaged() {
        let tick = Tick {
            about: About { run: "r".to_owned(), number: 7, taken_ms: 8, jobs_running: 2 },
            contents: vec!["objects/aa/aabb".to_owned()],
            databases: vec![
                Pages {
                    name: "shoal.db".to_owned(),
                    page_bytes: 512,
                    page_count: 9,
                    pages: BTreeMap::from([(2, vec![1; 512]), (9, vec![3; 512])]),
                },
                Pages { name: "objects.db".to_owned(), page_bytes: 512, page_count: 1, pages: BTreeMap::new() },
            ],
            files: vec![
                Change::Write { path: "keys".to_owned(), mode: 0o600, at: 3, bytes: b"abc".to_vec() },
                Change::Remove { path: "tls/old".to_owned() },
            ],
        };
        let bytes = tick.encode();
        assert_eq!(Tick::decode(&bytes), Some(tick));
        for cut in [0, 7, 31, 40, bytes.len() - 1] {
            assert_eq!(Tick::decode(&bytes[..cut]), None);
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert_eq!(Tick::decode(&flipped), None, "{at}");
        }
        assert!(!Tick::decode(&bytes).unwrap().is_empty() && Tick::default().is_empty());
    }
}
