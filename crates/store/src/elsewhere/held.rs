//! Contents that trees hold for agents on other machines, which read them from the store: a file of
//! the content's name in a folder of the tree stands for each. The store's copy stays as long as it
//! is there, whatever becomes of the object.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{Elsewhere, is_missing, name_of, rows};
use crate::data_dir::{hex, random_hex};
use crate::error::io_at;
use crate::object_writer::FILE_MODE;
use crate::{Objects, StoreError};

/// The folder of a tree.
pub(crate) const FOLDER: &str = "elsewhere";

/// Read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Where a content can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentAddress {
    /// Anyone may read from there.
    pub url: String,
    /// Of the content, hexadecimal.
    pub sha256: String,
}

impl Elsewhere {
    /// The contents that trees hold.
    pub(super) fn held(&self) -> Result<HashSet<String>, StoreError> {
        loop {
            let mut held = HashSet::new();
            let mut is_whole = true;
            for tree in entries(&self.trees)?.unwrap_or_default() {
                let Some(named) = entries(&self.trees.join(&tree).join(FOLDER))? else {
                    // It is none that holds contents, or a draft that has just got its name.
                    is_whole &= self.trees.join(&tree).exists();
                    continue;
                };
                held.extend(named);
            }
            if is_whole {
                return Ok(held);
            }
        }
    }
}

/// Names in a directory; `None`: there is none.
fn entries(dir: &Path) -> Result<Option<Vec<String>>, StoreError> {
    let read = || fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect();
    match read() {
        Err(error) if is_missing(&error) || error.kind() == io::ErrorKind::NotADirectory => Ok(None),
        names => names.map(Some).map_err(io_at("list", dir)),
    }
}

impl Objects {
    /// Where a content that the store elsewhere has can be read for this time, by the id of its
    /// object.
    ///
    /// # Errors
    /// The index's, or the store's.
    pub fn content_address(&self, id: &str, valid: Duration) -> Result<Option<ContentAddress>, StoreError> {
        let Some(elsewhere) = self.elsewhere() else { return Ok(None) };
        // The store has ciphertext, and agents have no keys.
        if self.has_seals(id)? {
            return Ok(None);
        }
        let Some((_, sha256)) = rows::content(&elsewhere.index, id)? else { return Ok(None) };
        let url = elsewhere.store.address(&name_of(id), valid)?;
        Ok(url.map(|url| ContentAddress { url, sha256: hex(&sha256) }))
    }

    /// Makes a content that a tree holds a file of the tree, compared with its SHA-256.
    ///
    /// # Errors
    /// The store's; [`StoreError::DamagedObject`]; I/O.
    pub fn bring_held(&self, tree: &Path, id: &str) -> Result<(), StoreError> {
        let damaged = |detail: &str| StoreError::DamagedObject { key: id.to_owned(), detail: detail.to_owned() };
        let lost = || damaged("the store elsewhere does not have its content");
        let elsewhere = self.elsewhere().ok_or_else(lost)?;
        let (_, sha256) = rows::content(&elsewhere.index, id)?.ok_or_else(lost)?;
        let (path, draft) = (tree.join(id), tree.join(format!("{id}.{}", random_hex::<8>()?)));
        let made = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(&draft);
        let mut file = made.map_err(io_at("create", &draft))?;
        let brought = elsewhere.store.fetch(&name_of(id), &file).and_then(|length| length.ok_or_else(lost));
        let placed = brought.and_then(|_| match digest(&mut file).map_err(io_at("read", &draft))? == sha256 {
            true => fs::rename(&draft, &path).map_err(io_at("rename", &draft)),
            false => Err(damaged("its content in the store elsewhere is not what was written (its SHA-256 differs)")),
        });
        if placed.is_err() {
            let _ = fs::remove_file(&draft);
        }
        placed
    }
}

fn digest(file: &mut File) -> io::Result<[u8; 32]> {
    io::Seek::rewind(file)?;
    let (mut hash, mut piece) = (Sha256::new(), vec![0; PIECE_BYTES]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hash.finalize().into()),
            count => hash.update(&piece[..count]),
        }
    }
}
