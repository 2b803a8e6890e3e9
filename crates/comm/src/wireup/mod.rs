//! From a configuration to a group over processes: meet, connect, watch, form; and form anew after
//! a loss.

mod arrive;
mod grow;
mod memory;
mod node;
mod reform;

pub(crate) use node::Node;
pub use node::join;
