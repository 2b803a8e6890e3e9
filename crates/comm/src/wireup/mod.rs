//! From a configuration to a group over processes: meet, connect, watch, form; and form anew after
//! a loss.

mod arrive;
mod connect;
mod desk;
mod form;
mod grow;
mod meet;
mod memory;
mod place;
mod reform;
mod replace;
mod settle;
mod ticket;

use std::sync::Arc;

use self::{form::form, meet::meet};
use crate::{Error, ProcessGroup, front::Front, rendezvous::Config};

/// Forms a group of the processes that the configuration names: blocks until all have come, or
/// until its patience is over.
///
/// ```no_run
/// use shoal_comm::{ProcessGroupExt, ReduceOp, rendezvous::Config};
///
/// let group = shoal_comm::join(Config::from_env()?)?;
/// let mut gradient = vec![1.0_f32; 1000];
/// group.all_reduce(&mut gradient, ReduceOp::Avg)?;
/// # Ok::<(), shoal_comm::Error>(())
/// ```
///
/// # Errors
/// What is wrong with the configuration, who has not come, or who may not join; each says what to
/// do.
pub fn join(config: Config) -> Result<Arc<dyn ProcessGroup>, Error> {
    config.check()?;
    #[cfg(feature = "nccl")]
    if let crate::rendezvous::Carrier::Nccl { device } = config.carrier {
        crate::transport::nccl::check(device)?;
    }
    let parts = if config.joins {
        arrive::arrive(&config)?
    } else if config.replaces {
        replace::replace(config)?
    } else {
        form(&meet(config)?, &Arc::default(), 0, None)?
    };
    Ok(Arc::new(Front::new(parts)))
}
