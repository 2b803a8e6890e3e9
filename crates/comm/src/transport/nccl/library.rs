//! NCCL's library, loaded when somebody asks for it.
//!
//! Types are cudarc's; the functions are looked up here, because cudarc looks for `libnccl.so`
//! alone, which only development packages have, and panics where a function lacks.

#![expect(unsafe_code, reason = "a library is loaded, and its functions called by address")]

use std::{
    env,
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    fmt, ptr,
    sync::OnceLock,
};

use cudarc::nccl::sys::{cudaStream_t, ncclComm_t, ncclConfig_t, ncclUniqueId};

use super::steps::Step;
use crate::Error;

/// What NCCL answers: a number, since later libraries have more results than any list of ours.
pub(super) type Answer = c_int;

pub(super) const SUCCESS: Answer = 0;
pub(super) const IN_PROGRESS: Answer = 7;

/// The oldest library whose communicators can be waited for without blocking (2.18: also while they
/// connect in the first operation), as NCCL counts.
const OLDEST: c_int = 21_800;
/// What the configuration's version says: that of the types.
const VERSION_OF_TYPES: u32 = 22_403;
const MAGIC: u32 = 0xcafe_beef;

macro_rules! library {
    ($($name:ident = $symbol:literal ($($argument:ty),*) -> $result:ty;)*) => {
        /// NCCL's functions.
        pub(super) struct Library {
            $($name: unsafe extern "C" fn($($argument),*) -> $result,)*
            version: c_int,
            /// Which file or name was loaded.
            from: String,
            _library: libloading::Library,
        }

        impl Library {
            /// Looks all functions up.
            ///
            /// # Safety
            /// The library is NCCL's.
            unsafe fn of(library: libloading::Library, from: String) -> Result<Self, String> {
                $(
                    // SAFETY: the caller's promise: NCCL's function of this name has this type
                    // (nccl.h).
                    let $name = unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> $result>($symbol) };
                    // It stays valid as long as the library, which is kept below.
                    let $name = *$name.map_err(|_| format!("it has no {}", String::from_utf8_lossy($symbol)))?;
                )*
                Ok(Self { $($name,)* version: 0, from, _library: library })
            }
        }
    };
}

library! {
    get_version = b"ncclGetVersion" (*mut c_int) -> Answer;
    get_unique_id = b"ncclGetUniqueId" (*mut ncclUniqueId) -> Answer;
    get_error_string = b"ncclGetErrorString" (Answer) -> *const c_char;
    get_last_error = b"ncclGetLastError" (ncclComm_t) -> *const c_char;
    init_rank = b"ncclCommInitRankConfig" (*mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut ncclConfig_t) -> Answer;
    get_async_error = b"ncclCommGetAsyncError" (ncclComm_t, *mut Answer) -> Answer;
    finalize = b"ncclCommFinalize" (ncclComm_t) -> Answer;
    destroy = b"ncclCommDestroy" (ncclComm_t) -> Answer;
    abort = b"ncclCommAbort" (ncclComm_t) -> Answer;
    group_start = b"ncclGroupStart" () -> Answer;
    group_end = b"ncclGroupEnd" () -> Answer;
    all_reduce = b"ncclAllReduce" (*const c_void, *mut c_void, usize, c_int, c_int, ncclComm_t, cudaStream_t) -> Answer;
    reduce = b"ncclReduce" (*const c_void, *mut c_void, usize, c_int, c_int, c_int, ncclComm_t, cudaStream_t) -> Answer;
    reduce_scatter = b"ncclReduceScatter" (*const c_void, *mut c_void, usize, c_int, c_int, ncclComm_t, cudaStream_t) -> Answer;
    all_gather = b"ncclAllGather" (*const c_void, *mut c_void, usize, c_int, ncclComm_t, cudaStream_t) -> Answer;
    broadcast = b"ncclBroadcast" (*const c_void, *mut c_void, usize, c_int, c_int, ncclComm_t, cudaStream_t) -> Answer;
    send = b"ncclSend" (*const c_void, usize, c_int, c_int, ncclComm_t, cudaStream_t) -> Answer;
    recv = b"ncclRecv" (*mut c_void, usize, c_int, c_int, ncclComm_t, cudaStream_t) -> Answer;
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NCCL {} ({})", self.version_text(), self.from)
    }
}

/// The process's one NCCL.
///
/// # Errors
/// It is not there, or too old: what was looked for, where, and what to do.
pub(super) fn library() -> Result<&'static Library, Error> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    let library = load(env::var_os("SHOAL_COMM_NCCL").filter(|path| !path.is_empty()).as_deref())?;
    Ok(LIBRARY.get_or_init(|| library))
}

/// What the loader says, which is the error's source.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn text(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

