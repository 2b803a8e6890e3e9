//! The hosts that train together; one host alone is a group too, whose collective calls do nothing.

use super::ffi::api::XGBoostError;
use super::ffi::collective::Communicator;

/// This host's place among those that train.
pub(super) struct Group {
    communicator: Option<Communicator>,
}

impl Group {
    /// One host.
    pub(super) fn alone() -> Self {
        Self { communicator: None }
    }

    /// Several hosts.
    pub(super) fn of(communicator: Communicator) -> Self {
        Self { communicator: Some(communicator) }
    }

    /// 0 is the host that prints metrics and saves the model.
    pub(super) fn rank(&self) -> usize {
        self.communicator.as_ref().map_or(0, Communicator::rank)
    }

    /// Number of hosts.
    pub(super) fn size(&self) -> usize {
        self.communicator.as_ref().map_or(1, Communicator::size)
    }

    /// Sums over the hosts, element by element.
    pub(super) fn sum(&self, values: &mut [f64]) -> Result<(), XGBoostError> {
        self.communicator.as_ref().map_or(Ok(()), |communicator| communicator.sum_f64(values))
    }

    /// Every host's values, rank after rank; `counts` says how many each rank has.
    pub(super) fn gather(&self, own: &[f32], counts: &[usize]) -> Result<Vec<f32>, XGBoostError> {
        let Some(communicator) = &self.communicator else { return Ok(own.to_vec()) };
        let start: usize = counts[..self.rank()].iter().sum();
        let mut all = vec![0_f32; counts.iter().sum()];
        all[start..start + own.len()].copy_from_slice(own);
        // The library's public interface has no all-gather; adding zeros is one.
        communicator.sum_f32(&mut all)?;
        Ok(all)
    }

    /// Gives every host the values of rank 0.
    pub(super) fn broadcast(&self, values: &mut [f64]) -> Result<(), XGBoostError> {
        self.communicator.as_ref().map_or(Ok(()), |communicator| communicator.broadcast(values))
    }

    /// Gives every host the bytes of rank 0, whatever it had.
    pub(super) fn broadcast_bytes(&self, bytes: &mut Vec<u8>) -> Result<(), XGBoostError> {
        let mut length = [bytes.len() as f64];
        self.broadcast(&mut length)?;
        bytes.resize(length[0] as usize, 0);
        self.communicator.as_ref().map_or(Ok(()), |communicator| communicator.broadcast_bytes(bytes))
    }

    /// Leaves the group, when all hosts are done.
    pub(super) fn leave(self) -> Result<(), XGBoostError> {
        self.communicator.map_or(Ok(()), Communicator::leave)
    }
}
