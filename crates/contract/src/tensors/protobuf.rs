//! The wire format of protocol buffers, as far as an `Event` needs it.

use super::TensorError;

/// A field's content.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// The fields of a message with their numbers.
#[derive(Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn varint(&mut self) -> Result<u64, TensorError> {
        let mut value = 0_u64;
        for (index, byte) in self.0.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.0 = &self.0[index + 1..];
                return Ok(value);
            }
        }
        Err(TensorError::Event("a number is cut off or too long".into()))
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], TensorError> {
        let (chunk, rest) =
            self.0.split_first_chunk().ok_or_else(|| TensorError::Event("a number is cut off".into()))?;
        self.0 = rest;
        Ok(*chunk)
    }

    fn field(&mut self) -> Result<(u64, Field<'a>), TensorError> {
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(u64::from_le_bytes(self.chunk()?)),
            2 => {
                let length = self.varint()?;
                let split = usize::try_from(length).ok().and_then(|length| self.0.split_at_checked(length));
                let (bytes, rest) = split.ok_or_else(|| {
                    let (number, has) = (key >> 3, self.0.len());
                    TensorError::Event(format!("field {number} claims {length} bytes and {has} are left"))
                })?;
                self.0 = rest;
                Field::Bytes(bytes)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.chunk()?)),
            other => return Err(TensorError::Event(format!("field {} has wire type {other}", key >> 3))),
        };
        Ok((key >> 3, field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>), TensorError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// Text of a field.
pub(super) fn text(bytes: &[u8]) -> Result<&str, TensorError> {
    std::str::from_utf8(bytes).map_err(|_| TensorError::Event("a name is not UTF-8".into()))
}

/// Numbers of a repeated field of varints: one by itself, or many packed.
pub(super) fn varints(field: Field<'_>, mut push: impl FnMut(u64)) -> Result<(), TensorError> {
    match field {
        Field::Varint(value) => push(value),
        Field::Bytes(packed) => {
            let mut rest = Fields(packed);
            while !rest.0.is_empty() {
                push(rest.varint()?);
            }
        }
        Field::Fixed32(_) | Field::Fixed64(_) => return Err(TensorError::Event("integers of a fixed width".into())),
    }
    Ok(())
}

/// Appends a field of a varint.
pub(super) fn put_varint(out: &mut Vec<u8>, number: u64, value: u64) {
    put_number(out, number << 3);
    put_number(out, value);
}

/// Appends a field of bytes.
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_number(out, number << 3 | 2);
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field of a double.
pub(super) fn put_double(out: &mut Vec<u8>, number: u64, value: f64) {
    put_number(out, number << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
