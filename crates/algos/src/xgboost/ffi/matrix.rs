//! Data matrices: a plain one for every tree method, and the quantile one, which is built from
//! batches and holds bins instead of values.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use super::api::{Api, Handle, XGBoostError, c_string};
use crate::xgboost::data::{Batch, DataError, Features, Source};

/// Why a matrix could not be built.
#[derive(Debug, thiserror::Error)]
pub(in crate::xgboost) enum MatrixError {
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    XGBoost(#[from] XGBoostError),
}

/// How to build a matrix.
#[derive(Debug, Clone, Copy)]
pub(in crate::xgboost) struct MatrixOptions {
    /// Number of feature columns; may be more than the source has, when other hosts have more.
    pub(in crate::xgboost) columns: usize,
    /// Threads that build it.
    pub(in crate::xgboost) threads: usize,
    /// Bins per feature (quantile matrices only).
    pub(in crate::xgboost) max_bin: usize,
}

/// A data matrix of the library.
pub(in crate::xgboost) struct Matrix {
    api: &'static Api,
    pub(super) handle: Handle,
}

impl Drop for Matrix {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once; a failure to free has no remedy.
        unsafe { (self.api.XGDMatrixFree)(self.handle) };
    }
}

impl Matrix {
    /// A dense matrix of `rows` rows and one column of zeros: what a metric needs of the features
    /// when predictions are given as margins.
    pub(in crate::xgboost) fn zeros(api: &'static Api, rows: usize, threads: usize) -> Result<Self, XGBoostError> {
        let values = vec![0_f32; rows];
        Self::from_dense(api, &values, 1, threads)
    }

    /// A matrix that holds every value, for the methods that need them (`exact`, `approx`, linear
    /// boosters, slices).
    pub(in crate::xgboost) fn plain(
        api: &'static Api,
        source: &mut Source,
        options: MatrixOptions,
    ) -> Result<Self, MatrixError> {
        Self::of_batch(api, &source.read_whole()?, options)
    }

