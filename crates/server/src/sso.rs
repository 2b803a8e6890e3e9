//! Single sign-on by OpenID Connect: what is asked of the provider. The browser's way through it is
//! the console's (`shoal_console::SignOn`).

mod id_token;
mod options;

use std::{
    fs,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use shoal_console::{AuthenticationRequest, SignOnError, SignedOn};
use ureq::Agent;

pub use self::options::SsoOptions;
use self::{
    id_token::{Expected, strings},
    options::is_safe,
};
use crate::{clock::now_ms, key_ring::KeyRing, outgoing};

/// How long the provider may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long its description counts.
const METADATA_AGE: Duration = Duration::from_secs(3600);
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// The provider's description of itself (OpenID Connect Discovery 1.0), as far as it is used.
#[derive(Debug, Clone, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    userinfo_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

/// The provider that the owner trusts.
pub(crate) struct Sso(Arc<Provider>);

struct Provider {
    options: SsoOptions,
    keys: Arc<KeyRing>,
    agent: Agent,
    metadata: Mutex<Option<(Instant, Metadata)>>,
}

impl Sso {
    pub(crate) fn new(options: SsoOptions, keys: Arc<KeyRing>) -> Self {
        let agent = outgoing::agent(ANSWER_TIMEOUT);
        Self(Arc::new(Provider { options, keys, agent, metadata: Mutex::default() }))
    }
}

impl shoal_console::SignOn for Sso {
    fn provider(&self) -> String {
        let issuer = self.0.options.issuer.parse::<http::Uri>().ok();
        issuer.and_then(|issuer| issuer.host().map(str::to_owned)).unwrap_or_default()
    }

    fn url(&self) -> Option<String> {
        self.0.options.url.clone()
    }

    fn begin(&self, request: AuthenticationRequest) -> BoxFuture<'static, Result<String, SignOnError>> {
        let provider = self.0.clone();
        blocking(move || provider.address(&request))
    }

    fn redeem(
        &self,
        code: String,
        request: AuthenticationRequest,
    ) -> BoxFuture<'static, Result<SignedOn, SignOnError>> {
        let provider = self.0.clone();
        blocking(move || provider.redeem(&code, &request))
    }
}

fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SignOnError> + Send + 'static,
) -> BoxFuture<'static, Result<T, SignOnError>> {
    Box::pin(async {
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(SignOnError::Provider(error.to_string())))
    })
}

impl Provider {
    fn fault(&self, why: &str) -> SignOnError {
        SignOnError::Provider(format!("{}: {why}", self.options.issuer))
    }

