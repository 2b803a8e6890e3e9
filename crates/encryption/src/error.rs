//! What can go wrong with keys.

/// Why a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The owner has declared no key of this name.
    #[error(
        "there is no key \"{0}\": the keys of this server are those that its owner declares as [kms.NAME] in shoal.toml \
         (docs/encryption.md)"
    )]
    Unknown(String),
    /// The key's command does not answer; try again.
    #[error("{0}")]
    Unavailable(String),
    /// The content was encrypted under a key that is not there any more, or its row was changed.
    #[error(
        "none of the keys of \"{0}\" opens this data key: a rotated key must stay in the file, below the new one, as \
         long as there are objects under it (docs/encryption.md)"
    )]
    Wrong(String),
    /// The client's key is another one than the content was encrypted under.
    #[error("the provided key is not the one that the object was encrypted under")]
    WrongCustomerKey,
    /// The client has sent no key for a content that has one.
    #[error("the object was encrypted under a key of the customer, which must come with each request")]
    NoCustomerKey,
    /// Declared keys cannot be used as they are.
    #[error("{0}")]
    Declared(String),
}
