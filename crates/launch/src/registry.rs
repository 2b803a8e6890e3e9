//! What an image starts by itself, as its registry has it (OCI distribution API): its manifest, of
//! several platforms one, and the configuration that it names. A few small requests; no layer is
//! read, and nothing is kept.

mod documents;
mod logins;
mod permission;
mod reference;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use self::documents::{MANIFESTS, Manifest};
pub(crate) use self::logins::{Login, LoginFile};
use self::permission::{Demand, basic, bearer, demand, token_request};
pub(crate) use self::reference::Reference;
use crate::error_chain::chain;
use crate::tls;

/// The specification's limit of manifests; configurations are as short.
const MAX_BYTES: usize = 4 << 20;
/// Registries have their blobs elsewhere, one step away.
const MAX_REDIRECTS: usize = 5;
/// An index of several platforms, and the manifest of one.
const MAX_MANIFESTS: usize = 2;

/// Why a registry does not tell.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegistryError {
    /// No connection, or none that lasts.
    #[error("{host} cannot be reached: {why}")]
    Unreachable { host: String, why: String },
    /// Not to who asks, or the image is not there: many registries do not tell these apart.
    #[error("{host} does not show it (HTTP {status})")]
    Refused { host: String, status: u16 },
    /// An answer that is none.
    #[error("{host} is not understood: {what}")]
    Strange { host: String, what: String },
}

/// The way to all registries.
#[derive(Debug)]
pub(crate) struct Registries {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    insecure: Vec<String>,
}

impl Registries {
    /// `insecure`: hosts (with ports) that speak HTTP without TLS, as those on this machine do.
    ///
    /// # Errors
    /// There is no TLS here.
    pub(crate) fn new(insecure: Vec<String>) -> Result<Self, String> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let config = tls::client().map_err(|error| error.to_string())?;
        let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
        // Each look-up has connections of its own: there is one a minute.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(https.wrap_connector(tcp));
        Ok(Self { client, insecure })
    }

    /// ENTRYPOINT of an image; empty: it has none. `architecture` is Go's name of it. The logins
    /// are tried in turn, at last none.
    ///
    /// # Errors
    /// The registry does not answer: with the logins, if there are any.
    pub(crate) async fn entrypoint(
        &self,
        image: &Reference,
        architecture: &str,
        logins: &[Login],
    ) -> Result<Vec<String>, RegistryError> {
        let mut refused = None;
        for login in logins.iter().map(Some).chain([None]) {
            let mut reader = Reader { registries: self, image, login, permission: None };
            match reader.entrypoint(architecture).await {
                Err(error @ RegistryError::Refused { .. }) => refused = refused.or(Some(error)),
                answer => return answer,
            }
        }
        let host = image.registry().to_owned();
        Err(refused.unwrap_or(RegistryError::Refused { host, status: 401 }))
    }

    /// Whether what is at this address may be asked without TLS.
    fn may_be_plain(&self, host: &str) -> bool {
        reference::is_here(host) || self.insecure.iter().any(|known| known == host)
    }
}

/// Reads of one repository with one login.
struct Reader<'a> {
    registries: &'a Registries,
    image: &'a Reference,
    login: Option<&'a Login>,
    /// As the registry has demanded it.
    permission: Option<HeaderValue>,
}

