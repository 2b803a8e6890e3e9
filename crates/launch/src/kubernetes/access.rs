//! The way to the API server: credentials, calls with a limit, errors as the launcher's.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;

use super::options::KubernetesOptions;
use crate::LaunchError;
use crate::error_chain::chain;

/// For one operation, which may be several calls.
const TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client whose calls block, from any thread.
#[derive(Debug)]
pub(super) struct Access {
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
    session: Arc<Session>,
}

/// Credentials and a connection, made when they are used first.
#[derive(Debug, Default)]
pub(super) struct Session {
    options: KubernetesOptions,
    connected: OnceCell<Connected>,
}

/// A client and the namespace that it works in.
#[derive(Clone)]
pub(super) struct Connected {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connected").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Session {
    /// The connection; a try that failed is repeated by the next call.
    pub(super) async fn connect(&self) -> Result<Connected, kube::Error> {
        self.connected.get_or_try_init(|| connect(&self.options)).await.cloned()
    }
}

async fn connect(options: &KubernetesOptions) -> Result<Connected, kube::Error> {
    let choice = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match &options.kubeconfig {
        Some(path) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &choice).await?,
        None if options.context.is_some() => Config::from_kubeconfig(&choice).await?,
        None => Config::infer().await.map_err(kube::Error::InferConfig)?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let namespace = options.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    Ok(Connected { client: Client::try_from(config)?, namespace })
}

impl Access {
    pub(super) fn new(options: KubernetesOptions) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("kubernetes").enable_all().build();
        Self { runtime: runtime.ok(), session: Arc::new(Session { options, connected: OnceCell::new() }) }
    }

    /// Starts a task that runs until this is dropped.
    pub(super) fn spawn<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce(Arc<Session>) -> F) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(task(self.session.clone()));
        }
    }

    /// Runs a task to its end, from any thread that may wait.
    ///
    /// # Errors
    /// It has not ended within this time, or cannot be run: why.
    pub(super) fn run<T, F>(&self, limit: Duration, task: impl FnOnce(Arc<Session>) -> F) -> Result<T, String>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let runtime = self.runtime.as_ref().ok_or("no thread can be started")?;
        let (sender, answer) = mpsc::sync_channel(1);
        let task = task(self.session.clone());
        runtime.spawn(async move {
            if let Ok(done) = tokio::time::timeout(limit, task).await {
                // The caller may have given up.
                let _ = sender.send(done);
            }
        });
        answer.recv_timeout(limit).map_err(|_| format!("there is no answer for {} s", limit.as_secs()))
    }

    /// Runs calls to their end.
    ///
    /// # Errors
    /// [`LaunchError::Unavailable`] if they may succeed later, [`LaunchError::Refused`] if not.
    pub(super) fn call<T, F>(&self, calls: impl FnOnce(Connected) -> F + Send + 'static) -> Result<T, LaunchError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, kube::Error>> + Send + 'static,
    {
        self.call_within(TIMEOUT, calls)
    }

    /// The same, with another limit.
    pub(super) fn call_within<T, F>(
        &self,
        limit: Duration,
        calls: impl FnOnce(Connected) -> F + Send + 'static,
    ) -> Result<T, LaunchError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, kube::Error>> + Send + 'static,
    {
        let target = &self.session.options.target;
        let done = self.run(limit, |session| async move {
            match session.connect().await {
                Ok(connected) => calls(connected).await,
                Err(error) => Err(error),
            }
        });
        match done {
            Ok(answer) => answer.map_err(|error| as_ours(target, &error)),
            Err(what) => {
                Err(LaunchError::Unavailable { target: target.clone(), what: format!("the API server: {what}") })
            }
        }
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Whether a call failed because there is no such object.
pub(super) fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// An error of a call as the launcher's.
fn as_ours(target: &str, error: &kube::Error) -> LaunchError {
    let target = target.to_owned();
    let kube::Error::Api(status) = error else {
        return LaunchError::Unavailable { target, what: chain(error) };
    };
    let (code, message) = (status.code, &status.message);
    match code {
        // A quota is free again when other pods end.
        403 if message.contains("exceeded quota") => LaunchError::Full { target, what: message.clone() },
        401 => LaunchError::Unavailable {
            target,
            what: format!("it does not accept the credentials ({message}): renew them in the kubeconfig"),
        },
        408 | 409 | 429 | 500.. => LaunchError::Unavailable { target, what: message.clone() },
        // An API server that has just started knows no rights for a moment.
        403 if message.contains(" cannot ") => {
            LaunchError::Unavailable { target, what: format!("{message} (grant the rights of deploy/ to this user)") }
        }
        404 if message.contains("namespaces") => refused(target, format!("{message} (`kubectl create namespace` it)")),
        _ => refused(target, message.clone()),
    }
}

pub(super) fn refused(target: String, what: String) -> LaunchError {
    LaunchError::Refused { scheduler: "Kubernetes", target, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16, message: &str) -> String {
        let status = serde_json::json!({"status": "Failure", "code": code, "message": message, "reason": "R"});
        let status = serde_json::from_value(status).expect("a status");
        as_ours("k8s", &kube::Error::Api(Box::new(status))).to_string()
    }

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        assert_eq!(
            api(403, "pods \"a\" is forbidden: exceeded quota: q, requested: cpu=4"),
            "the compute target k8s takes no more now: pods \"a\" is forbidden: exceeded quota: q, requested: cpu=4"
        );
        for code in [429, 500, 503, 409] {
            assert_eq!(api(code, "later"), "the compute target k8s does not answer: later", "{code}");
        }
        assert!(api(401, "Unauthorized").contains("renew them in the kubeconfig"));
        assert_eq!(
            api(404, "namespaces \"shoal\" not found"),
            "Kubernetes refused the job on compute target k8s: namespaces \"shoal\" not found (`kubectl create namespace` it)"
        );
        let lacking = api(403, "pods is forbidden: User \"x\" cannot create resource \"pods\"");
        assert!(lacking.contains("does not answer") && lacking.contains("grant the rights"), "{lacking}");
        let refused = "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\"";
        assert!(api(403, refused).starts_with("Kubernetes refused"));
        assert_eq!(
            api(422, "Pod \"a\" is invalid"),
            "Kubernetes refused the job on compute target k8s: Pod \"a\" is invalid"
        );
    }

    #[test]
    fn a_cluster_that_cannot_be_reached_is_not_available() {
        let options = KubernetesOptions {
            target: "k8s".to_owned(),
            kubeconfig: Some("/nonexistent/kubeconfig".into()),
            ..KubernetesOptions::default()
        };
        let answer = Access::new(options).call(|_| async { Ok(()) });
        let error = answer.expect_err("there is no such file");
        let LaunchError::Unavailable { what, .. } = error else { panic!("{error}") };
        assert!(what.contains("/nonexistent/kubeconfig"), "{what}");
    }
}
