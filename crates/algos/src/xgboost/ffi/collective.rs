//! XGBoost's own collective: a tracker that introduces the hosts to each other, and this thread's
//! membership in their group. Both are tied to the thread that made them.

use std::ffi::{CStr, c_int};
use std::net::IpAddr;
use std::ptr::{null, null_mut};

use serde_json::json;

use super::api::{Api, Handle, XGBoostError, c_string};

// Codes of the C interface: numpy-like element types, and operations in the order of the header.
const FLOAT32: c_int = 1;
const FLOAT64: c_int = 2;
const SUM: c_int = 2;

/// How long the library itself waits for a silent peer. Lost and frozen hosts are found much sooner
/// by the roll (see `roll`); this is for hosts that live but cannot reach each other, and must
/// allow for one host that reads much more data than another.
const PEER_TIMEOUT_SECONDS: i64 = 1800;

/// The rendezvous point of a group of `workers` hosts.
pub(in crate::xgboost) struct Tracker {
    api: &'static Api,
    handle: Handle,
}

impl Tracker {
    /// Starts to listen on `address`, on a port that the system chooses.
    pub(in crate::xgboost) fn start(api: &'static Api, address: IpAddr, workers: usize) -> Result<Self, XGBoostError> {
        let config = json!({
            "dmlc_communicator": "rabit", "n_workers": workers, "host": address.to_string(), "port": 0,
            "timeout": PEER_TIMEOUT_SECONDS, "sortby": 1,
        });
        let config = c_string(&config.to_string());
        let mut handle = null_mut();
        // SAFETY: a live C string and a valid address for the handle.
        api.check(unsafe { (api.XGTrackerCreate)(config.as_ptr(), &raw mut handle) })?;
        let tracker = Self { api, handle };
        let empty = c_string("{}");
        // SAFETY: a live handle and C string; the library runs the tracker on its own thread.
        api.check(unsafe { (api.XGTrackerRun)(tracker.handle, empty.as_ptr()) })?;
        Ok(tracker)
    }

    /// The port on which it listens.
    pub(in crate::xgboost) fn port(&self) -> Result<u16, XGBoostError> {
        let mut text = null();
        // SAFETY: a live handle and a valid address for the result.
        self.api.check(unsafe { (self.api.XGTrackerWorkerArgs)(self.handle, &raw mut text) })?;
        // SAFETY: a C string of this thread that lives until its next call.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        let arguments: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| XGBoostError(format!("tracker arguments {text}: {error}")))?;
        arguments["dmlc_tracker_port"]
            .as_u64()
            .and_then(|port| u16::try_from(port).ok())
            .ok_or_else(|| XGBoostError(format!("tracker arguments {text} name no port")))
    }

    /// Waits until every host has left the group, then ends.
    pub(in crate::xgboost) fn finish(self) {
        let config = c_string(r#"{"timeout": 30}"#);
        // SAFETY: a live handle and C string. A host that was lost makes these fail, and its loss
        // is told elsewhere.
        unsafe {
            (self.api.XGTrackerWaitFor)(self.handle, config.as_ptr());
            (self.api.XGTrackerFree)(self.handle);
        }
    }
}

/// Membership of the calling thread in the group; left on `leave`, and only there: after a failure
/// the process ends instead, since leaving would wait for hosts that are gone.
pub(in crate::xgboost) struct Communicator {
    api: &'static Api,
    rank: usize,
    size: usize,
}

impl Communicator {
    /// Joins the group of the tracker at `address` as the host with the sort key `place`; ranks
    /// follow the order of the keys.
    pub(in crate::xgboost) fn join(
        api: &'static Api,
        address: IpAddr,
        port: u16,
        place: usize,
    ) -> Result<Self, XGBoostError> {
        let config = json!({
            "dmlc_communicator": "rabit", "dmlc_tracker_uri": address.to_string(), "dmlc_tracker_port": port,
            "dmlc_task_id": format!("{place:05}"), "dmlc_timeout": PEER_TIMEOUT_SECONDS, "dmlc_retry": 5,
        });
        let config = c_string(&config.to_string());
        // SAFETY: a live C string.
        api.check(unsafe { (api.XGCommunicatorInit)(config.as_ptr()) })?;
        // SAFETY: plain questions about this thread's group.
        let (rank, size) = unsafe { ((api.XGCommunicatorGetRank)(), (api.XGCommunicatorGetWorldSize)()) };
        let count = |number: c_int| {
            usize::try_from(number).map_err(|_| XGBoostError("the group has no rank for this host".to_owned()))
        };
        Ok(Self { api, rank: count(rank)?, size: count(size)? })
    }

    /// This host's rank in the group.
    pub(in crate::xgboost) fn rank(&self) -> usize {
        self.rank
    }

    /// Number of hosts in the group.
    pub(in crate::xgboost) fn size(&self) -> usize {
        self.size
    }

    /// Sums `values` over the group, element by element.
    pub(in crate::xgboost) fn sum_f32(&self, values: &mut [f32]) -> Result<(), XGBoostError> {
        // SAFETY: a live buffer of that many elements of that type.
        self.api.check(unsafe {
            (self.api.XGCommunicatorAllreduce)(values.as_mut_ptr().cast(), values.len(), FLOAT32, SUM)
        })
    }

    /// Sums `values` over the group, element by element.
    pub(in crate::xgboost) fn sum_f64(&self, values: &mut [f64]) -> Result<(), XGBoostError> {
        // SAFETY: as above.
        self.api.check(unsafe {
            (self.api.XGCommunicatorAllreduce)(values.as_mut_ptr().cast(), values.len(), FLOAT64, SUM)
        })
    }

    /// Replaces `values` by those of rank 0.
    pub(in crate::xgboost) fn broadcast(&self, values: &mut [f64]) -> Result<(), XGBoostError> {
        // SAFETY: a live buffer of that many bytes.
        self.api
            .check(unsafe { (self.api.XGCommunicatorBroadcast)(values.as_mut_ptr().cast(), size_of_val(values), 0) })
    }

    /// The same of bytes.
    pub(in crate::xgboost) fn broadcast_bytes(&self, bytes: &mut [u8]) -> Result<(), XGBoostError> {
        // SAFETY: a live buffer of that many bytes.
        self.api.check(unsafe { (self.api.XGCommunicatorBroadcast)(bytes.as_mut_ptr().cast(), bytes.len(), 0) })
    }

    /// Leaves the group, after every host's last collective call.
    pub(in crate::xgboost) fn leave(self) -> Result<(), XGBoostError> {
        // SAFETY: ends this thread's group.
        self.api.check(unsafe { (self.api.XGCommunicatorFinalize)() })
    }
}
