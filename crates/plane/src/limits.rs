//! Times and sizes that the core waits for or allows.

/// Between the first failure and the verdict, if other hosts have not ended by then.
pub(crate) const SETTLE_MS: u64 = 2_000;
/// Between SIGTERM and SIGKILL for the peers of a failed host, whose results are worth nothing.
pub(crate) const PEER_GRACE_S: u32 = 5;
/// The same for programs whose memory is needed: time for a checkpoint, while older attempts still
/// have what they need.
pub(crate) const EVICTION_GRACE_S: u32 = 10;
/// Beyond a stop's grace; then the agents are taken for dead.
pub(crate) const UNANSWERED_S: u64 = 30;
/// From the last program's end to the last upload: then a stop stores what has arrived, and any
/// other attempt has failed. Only for agents that run and send nothing.
pub(crate) const UPLOAD_LIMIT_S: u64 = 3600;
/// The same for an attempt that is ended to make room: its memory is needed.
pub(crate) const PARK_UPLOAD_LIMIT_S: u64 = 300;
/// From the launch, or from the last report that it is delayed, to the first report of any
/// instance.
pub(crate) const LAUNCH_LIMIT_S: u64 = 600;
/// Between the news that an instance is taken away from a gang whose others continue and its
/// SIGTERM: its ranks leave by themselves.
pub(crate) const LEAVE_NOTICE_S: u32 = 5;
/// From the loss of an instance to its replacement, at the first loss; twice as long at each
/// further one.
pub(crate) const REPLACE_PAUSE_S: u64 = 1;
pub(crate) const MAX_REPLACE_PAUSE_S: u64 = 300;
/// The agents' lease beyond the time that their programs may run.
pub(crate) const LEASE_MARGIN_S: u64 = 3600;
/// Longest text in a fact, in characters; AWS's limit of a `FailureReason`.
pub(crate) const MAX_TEXT: usize = 1024;
/// An attempt of a gang that serves is replaced, however often, if it has run for this long; a
/// shorter one counts as a retry, so that programs that cannot start come to an end.
pub(crate) const SERVED_S: u64 = 60;
