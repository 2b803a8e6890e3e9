//! Logins of registries as docker's configuration file has them, and Kubernetes' Secrets, which
//! have such a file each.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64_simd::STANDARD;
use serde::Deserialize;

use super::reference::{Reference, hub_as_one};
use crate::exchange::exchange;

/// For a helper to print a login.
const HELPER_TIMEOUT: Duration = Duration::from_secs(5);
/// The user whose password is a token, as helpers say it.
const TOKEN_USER: &str = "<token>";

/// What shows a registry who asks. Not printable: it is secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Login {
    Password {
        user: String,
        password: String,
    },
    /// A token that is changed for one that reads.
    Identity(String),
}

/// `config.json` of docker.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct LoginFile {
    auths: BTreeMap<String, Entry>,
    #[serde(rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
    #[serde(rename = "credsStore")]
    store: Option<String>,
}

#[derive(Deserialize)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

/// What a helper prints.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    username: String,
    secret: String,
}

impl LoginFile {
    /// This machine's, or an empty one where there is none.
    ///
    /// # Errors
    /// It cannot be read: why, with its path.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let in_file = |what: String| format!("{}: {what}", path.display());
        match std::fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| in_file(error.to_string())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(in_file(error.to_string())),
        }
    }

    /// A Secret's. Its helpers would be programs of those who may write Secrets: they are left out.
    ///
    /// # Errors
    /// It is no such file.
    pub(crate) fn of_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, String> {
        let words = |error: serde_json::Error| error.to_string();
        let auths = if let Some(text) = data.get(".dockerconfigjson") {
            serde_json::from_slice::<Self>(text).map_err(words)?.auths
        } else if let Some(text) = data.get(".dockercfg") {
            serde_json::from_slice(text).map_err(words)?
        } else {
            return Err("it has no .dockerconfigjson (`kubectl create secret docker-registry`)".to_owned());
        };
        Ok(Self { auths, ..Self::default() })
    }

    /// The logins for an image, those whose place names most of it first.
    pub(crate) fn of(&self, image: &Reference) -> Vec<Login> {
        let mut found = Vec::from_iter(self.auths.iter().filter(|(place, _)| is_for(place, image)));
        found.sort_by_key(|(place, _)| std::cmp::Reverse(place.len()));
        found.into_iter().filter_map(|(_, entry)| entry.login()).collect()
    }

    /// What the file's helper for the registry prints, if it has one.
    pub(crate) fn of_helper(&self, image: &Reference) -> Option<Login> {
        let name = self.helpers.get(&image.host).or_else(|| self.helpers.get(&image.login_name()));
        let name = name.or(self.store.as_ref())?;
        let mut command = Command::new(format!("docker-credential-{name}"));
        command.arg("get");
        let printed = exchange(command, &image.login_name(), HELPER_TIMEOUT).ok()??;
        let Printed { username, secret } = serde_json::from_str(&printed.out).ok()?;
        Some(match &*username {
            TOKEN_USER => Login::Identity(secret),
            _ => Login::Password { user: username, password: secret },
        })
    }
}

impl Entry {
    fn login(&self) -> Option<Login> {
        if let Some(token) = self.identitytoken.clone().filter(|token| !token.is_empty()) {
            return Some(Login::Identity(token));
        }
        if let (Some(user), Some(password)) = (self.username.clone(), self.password.clone()) {
            return Some(Login::Password { user, password });
        }
        let text = STANDARD.decode_to_vec(self.auth.as_ref()?).ok()?;
        let (user, password) =
            String::from_utf8(text).ok()?.split_once(':').map(|(a, b)| (a.to_owned(), b.to_owned()))?;
        // Docker pads with zeros.
        Some(Login::Password { user, password: password.trim_end_matches('\0').to_owned() })
    }
}

