//! What the job's log says next to the first line in which a program complains that it reaches no host outside.

use fancy_regex::Regex;
use shoal_link::{Assignment, NetworkMode};

/// As the C library, Python's urllib3, curl, git, wget, Node, Go, Rust and Java write it.
const COMPLAINTS: &str = "Name or service not known|Temporary failure in name resolution|NameResolutionError|Could not resolve host|\
                          unable to resolve host address|getaddrinfo E(?:AI_AGAIN|NOTFOUND)|: no such host|\
                          failed to lookup address information|UnknownHostException|Network is unreachable";

/// Looks for the first complaint.
pub(crate) struct NetworkHint {
    complaints: Regex,
    /// Taken by the first.
    hint: Option<String>,
}

impl NetworkHint {
    /// For a program that is kept apart from the machine's network.
    pub(crate) fn new(assignment: &Assignment) -> Self {
        let complaints = Regex::new(COMPLAINTS).expect("the pattern is a constant that the tests compile");
        Self { complaints, hint: Some(text(assignment)) }
    }

    /// Looks for nothing.
    pub(crate) fn silent() -> Self {
        Self { complaints: Regex::new("").expect("the empty pattern is one"), hint: None }
    }

    /// The hint, if this line of the program is the first that needs it.
    pub(crate) fn after(&mut self, line: &str) -> Option<String> {
        self.hint.take_if(|_| self.complaints.is_match(line).unwrap_or(false))
    }
}

fn text(assignment: &Assignment) -> String {
    match &assignment.egress {
        _ if assignment.endpoint.is_none() => "the job was created with EnableNetworkIsolation: it reaches no host outside of its own instances",
        None => {
            "the job reaches no host outside of its own instances: the server's owner can open hosts by the settings network = \"allow-list\" and \
             network_allow = \"pypi.org, ...\", or all by network = \"host\" (docs/isolation.md)"
        }
        Some(egress) if egress.mode == NetworkMode::Host => {
            "hosts outside are reached through the proxy that HTTPS_PROXY and HTTP_PROXY name: a program that heeds neither resolves no name \
             (docs/isolation.md)"
        }
        Some(_) => {
            "hosts of network_allow are reached through the proxy that HTTPS_PROXY and HTTP_PROXY name: a program that heeds neither resolves no \
             name (docs/isolation.md)"
        }
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment() -> Assignment {
        let golden = include_str!("../../link/tests/golden/welcome_host.json");
        let message: serde_json::Value = serde_json::from_str(golden).unwrap();
        let mut assignment: Assignment = serde_json::from_value(message["assignment"].clone()).unwrap();
        assignment.endpoint = Some(shoal_link::Endpoint {
            server_address: "127.0.0.1:1".to_owned(),
            access_key_id: String::new(),
            secret_access_key: String::new(),
            session_token: String::new(),
        });
        assignment
    }

    #[test]
    fn the_first_complaint_has_a_hint() {
        for line in [
            "socket.gaierror: [Errno -2] Name or service not known",
            "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
            "curl: (6) Could not resolve host: pypi.org",
            "fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com",
            "Get \"https://a.b\": dial tcp: lookup a.b: no such host",
            "java.net.UnknownHostException: a.b",
            "OSError: [Errno 101] Network is unreachable",
        ] {
            let mut hint = NetworkHint::new(&assignment());
            assert_eq!(hint.after("epoch 1"), None);
            assert!(hint.after(line).is_some(), "{line}");
            assert_eq!(hint.after(line), None, "said once");
        }
        assert_eq!(NetworkHint::silent().after("Could not resolve host"), None);
    }

    #[test]
    fn it_says_what_would_help() {
        let mut assignment = assignment();
        assert!(text(&assignment).contains("network_allow"));
        assignment.egress = Some(shoal_link::Egress { mode: NetworkMode::AllowList, allow: Vec::new() });
        assert!(text(&assignment).contains("HTTPS_PROXY"));
        assignment.endpoint = None;
        assert!(text(&assignment).contains("EnableNetworkIsolation"));
    }
}
