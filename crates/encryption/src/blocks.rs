//! Contents block by block: AES-256-GCM under a key that HKDF-SHA-256 derives of the data key and a
//! random salt, one for each content (or part of one). The nonce is the block's number; whether it
//! is the last one is authenticated. So no two blocks share key and nonce, however many contents
//! have the data key, and a block that is moved, cut off or brought from another content does not
//! open.
//!
//! *Seals* of a content: the salt, then the tag of each block.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use crate::data_key::random;
use crate::{DataKey, KeyError};

/// Bytes of the salt that a content's seals begin with.
pub const SALT_BYTES: usize = 16;
/// Bytes of a block's tag.
pub const TAG_BYTES: usize = 16;

/// What the derived key is for.
const PURPOSE: &[u8] = b"shoal content, AES-256-GCM by blocks, 1";

/// Which block of a content, or of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPlace {
    /// From 0.
    pub number: u64,
    /// The content or part ends with it.
    pub is_last: bool,
}

impl BlockPlace {
    fn nonce(self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[NONCE_LEN - 8..].copy_from_slice(&self.number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    fn context(self) -> Aad<[u8; 1]> {
        Aad::from([u8::from(self.is_last)])
    }
}

fn content_key(data: &DataKey, salt: &[u8]) -> LessSafeKey {
    let derived = Salt::new(HKDF_SHA256, salt).extract(data.bytes());
    let okm = derived.expand(&[PURPOSE], &AES_256_GCM).expect("HKDF gives 32 bytes");
    LessSafeKey::new(UnboundKey::from(okm))
}

/// Decrypts a block in place; `false`: it is not what was encrypted, and its bytes are of no use.
#[must_use]
pub fn open_block(data: &DataKey, salt: &[u8], place: BlockPlace, tag: &[u8], block: &mut [u8]) -> bool {
    let Ok(tag) = Tag::try_from(tag) else { return false };
    content_key(data, salt).open_in_place_separate_tag(place.nonce(), place.context(), tag, block, 0..).is_ok()
}

/// Encrypts what it is given, in order.
pub struct Sealer {
    key: LessSafeKey,
    seals: Vec<u8>,
    block_bytes: usize,
    /// What is not encrypted so far: the last block is known as such at the end alone.
    block: Vec<u8>,
    number: u64,
}

impl Sealer {
    /// For one content, in blocks of this length.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(data: &DataKey, block_bytes: usize) -> Result<Self, KeyError> {
        let salt = random::<SALT_BYTES>()?;
        let key = content_key(data, &salt);
        Ok(Self { key, seals: salt.to_vec(), block_bytes, block: Vec::new(), number: 0 })
    }

    /// Bytes that wait for the rest of their block.
    pub fn pending(&self) -> usize {
        self.block.len()
    }

    /// Takes plaintext and gives `put` each block that is complete, encrypted.
    ///
    /// # Errors
    /// Those of `put`.
    pub fn push<E>(&mut self, mut bytes: &[u8], mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        while !bytes.is_empty() {
            if self.block.len() == self.block_bytes {
                self.seal(false, &mut put)?;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(self.block_bytes - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = rest;
        }
        Ok(())
    }

    /// Encrypts the last block and returns the seals.
    ///
    /// # Errors
    /// Those of `put`.
    pub fn finish<E>(mut self, mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<Vec<u8>, E> {
        if !self.block.is_empty() {
            self.seal(true, &mut put)?;
        }
        Ok(self.seals)
    }

    fn seal<E>(&mut self, is_last: bool, put: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let place = BlockPlace { number: self.number, is_last };
        let tag = self.key.seal_in_place_separate_tag(place.nonce(), place.context(), &mut self.block);
        self.seals.extend_from_slice(tag.expect("a block is short").as_ref());
        self.number += 1;
        put(&self.block)?;
        self.block.clear();
        Ok(())
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 64;

    /// Ciphertext and seals.
    fn seal(data: &DataKey, content: &[u8], piece: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut sealer, mut cipher) = (Sealer::new(data, BLOCK).unwrap(), Vec::new());
        let mut put = |block: &[u8]| {
            cipher.extend_from_slice(block);
            Ok::<_, ()>(())
        };
        content.chunks(piece).for_each(|piece| sealer.push(piece, &mut put).unwrap());
        let seals = sealer.finish(&mut put).unwrap();
        (cipher, seals)
    }

    fn open(data: &DataKey, cipher: &[u8], seals: &[u8]) -> Option<Vec<u8>> {
        let (salt, tags) = seals.split_at(SALT_BYTES);
        let blocks = Vec::from_iter(cipher.chunks(BLOCK));
        let mut content = Vec::new();
        for (number, block) in blocks.iter().enumerate() {
            let (mut block, is_last) = (block.to_vec(), number + 1 == blocks.len());
            let tag = tags.get(number * TAG_BYTES..(number + 1) * TAG_BYTES)?;
            let place = BlockPlace { number: number as u64, is_last };
            open_block(data, salt, place, tag, &mut block).then(|| content.extend_from_slice(&block))?;
        }
        Some(content)
    }

    #[test]
    fn a_content_of_any_length_in_any_pieces_comes_back() {
        let data = DataKey::random().unwrap();
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 5] {
            let content = Vec::from_iter((0..length).map(|at| (at % 251) as u8));
            for piece in [1, 7, BLOCK, 1000] {
                let (cipher, seals) = seal(&data, &content, piece);
                assert_eq!(cipher.len(), length);
                assert_eq!(seals.len(), SALT_BYTES + length.div_ceil(BLOCK) * TAG_BYTES);
                assert!(length < 8 || cipher != content);
                assert_eq!(open(&data, &cipher, &seals), Some(content.clone()), "{length} by {piece}");
            }
        }
    }

    #[test]
    fn equal_contents_and_equal_blocks_differ() {
        let data = DataKey::random().unwrap();
        let (one, _) = seal(&data, &[0; 3 * BLOCK], 1000);
        let (other, _) = seal(&data, &[0; 3 * BLOCK], 1000);
        assert_ne!(one, other, "each content has a salt");
        assert_ne!(one[..BLOCK], one[BLOCK..2 * BLOCK], "each block has a nonce");
    }

    #[test]
    fn what_was_changed_moved_cut_or_exchanged_does_not_open() {
        let data = DataKey::random().unwrap();
        let content = Vec::from_iter((0..3 * BLOCK + 5).map(|at| at as u8));
        let (cipher, seals) = seal(&data, &content, 1000);
        for at in 0..cipher.len() {
            let mut changed = cipher.clone();
            changed[at] ^= 0x10;
            assert_eq!(open(&data, &changed, &seals), None, "byte {at}");
        }
        for at in 0..seals.len() {
            let mut changed = seals.clone();
            changed[at] ^= 1;
            assert_eq!(open(&data, &cipher, &changed), None, "byte {at} of the seals");
        }
        // Two blocks in each other's place, with their tags.
        let (mut swapped, mut tags) = (cipher.clone(), seals.clone());
        swapped[..2 * BLOCK].rotate_left(BLOCK);
        tags[SALT_BYTES..SALT_BYTES + 2 * TAG_BYTES].rotate_left(TAG_BYTES);
        assert_eq!(open(&data, &swapped, &tags), None);
        // Cut at any place, with the seals cut alike.
        for length in 1..cipher.len() {
            let tags = &seals[..SALT_BYTES + length.div_ceil(BLOCK) * TAG_BYTES];
            assert_eq!(open(&data, &cipher[..length], tags), None, "{length} bytes");
        }
        // The first block cut off.
        let tags = [&seals[..SALT_BYTES], &seals[SALT_BYTES + TAG_BYTES..]].concat();
        assert_eq!(open(&data, &cipher[BLOCK..], &tags), None);
        // A block of another content under the same data key.
        let (other, others) = seal(&data, &content, 1000);
        let (mut mixed, mut tags) = (cipher.clone(), seals.clone());
        mixed[..BLOCK].copy_from_slice(&other[..BLOCK]);
        tags[SALT_BYTES..][..TAG_BYTES].copy_from_slice(&others[SALT_BYTES..][..TAG_BYTES]);
        assert_eq!(open(&data, &mixed, &tags), None);
        assert_eq!(open(&DataKey::random().unwrap(), &cipher, &seals), None);
    }
}
