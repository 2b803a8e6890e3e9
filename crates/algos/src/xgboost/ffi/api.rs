//! The raw functions of `libxgboost.so`, resolved once.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use thiserror::Error;

/// `bst_ulong` of the C header.
pub(super) type Count = u64;
/// Any handle of the C header.
pub(super) type Handle = *mut c_void;
/// `DataIterResetCallback` of the C header.
pub(super) type Reset = unsafe extern "C" fn(Handle);
/// `XGDMatrixCallbackNext` of the C header: 1 for one more batch, 0 for the end.
pub(super) type Next = unsafe extern "C" fn(Handle) -> c_int;

/// A call that the library refused, in its own words.
#[derive(Debug, Error, Clone)]
#[error("{0}")]
pub(in crate::xgboost) struct XGBoostError(pub(in crate::xgboost) String);

/// Why a file could not be used as the XGBoost library.
#[derive(Debug, Error)]
pub(in crate::xgboost) enum OpenError {
    /// The dynamic linker refused the file or a function is absent.
    #[error("{}", linker_text(.0))]
    Linker(#[from] libloading::Error),
    /// The library works but is too old.
    #[error("it is XGBoost {0}.{1}.{2}, and 3.0 or newer is needed")]
    TooOld(c_int, c_int, c_int),
}

/// The linker's own words are in the error's source.
fn linker_text(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

macro_rules! api {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of the C header that this crate calls, under their C names.
        #[expect(non_snake_case, reason = "the C header's own names")]
        pub(in crate::xgboost) struct Api {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Api {
            /// # Safety
            /// `library` must be XGBoost's, and must stay loaded for as long as the table is used.
            unsafe fn resolve(library: &libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the types are those of include/xgboost/c_api.h; the caller promises
                    // that the library is XGBoost's.
                    $($name: unsafe { *library.get(concat!(stringify!($name), "\0").as_bytes())? },)*
                })
            }
        }
    };
}

api! {
    XGBoostVersion: fn(*mut c_int, *mut c_int, *mut c_int) -> ();
    XGBGetLastError: fn() -> *const c_char;
    XGBSetGlobalConfig: fn(*const c_char) -> c_int;

    XGDMatrixCreateFromDense: fn(*const c_char, *const c_char, *mut Handle) -> c_int;
    XGDMatrixCreateFromCSR: fn(*const c_char, *const c_char, *const c_char, Count, *const c_char, *mut Handle) -> c_int;
    XGQuantileDMatrixCreateFromCallback: fn(Handle, Handle, Handle, Reset, Next, *const c_char, *mut Handle) -> c_int;
    XGProxyDMatrixCreate: fn(*mut Handle) -> c_int;
    XGProxyDMatrixSetDataDense: fn(Handle, *const c_char) -> c_int;
    XGProxyDMatrixSetDataCSR: fn(Handle, *const c_char, *const c_char, *const c_char, Count) -> c_int;
    XGDMatrixSetInfoFromInterface: fn(Handle, *const c_char, *const c_char) -> c_int;
    XGDMatrixSliceDMatrixEx: fn(Handle, *const c_int, Count, *mut Handle, c_int) -> c_int;
    XGDMatrixFree: fn(Handle) -> c_int;

    XGBoosterCreate: fn(*const Handle, Count, *mut Handle) -> c_int;
    XGBoosterFree: fn(Handle) -> c_int;
    XGBoosterSetParam: fn(Handle, *const c_char, *const c_char) -> c_int;
    XGBoosterUpdateOneIter: fn(Handle, c_int, Handle) -> c_int;
    XGBoosterEvalOneIter: fn(Handle, c_int, *const Handle, *const *const c_char, Count, *mut *const c_char) -> c_int;
    XGBoosterPredictFromDMatrix:
        fn(Handle, Handle, *const c_char, *mut *const Count, *mut Count, *mut *const f32) -> c_int;
    XGBoosterFeatureScore: fn(
        Handle,
        *const c_char,
        *mut Count,
        *mut *const *const c_char,
        *mut Count,
        *mut *const Count,
        *mut *const f32
    ) -> c_int;
    XGBoosterDumpModelEx:
        fn(Handle, *const c_char, c_int, *const c_char, *mut Count, *mut *const *const c_char) -> c_int;
    XGBoosterSlice: fn(Handle, c_int, c_int, c_int, *mut Handle) -> c_int;
    XGBoosterBoostedRounds: fn(Handle, *mut c_int) -> c_int;
    XGBoosterGetAttr: fn(Handle, *const c_char, *mut *const c_char, *mut c_int) -> c_int;
    XGBoosterSetAttr: fn(Handle, *const c_char, *const c_char) -> c_int;
    XGBoosterLoadModelFromBuffer: fn(Handle, *const c_void, Count) -> c_int;
    XGBoosterSaveJsonConfig: fn(Handle, *mut Count, *mut *const c_char) -> c_int;
    XGBoosterLoadJsonConfig: fn(Handle, *const c_char) -> c_int;
    XGBoosterSaveModelToBuffer: fn(Handle, *const c_char, *mut Count, *mut *const c_char) -> c_int;

    XGTrackerCreate: fn(*const c_char, *mut Handle) -> c_int;
    XGTrackerWorkerArgs: fn(Handle, *mut *const c_char) -> c_int;
    XGTrackerRun: fn(Handle, *const c_char) -> c_int;
    XGTrackerWaitFor: fn(Handle, *const c_char) -> c_int;
    XGTrackerFree: fn(Handle) -> c_int;
    XGCommunicatorInit: fn(*const c_char) -> c_int;
    XGCommunicatorFinalize: fn() -> c_int;
    XGCommunicatorGetRank: fn() -> c_int;
    XGCommunicatorGetWorldSize: fn() -> c_int;
    XGCommunicatorAllreduce: fn(*mut c_void, usize, c_int, c_int) -> c_int;
    XGCommunicatorBroadcast: fn(*mut c_void, usize, c_int) -> c_int;
}

