//! Exit codes of training programs: 0 on every host is success, everything else is failure.

/// The host did its part (or had none).
pub const SUCCESS: i32 = 0;

/// What built-ins exit with after they wrote why to the failure file.
pub const FAILURE: i32 = 1;