/// Loads the library of that path, or the one that the system finds.
fn load(path: Option<&OsStr>) -> Result<Library, Error> {
    let names = path.map_or_else(|| vec![OsStr::new("libnccl.so.2"), OsStr::new("libnccl.so")], |path| vec![path]);
    let mut failures = Vec::new();
    for name in names {
        // SAFETY: a library of this name is NCCL's, whose initialisation does nothing but to set up
        // its own memory.
        match unsafe {
            libloading::Library::new(name)
                .map_err(|error| reason(&error))
                .and_then(|library| Library::of(library, text(name)))
        } {
            Ok(library) => return library.checked(),
            Err(why) => failures.push(format!("{}: {why}", text(name))),
        }
    }
    let (place, advice) = match path {
        Some(_) => ("where SHOAL_COMM_NCCL says", "set it to NCCL's library, or not at all"),
        None => (
            "in LD_LIBRARY_PATH and the system's library directories",
            "install NCCL (the package libnccl2, or nvidia-nccl-cu12 for Python), and set SHOAL_COMM_NCCL to the path \
             of libnccl.so.2 where it is in no such \
             directory; or use another transport (SHOAL_COMM_TRANSPORT=auto)",
        ),
    };
    Err(Error::config(format!("NCCL was looked for {place}, and cannot be loaded ({}): {advice}", failures.join("; "))))
}

impl Library {
    /// Refuses one that is too old.
    fn checked(mut self) -> Result<Self, Error> {
        // SAFETY: writes one number.
        let answer = unsafe { (self.get_version)(&raw mut self.version) };
        self.check(answer, "ask for its version")?;
        if self.version < OLDEST {
            return Err(Error::config(format!(
                "NCCL {} ({}) is too old: 2.18 or newer can be waited for with a deadline; install that, or use \
                 another transport",
                self.version_text(),
                self.from
            )));
        }
        Ok(self)
    }

    /// Its version as people write it.
    pub(super) fn version_text(&self) -> String {
        let (major, minor, patch) = (self.version / 10_000, self.version / 100 % 100, self.version % 100);
        format!("{major}.{minor}.{patch}")
    }

    /// What was loaded.
    pub(super) fn from(&self) -> &str {
        &self.from
    }

    /// An answer that is neither success nor "in progress" is an error.
    pub(super) fn check(&self, answer: Answer, what: &str) -> Result<(), Error> {
        if answer == SUCCESS || answer == IN_PROGRESS { Ok(()) } else { Err(self.failure(answer, what)) }
    }

    /// What NCCL says about an error.
    pub(super) fn failure(&self, answer: Answer, what: &str) -> Error {
        let text = |address: *const c_char| {
            // SAFETY: null, or a text that ends with a zero and lasts as long as the library, or
            // until the next error of this thread.
            (!address.is_null())
                .then(|| unsafe { CStr::from_ptr(address) }.to_string_lossy().trim().to_owned())
                .filter(|text| !text.is_empty())
        };
        // SAFETY: takes any number.
        let name = text(unsafe { (self.get_error_string)(answer) }).unwrap_or_default();
        // SAFETY: the last error of any communicator, which is asked for with none.
        let last = text(unsafe { (self.get_last_error)(ptr::null_mut()) });
        let last = last.map_or_else(String::new, |last| format!(": {last}"));
        let said = format!("{name} ({answer}){last}; NCCL_DEBUG=WARN in the environment makes it say more");
        Error::io(format!("NCCL {}: {what}", self.version_text()), std::io::Error::other(said))
    }

