//! What may be wrong with the files of saved tensors.

/// Why bytes are not what a hook writes. The caller adds the file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The file ends within a record.
    #[error("the record at byte {at} is cut off: it needs {needs} bytes and {has} are left")]
    Torn {
        /// Where the record begins.
        at: usize,
        /// Bytes of the whole record.
        needs: u64,
        /// Bytes from there to the end.
        has: usize,
    },
    /// Bytes were changed.
    #[error("the record at byte {at} is damaged: the checksum of its {part} does not match")]
    Checksum {
        /// Where the record begins.
        at: usize,
        /// `length` or `content`.
        part: &'static str,
    },
    /// A length that no hook writes.
    #[error("the record at byte {at} claims {bytes} bytes; at most {MAX} are read", MAX = super::MAX_RECORD_BYTES)]
    TooLong {
        /// Where the record begins.
        at: usize,
        /// Its length as written.
        bytes: u64,
    },
    /// Not a protocol buffer of TensorFlow's `Event`.
    #[error("an event cannot be read: {0}")]
    Event(String),
    /// The shape and the values of a tensor contradict each other.
    #[error("tensor {name}: shape [{shape}] of {element} needs {needs}, but {has} are there")]
    Shape {
        /// The tensor.
        name: String,
        /// Its dimensions, as in `2, 3`.
        shape: String,
        /// Its type.
        element: &'static str,
        /// `N bytes` or `N values`, or that this is too much to count.
        needs: String,
        /// The same for what is there.
        has: String,
    },
    /// An element type that has no numbers or is not known.
    #[error("tensor {name}: element type {element} has no values to read")]
    Element {
        /// The tensor.
        name: String,
        /// The type by its name or number.
        element: String,
    },
    /// JSON of an index or collections file.
    #[error("{file} cannot be read: {reason}")]
    Json {
        /// `the index file` or `the collections file`.
        file: &'static str,
        /// Why.
        reason: String,
    },
}