/// Whether a login's place, a host and perhaps a path, has an image, as the kubelet decides it: `*`
/// stands for any part of a host's label.
fn is_for(place: &str, image: &Reference) -> bool {
    let place = place.trim_start_matches("https://").trim_start_matches("http://");
    let (host, path) = place.split_once('/').unwrap_or((place, ""));
    let path = if ["v1/", "v2/", "v1", "v2"].contains(&path) { "" } else { path.trim_end_matches('/') };
    let below = image.repository.strip_prefix(path);
    is_host(hub_as_one(host), &image.host)
        && below.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

fn is_host(pattern: &str, host: &str) -> bool {
    let parts = |text: &str| Vec::from_iter(text.split(['.', ':']).map(str::to_owned));
    let (pattern, host) = (parts(pattern), parts(host));
    pattern.len() == host.len() && pattern.iter().zip(&host).all(|(pattern, label)| is_label(pattern, label))
}

fn is_label(pattern: &str, label: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == label,
        Some((start, end)) => {
            label.len() >= start.len() + end.len() && label.starts_with(start) && label.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(login: Option<&Login>) -> &str {
        match login {
            Some(Login::Password { password, .. }) => password,
            Some(Login::Identity(token)) => token,
            None => "none",
        }
    }

    #[test]
    fn the_login_of_the_longest_place_comes_first() {
        let file = r#"{"auths": {
            "ghcr.io": {"auth": "bWU6aG9zdA=="}, "ghcr.io/team": {"username": "me", "password": "team"},
            "https://index.docker.io/v1/": {"auth": "bWU6aHVi"}, "*.dkr.ecr.*.amazonaws.com": {"identitytoken": "ecr"},
            "registry.local:5000": {"auth": "bWU6YTpi"}, "broken.org": {"auth": "?"}, "empty.org": {}}}"#;
        let data = BTreeMap::from([(".dockerconfigjson".to_owned(), file.as_bytes().to_vec())]);
        let file = LoginFile::of_secret(&data).expect("a file");
        for (image, expected) in [
            ("ghcr.io/me/a", "host"),
            ("ghcr.io/team/a:1", "team"),
            ("ghcr.io/teams/a:1", "host"),
            ("ubuntu", "hub"),
            ("123.dkr.ecr.eu-west-1.amazonaws.com/a", "ecr"),
            ("dkr.ecr.eu-west-1.amazonaws.com/a", "none"),
            ("registry.local:5000/a", "a:b"),
            ("registry.local:5001/a", "none"),
            ("broken.org/a", "none"),
            ("empty.org/a", "none"),
        ] {
            let image = Reference::parse(image).expect("a name");
            assert_eq!(password(file.of(&image).first()), expected, "{image:?}");
        }
        let old = BTreeMap::from([(".dockercfg".to_owned(), br#"{"a.org": {"auth": "bWU6b2xk"}}"#.to_vec())]);
        let image = Reference::parse("a.org/x").expect("a name");
        assert_eq!(password(LoginFile::of_secret(&old).expect("a file").of(&image).first()), "old");
        assert!(LoginFile::of_secret(&BTreeMap::new()).is_err_and(|why| why.contains("kubectl create secret")));
    }

    #[test]
    fn helpers_are_those_of_the_machine_alone() {
        let file = r#"{"credsStore": "nothing-of-this-name", "auths": {}}"#;
        let data = BTreeMap::from([(".dockerconfigjson".to_owned(), file.as_bytes().to_vec())]);
        assert!(LoginFile::of_secret(&data).is_ok_and(|file| file.store.is_none()));
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.json");
        assert!(LoginFile::read(&path).is_ok_and(|file| file.auths.is_empty()), "there is none");
        std::fs::write(&path, "{").expect("a file");
        assert!(LoginFile::read(&path).is_err_and(|why| why.contains("config.json")));
        std::fs::write(&path, file).expect("a file");
        let file = LoginFile::read(&path).expect("a file");
        let image = Reference::parse("a.org/x").expect("a name");
        assert!(file.of_helper(&image).is_none(), "that helper is not installed");
    }
}
