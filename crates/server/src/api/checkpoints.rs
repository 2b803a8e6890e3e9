//! Receipts of a training job's checkpoints.

use shoal_store::ResourceKind;
use shoal_wire::{CheckpointReceipt, Error, ListCheckpoints, Reply};

use super::{Api, blocking};
use crate::internal::internal;

/// Receipts of one page.
const PAGE: usize = 1000;

impl Api {
    pub(super) async fn list_checkpoints(&self, request: ListCheckpoints) -> Result<Reply, Error> {
        let rows = self.rows.clone();
        let rows = blocking(move || {
            let invalid = || Error::validation("Invalid pagination token (nextToken).");
            let (host, path) = match &request.next_token {
                None => (0, ""),
                Some(token) => {
                    let (host, path) = token.split_once('/').ok_or_else(invalid)?;
                    (host.parse().map_err(|_| invalid())?, path)
                }
            };
            let name = &request.training_job_name;
            if rows.resource(ResourceKind::TRAINING_JOB, name).map_err(|error| internal(&error))?.is_none() {
                return Err(Error::validation("Requested resource not found."));
            }
            rows.checkpoints(name, (path, host), PAGE).map_err(|error| internal(&error))
        })
        .await?;
        let next_token = rows.last().filter(|_| rows.len() == PAGE).map(|last| format!("{}/{}", last.host, last.path));
        let receipts: Vec<_> = rows
            .into_iter()
            .map(|row| CheckpointReceipt {
                path: row.path,
                host: format!("algo-{}", row.host),
                bytes: row.bytes,
                sha256: row.sha256,
                saved_ms: row.saved_ms,
            })
            .collect();
        Ok(Reply::list_checkpoints(&receipts, next_token.as_deref()))
    }
}
