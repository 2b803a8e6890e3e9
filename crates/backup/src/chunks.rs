//! Databases and small files as chunks. A backup writes the chunks that the one before it does not
//! have, compressed, into *packs*; those of which little is in use are written again.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use crate::BackupError;
use crate::error::io_at;
use crate::manifest::{Details, damaged, deflate, inflate, sha256};
use crate::target::Target;

/// Bytes of a chunk before compression: a page that has changed costs as much.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// Read from a pack at a time, where chunks lie side by side.
const SPAN_BYTES: u64 = 8 << 20;

/// A pack is written when it has these bytes.
const PACK_BYTES: usize = 16 << 20;

/// Packs by number, each with its name and its length.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Packs(pub(crate) Vec<(String, u64)>);

/// Where a chunk is: pack, first byte, length there, SHA-256 of what it decompresses to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Chunk(pub(crate) usize, pub(crate) u64, pub(crate) u64, pub(crate) String);

/// A file as chunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Image {
    /// Its path in the data directory.
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: u64,
    pub(crate) chunks: Vec<Chunk>,
}

/// Makes the chunks of one backup.
#[derive(Debug)]
pub(crate) struct Packer<'a> {
    id: String,
    target: &'a dyn Target,
    packs: Packs,
    known: HashMap<String, (usize, u64, u64)>,
    pack: Vec<u8>,
    written_bytes: u64,
}

impl Packs {
    /// The pack with this number among all that a backup names.
    pub(crate) fn name(id: &str, number: usize) -> String {
        format!("backups/{id}/pack-{number}")
    }
}

impl<'a> Packer<'a> {
    /// For a backup of this name, which follows another with these details.
    pub(crate) fn after(id: &str, previous: Option<&Details>, target: &'a dyn Target) -> Self {
        let (packs, known) = (Packs::default(), HashMap::new());
        let mut packer = Self { id: id.to_owned(), target, packs, known, pack: Vec::new(), written_bytes: 0 };
        if let Some(previous) = previous {
            packer.take_over(previous);
        }
        packer
    }

    fn take_over(&mut self, previous: &Details) {
        let chunks = || previous.images.iter().flat_map(|image| &image.chunks);
        let mut in_use: BTreeMap<usize, BTreeMap<u64, u64>> = BTreeMap::new();
        for Chunk(pack, at, length, _) in chunks() {
            in_use.entry(*pack).or_default().insert(*at, *length);
        }
        let mut numbers = BTreeMap::new();
        for (pack, places) in in_use {
            let Some((id, bytes)) = previous.packs.0.get(pack) else { continue };
            if places.values().sum::<u64>() * 2 >= *bytes {
                numbers.insert(pack, self.packs.0.len());
                self.packs.0.push((id.clone(), *bytes));
            }
        }
        for Chunk(pack, at, length, sum) in chunks() {
            if let Some(number) = numbers.get(pack) {
                self.known.insert(sum.clone(), (*number, *at, *length));
            }
        }
    }

    /// Takes a chunk, writing it only if it is new.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<Chunk, BackupError> {
        let sum = sha256(bytes);
        if let Some((pack, at, length)) = self.known.get(&sum) {
            return Ok(Chunk(*pack, *at, *length, sum));
        }
        let (at, chunk) = (self.pack.len() as u64, deflate(bytes));
        self.pack.extend_from_slice(&chunk);
        let place = (self.packs.0.len(), at, chunk.len() as u64);
        self.known.insert(sum.clone(), place);
        if self.pack.len() >= PACK_BYTES {
            self.flush()?;
        }
        Ok(Chunk(place.0, place.1, place.2, sum))
    }

    /// Takes a whole file.
    pub(crate) fn image(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<Image, BackupError> {
        let chunks = bytes.chunks(CHUNK_BYTES).map(|chunk| self.add(chunk)).collect::<Result<_, _>>()?;
        Ok(Image { path: path.to_owned(), mode, bytes: bytes.len() as u64, chunks })
    }

    fn flush(&mut self) -> Result<(), BackupError> {
        let name = Packs::name(&self.id, self.packs.0.len());
        self.target.put(&name, &self.pack)?;
        self.packs.0.push((name, self.pack.len() as u64));
        self.written_bytes += self.pack.len() as u64;
        self.pack.clear();
        Ok(())
    }

    /// Writes what is left; returns all packs, and the bytes of the new ones.
    pub(crate) fn finish(mut self) -> Result<(Packs, u64), BackupError> {
        if !self.pack.is_empty() {
            self.flush()?;
        }
        Ok((self.packs, self.written_bytes))
    }
}

