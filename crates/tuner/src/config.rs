//! One point of a search space.

use serde::{Deserialize, Serialize};

/// A parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// Of a continuous parameter; finite.
    #[serde(rename = "f")]
    Float(f64),
    /// Of an integer parameter.
    #[serde(rename = "i")]
    Int(i64),
    /// Of a categorical parameter: index into its values.
    #[serde(rename = "c")]
    Choice(u32),
}

impl Value {
    /// As a number; a choice's is its index.
    #[expect(clippy::cast_precision_loss, reason = "beyond 2^53 neighbours are one place")]
    pub fn number(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Int(value) => value as f64,
            Self::Choice(index) => f64::from(index),
        }
    }

    fn bits(self) -> (u8, u64) {
        match self {
            // -0 and 0 are one value.
            Self::Float(value) => (1, (value + 0.0).to_bits()),
            Self::Int(value) => (2, value.cast_unsigned()),
            Self::Choice(index) => (3, u64::from(index)),
        }
    }
}

/// Values by the parameters' order in the space; none for a parameter that a parent's value makes
/// inactive.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Config(pub Vec<Option<Value>>);

impl Config {
    /// Equal configurations have equal keys; different ones practically never do (128 bits of
    /// FNV-1a).
    pub fn key(&self) -> u128 {
        let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
        let mut eat =
            |byte: u8| hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        for value in &self.0 {
            let (kind, bits) = value.map_or((0, 0), Value::bits);
            eat(kind);
            bits.to_le_bytes().into_iter().for_each(&mut eat);
        }
        hash
    }
}
