//! What is stored of a content's data key.

use serde::{Deserialize, Serialize};

use crate::data_key::KEY_BYTES;
use crate::wrapping::WrappingKey;
use crate::{DataKey, KeyError};

/// What data keys are bound to that a customer's key wraps.
const CUSTOMER: &[u8] = b"shoal data key of a customer, 1";

/// Whose key wraps a data key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// The owner's key of this name.
    Kms(String),
    /// A key that comes with each request.
    Customer,
}

/// A data key, wrapped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Whose key opens it.
    pub holder: Holder,
    /// The wrapped data key in base64. Of a customer's key nothing is stored: that it opens this is
    /// how it is recognised.
    pub wrapped: String,
    /// AWS's bucket key was asked for, and is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bucket_key: bool,
}

impl Envelope {
    pub(crate) fn new(holder: Holder, wrapped: &[u8]) -> Self {
        Self { holder, wrapped: base64_simd::STANDARD.encode_to_string(wrapped), bucket_key: false }
    }

    /// `None`: it is not base64.
    pub(crate) fn wrapped(&self) -> Option<Vec<u8>> {
        base64_simd::STANDARD.decode_to_vec(&self.wrapped).ok()
    }

    /// The name of the owner's key that opens it.
    pub fn kms_key(&self) -> Option<&str> {
        match &self.holder {
            Holder::Kms(name) => Some(name),
            Holder::Customer => None,
        }
    }
}

/// A key that a client sends with its requests (SSE-C). It is never stored.
#[derive(Clone)]
pub struct CustomerKey(DataKey);

impl CustomerKey {
    /// `None`: it has not 256 bits.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        DataKey::of(bytes).map(Self)
    }

    fn key(&self) -> WrappingKey {
        let bytes: &[u8; KEY_BYTES] = self.0.bytes();
        WrappingKey::new(bytes)
    }

    /// A new data key, and its envelope under this key.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new_data_key(&self) -> Result<(DataKey, Envelope), KeyError> {
        let data = DataKey::random()?;
        let wrapped = self.key().wrap(&data, CUSTOMER)?;
        Ok((data, Envelope::new(Holder::Customer, &wrapped)))
    }

    /// The data key in an envelope of a customer.
    ///
    /// # Errors
    /// [`KeyError::WrongCustomerKey`].
    pub fn open(&self, envelope: &Envelope) -> Result<DataKey, KeyError> {
        let wrapped = envelope.wrapped().filter(|_| envelope.holder == Holder::Customer);
        wrapped.and_then(|wrapped| self.key().unwrap(&wrapped, CUSTOMER)).ok_or(KeyError::WrongCustomerKey)
    }
}

impl std::fmt::Debug for CustomerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CustomerKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_customers_key_alone_opens_its_envelope() {
        let key = CustomerKey::of(&[1; 32]).unwrap();
        let (data, envelope) = key.new_data_key().unwrap();
        assert_eq!(key.open(&envelope).unwrap().bytes(), data.bytes());
        assert_eq!(CustomerKey::of(&[2; 32]).unwrap().open(&envelope).unwrap_err(), KeyError::WrongCustomerKey);
        let of_owner = Envelope { holder: Holder::Kms("team".to_owned()), ..envelope.clone() };
        assert_eq!(key.open(&of_owner).unwrap_err(), KeyError::WrongCustomerKey);
        assert!(CustomerKey::of(&[1; 16]).is_none());
        let json = serde_json::to_string(&envelope).unwrap();
        assert!(json.starts_with(r#"{"holder":"customer","wrapped":""#) && !json.contains("bucket_key"), "{json}");
        assert_eq!(serde_json::from_str::<Envelope>(&json).unwrap(), envelope);
        let of_owner = serde_json::to_string(&of_owner).unwrap();
        assert!(of_owner.starts_with(r#"{"holder":{"kms":"team"},"#), "{of_owner}");
    }
}
