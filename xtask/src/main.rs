//! Project chores: `cargo xtask test|ci|tidy|codegen`.
fn main() {}
