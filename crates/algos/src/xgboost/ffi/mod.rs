//! XGBoost's C interface, by hand and by `dlopen`: the only place of this crate with `unsafe`.
//! [`api`] holds the raw functions, the other files the safe types over them. Every error text is
//! the library's own, cut before its C++ stack trace.
#![expect(unsafe_code, reason = "a C library is called")]

pub(super) mod api;
pub(super) mod booster;
pub(super) mod collective;
pub(super) mod matrix;
