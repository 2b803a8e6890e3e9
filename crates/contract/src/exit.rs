//! Exit codes of training programs: 0 on every host is success, everything else is failure.

/// The host did its part (or had none).
pub const SUCCESS: i32 = 0;

/// What built-ins exit with after they wrote why to the failure file.
pub const FAILURE: i32 = 1;

/// The code that is shown for a program: its own, or 128 + signal as shells and containers say it.
pub fn exit_code(code: Option<i32>, signal: Option<i32>) -> i32 {
    code.or(signal.map(|signal| 128 + signal)).unwrap_or(FAILURE)
}
