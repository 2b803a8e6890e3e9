//! What is said of an operation that waits long.

use std::{fmt, time::Duration};

use crate::error::At;

/// Gets what waits, for how long it has, and for which ranks.
type Tell = dyn Fn(&At, Duration, &[usize]) + Send + Sync;

/// Whom to tell, and after how long, that an operation waits for ranks that have not come.
pub(crate) struct Stall {
    /// After how long.
    pub(crate) after: Duration,
    /// Who.
    pub(crate) tell: Box<Tell>,
}

impl fmt::Debug for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stall after {:?}", self.after)
    }
}

impl Default for Stall {
    /// Says so on standard error after 30 s.
    fn default() -> Self {
        let tell = |at: &At, waited: Duration, ranks: &[usize]| {
            eprintln!("shoal-comm: {at} has waited {:.0} s for ranks {ranks:?}", waited.as_secs_f64());
        };
        Self { after: Duration::from_secs(30), tell: Box::new(tell) }
    }
}