    fn metadata(&self) -> Result<Metadata, SignOnError> {
        let mut known = self.metadata.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, metadata)) = known.as_ref().filter(|(at, _)| at.elapsed() < METADATA_AGE) {
            return Ok(metadata.clone());
        }
        let url = format!("{}/.well-known/openid-configuration", self.options.issuer.trim_end_matches('/'));
        let metadata: Metadata = self.answer(self.agent.get(&url).call(), "its description")?;
        if metadata.issuer != self.options.issuer {
            let why = format!("it calls itself '{}': set sso_issuer to exactly that", metadata.issuer);
            return Err(self.fault(&why));
        }
        let endpoints = [Some(&metadata.token_endpoint), metadata.userinfo_endpoint.as_ref()];
        if let Some(open) = endpoints.into_iter().flatten().find(|url| !is_safe(url)) {
            return Err(self.fault(&format!("its address {open} is not https")));
        }
        *known = Some((Instant::now(), metadata.clone()));
        Ok(metadata)
    }

    fn address(&self, request: &AuthenticationRequest) -> Result<String, SignOnError> {
        let endpoint = self.metadata()?.authorization_endpoint;
        let challenge = base64_simd::URL_SAFE_NO_PAD.encode_to_string(Sha256::digest(&request.verifier));
        let query = form(&[
            ("response_type", "code"),
            ("client_id", &self.options.client_id),
            ("redirect_uri", &request.redirect_uri),
            ("scope", &self.options.scopes),
            ("state", &request.state),
            ("nonce", &request.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let joint = if endpoint.contains('?') { '&' } else { '?' };
        Ok(format!("{endpoint}{joint}{query}"))
    }

    fn redeem(&self, code: &str, request: &AuthenticationRequest) -> Result<SignedOn, SignOnError> {
        let metadata = self.metadata()?;
        let tokens = self.tokens(&metadata, code, request)?;
        let expected = Expected {
            issuer: &metadata.issuer,
            client_id: &self.options.client_id,
            nonce: &request.nonce,
            now_s: now_ms() / 1000,
        };
        let token = tokens.get("id_token").and_then(Value::as_str).unwrap_or_default();
        let mut claims = id_token::claims(token, &expected).map_err(|why| self.fault(&why))?;
        if !claims.contains_key(&self.options.claim)
            && let (Some(url), Some(access)) =
                (&metadata.userinfo_endpoint, tokens.get("access_token").and_then(Value::as_str))
        {
            let header = format!("Bearer {access}");
            let info = self.agent.get(url).header("authorization", &header).call();
            let info: Map<String, Value> = self.answer(info, "its user information")?;
            if info.get("sub") != claims.get("sub") {
                return Err(self.fault("its user information is of another user"));
            }
            claims.extend(info);
        }
        self.signed_on(&claims)
    }

    /// The answer of the token endpoint.
    fn tokens(
        &self,
        metadata: &Metadata,
        code: &str,
        request: &AuthenticationRequest,
    ) -> Result<Map<String, Value>, SignOnError> {
        let mut pairs = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &request.redirect_uri),
            ("code_verifier", &request.verifier),
        ];
        let mut post = self.agent.post(&metadata.token_endpoint).content_type("application/x-www-form-urlencoded");
        let secret = self.secret()?;
        let methods = &metadata.token_endpoint_auth_methods_supported;
        let has = |method: &str| methods.iter().any(|it| it == method);
        match &secret {
            // What providers support that do not say.
            Some(secret) if methods.is_empty() || has("client_secret_basic") => {
                let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let both = format!("{}:{}", encoded(&self.options.client_id), encoded(secret));
                post = post.header("authorization", format!("Basic {}", base64_simd::STANDARD.encode_to_string(both)));
            }
            Some(secret) => pairs.extend([("client_id", &*self.options.client_id), ("client_secret", secret)]),
            None => pairs.push(("client_id", &self.options.client_id)),
        }
        self.answer(post.send(form(&pairs)), "its token endpoint")
    }

    fn secret(&self) -> Result<Option<String>, SignOnError> {
        let Some(path) = &self.options.client_secret_file else { return Ok(None) };
        match fs::read_to_string(path) {
            Ok(secret) => Ok(Some(secret.trim_end().to_owned())),
            Err(error) => Err(SignOnError::Provider(format!("sso_client_secret_file, {}: {error}", path.display()))),
        }
    }

    fn answer<T: for<'de> Deserialize<'de>>(
        &self,
        answer: Result<http::Response<ureq::Body>, ureq::Error>,
        what: &str,
    ) -> Result<T, SignOnError> {
        let mut answer = answer.map_err(|error| self.fault(&format!("{what}: {error}")))?;
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec();
        let body = body.map_err(|error| self.fault(&format!("{what}: {error}")))?;
        if !answer.status().is_success() {
            // Only the two members that are for people: the others may have secrets.
            let body: Map<String, Value> = serde_json::from_slice(&body).unwrap_or_default();
            let words = ["error", "error_description"].map(|name| body.get(name).and_then(Value::as_str));
            let words = Vec::from_iter(words.into_iter().flatten()).join(": ");
            return Err(self.fault(&format!("{what} answered {}: {words}", answer.status())));
        }
        serde_json::from_slice(&body).map_err(|error| self.fault(&format!("{what} is not as it should be: {error}")))
    }

    /// Whose key they have.
    fn signed_on(&self, claims: &Map<String, Value>) -> Result<SignedOn, SignOnError> {
        let claim = &self.options.claim;
        let values = strings(claims.get(claim));
        let identity = match values[..] {
            [value] => value,
            _ => claims.get("sub").and_then(Value::as_str).unwrap_or_default(),
        };
        if values.is_empty() {
            let text = format!(
                "The provider names no {claim} of {identity}: have it send that claim, or set sso_claim and sso_scopes."
            );
            return Err(SignOnError::NoKey(text));
        }
        if claim == "email" && claims.get("email_verified") == Some(&Value::Bool(false)) {
            return Err(SignOnError::NoKey(format!("The provider has not verified the address {identity}.")));
        }
        let name = values.iter().find_map(|value| self.options.keys.get(*value)).ok_or_else(|| {
            let text = format!(
                "{identity} ({claim}) has no key on this server: ask its owner to write it into sso_keys of shoal.toml."
            );
            SignOnError::NoKey(text)
        })?;
        let access_key_id = match &**name {
            "owner" => Some(self.keys.owner.access_key_id.clone()),
            name => self.keys.team.by_name(name).map(|member| self.keys.team.keys(&member).access_key_id),
        };
        let access_key_id = access_key_id.ok_or_else(|| {
            let text = format!("There is no key {name} any more, which {identity} has in sso_keys: ask the owner.");
            SignOnError::NoKey(text)
        })?;
        Ok(SignedOn { access_key_id, identity: identity.to_owned() })
    }
}

fn form(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}
