//! The one binary `shoal`.
fn main() {}
