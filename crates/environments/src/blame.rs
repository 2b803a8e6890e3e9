//! Whose fault a failure is, told from the words of pip, uv and container engines: their exit
//! statuses do not tell.

/// A network, an index or a registry that does not work: the next attempt may go well.
const OF_NETWORK: [&str; 20] = [
    "connection refused",
    "connection reset",
    "connection broken",
    "connection aborted",
    "timed out",
    "timeouterror",
    "i/o timeout",
    "handshake timeout",
    "deadline exceeded",
    "no such host",
    "name resolution",
    "name or service not known",
    "network is unreachable",
    "no route to host",
    "proxyerror",
    "sslerror",
    "unexpected eof",
    "server error",
    "too many requests",
    "toomanyrequests",
];

/// Requirements that nobody can follow.
const OF_REQUIREMENTS: [&str; 9] = [
    "no matching distribution found",
    "resolutionimpossible",
    "conflicting dependencies",
    "do not match the hashes",
    "--require-hashes",
    "invalid requirement",
    "requires a different python",
    "not a supported wheel",
    "no solution found",
];

/// An image that there is not, or not for this user.
const OF_IMAGE: [&str; 10] = [
    "manifest unknown",
    "name unknown",
    "name not known",
    ": not found",
    "denied",
    "unauthorized",
    "authentication required",
    "no matching manifest",
    "invalid reference",
    "no image found in",
];

/// What engines say of an image that they do not have.
const NOT_THERE: [&str; 3] = ["no such image", "no such object", "image not known"];

/// Whether a line tells of a network, an index or a registry that does not work.
pub(crate) fn is_of_network(line: &str) -> bool {
    has_one(line, &OF_NETWORK)
}

/// Whether pip or uv say that there is no way to follow the requirements.
pub(crate) fn is_of_requirements(said: &str) -> bool {
    has_one(said, &OF_REQUIREMENTS)
}

/// Whether an engine that pulls says that there is no such image to be had.
pub(crate) fn is_of_image(said: &str) -> bool {
    has_one(said, &OF_IMAGE)
}

/// Whether an engine says that it does not have an image.
pub(crate) fn is_not_there(said: &str) -> bool {
    has_one(said, &NOT_THERE)
}

fn has_one(text: &str, words: &[&str]) -> bool {
    let text = text.to_ascii_lowercase();
    words.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_and_installers_are_understood() {
        for (text, network, requirements, image, not_there) in [
            ("ERROR: No matching distribution found for async-timeout==99", false, true, false, false),
            ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", false, true, false, false),
            ("ERROR: ResolutionImpossible: for help visit https://pip.pypa.io", false, true, false, false),
            (
                "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(.. [Errno 111] \
                 Connection refused')': /x/",
                true,
                false,
                false,
                false,
            ),
            ("ERROR: HTTP error 503 Server Error: Service Unavailable", true, false, false, false),
            (
                "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
                false,
                false,
                false,
                false,
            ),
            (
                "Error response from daemon: manifest for x:9 not found: manifest unknown: manifest unknown",
                false,
                false,
                true,
                false,
            ),
            (
                "Error response from daemon: pull access denied for x, repository does not exist",
                false,
                false,
                true,
                false,
            ),
            ("failed to resolve reference \"r.example/x:1\": r.example/x:1: not found", false, false, true, false),
            (
                "error getting credentials: exec: \"docker-credential-x\": executable file not found in $PATH",
                false,
                false,
                false,
                false,
            ),
            ("dial tcp 127.0.0.1:1: connect: connection refused", true, false, false, false),
            ("dial tcp: lookup r.example: no such host", true, false, false, false),
            ("Error response from daemon: No such image: x:latest", false, false, false, true),
            ("Error: inspecting object: x: image not known", false, false, false, true),
            (
                "Cannot connect to the Docker daemon at unix:///run/docker.sock. Is the docker daemon running?",
                false,
                false,
                false,
                false,
            ),
        ] {
            let found = (is_of_network(text), is_of_requirements(text), is_of_image(text), is_not_there(text));
            assert_eq!(found, (network, requirements, image, not_there), "{text}");
        }
    }
}
