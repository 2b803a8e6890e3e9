//! What the images of jobs start by themselves: the cluster's API does not tell, their registries
//! do. Agents get it with their pod, as variables; one that cannot be found out costs no job.

use std::collections::{BTreeMap, HashMap};
use std::env::consts::ARCH;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::access::Session;
use super::options::{KubernetesOptions, PodOptions};
use crate::error_chain::chain;
use crate::registry::{Login, LoginFile, Reference, Registries, RegistryError};

/// For all that a look-up asks; and for the answer to be there.
const TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const LIMIT: Duration = Duration::from_secs(12);
/// How long an answer is believed: of a tag, of a digest, and that there was none.
const FRESH: Duration = Duration::from_secs(60);
const FIXED: Duration = Duration::from_secs(24 * 3600);
const FAILED: Duration = Duration::from_secs(10);
/// Answers from which on those that are not believed any more are removed.
const MANY: usize = 256;

/// What agents read (crates/agent/src/image.rs): a list in JSON, or why there is none.
const ENTRYPOINT: &str = "SHOAL_IMAGE_ENTRYPOINT";
const UNKNOWN: &str = "SHOAL_IMAGE_UNKNOWN";
/// Of a node; the scheduler knows no other name.
const ARCHITECTURE: &str = "kubernetes.io/arch";

/// What is known of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// Its ENTRYPOINT; empty: it has none.
    Entrypoint(Vec<String>),
    /// Why not, and what to do.
    Unknown(String),
}

impl Found {
    /// For the job's log.
    pub(super) fn unknown(image: &str, why: &str, what_to_do: &str) -> Self {
        Self::Unknown(format!(
            "the ENTRYPOINT of {image} is not known ({why}), so `train` is started from its PATH; name the program in \
             ContainerEntrypoint, or {what_to_do}"
        ))
    }

    /// For the agent.
    pub(super) fn variable(self) -> (String, String) {
        match self {
            Found::Entrypoint(words) => (ENTRYPOINT.to_owned(), serde_json::json!(words).to_string()),
            Found::Unknown(why) => (UNKNOWN.to_owned(), why),
        }
    }
}

/// An image, its architecture, and the Secrets with its logins.
type Asked = (String, String, Vec<String>);
/// Held by who asks; others who want the same wait for that answer.
type Answer = tokio::sync::Mutex<Option<(Instant, Found)>>;

/// What is known of images, and how it is found out.
#[derive(Debug)]
pub(super) struct Entrypoints {
    registries: Result<Registries, String>,
    docker_config: Option<PathBuf>,
    known: Mutex<HashMap<Asked, Arc<Answer>>>,
}

impl Entrypoints {
    pub(super) fn new(options: &KubernetesOptions) -> Self {
        Self {
            registries: Registries::new(options.insecure_registries.clone()),
            docker_config: options.docker_config.clone(),
            known: Mutex::default(),
        }
    }

    /// What an image of these pods starts; asks its registry when nothing fresh is known.
    pub(super) async fn of(
        &self,
        session: &Session,
        image: &str,
        pods: &PodOptions,
        now: impl Fn() -> Instant,
    ) -> Found {
        let architecture = architecture(pods);
        let asked = (image.to_owned(), architecture.clone(), pods.image_pull_secrets.clone());
        self.known(asked, now, async {
            let Some(reference) = Reference::parse(image) else {
                return (FAILED, Found::unknown(image, "it is no image's name", "check it"));
            };
            let fresh = if reference.is_fixed() { FIXED } else { FRESH };
            let asked = self.ask(session, &reference, &architecture, &pods.image_pull_secrets);
            match tokio::time::timeout(TIMEOUT, asked).await {
                Ok(Ok(entrypoint)) => (fresh, Found::Entrypoint(entrypoint)),
                Ok(Err((why, what_to_do))) => (FAILED, Found::unknown(image, &why, what_to_do)),
                Err(_) => {
                    let why = format!("{} has not answered for {} s", reference.registry(), TIMEOUT.as_secs());
                    (FAILED, Found::unknown(image, &why, REACH))
                }
            }
        })
        .await
    }