impl Reader<'_> {
    async fn entrypoint(&mut self, architecture: &str) -> Result<Vec<String>, RegistryError> {
        let mut version = self.image.version.clone();
        for _ in 0..MAX_MANIFESTS {
            let text = self.get(&format!("manifests/{version}"), MANIFESTS).await?;
            match documents::manifest(&text, architecture).map_err(|what| self.strange(what))? {
                Manifest::Platform(digest) => version = digest,
                Manifest::Image(digest) => {
                    let text = self.get(&format!("blobs/{digest}"), "*/*").await?;
                    return documents::entrypoint(&text).map_err(|what| self.strange(what));
                }
            }
        }
        Err(self.strange("its index leads to another index".to_owned()))
    }

    /// What is at a path of the repository.
    async fn get(&mut self, path: &str, accept: &'static str) -> Result<Bytes, RegistryError> {
        let registry = self.image.registry();
        let scheme = if self.registries.may_be_plain(registry) { "http" } else { "https" };
        let address = format!("{scheme}://{registry}/v2/{}/{path}", self.image.repository);
        let first: Uri = address.parse().map_err(|_| self.strange(format!("{address} is no address")))?;
        let mut at = first.clone();
        for _ in 0..MAX_REDIRECTS {
            let mut request = Request::builder().uri(&at).header(header::ACCEPT, accept);
            // A store of blobs elsewhere has its permission in the address.
            if let Some(permission) = self.permission.as_ref().filter(|_| at.authority() == first.authority()) {
                request = request.header(header::AUTHORIZATION, permission);
            }
            let request = request.body(Full::default()).map_err(|error| self.strange(error.to_string()))?;
            let answer = self.send(request).await?;
            match answer.status() {
                StatusCode::OK => return Ok(answer.into_body()),
                StatusCode::UNAUTHORIZED if self.permission.is_none() => {
                    self.permission = Some(self.permission(answer.headers()).await?);
                }
                status if status.is_redirection() => {
                    let next = answer.headers().get(header::LOCATION).and_then(|place| next(&at, place.to_str().ok()?));
                    at = next.ok_or_else(|| self.strange(format!("HTTP {status} leads nowhere")))?;
                }
                status => return Err(self.failed(status)),
            }
        }
        Err(self.strange(format!("{address} leads from one place to the next")))
    }

    /// What answers the registry's demand.
    async fn permission(&self, headers: &HeaderMap) -> Result<HeaderValue, RegistryError> {
        let refused = || self.failed(StatusCode::UNAUTHORIZED);
        let headers = headers.get_all(header::WWW_AUTHENTICATE).iter();
        let permission = match headers.filter_map(|it| demand(it.to_str().ok()?)).next() {
            Some(Demand::Password) => match self.login {
                Some(Login::Password { user, password }) => basic(user, password),
                _ => None,
            },
            Some(Demand::Token { realm, service, scope }) => {
                let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.image.repository));
                let request = token_request(&realm, service.as_deref(), &scope, self.login).ok_or_else(refused)?;
                let answer = self.send(request).await?;
                match answer.status() {
                    StatusCode::OK => bearer(answer.body()),
                    // Some services say so to who is unknown or may not.
                    StatusCode::BAD_REQUEST => None,
                    status => return Err(self.failed(status)),
                }
            }
            None => None,
        };
        permission.ok_or_else(refused)
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, RegistryError> {
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        // A registry that is asked with TLS leads nowhere without it.
        if request.uri().scheme_str() != Some("https")
            && !(self.registries.may_be_plain(&host) && self.registries.may_be_plain(self.image.registry()))
        {
            return Err(self.strange(format!("it leads to http://{host}, which is without TLS")));
        }
        let unreachable = |why: String| RegistryError::Unreachable { host: host.clone(), why };
        let answer = self.registries.client.request(request).await.map_err(|error| unreachable(chain(&error)))?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, MAX_BYTES).collect().await.map_err(|error| unreachable(error.to_string()))?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }

    fn failed(&self, status: StatusCode) -> RegistryError {
        let host = self.image.registry().to_owned();
        match status.as_u16() {
            status @ (401 | 403 | 404) => RegistryError::Refused { host, status },
            status => RegistryError::Unreachable { host, why: format!("HTTP {status}") },
        }
    }

    fn strange(&self, what: String) -> RegistryError {
        RegistryError::Strange { host: self.image.registry().to_owned(), what }
    }
}

/// Where a redirection leads.
fn next(from: &Uri, place: &str) -> Option<Uri> {
    if !place.starts_with('/') || place.starts_with("//") {
        return place.parse().ok().filter(|uri: &Uri| uri.authority().is_some());
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = Some(place.parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests;
