//! Data keys: random, each for one content or a few.

use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use crate::KeyError;

/// Bytes of an AES-256 key.
pub(crate) const KEY_BYTES: usize = 32;

/// A key that contents are encrypted under. Its bytes are cleared when it is dropped.
#[derive(Clone)]
pub struct DataKey(Zeroizing<[u8; KEY_BYTES]>);

impl DataKey {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> Result<Self, KeyError> {
        random().map(|bytes| Self(Zeroizing::new(bytes)))
    }

    /// `None`: it has another length.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(Zeroizing::new(bytes)))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl std::fmt::Debug for DataKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DataKey")
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| KeyError::Unavailable("the system gives no random numbers".to_owned()))?;
    Ok(bytes)
}
