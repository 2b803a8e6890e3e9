//! What this machine allows, told by whoever starts agents, or found out.

use std::env;

use shoal_sandbox::Support;

/// Environment variable by which [`support_variable`] reaches an agent.
const VARIABLE: &str = "SHOAL_SUPPORT";

/// What this machine allows, as a variable for agents: finding out costs as much as an instance, so
/// a server does it once and its agents need not. What the machine allows is then what it allowed
/// when the server started.
#[must_use]
pub fn support_variable(support: &Support) -> (String, String) {
    let text = serde_json::to_string(support).expect("a value of plain enums, flags and strings serialises");
    (VARIABLE.to_owned(), text)
}

/// As told, else found out.
pub(crate) fn support() -> Support {
    let told = env::var(VARIABLE).ok().and_then(|text| serde_json::from_str(&text).ok());
    told.unwrap_or_else(Support::probe)
}
