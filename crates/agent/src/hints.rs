//! What would help, said in the job's log next to the first line that needs it, and in the failure
//! reason of a program that fails with it.

use fancy_regex::Regex;
use shoal_contract::Paths;
use shoal_environments::Table;
use shoal_link::{Assignment, NetworkMode, Program};

/// That no host outside is reached, as the C library, Python's urllib3, curl, git, wget, Node, Go,
/// Rust and Java write it.
const NETWORK: &str = "Name or service not known|Temporary failure in name resolution|NameResolutionError|Could not resolve host|\
                       unable to resolve host address|getaddrinfo E(?:AI_AGAIN|NOTFOUND)|: no such host|\
                       failed to lookup address information|UnknownHostException|Network is unreachable";
/// That Python has no module; its first name is the group.
const MODULE: &str = "(?:ModuleNotFoundError|ImportError): No module named '?([A-Za-z_][A-Za-z0-9_]*)";
/// That a file of a channel is not there; its name is the group.
const CHANNEL: &str = "(?:No such file|not found|not exist|annot open|an't open|FileNotFound).*/ml/input/data/([A-Za-z0-9][A-Za-z0-9._-]*)";
/// That a variable with a channel's place is not there.
const VARIABLE: &str =
    "KeyError: 'SM_CHANNEL_([A-Z0-9_]+)'|SM_CHANNEL_([A-Z0-9_]+): (?:unbound variable|parameter not set)";
/// That PyTorch knows no backend of ours.
const BACKEND: &str = "(?i)(?:unknown (?:c10d )?backend(?: type)?:?|invalid backend:?) *'?(shoal|smddp)\\b";

/// Hints for one program.
pub(crate) struct Hints {
    /// One look at most lines, which are no complaints at all.
    any: Regex,
    network: Option<(Regex, String)>,
    module: Regex,
    channel: Regex,
    variable: Regex,
    backend: Regex,
    /// Names of the channels that there are.
    channels: Vec<String>,
    /// The program's environment: `None` on this machine's own `/usr`.
    environment: Option<String>,
    has_image: bool,
    is_script: bool,
    said: Vec<String>,
}

/// Most hints for one program: more would not be read.
const MOST: usize = 8;

impl Hints {
    /// For the program of an assignment. `is_isolated`: it is kept apart from the machine's
    /// network.
    pub(crate) fn new(assignment: &Assignment, is_isolated: bool) -> Self {
        let regex = |pattern: &str| Regex::new(pattern).expect("the pattern is a constant that the tests compile");
        // A program of ours words its mistakes itself.
        let is_ours = matches!(assignment.program, Program::Builtin { .. });
        Self {
            any: regex(&if is_ours {
                r"\b\B".to_owned()
            } else {
                [NETWORK, MODULE, CHANNEL, VARIABLE, BACKEND].join("|")
            }),
            network: is_isolated.then(|| (regex(NETWORK), of_network(assignment))),
            module: regex(MODULE),
            channel: regex(CHANNEL),
            variable: regex(VARIABLE),
            backend: regex(BACKEND),
            channels: assignment.channels.iter().map(|channel| channel.name.clone()).collect(),
            environment: assignment.python.as_ref().map(|python| python.name.clone()),
            has_image: assignment.root.is_some(),
            is_script: matches!(assignment.program, Program::Script { .. }),
            said: Vec::new(),
        }
    }

    /// The hint, if this line of the program is the first that needs it.
    pub(crate) fn after(&mut self, line: &str) -> Option<String> {
        let hint = self.of(line).filter(|hint| self.said.len() < MOST && !self.said.contains(hint))?;
        self.said.push(hint.clone());
        Some(hint)
    }

    /// The hint for a line, said before or not.
    pub(crate) fn of(&self, line: &str) -> Option<String> {
        if !self.any.is_match(line).unwrap_or(false) {
            return None;
        }
        let group = |regex: &Regex| {
            let found = regex.captures(line).ok().flatten()?;
            found.iter().skip(1).flatten().next().map(|group| group.as_str().to_owned())
        };
        if let Some(module) = group(&self.module) {
            return self.of_module(&module);
        }
        if let Some(channel) = group(&self.variable).map(|name| name.to_lowercase()).or_else(|| group(&self.channel)) {
            return self.of_channel(&channel);
        }
        if let Some(backend) = group(&self.backend) {
            return Some(of_package(&format!("the backend {}", backend.to_lowercase())));
        }
        self.network
            .as_ref()
            .filter(|(complaint, _)| complaint.is_match(line).unwrap_or(false))
            .map(|(_, hint)| hint.clone())
    }

    fn of_module(&self, module: &str) -> Option<String> {
        if ["shoal", "horovod", "smdistributed"].contains(&module) {
            return Some(of_package(&format!("the module {module}")));
        }
        if self.has_image {
            return None;
        }
        if module == "smdebug" && self.environment.is_none() {
            return Some(
                "each image with a Python environment has smdebug, this machine's own Python, which shoal/host runs, has \
                 not: take one (shoal train --image pytorch-training, or image_uri=\"pytorch-training\")"
                    .to_owned(),
            );
        }
        let choice = Table::shipped()
            .ok()?
            .image_for(&[module.to_owned()])
            .filter(|choice| Some(&choice.environment) != self.environment.as_ref());
        let require = "name its package in requirements.txt beside the script";
        Some(match (&self.environment, choice) {
            (None, Some(choice)) => format!(
                "this machine's own Python, which shoal/host runs, has no {module}: the image {} has it (shoal train --image {0}, or image_uri=\"{0}\")",
                choice.image
            ),
            (None, None) if self.is_script => format!(
                "this machine's own Python, which shoal/host runs, has no {module}: install it here for everybody, or take an image with an environment \
                 (`shoal image list`) and {require}"
            ),
            (None, None) => return None,
            (Some(environment), Some(choice)) => {
                format!(
                    "the environment {environment} has no {module}: {require}, or take the image {}, which has it",
                    choice.image
                )
            }
            (Some(environment), None) => format!("the environment {environment} has no {module}: {require}"),
        })
    }

