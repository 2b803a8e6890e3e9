//! A tensor: name, type, shape and values, borrowed from the file that it was read from.

use std::borrow::Cow;

use half::{bf16, f16};

use super::protobuf::{Field, Fields, put_bytes, put_varint, text, varints};
use super::{ElementType, TensorError};

/// Dimensions of a tensor; NumPy has at most 64.
const MAX_DIMENSIONS: usize = 64;

/// A saved tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor<'a> {
    /// Its name, as in the index.
    pub name: Cow<'a, str>,
    /// Type of its elements.
    pub element: ElementType,
    /// Its dimensions; none for a scalar.
    pub shape: Vec<u64>,
    /// Little-endian elements, row by row; empty for text.
    pub bytes: Cow<'a, [u8]>,
    /// Elements of type text.
    pub texts: Vec<Cow<'a, str>>,
}

impl<'a> Tensor<'a> {
    /// A tensor of 32-bit floats.
    #[must_use]
    pub fn of_f32(name: &'a str, shape: &[u64], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let (name, element) = (Cow::Borrowed(name), ElementType::Float32);
        Self { name, element, shape: shape.to_vec(), bytes: Cow::Owned(bytes), texts: Vec::new() }
    }

    /// Reads TensorFlow's `TensorProto`.
    pub(super) fn parse(name: &'a str, message: &'a [u8]) -> Result<Self, TensorError> {
        let mut element = None;
        let mut shape = Vec::new();
        let mut content = None;
        let mut texts = Vec::new();
        let mut listed = Vec::new();
        for field in Fields::new(message) {
            match field? {
                (1, Field::Varint(number)) => element = Some(number),
                (2, Field::Bytes(dimensions)) => shape = parse_shape(dimensions)?,
                (4, Field::Bytes(bytes)) => content = Some(bytes),
                (8, Field::Bytes(bytes)) => texts.push(Cow::Borrowed(text(bytes)?)),
                (5..=7 | 10 | 11 | 13 | 16 | 17, field) => listed.push(field),
                _ => {}
            }
        }
        // smdebug writes text without a type.
        let element = match element {
            None | Some(0) => ElementType::Text,
            Some(number) => ElementType::of_number(number).ok_or_else(|| TensorError::Element {
                name: name.to_owned(),
                element: format!("number {number} of TensorFlow's DataType"),
            })?,
        };
        let bytes = match content {
            Some(bytes) => Cow::Borrowed(bytes),
            None if element == ElementType::Text => Cow::default(),
            None => Cow::Owned(of_list(element, &listed)?),
        };
        let tensor = Self { name: Cow::Borrowed(name), element, shape, bytes, texts };
        tensor.check()?;
        Ok(tensor)
    }

    /// Whether shape and values agree.
    fn check(&self) -> Result<(), TensorError> {
        let elements = self.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        let is_text = self.element == ElementType::Text;
        let unit = if is_text { "values" } else { "bytes" };
        let has = if is_text { self.texts.len() as u64 } else { self.bytes.len() as u64 };
        let needs = elements.and_then(|elements| elements.checked_mul(self.element.bytes().max(1) as u64));
        if needs == Some(has) {
            return Ok(());
        }
        Err(TensorError::Shape {
            name: self.name.to_string(),
            shape: Vec::from_iter(self.shape.iter().map(u64::to_string)).join(", "),
            element: self.element.name(),
            needs: needs.map_or_else(|| "more than can be counted".to_owned(), |needs| format!("{needs} {unit}")),
            has: format!("{has} {unit}"),
        })
    }

