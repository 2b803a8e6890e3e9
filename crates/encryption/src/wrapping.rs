//! Data keys under other keys: AES-256-GCM with a random nonce, `nonce | ciphertext | tag`. The
//! context is authenticated and not stored.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::data_key::{KEY_BYTES, random};
use crate::{DataKey, KeyError};

/// A key that wraps data keys.
pub(crate) struct WrappingKey(LessSafeKey);

impl WrappingKey {
    pub(crate) fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).expect("the key has the algorithm's length")))
    }

    pub(crate) fn wrap(&self, data: &DataKey, context: &[u8]) -> Result<Vec<u8>, KeyError> {
        let nonce = random::<NONCE_LEN>()?;
        let mut bytes = data.bytes().to_vec();
        let sealed =
            self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(context), &mut bytes);
        sealed.expect("a data key is short");
        Ok([&nonce[..], &bytes].concat())
    }

    /// `None`: it was wrapped under another key or in another context, or it was changed.
    pub(crate) fn unwrap(&self, wrapped: &[u8], context: &[u8]) -> Option<DataKey> {
        let (nonce, sealed) = wrapped.split_first_chunk::<NONCE_LEN>()?;
        let mut bytes = Zeroizing::new(sealed.to_vec());
        let opened = self.0.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(context), &mut bytes);
        DataKey::of(opened.ok()?)
    }
}

impl std::fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WrappingKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_key_opens_under_its_key_and_context_alone() {
        let (key, data) = (WrappingKey::new(&[7; 32]), DataKey::random().unwrap());
        let wrapped = key.wrap(&data, b"team").unwrap();
        assert_eq!(wrapped.len(), NONCE_LEN + 32 + 16);
        assert!(!wrapped.windows(32).any(|window| window == data.bytes()));
        assert_ne!(key.wrap(&data, b"team").unwrap(), wrapped, "a new nonce each time");
        assert_eq!(key.unwrap(&wrapped, b"team").unwrap().bytes(), data.bytes());
        assert!(key.unwrap(&wrapped, b"other").is_none());
        assert!(WrappingKey::new(&[8; 32]).unwrap(&wrapped, b"team").is_none());
        for at in 0..wrapped.len() {
            let mut changed = wrapped.clone();
            changed[at] ^= 1;
            assert!(key.unwrap(&changed, b"team").is_none(), "byte {at}");
        }
        for length in 0..wrapped.len() {
            assert!(key.unwrap(&wrapped[..length], b"team").is_none(), "{length} bytes");
        }
    }
}
