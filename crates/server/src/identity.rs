//! Whose server this is, as ARNs have it.

/// Settings that answers show.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) region: String,
    /// Twelve digits.
    pub(crate) account: String,
}

/// The role that callers seem to have assumed: `get_execution_role` of the SDKs wants one.
pub(crate) const ROLE: &str = "ShoalRole";