    fn of_channel(&self, channel: &str) -> Option<String> {
        if self
            .channels
            .iter()
            .any(|known| known.eq_ignore_ascii_case(channel) || known.replace('-', "_").eq_ignore_ascii_case(channel))
        {
            return None;
        }
        let there_are = match self.channels.as_slice() {
            [] => "it has none".to_owned(),
            names => format!("it has {}", names.join(", ")),
        };
        let place = Paths::default().channel(channel);
        Some(format!(
            "the job has no channel {channel}, whose files would be in {}; {there_are}: give it (shoal train --channel {channel}=..., fit({{\"{channel}\": ...}}), \
             InputDataConfig)",
            place.display()
        ))
    }
}

fn of_package(what: &str) -> String {
    format!(
        "{what} comes with Shoal's Python package, which this program's Python does not have: build the wheel by \
         cargo xtask package in a checkout; jobs on images of PyTorch and TensorFlow get it once the server knows it \
         (python_package in shoal.toml, or beside the program shoal), any other Python by pip install (docs/pytorch.md)"
    )
}

fn of_network(assignment: &Assignment) -> String {
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
            server_address: Some("127.0.0.1:1".to_owned()),
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
            let mut hints = Hints::new(&assignment(), true);
            assert_eq!(hints.after("epoch 1"), None);
            assert!(hints.after(line).is_some(), "{line}");
            assert_eq!(hints.after(line), None, "said once");
            assert!(hints.of(line).is_some(), "and for the reason again");
        }
        assert_eq!(Hints::new(&assignment(), false).after("Could not resolve host"), None);
    }

    #[test]
    fn it_says_what_would_help() {
        let mut assignment = assignment();
        assert!(of_network(&assignment).contains("network_allow"));
        assignment.egress = Some(shoal_link::Egress { mode: NetworkMode::AllowList, allow: Vec::new() });
        assert!(of_network(&assignment).contains("HTTPS_PROXY"));
        assignment.endpoint = None;
        assert!(of_network(&assignment).contains("EnableNetworkIsolation"));
    }

    #[test]
    fn what_the_program_lacks_is_named_with_what_has_it() {
        let mut assignment = assignment();
        assignment.program = Program::Script { source: None, arguments: Vec::new() };
        let channel = shoal_link::Channel {
            name: "train".to_owned(),
            tree: shoal_link::Input::Local(String::new()),
            content_type: None,
            distribution: "FullyReplicated".to_owned(),
            record_wrapper: "None".to_owned(),
            delivery: shoal_link::Delivery::Files,
        };
        assignment.channels = vec![channel];
        let on_host = Hints::new(&assignment, true);
        assignment.python = Some(shoal_link::PythonEnvironment {
            name: "pytorch".to_owned(),
            pythons: Vec::new(),
            lock: String::new(),
            notice: None,
        });
        let on_pytorch = Hints::new(&assignment, true);
        for (hints, line, expected) in [
            (
                &on_host,
                "ModuleNotFoundError: No module named 'torch' (train.py, line 1)",
                Some("the image pytorch-training has it"),
            ),
            (&on_host, "ModuleNotFoundError: No module named 'sklearn.svm'", Some("--image sagemaker-scikit-learn")),
            (&on_host, "ModuleNotFoundError: No module named 'smdebug'", Some("--image pytorch-training")),
            (&on_host, "ModuleNotFoundError: No module named 'left_pad'", Some("has no left_pad")),
            (
                &on_pytorch,
                "ModuleNotFoundError: No module named 'tensorflow'",
                Some("or take the image tensorflow-training"),
            ),
            (
                &on_pytorch,
                "ModuleNotFoundError: No module named 'left_pad'",
                Some("requirements.txt beside the script"),
            ),
            (&on_pytorch, "ModuleNotFoundError: No module named 'shoal'", Some("the module shoal comes with")),
            (
                &on_pytorch,
                "ModuleNotFoundError: No module named 'horovod.torch'",
                Some("the module horovod comes with"),
            ),
            (&on_pytorch, "AssertionError: Unknown c10d backend type SHOAL", Some("the backend shoal comes with")),
            (
                &on_pytorch,
                "ValueError: Unknown backend 'shoal'. Specify a 'device:backend' string",
                Some("the backend shoal comes with"),
            ),
            (&on_pytorch, "ValueError: Invalid backend: 'shoal'", Some("cargo xtask package")),
            (&on_pytorch, "ValueError: Invalid backend: 'nccl2'", None),
            (
                &on_host,
                "FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/validation/rows.csv'",
                Some(
                    "the job has no channel validation, whose files would be in /opt/ml/input/data/validation; it has train: give it",
                ),
            ),
            (&on_host, "cat: /opt/ml/input/data/train/x: No such file or directory", None),
            (
                &on_host,
                "FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/train/rows.csv'",
                None,
            ),
            (&on_host, "KeyError: 'SM_CHANNEL_VALIDATION' (train.py, line 3)", Some("no channel validation")),
            (&on_host, "KeyError: 'SM_CHANNEL_TRAIN'", None),
            (&on_host, "loss: 0.5", None),
        ] {
            let hint = hints.of(line);
            match expected {
                Some(text) => assert!(hint.as_deref().is_some_and(|hint| hint.contains(text)), "{line}: {hint:?}"),
                None => assert_eq!(hint, None, "{line}"),
            }
        }
    }
}