    /// Appends a `TensorProto` as smdebug writes it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        if self.element != ElementType::Text {
            put_varint(out, 1, self.element.number());
        }
        let mut shape = Vec::new();
        for size in &self.shape {
            let mut dimension = Vec::new();
            if *size > 0 {
                put_varint(&mut dimension, 1, *size);
            }
            put_bytes(&mut dimension, 2, format!("{}_{size}", self.name).as_bytes());
            put_bytes(&mut shape, 2, &dimension);
        }
        put_bytes(out, 2, &shape);
        if !self.bytes.is_empty() {
            put_bytes(out, 4, &self.bytes);
        }
        for value in &self.texts {
            put_bytes(out, 8, value.as_bytes());
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.element.bytes() {
            0 => self.texts.len(),
            bytes => self.bytes.len() / bytes,
        }
    }

    /// Whether it has no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes all values, in their order, to a function; truth is 1. Elements that are not real
    /// numbers are an error.
    pub fn for_each(&self, mut visit: impl FnMut(f64)) -> Result<(), TensorError> {
        macro_rules! each {
            ($type:ty, $to:expr) => {
                self.bytes.as_chunks::<{ size_of::<$type>() }>().0.iter().for_each(|bytes| {
                    visit($to(<$type>::from_le_bytes(*bytes)));
                })
            };
        }
        match self.element {
            ElementType::Float16 => each!(f16, f64::from),
            ElementType::BFloat16 => each!(bf16, f64::from),
            ElementType::Float32 => each!(f32, f64::from),
            ElementType::Float64 => each!(f64, f64::from),
            ElementType::Int8 => each!(i8, f64::from),
            ElementType::Int16 => each!(i16, f64::from),
            ElementType::Int32 => each!(i32, f64::from),
            ElementType::Int64 => each!(i64, |value| value as f64),
            ElementType::UInt8 => each!(u8, f64::from),
            ElementType::UInt16 => each!(u16, f64::from),
            ElementType::UInt32 => each!(u32, f64::from),
            ElementType::UInt64 => each!(u64, |value| value as f64),
            ElementType::Bool => each!(u8, |value| f64::from(u8::from(value != 0))),
            ElementType::Complex64 | ElementType::Complex128 | ElementType::Text => {
                let (name, element) = (self.name.to_string(), self.element.name().to_owned());
                return Err(TensorError::Element { name, element });
            }
        }
        Ok(())
    }

    /// All values; an error as with [`Self::for_each`].
    pub fn values(&self) -> Result<Vec<f64>, TensorError> {
        let mut values = Vec::with_capacity(self.len());
        self.for_each(|value| values.push(value))?;
        Ok(values)
    }

    /// The one value of a tensor with one element.
    #[must_use]
    pub fn scalar(&self) -> Option<f64> {
        let mut found = None;
        if self.len() == 1 {
            self.for_each(|value| found = Some(value)).ok()?;
        }
        found
    }
}

fn parse_shape(message: &[u8]) -> Result<Vec<u64>, TensorError> {
    let mut shape = Vec::new();
    for field in Fields::new(message) {
        let (2, Field::Bytes(dimension)) = field? else { continue };
        let mut size = 0;
        for field in Fields::new(dimension) {
            if let (1, Field::Varint(value)) = field? {
                size = value;
            }
        }
        if shape.len() == MAX_DIMENSIONS {
            return Err(TensorError::Event(format!("a shape has more than {MAX_DIMENSIONS} dimensions")));
        }
        shape.push(size);
    }
    Ok(shape)
}

/// Elements that are listed in fields of their type, which other writers use for scalars.
fn of_list(element: ElementType, fields: &[Field<'_>]) -> Result<Vec<u8>, TensorError> {
    let mut bytes = Vec::new();
    for field in fields {
        match (*field, element) {
            (Field::Bytes(packed), ElementType::Float32 | ElementType::Float64) => bytes.extend_from_slice(packed),
            (Field::Fixed32(bits), ElementType::Float32) => bytes.extend_from_slice(&bits.to_le_bytes()),
            (Field::Fixed64(bits), ElementType::Float64) => bytes.extend_from_slice(&bits.to_le_bytes()),
            (field, _) if element.is_real() => {
                let width = element.bytes();
                varints(field, |value| bytes.extend_from_slice(&value.to_le_bytes()[..width]))?;
            }
            _ => return Err(TensorError::Event(format!("values of type {} are listed", element.name()))),
        }
    }
    Ok(bytes)
}
