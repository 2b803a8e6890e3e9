//! Types of a tensor's elements, with TensorFlow's numbers (`types.proto`).

/// Type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ElementType {
    Float16,
    BFloat16,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Bool,
    Complex64,
    Complex128,
    Text,
}

impl ElementType {
    const TABLE: [(Self, u64, usize, &'static str); 16] = [
        (Self::Float16, 19, 2, "float16"),
        (Self::BFloat16, 14, 2, "bfloat16"),
        (Self::Float32, 1, 4, "float32"),
        (Self::Float64, 2, 8, "float64"),
        (Self::Int8, 6, 1, "int8"),
        (Self::Int16, 5, 2, "int16"),
        (Self::Int32, 3, 4, "int32"),
        (Self::Int64, 9, 8, "int64"),
        (Self::UInt8, 4, 1, "uint8"),
        (Self::UInt16, 17, 2, "uint16"),
        (Self::UInt32, 22, 4, "uint32"),
        (Self::UInt64, 23, 8, "uint64"),
        (Self::Bool, 10, 1, "bool"),
        (Self::Complex64, 8, 8, "complex64"),
        (Self::Complex128, 18, 16, "complex128"),
        (Self::Text, 7, 0, "string"),
    ];

    fn row(self) -> (Self, u64, usize, &'static str) {
        *Self::TABLE.iter().find(|(element, ..)| *element == self).expect("the table has a row for every type")
    }

    /// TensorFlow's number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.row().1
    }

    /// The type of a number.
    #[must_use]
    pub fn of_number(number: u64) -> Option<Self> {
        Self::TABLE.iter().find(|(_, known, ..)| *known == number).map(|(element, ..)| *element)
    }

    /// Bytes of an element; 0 for text.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.row().2
    }

    /// NumPy's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().3
    }

    /// Whether elements are real numbers.
    #[must_use]
    pub fn is_real(self) -> bool {
        !matches!(self, Self::Complex64 | Self::Complex128 | Self::Text)
    }
}