/// Makes waiting OpenMP threads sleep: spinning ones would starve the other instances of a shared
/// machine. The run time reads the variable when it is loaded, so this comes before [`Api::open`],
/// and before the process has other threads.
pub(in crate::xgboost) fn let_threads_sleep() {
    if std::env::var_os("OMP_WAIT_POLICY").is_none() {
        // SAFETY: an algorithm's `run` and `prepare` are called before other threads exist.
        unsafe { std::env::set_var("OMP_WAIT_POLICY", "PASSIVE") };
    }
}

impl Api {
    /// Loads the library at `file` for the rest of the process's life, and checks its version.
    pub(in crate::xgboost) fn open(file: &Path) -> Result<&'static Self, OpenError> {
        // SAFETY: loading runs the initialisers of XGBoost and of the C++ and OpenMP run times,
        // which have no preconditions.
        let library: &'static libloading::Library = Box::leak(Box::new(unsafe { libloading::Library::new(file)? }));
        // SAFETY: every function looked up is declared as in XGBoost's header, and the library is
        // never unloaded.
        let api: &'static Self = Box::leak(Box::new(unsafe { Self::resolve(library)? }));
        match api.version() {
            (3.., _, _) => Ok(api),
            (major, minor, patch) => Err(OpenError::TooOld(major, minor, patch)),
        }
    }

    /// Major, minor and patch version of the library.
    pub(in crate::xgboost) fn version(&self) -> (c_int, c_int, c_int) {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: three valid addresses of integers.
        unsafe { (self.XGBoostVersion)(&raw mut major, &raw mut minor, &raw mut patch) };
        (major, minor, patch)
    }

    /// Sets this thread's global configuration, a JSON object such as `{"verbosity": 1}`.
    pub(in crate::xgboost) fn set_global_config(&self, json: &str) -> Result<(), XGBoostError> {
        let json = c_string(json);
        // SAFETY: a valid C string that outlives the call.
        self.check(unsafe { (self.XGBSetGlobalConfig)(json.as_ptr()) })
    }

    /// Turns a return code into a result, with the error text of this thread's last call.
    pub(super) fn check(&self, code: c_int) -> Result<(), XGBoostError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the library returns a string of this thread that lives until its next call.
        let text = unsafe { CStr::from_ptr((self.XGBGetLastError)()) }.to_string_lossy();
        Err(XGBoostError(readable(&text)))
    }
}

/// The library's error text without the stack trace and without the leading time and source line.
fn readable(text: &str) -> String {
    let text = text.split("Stack trace:").next().unwrap_or_default().trim();
    // "[07:30:00] /workspace/src/learner.cc:1: message"
    let message = text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "))
        .and_then(|(_, rest)| rest.split_once(": "))
        .filter(|(place, _)| place.contains(".cc:") || place.contains(".h:") || place.contains(".cu:"))
        .map_or(text, |(_, message)| message);
    message.trim().to_owned()
}

/// A C string; what comes after a NUL byte is cut, since C could not see it either.
pub(super) fn c_string(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).expect("the text was cut before its first NUL")
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn error_texts_lose_the_stack_trace_and_the_source_line() {
        let cases = [
            (
                "[07:30:00] /workspace/src/objective/objective.cc:26: Unknown objective function: `foo`\nStack \
                 trace:\n  [bt] (0)",
                "Unknown objective function: `foo`",
            ),
            ("plain words", "plain words"),
            ("[algo-1] is: here", "[algo-1] is: here"),
        ];
        for (text, expected) in cases {
            assert_eq!(readable(text), expected);
        }
    }
}