    /// A matrix that holds every value of the batch's rows.
    pub(in crate::xgboost) fn of_batch(
        api: &'static Api,
        batch: &Batch,
        options: MatrixOptions,
    ) -> Result<Self, MatrixError> {
        let matrix = match &batch.features {
            Features::Dense { values, columns } => Self::from_dense(api, values, *columns, options.threads)?,
            Features::Sparse { offsets, indices, values } => {
                let config = c_string(&format!(r#"{{"missing": NaN, "nthread": {}}}"#, options.threads));
                let (offsets, indices, values) = (interface(offsets), interface(indices), interface(values));
                let mut handle = null_mut();
                // SAFETY: the interfaces describe three live vectors of one CSR matrix, which the
                // library copies.
                api.check(unsafe {
                    (api.XGDMatrixCreateFromCSR)(
                        offsets.as_ptr(),
                        indices.as_ptr(),
                        values.as_ptr(),
                        options.columns as u64,
                        config.as_ptr(),
                        &raw mut handle,
                    )
                })?;
                Self { api, handle }
            }
        };
        set_batch_info(api, matrix.handle, batch)?;
        Ok(matrix)
    }

    pub(in crate::xgboost) fn from_dense(
        api: &'static Api,
        values: &[f32],
        columns: usize,
        threads: usize,
    ) -> Result<Self, XGBoostError> {
        let config = c_string(&format!(r#"{{"missing": NaN, "nthread": {threads}}}"#));
        let values = interface_2d(values, columns);
        let mut handle = null_mut();
        // SAFETY: the interface describes a live vector of rows * columns values, which the library
        // copies.
        api.check(unsafe { (api.XGDMatrixCreateFromDense)(values.as_ptr(), config.as_ptr(), &raw mut handle) })?;
        Ok(Self { api, handle })
    }

    /// A quantile matrix, read batch by batch. A validation matrix takes its bins from the training
    /// matrix `reference`. With several hosts this is a collective call.
    pub(in crate::xgboost) fn quantile(
        api: &'static Api,
        source: &mut Source,
        reference: Option<&Self>,
        options: MatrixOptions,
    ) -> Result<Self, MatrixError> {
        let mut proxy = null_mut();
        // SAFETY: a valid address for the new handle.
        api.check(unsafe { (api.XGProxyDMatrixCreate)(&raw mut proxy) })?;
        let proxy = Self { api, handle: proxy };
        let mut feed = Feed { api, proxy: proxy.handle, source, columns: options.columns, error: None };
        let config =
            c_string(&format!(r#"{{"missing": NaN, "nthread": {}, "max_bin": {}}}"#, options.threads, options.max_bin));
        let mut handle = null_mut();
        // SAFETY: `feed` and `proxy` outlive the call, and the library calls back only during it,
        // on this thread.
        let code = unsafe {
            (api.XGQuantileDMatrixCreateFromCallback)(
                (&raw mut feed).cast::<c_void>(),
                proxy.handle,
                reference.map_or(null_mut(), |reference| reference.handle),
                reset,
                next,
                config.as_ptr(),
                &raw mut handle,
            )
        };
        let result = api.check(code).map(|()| Self { api, handle });
        match feed.error {
            Some(error) => Err(error),
            None => Ok(result?),
        }
    }

    /// The rows with the given indices, in that order.
    pub(in crate::xgboost) fn slice(&self, rows: &[i32]) -> Result<Self, XGBoostError> {
        let mut handle = null_mut();
        // SAFETY: `rows` is a live array of that length, and the library checks the range of each
        // index.
        self.api.check(unsafe {
            (self.api.XGDMatrixSliceDMatrixEx)(self.handle, rows.as_ptr(), rows.len() as u64, &raw mut handle, 0)
        })?;
        Ok(Self { api: self.api, handle })
    }

    /// Sets one float per row: `label` or `weight`; or `base_margin` with `columns` values per row.
    pub(in crate::xgboost) fn set_floats(
        &mut self,
        field: &str,
        values: &[f32],
        columns: usize,
    ) -> Result<(), XGBoostError> {
        let values = if columns == 1 { interface(values) } else { interface_2d(values, columns) };
        set_info(self.api, self.handle, field, &values)
    }

    /// Sets the sizes of consecutive query groups.
    pub(in crate::xgboost) fn set_groups(&mut self, sizes: &[u32]) -> Result<(), XGBoostError> {
        set_info(self.api, self.handle, "group", &interface(sizes))
    }
}

/// What the callbacks of a quantile matrix share.
struct Feed<'a> {
    api: &'static Api,
    proxy: Handle,
    source: &'a mut Source,
    columns: usize,
    error: Option<MatrixError>,
}

impl Feed<'_> {
    /// Hands the next batch to the proxy; false at the end.
    fn offer(&mut self) -> Result<bool, MatrixError> {
        let Some(batch) = self.source.next_batch()? else { return Ok(false) };
        match &batch.features {
            Features::Dense { values, columns } => {
                let values = interface_2d(values, *columns);
                // SAFETY: the interface describes the batch's live vector, which stays in place
                // until the next callback.
                self.api.check(unsafe { (self.api.XGProxyDMatrixSetDataDense)(self.proxy, values.as_ptr()) })?;
            }
            Features::Sparse { offsets, indices, values } => {
                let (offsets, indices, values) = (interface(offsets), interface(indices), interface(values));
                // SAFETY: as above, for the three vectors of one CSR matrix.
                self.api.check(unsafe {
                    (self.api.XGProxyDMatrixSetDataCSR)(
                        self.proxy,
                        offsets.as_ptr(),
                        indices.as_ptr(),
                        values.as_ptr(),
                        self.columns as u64,
                    )
                })?;
            }
        }
        set_batch_info(self.api, self.proxy, batch)?;
        Ok(true)
    }
}

unsafe extern "C" fn reset(feed: Handle) {
    // SAFETY: the library passes back the pointer given to it, which is valid and not aliased
    // during the creation call.
    let feed = unsafe { &mut *feed.cast::<Feed<'_>>() };
    feed.source.rewind();
}

unsafe extern "C" fn next(feed: Handle) -> c_int {
    // SAFETY: as in `reset`.
    let feed = unsafe { &mut *feed.cast::<Feed<'_>>() };
    if feed.error.is_some() {
        return 0;
    }
    // A panic must not unwind into C++.
    match catch_unwind(AssertUnwindSafe(|| feed.offer())) {
        Ok(Ok(more)) => c_int::from(more),
        Ok(Err(error)) => {
            feed.error = Some(error);
            0
        }
        Err(_) => {
            feed.error = Some(MatrixError::XGBoost(XGBoostError("reading a batch panicked".to_owned())));
            0
        }
    }
}

fn set_batch_info(api: &Api, handle: Handle, batch: &Batch) -> Result<(), XGBoostError> {
    set_info(api, handle, "label", &interface(&batch.labels))?;
    if !batch.weights.is_empty() {
        set_info(api, handle, "weight", &interface(&batch.weights))?;
    }
    if !batch.groups.is_empty() {
        set_info(api, handle, "qid", &interface(&batch.groups))?;
    }
    Ok(())
}

fn set_info(api: &Api, handle: Handle, field: &str, values: &std::ffi::CStr) -> Result<(), XGBoostError> {
    let field = c_string(field);
    // SAFETY: a live handle, and an interface of a live vector, which the library copies.
    api.check(unsafe { (api.XGDMatrixSetInfoFromInterface)(handle, field.as_ptr(), values.as_ptr()) })
}

/// Element types that the library reads in place.
trait Element: Copy {
    const TYPESTR: &'static str;
}

impl Element for f32 {
    const TYPESTR: &'static str = "<f4";
}

impl Element for u32 {
    const TYPESTR: &'static str = "<u4";
}

impl Element for u64 {
    const TYPESTR: &'static str = "<u8";
}

/// numpy's array interface of a vector. The pointer of an empty vector is dangling but never read.
fn interface<T: Element>(values: &[T]) -> std::ffi::CString {
    described::<T>(values.as_ptr() as usize, &values.len().to_string())
}

/// numpy's array interface of a row-major matrix.
fn interface_2d<T: Element>(values: &[T], columns: usize) -> std::ffi::CString {
    described::<T>(values.as_ptr() as usize, &format!("{}, {columns}", values.len() / columns.max(1)))
}

fn described<T: Element>(address: usize, shape: &str) -> std::ffi::CString {
    c_string(&format!(
        r#"{{"data": [{address}, true], "shape": [{shape}], "typestr": "{}", "version": 3}}"#,
        T::TYPESTR
    ))
}
