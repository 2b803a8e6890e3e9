//! Envelope encryption. Each content is encrypted under a random *data key*; the data key is stored
//! wrapped, either under a key of the owner (`[kms.NAME]` in `shoal.toml`: a file with keys, or a
//! command that has them) or under a key that a client sends with each request (SSE-C).
//!
//! A content is encrypted block by block with AES-256-GCM ([`Sealer`], [`open_block`]). Ciphertext
//! is as long as the plaintext: the blocks' tags are *seals*, which the caller stores next to it.
//! So a block of a stored file is the same block of the content.
//!
//! Not protected: which objects there are, their names, sizes and attributes; contents against a
//! process of the server's user while they are read.

mod blocks;
mod command;
mod data_key;
mod envelope;
mod error;
mod flights;
mod key_file;
mod key_ring;
mod wrapping;

pub use blocks::{BlockPlace, SALT_BYTES, Sealer, TAG_BYTES, open_block};
pub use data_key::DataKey;
pub use envelope::{CustomerKey, Envelope, Holder};
pub use error::KeyError;
pub use key_ring::{KeyRing, KeySource};
