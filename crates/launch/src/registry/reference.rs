//! Names of images, as docker reads them: `[HOST/]REPOSITORY[:TAG][@DIGEST]`.

/// The host of names that have none, and where its registry is.
const HUB: &str = "docker.io";
const HUB_REGISTRY: &str = "registry-1.docker.io";
/// Another name for it, also that of its logins.
const HUB_INDEX: &str = "index.docker.io";

/// The name of an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Reference {
    /// Its registry's, with a port where the name has one.
    pub(crate) host: String,
    pub(crate) repository: String,
    /// A tag or a digest.
    pub(crate) version: String,
}

impl Reference {
    /// None: it is no image's name.
    pub(crate) fn parse(image: &str) -> Option<Self> {
        let (host, path) = match image.split_once('/') {
            Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
            _ => (HUB, image),
        };
        let (path, digest) = match path.split_once('@') {
            Some((path, digest)) => (path, Some(digest)),
            None => (path, None),
        };
        let (repository, tag) = path.split_once(':').unwrap_or((path, "latest"));
        let host = hub_as_one(host);
        let is_official = host == HUB && !repository.contains('/');
        let repository = if is_official { format!("library/{repository}") } else { repository.to_owned() };
        let version = digest.unwrap_or(tag).to_owned();
        let is_word = |text: &str, more: &[u8]| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
        };
        let is_valid = is_word(host, b".-:[]")
            && repository.split('/').all(|part| is_word(part, b"._-") && !part.starts_with('.'))
            && is_word(tag, b"._-")
            && digest.is_none_or(|digest| digest.contains(':') && is_word(digest, b":+._-"));
        is_valid.then(|| Self { host: host.to_owned(), repository, version })
    }

    /// Whether it names the same image for ever.
    pub(crate) fn is_fixed(&self) -> bool {
        self.version.contains(':')
    }

    /// The host that answers for it.
    pub(crate) fn registry(&self) -> &str {
        if self.host == HUB { HUB_REGISTRY } else { &self.host }
    }

    /// What helpers know Docker Hub's login by; that of another registry is known by its host.
    pub(crate) fn login_name(&self) -> String {
        if self.host == HUB { format!("https://{HUB_INDEX}/v1/") } else { self.host.clone() }
    }
}

/// Docker Hub by one of its names.
pub(super) fn hub_as_one(host: &str) -> &str {
    if [HUB_INDEX, HUB_REGISTRY].contains(&host) { HUB } else { host }
}

/// Whether a host is this machine, where nothing listens in between.
pub(super) fn is_here(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|it| it.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    let is_loopback = name.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    is_loopback || name == "localhost" || name == "[::1]"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_docker_does() {
        let digest = format!("sha256:{}", "0f".repeat(32));
        for (image, expected) in [
            ("ubuntu".to_owned(), "registry-1.docker.io library/ubuntu latest"),
            ("me/trainer:2".to_owned(), "registry-1.docker.io me/trainer 2"),
            ("index.docker.io/ubuntu:22.04".to_owned(), "registry-1.docker.io library/ubuntu 22.04"),
            ("localhost/a:1".to_owned(), "localhost a 1"),
            ("registry.local:5000/team/a".to_owned(), "registry.local:5000 team/a latest"),
            (format!("ghcr.io/me/a:1@{digest}"), &format!("ghcr.io me/a {digest}")),
            ("[::1]:5000/a:1".to_owned(), "[::1]:5000 a 1"),
        ] {
            let found = Reference::parse(&image).expect("a name");
            assert_eq!(format!("{} {} {}", found.registry(), found.repository, found.version), expected, "{image}");
            assert_eq!(found.is_fixed(), image.contains('@'));
        }
        for image in ["", "a b", "ghcr.io/", "ghcr.io/../a", "ghcr.io/a//b", "ghcr.io/a:", "a@x", "a.b/c?d", "a.b/c#d"]
        {
            assert_eq!(Reference::parse(image), None, "{image}");
        }
    }

    #[test]
    fn only_this_machine_is_here() {
        let here = ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"];
        assert!(here.into_iter().all(is_here));
        let elsewhere = ["localhost.example.org", "127.0.0.1.example.org:80", "10.0.0.1", "registry.local:5000"];
        assert!(!elsewhere.into_iter().any(is_here));
    }
}