impl Image {
    /// Writes the file that it is of, each chunk compared with its sum.
    pub(crate) fn write_to(&self, file: &File, packs: &Packs, target: &dyn Target) -> Result<(), BackupError> {
        let mut at = 0;
        let mut rest = &self.chunks[..];
        while let Some(first) = rest.first() {
            let count = rest.iter().zip(1..).take_while(|(chunk, _)| is_near(first, chunk)).count().max(1);
            // Only those that lie behind each other are read together.
            let side_by_side = rest[..count].windows(2).take_while(|pair| pair[0].1 + pair[0].2 == pair[1].1).count();
            let (span, others) = rest.split_at(side_by_side + 1);
            let Some((name, _)) = packs.0.get(first.0) else {
                return Err(damaged(target, &self.path, "it names a pack that there is not"));
            };
            let length = span.iter().map(|chunk| chunk.2).sum::<u64>();
            let bytes = target.read_range(name, first.1, usize::try_from(length).unwrap_or(usize::MAX))?;
            for Chunk(_, start, length, sum) in span {
                let from = usize::try_from(start - first.1).unwrap_or(usize::MAX);
                let chunk = inflate(&bytes[from..from + usize::try_from(*length).unwrap_or(usize::MAX)]);
                let chunk = chunk.ok().filter(|chunk| sha256(chunk) == *sum).ok_or_else(|| {
                    damaged(target, name, format!("its bytes {start} to {} are not those written", start + length - 1))
                })?;
                file.write_all_at(&chunk, at).map_err(io_at("write", &self.path))?;
                at += chunk.len() as u64;
            }
            rest = others;
        }
        if at == self.bytes { Ok(()) } else { Err(damaged(target, &self.path, "chunks of it are missing")) }
    }
}

fn is_near(first: &Chunk, chunk: &Chunk) -> bool {
    chunk.0 == first.0 && chunk.1 >= first.1 && chunk.1 + chunk.2 - first.1 <= SPAN_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Directory;

    fn bytes(seed: u8, count: usize) -> Vec<u8> {
        // Each chunk is another.
        (0..count).map(|at| seed ^ (at / 1000) as u8 ^ (at / CHUNK_BYTES) as u8).collect()
    }

    fn back(image: &Image, packs: &Packs, target: &Directory) -> Result<Vec<u8>, BackupError> {
        let file = tempfile::tempfile().unwrap();
        image.write_to(&file, packs, target)?;
        let mut found = vec![0; usize::try_from(image.bytes).unwrap()];
        file.read_exact_at(&mut found, 0).unwrap();
        Ok(found)
    }

    #[test]
    fn only_new_chunks_are_written_and_all_come_back() {
        let temp = tempfile::tempdir().unwrap();
        let target = Directory::at(temp.path());
        let mut content = bytes(1, 10 * CHUNK_BYTES + 17);
        let mut packer = Packer::after("one", None, &target);
        let image = packer.image("a", 0o600, &content).unwrap();
        let empty = packer.image("empty", 0o600, b"").unwrap();
        let (packs, first) = packer.finish().unwrap();
        assert_eq!(back(&image, &packs, &target).unwrap(), content);
        assert_eq!(back(&empty, &packs, &target).unwrap(), b"");

        content[3 * CHUNK_BYTES] ^= 9;
        let previous = Details { packs, images: vec![image], contents: Vec::new() };
        let mut packer = Packer::after("two", Some(&previous), &target);
        let image = packer.image("a", 0o600, &content).unwrap();
        let (packs, second) = packer.finish().unwrap();
        assert!(second < first / 4, "{second} of {first}");
        assert_eq!(back(&image, &packs, &target).unwrap(), content);

        // Little of the first pack is in use: the rest of it is written again.
        let previous = Details {
            packs,
            images: vec![Image { chunks: image.chunks[..2].to_vec(), ..image }],
            contents: Vec::new(),
        };
        let mut packer = Packer::after("three", Some(&previous), &target);
        let image = packer.image("a", 0o600, &content[..2 * CHUNK_BYTES]).unwrap();
        let (packs, _) = packer.finish().unwrap();
        assert_eq!(packs.0.iter().map(|(id, _)| &**id).collect::<Vec<_>>(), ["backups/three/pack-0"]);
        assert_eq!(back(&image, &packs, &target).unwrap(), content[..2 * CHUNK_BYTES]);

        let path = temp.path().join(Packs::name("three", 0));
        let mut pack = std::fs::read(&path).unwrap();
        let last = pack.len() - 1;
        pack[last] ^= 1;
        std::fs::write(&path, pack).unwrap();
        let error = back(&image, &packs, &target).unwrap_err();
        assert!(matches!(&error, BackupError::Damaged { name, .. } if name == "backups/three/pack-0"), "{error}");
    }
}
