//! Stored requests: a request is checked once, when it is received. What the server needs of it
//! later is stored as a typed, versioned value, so that a later server with stricter rules still
//! runs what was accepted. The request itself is stored beside it, for its echo.

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    CreateTrainingJob, CreateTuningJob, Debugger, Error, ErrorCode, Output, Resources, training_job, tuning_job,
};

/// Version of the stored form. A member that is added has a default and keeps the version; any
/// other change is the next version, and `tests/golden/v<version>` keeps examples of each.
const VERSION: u32 = 1;

/// The stored form around a request.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u32,
    request: T,
}

/// A request that is stored with its resource: a typed value, and the JSON that was received.
pub trait Stored: Clone + Serialize + DeserializeOwned {
    /// The request as it was received, without null and unknown members.
    fn raw(&self) -> &Map<String, Value>;

    /// For [`Stored::raw`], which is stored apart.
    fn raw_mut(&mut self) -> &mut Map<String, Value>;

    /// Reads a request that an earlier version stored as JSON alone; called once, when a database
    /// is converted to the present format. Every request that was ever accepted must be readable:
    /// `tests/golden/raw` has examples.
    ///
    /// # Errors
    /// The first rule of creation that it breaks.
    fn from_raw(raw: Value) -> Result<Self, Error>;

    /// The typed value, without [`Stored::raw`].
    fn to_stored(&self) -> Vec<u8> {
        let mut request = self.clone();
        *request.raw_mut() = Map::new();
        serde_json::to_vec(&Versioned { v: VERSION, request }).expect("its maps have text keys only")
    }

    /// The request of a typed value and of [`Stored::raw`] as JSON. No rule is applied to either.
    ///
    /// # Errors
    /// `InternalFailure`: the value is damaged, a later version wrote it, or it is empty, as
    /// [`Stored::from_raw`] failed.
    fn restore(stored: &[u8], raw: &[u8]) -> Result<Self, Error> {
        let mut request: Self = read(stored)?;
        *request.raw_mut() = serde_json::from_slice(raw).map_err(|error| unreadable(&error))?;
        Ok(request)
    }
}

/// What descriptions need of the typed value of a training job.
#[derive(Debug, Deserialize)]
pub struct Described {
    /// Where its artifacts go.
    pub output: Output,
    /// Its instances.
    pub resources: Resources,
    /// Its rules.
    #[serde(default)]
    pub debugger: Debugger,
}

/// Reads no more of a stored training job than descriptions need, which pages of search results
/// have many of.
///
/// # Errors
/// Those of [`Stored::restore`].
pub fn stored_description(stored: &[u8]) -> Result<Described, Error> {
    read(stored)
}

/// A typed value, or a part of it.
fn read<T: DeserializeOwned>(stored: &[u8]) -> Result<T, Error> {
    if stored.is_empty() {
        return Err(unreadable(&"an earlier version accepted it, and this one refuses it"));
    }
    let Versioned { v, request } = serde_json::from_slice(stored).map_err(|error| unreadable(&error))?;
    if v != VERSION {
        return Err(unreadable(&format!("it has version {v}, and this server reads version {VERSION}")));
    }
    Ok(request)
}

fn unreadable(error: &dyn fmt::Display) -> Error {
    Error::new(ErrorCode::InternalFailure, format!("The stored request cannot be read: {error}."))
}

impl Stored for CreateTrainingJob {
    fn raw(&self) -> &Map<String, Value> {
        &self.raw
    }

    fn raw_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.raw
    }

    fn from_raw(raw: Value) -> Result<Self, Error> {
        // Nothing was observed by versions that stored it so, whatever it asks for.
        let mut observed = raw.clone();
        if let Some(members) = observed.as_object_mut() {
            training_job::OBSERVERS.iter().for_each(|member| drop(members.remove(*member)));
        }
        let mut request = training_job::create_training_job(observed)?;
        if let Value::Object(raw) = raw {
            request.raw = raw;
        }
        Ok(request)
    }
}

impl Stored for CreateTuningJob {
    fn raw(&self) -> &Map<String, Value> {
        &self.raw
    }

    fn raw_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.raw
    }

    fn from_raw(raw: Value) -> Result<Self, Error> {
        tuning_job::create_tuning_job(raw)
    }
}