    /// The answer to a question, which is asked by one at a time.
    async fn known(
        &self,
        asked: Asked,
        now: impl Fn() -> Instant,
        ask: impl Future<Output = (Duration, Found)>,
    ) -> Found {
        let answer = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MANY {
                let is_used = |answer: &Answer| match answer.try_lock() {
                    Ok(answer) => answer.as_ref().is_some_and(|(until, _)| *until > now()),
                    Err(_) => true,
                };
                known.retain(|_, answer| is_used(answer));
            }
            known.entry(asked).or_default().clone()
        };
        let mut answer = answer.lock().await;
        match &*answer {
            Some((until, found)) if *until > now() => found.clone(),
            _ => {
                let (fresh, found) = ask.await;
                *answer = Some((now() + fresh, found.clone()));
                found
            }
        }
    }

    /// # Errors
    /// Why it is not known, and what to do.
    async fn ask(
        &self,
        session: &Session,
        image: &Reference,
        architecture: &str,
        secrets: &[String],
    ) -> Result<Vec<String>, (String, &'static str)> {
        let registries = self.registries.as_ref().map_err(|why| (why.clone(), REACH))?;
        let (logins, problems) = self.logins(session, image, secrets).await;
        let mut found = registries.entrypoint(image, architecture, &logins).await;
        // A program of this machine's may know more than its files.
        if let Err(RegistryError::Refused { .. }) = found
            && let Some(login) = self.of_helper(image).await
        {
            found = registries.entrypoint(image, architecture, &[login]).await;
        }
        found.map_err(|error| {
            let what_to_do = match &error {
                RegistryError::Unreachable { .. } => REACH,
                RegistryError::Refused { .. } => LOG_IN,
                RegistryError::Strange { .. } => PUSH,
            };
            (Vec::from_iter([error.to_string()].into_iter().chain(problems)).join("; "), what_to_do)
        })
    }

    /// The logins of Secrets, then those of this machine; and what is wrong with either.
    async fn logins(&self, session: &Session, image: &Reference, secrets: &[String]) -> (Vec<Login>, Vec<String>) {
        let (mut logins, mut problems) = (Vec::new(), Vec::new());
        for name in secrets {
            match secret(session, name).await {
                Ok(file) => logins.extend(file.of(image)),
                Err(why) => problems.push(format!("the Secret {name} cannot be read: {why}")),
            }
        }
        match self.docker_config.as_deref().map(LoginFile::read) {
            Some(Ok(file)) => logins.extend(file.of(image)),
            Some(Err(why)) => problems.push(why),
            None => {}
        }
        (logins, problems)
    }

    async fn of_helper(&self, image: &Reference) -> Option<Login> {
        let (path, image) = (self.docker_config.clone()?, image.clone());
        tokio::task::spawn_blocking(move || LoginFile::read(&path).ok()?.of_helper(&image)).await.ok()?
    }
}

const REACH: &str =
    "let this server reach it; a registry without TLS is named in insecure_registries of the compute target";
const LOG_IN: &str = "let this server read the Secrets of image_pull_secrets (deploy/ has the right), or log its user in \
                      with `docker login`";
const PUSH: &str = "push it in a format of docker or OCI";

async fn secret(session: &Session, name: &str) -> Result<LoginFile, String> {
    let words = |error| match error {
        kube::Error::Api(status) => status.message,
        error => chain(&error),
    };
    let connected = session.connect().await.map_err(words)?;
    let api = Api::<Secret>::namespaced(connected.client, &connected.namespace);
    let secret = api.get(name).await.map_err(words)?;
    let data = secret.data.unwrap_or_default();
    LoginFile::of_secret(&BTreeMap::from_iter(data.into_iter().map(|(name, value)| (name, value.0))))
}

/// Go's name of the architecture of the nodes that these pods may be on; if any will do, this
/// machine's.
fn architecture(pods: &PodOptions) -> String {
    let here = match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    pods.node_selector.get(ARCHITECTURE).map_or_else(|| here.to_owned(), Clone::clone)
}

#[cfg(test)]
mod tests;
