//! What agents of one job say to each other: the instances that are on several machines pass parts of
//! their inputs on ([`crate::ToServer::PartSum`] has what they compare them with).

use serde::{Deserialize, Serialize};

use crate::Hello;

/// From an agent to another host's of the same attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToPeer {
    /// The first message, with the attempt's secret and the caller's host number. Answered by
    /// [`FromPeer::Ready`] or [`FromPeer::Refused`].
    Hello(Hello),
    /// A part of an object. Answered by one [`crate::Frame::Chunk`] with all of it,
    /// [`FromPeer::Later`] or [`FromPeer::Absent`].
    Part {
        /// See [`crate::ManifestEntry::id`].
        id: String,
        /// Of the first byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
}

/// The answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromPeer {
    /// Parts may be asked for.
    Ready,
    /// The caller is of another job.
    Refused {
        /// Why.
        reason: String,
    },
    /// It has not come there yet: ask again.
    Later,
    /// This host does not get the object, or has lost it.
    Absent,
}

/// Where a host of a job on several machines is, as its agent reports it
/// ([`crate::ReportBody::Network`]) and gets it of all hosts ([`crate::ToAgent::Network`]), with
/// commas between: `10.0.0.1`, or `10.0.0.1:PORT/FINGERPRINT` where the agent passes parts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Of its machine.
    pub address: std::net::Ipv4Addr,
    /// Where it passes parts on: a port, and the SHA-256 of the certificate that is shown there.
    pub passes: Option<(u16, String)>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.address)?;
        match &self.passes {
            Some((port, fingerprint)) => write!(formatter, ":{port}/{fingerprint}"),
            None => Ok(()),
        }
    }
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is no place of a host: wanted is ADDRESS or ADDRESS:PORT/FINGERPRINT");
        let (address, passes) = match text.split_once(':') {
            None => (text, None),
            Some((address, rest)) => {
                let (port, fingerprint) = rest.split_once('/').ok_or_else(wrong)?;
                (address, Some((port.parse().map_err(|_| wrong())?, fingerprint.to_owned())))
            }
        };
        Ok(Self { address: address.parse().map_err(|_| wrong())?, passes })
    }
}

impl Place {
    /// All hosts' places, by host number - 1.
    ///
    /// # Errors
    /// One of them is no place.
    pub fn all(handle: &str) -> Result<Vec<Self>, String> {
        handle.split(',').map(str::parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        let handle = "10.0.0.1,10.0.0.2:41000/0f0f,10.0.0.3";
        let places = Place::all(handle).unwrap();
        assert_eq!(places[1].passes, Some((41_000, "0f0f".to_owned())));
        assert_eq!(Vec::from_iter(places.iter().map(Place::to_string)).join(","), handle);
        for wrong in ["", "10.0.0.1:/f", "10.0.0.1:41000", "10.0.0.1,::1", "moon"] {
            assert!(Place::all(wrong).unwrap_err().contains("is no place of a host"), "{wrong}");
        }
    }
}
