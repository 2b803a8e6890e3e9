//! What the owner configures of single sign-on.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
    path::PathBuf,
};

use http::Uri;

/// Settings of single sign-on, all decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SsoOptions {
    /// `https://login.example.org/realms/ml`, with a slash at its end only if the provider has it.
    pub issuer: String,
    /// As which this server is registered there.
    pub client_id: String,
    /// A file that has the client's secret; `None` for public clients.
    pub client_secret_file: Option<PathBuf>,
    /// What is requested of the provider, with blanks between.
    pub scopes: String,
    /// The claim that names a person or their groups.
    pub claim: String,
    /// Name of the key that each value of the claim has.
    pub keys: BTreeMap<String, String>,
    /// The address of this server as it is registered there; `None` is the one that the browser
    /// uses.
    pub url: Option<String>,
}

impl SsoOptions {
    /// What is wrong with them, and which setting has it.
    ///
    /// # Errors
    /// The setting's name and what it should be.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if !is_safe(&self.issuer) {
            let wanted = "an address that begins with https:// (http:// on this machine alone)";
            return Err(("sso_issuer", wanted.to_owned()));
        }
        if self.client_id.is_empty() {
            return Err(("sso_client_id", "the id as which this server is registered at the provider".to_owned()));
        }
        if !self.scopes.split_whitespace().any(|scope| scope == "openid") {
            return Err(("sso_scopes", "a list with openid in it".to_owned()));
        }
        if self.keys.is_empty() {
            let wanted = "a list of values of the claim with names of keys, anna@example.org=anna, admins=owner";
            return Err(("sso_keys", wanted.to_owned()));
        }
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if self.url.as_ref().is_some_and(|url| !is_url(url) || url.ends_with('/')) {
            return Err(("sso_url", "a URL such as https://shoal.example.org:9777".to_owned()));
        }
        Ok(())
    }
}

/// Whether what goes to this address is private to both ends.
pub(super) fn is_safe(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_here = host == "localhost"
        || address.parse::<Ipv4Addr>().is_ok_and(|it| it.is_loopback())
        || address.parse::<Ipv6Addr>().is_ok_and(|it| it.is_loopback());
    match uri.scheme_str() {
        Some("https") => !host.is_empty(),
        Some("http") => is_here,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_over_tls_or_stay_here() {
        for safe in ["https://login.example.org/x", "http://127.0.0.1:5000", "http://localhost/a", "http://[::1]:80/"] {
            assert!(is_safe(safe), "{safe}");
        }
        for unsafe_url in ["http://login.example.org", "http://10.0.0.1", "ftp://localhost", "login", "", "https://"] {
            assert!(!is_safe(unsafe_url), "{unsafe_url}");
        }
    }
}
