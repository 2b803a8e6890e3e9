//! Tickets that must not count again before their end: links that were used, sessions that were
//! signed out. Kept in a small file.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use hex_simd::AsciiCase;
use sha2::{Digest, Sha256};
use shoal_store::{DataDir, StoreError};

/// The set, by digest; a line of the file is `<end in seconds> <digest>`.
#[derive(Debug)]
pub(crate) struct Spent {
    path: PathBuf,
    ends: BTreeMap<String, u64>,
}

impl Spent {
    /// Reads the file; what cannot be read is as good as not there.
    pub(crate) fn open(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = |line: &str| {
            line.split_once(' ').and_then(|(end_s, digest)| Some((digest.to_owned(), end_s.parse().ok()?)))
        };
        Self { path: path.to_owned(), ends: text.lines().filter_map(line).collect() }
    }

    /// Whether the ticket was spent.
    pub(crate) fn holds(&self, ticket: &str) -> bool {
        self.ends.contains_key(&digest_of(ticket))
    }

    /// Spends a ticket; false if it was spent already.
    ///
    /// # Errors
    /// That cannot be written down, and the ticket is not spent.
    pub(crate) fn spend(&mut self, ticket: &str, end_s: u64, now_s: u64) -> Result<bool, StoreError> {
        self.ends.retain(|_, end| *end > now_s);
        let digest = digest_of(ticket);
        if self.ends.insert(digest.clone(), end_s).is_some() {
            return Ok(false);
        }
        let text: String = self.ends.iter().map(|(digest, end)| format!("{end} {digest}\n")).collect();
        DataDir::write_private(&self.path, text.as_bytes()).inspect_err(|_| {
            self.ends.remove(&digest);
        })?;
        Ok(true)
    }
}

fn digest_of(ticket: &str) -> String {
    hex_simd::encode_to_string(Sha256::digest(ticket), AsciiCase::Lower)
}