    /// A number for ranks to find each other by.
    pub(super) fn unique_id(&self) -> Result<ncclUniqueId, Error> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: writes the 128 bytes.
        let answer = unsafe { (self.get_unique_id)(&raw mut id) };
        self.check(answer, "open a port for the ranks to meet at").map(|()| id)
    }

    /// Begins to make a communicator that blocks nobody.
    ///
    /// # Safety
    /// A GPU's context is current.
    pub(super) unsafe fn begin(&self, id: ncclUniqueId, rank: usize, size: usize) -> Result<ncclComm_t, Error> {
        let undefined = c_int::MIN;
        let mut config = ncclConfig_t {
            size: size_of::<ncclConfig_t>(),
            magic: MAGIC,
            version: VERSION_OF_TYPES,
            blocking: 0,
            cgaClusterSize: undefined,
            minCTAs: undefined,
            maxCTAs: undefined,
            netName: ptr::null(),
            splitShare: undefined,
        };
        let mut communicator = ptr::null_mut();
        // SAFETY: both addresses are of what lives here; NCCL copies the configuration.
        let answer = unsafe { (self.init_rank)(&raw mut communicator, int(size), id, int(rank), &raw mut config) };
        self.check(answer, "make a communicator").map(|()| communicator)
    }

    /// How the communicator is.
    ///
    /// # Safety
    /// It was made by [`Library::begin`] and is neither destroyed nor aborted; so for all that
    /// follows.
    pub(super) unsafe fn state(&self, communicator: ncclComm_t) -> Answer {
        let mut state = SUCCESS;
        // SAFETY: the caller's promise; writes one number.
        let answer = unsafe { (self.get_async_error)(communicator, &raw mut state) };
        if answer == SUCCESS { state } else { answer }
    }

    /// Lets all that the communicator does come to its end.
    ///
    /// # Safety
    /// As for [`Library::state`].
    pub(super) unsafe fn finalize(&self, communicator: ncclComm_t) -> Answer {
        // SAFETY: the caller's promise.
        unsafe { (self.finalize)(communicator) }
    }

    /// Frees a communicator that was finalized.
    ///
    /// # Safety
    /// As for [`Library::state`]; it is of no more use.
    pub(super) unsafe fn destroy(&self, communicator: ncclComm_t) -> Answer {
        // SAFETY: the caller's promise.
        unsafe { (self.destroy)(communicator) }
    }

    /// Ends what the communicator does and frees it.
    ///
    /// # Safety
    /// As for [`Library::state`]; it is of no more use.
    pub(super) unsafe fn abort(&self, communicator: ncclComm_t) -> Answer {
        // SAFETY: the caller's promise.
        unsafe { (self.abort)(communicator) }
    }

    /// Begins all of these on the stream, as one.
    ///
    /// # Safety
    /// As for [`Library::state`]; the steps' memory is reached by the GPU and valid until the
    /// stream has done them.
    pub(super) unsafe fn issue(
        &self,
        steps: &[Step],
        communicator: ncclComm_t,
        stream: cudaStream_t,
    ) -> Result<(), Error> {
        // SAFETY: concerns this thread only.
        self.check(unsafe { (self.group_start)() }, "begin an operation")?;
        let mut refused = SUCCESS;
        for step in steps {
            // SAFETY: the caller's promise.
            let answer = unsafe { self.one(*step, communicator, stream) };
            if answer != SUCCESS && answer != IN_PROGRESS {
                refused = answer;
                break;
            }
        }
        // SAFETY: ends what was begun above, also where a part was refused.
        let answer = unsafe { (self.group_end)() };
        self.check(refused, "begin an operation").and_then(|()| self.check(answer, "begin an operation"))
    }

    /// # Safety
    /// As for [`Library::issue`].
    unsafe fn one(&self, step: Step, communicator: ncclComm_t, stream: cudaStream_t) -> Answer {
        const BYTE: c_int = cudarc::nccl::sys::ncclDataType_t::ncclUint8 as c_int;
        // SAFETY: the caller's promise.
        unsafe {
            match step {
                Step::AllReduce { send, recv, len, how } => (self.all_reduce)(
                    send.cast(),
                    recv.cast(),
                    len,
                    how.dtype as c_int,
                    how.op as c_int,
                    communicator,
                    stream,
                ),
                Step::Reduce { send, recv, len, how, root } => (self.reduce)(
                    send.cast(),
                    recv.cast(),
                    len,
                    how.dtype as c_int,
                    how.op as c_int,
                    int(root),
                    communicator,
                    stream,
                ),
                Step::ReduceScatter { send, recv, len, how } => (self.reduce_scatter)(
                    send.cast(),
                    recv.cast(),
                    len,
                    how.dtype as c_int,
                    how.op as c_int,
                    communicator,
                    stream,
                ),
                Step::AllGather { send, recv, bytes } => {
                    (self.all_gather)(send.cast(), recv.cast(), bytes, BYTE, communicator, stream)
                }
                Step::Broadcast { send, recv, bytes, root } => {
                    (self.broadcast)(send.cast(), recv.cast(), bytes, BYTE, int(root), communicator, stream)
                }
                Step::Send { from, bytes, to } => (self.send)(from.cast(), bytes, BYTE, int(to), communicator, stream),
                Step::Recv { into, bytes, from } => {
                    (self.recv)(into.cast(), bytes, BYTE, int(from), communicator, stream)
                }
            }
        }
    }
}

/// A rank or a number of ranks as NCCL takes it.
fn int(number: usize) -> c_int {
    c_int::try_from(number).expect("at most 1024 ranks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_nccl_is_refused() {
        let refused = |path: &str| load(Some(OsStr::new(path))).expect_err("no NCCL").to_string();
        let missing = refused("/nowhere/libnccl.so.2");
        assert!(missing.contains("SHOAL_COMM_NCCL") && missing.contains("/nowhere/libnccl.so.2: "), "{missing}");
        let other = refused("libc.so.6");
        assert!(other.contains("ncclGetVersion"), "the function that lacks: {other}");
    }

    #[test]
    fn a_library_that_is_not_found_says_where_it_was_looked_for() {
        if let Err(error) = load(None) {
            let text = error.to_string();
            assert!(
                text.contains("libnccl.so.2: ") && text.contains("LD_LIBRARY_PATH") && text.contains("libnccl2"),
                "{text}"
            );
        }
    }
}
