//! Single sign-on by an OpenID Connect provider: the authorization code flow with PKCE
//! (OpenID Connect Core 1.0, RFC 7636). What must be remembered between its two steps is a cookie
//! of the browser that began it, under the owner's key; nothing is kept here.

use askama::Template;
use futures::future::BoxFuture;
use hex_simd::AsciiCase;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use shoal_wire::proof;

use super::{
    Console, Visit,
    frame::{Frame, PageError, rendered},
    now_ms,
    responses::{Body, see_other},
    session::cookie,
    sign_in::{next, with_cookie},
};

/// How long a visitor may take to sign in at the provider, in seconds.
const REQUEST_S: u64 = 10 * 60;
/// What its proof is good for.
const LABEL: &str = "console-sign-on:";
const CALLBACK: &str = "/console/sso/callback";

/// A provider of identities, and which key each of them has here.
pub trait SignOn: Send + Sync {
    /// For the button: the provider's host.
    fn provider(&self) -> String;

    /// Where the provider sends browsers back to: the address of this server as it is registered
    /// there; `None` is the one that the browser used.
    fn url(&self) -> Option<String>;

    /// The provider's address that a browser is sent to.
    fn begin(&self, request: AuthenticationRequest) -> BoxFuture<'static, Result<String, SignOnError>>;

    /// Who the code of a request stands for.
    fn redeem(&self, code: String, request: AuthenticationRequest)
    -> BoxFuture<'static, Result<SignedOn, SignOnError>>;
}

/// What binds the provider's answer to the browser that began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticationRequest {
    /// Where the provider sends the browser back to.
    pub redirect_uri: String,
    /// Echoed in the address.
    pub state: String,
    /// Echoed in the ID token.
    pub nonce: String,
    /// PKCE's code verifier.
    pub verifier: String,
}

/// A visitor whom the provider has identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedOn {
    /// Of the key that they have here.
    pub access_key_id: String,
    /// As the provider names them.
    pub identity: String,
}

/// Why a visitor is not signed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignOnError {
    /// The provider does not answer, or not as it should.
    Provider(String),
    /// The provider's user has no key here; with a sentence.
    NoKey(String),
}

#[derive(Template)]
#[template(path = "signed_on.html")]
struct SignedOnPage {
    frame: Frame,
    identity: String,
    next: String,
}

/// A request as its browser keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Begun {
    request: AuthenticationRequest,
    /// The page that was wanted.
    next: String,
}

impl Begun {
    fn new(redirect_uri: String, next: String) -> std::io::Result<Self> {
        let random = |bytes: &mut [u8]| -> std::io::Result<String> {
            getrandom::fill(bytes).map_err(std::io::Error::other)?;
            Ok(hex_simd::encode_to_string(bytes, AsciiCase::Lower))
        };
        let request = AuthenticationRequest {
            redirect_uri,
            state: random(&mut [0; 16])?,
            nonce: random(&mut [0; 16])?,
            verifier: random(&mut [0; 32])?,
        };
        Ok(Self { request, next })
    }

    /// `<end in seconds>.<state>.<nonce>.<verifier>.<redirect>.<next>.<HMAC>`, the two addresses in
    /// hexadecimal.
    fn ticket(&self, secret: &str, end_s: u64) -> String {
        let hex = |text: &str| hex_simd::encode_to_string(text, AsciiCase::Lower);
        let AuthenticationRequest { redirect_uri, state, nonce, verifier } = &self.request;
        let body = format!("{end_s}.{state}.{nonce}.{verifier}.{}.{}", hex(redirect_uri), hex(&self.next));
        let mac = proof::of(secret, LABEL, &body);
        format!("{body}.{mac}")
    }

    /// What a ticket of ours that is not over has.
    fn read(ticket: &str, secret: &str, now_s: u64) -> Option<Self> {
        let (body, mac) = ticket.rsplit_once('.')?;
        if !proof::holds(secret, LABEL, body, mac) {
            return None;
        }
        let words = Vec::from_iter(body.split('.'));
        let [end_s, state, nonce, verifier, redirect_uri, next] = words[..] else { return None };
        let text = |hex: &str| String::from_utf8(hex_simd::decode_to_vec(hex).ok()?).ok();
        let request = AuthenticationRequest {
            redirect_uri: text(redirect_uri)?,
            state: state.to_owned(),
            nonce: nonce.to_owned(),
            verifier: verifier.to_owned(),
        };
        (now_s < end_s.parse().ok()?).then_some(Self { request, next: text(next)? })
    }
}

impl Console {
    /// Sends the browser to the provider.
    pub(super) async fn sign_on(&self, visit: &Visit) -> Result<Response<Body>, PageError> {
        let provider = self.provider()?;
        let redirect_uri = match provider.url() {
            Some(url) => url + CALLBACK,
            None => here(&visit.head.headers, visit.is_tls)? + CALLBACK,
        };
        let begun = Begun::new(redirect_uri, next(&visit.query)).map_err(|error| PageError::ours(&error))?;
        let to = provider.begin(begun.request.clone()).await.map_err(refused)?;
        let secret = self.sources.keys.owner().secret_access_key;
        let ticket = begun.ticket(&secret, now_ms() / 1000 + REQUEST_S);
        with_cookie(see_other(&to), &self.set_sign_on_cookie(&ticket, REQUEST_S), visit)
    }

    /// The provider has sent the browser back.
    pub(super) async fn signed_on(&self, visit: &Visit) -> Result<Response<Body>, PageError> {
        let provider = self.provider()?;
        let secret = self.sources.keys.owner().secret_access_key;
        let begun = cookie(&visit.head.headers, &self.sign_on_cookie())
            .and_then(|ticket| Begun::read(ticket, &secret, now_ms() / 1000))
            .filter(|begun| visit.query.get("state") == Some(&*begun.request.state))
            .ok_or_else(|| {
                let text = "This browser has not begun to sign in here, or more than ten minutes ago. Sign in again.";
                PageError::new(StatusCode::FORBIDDEN, "Not signed in", text)
            })?;
        if let Some(error) = visit.query.get("error") {
            let text = visit.query.get("error_description").unwrap_or(error);
            let text = format!("{} refused: {text}", provider.provider());
            return Err(PageError::new(StatusCode::FORBIDDEN, "Not signed in", &text));
        }
        let code = visit.query.get("code").unwrap_or_default().to_owned();
        let SignedOn { access_key_id, identity } = provider.redeem(code, begun.request).await.map_err(refused)?;
        let session = self.sessions.by_identity(&access_key_id, &identity, visit.source, now_ms());
        let session = session.map_err(|_| refused(SignOnError::NoKey("The key was removed just now.".to_owned())))?;
        let mut frame = visit.frame("Signed in");
        frame.signed_in = false;
        // A browser sends no `SameSite=Strict` cookie along with what follows from another site's
        // redirect. A page of ours that refreshes starts a request of our own site.
        let go_on = HeaderValue::from_str(&format!("0; url={}", begun.next));
        let mut response = rendered(&SignedOnPage { frame, identity, next: begun.next });
        if let Ok(go_on) = go_on {
            response.headers_mut().insert(header::REFRESH, go_on);
        }
        let response = with_cookie(response, &session, visit)?;
        with_cookie(response, &self.set_sign_on_cookie("", 0), visit)
    }

    fn provider(&self) -> Result<&dyn SignOn, PageError> {
        self.sources.sign_on.as_deref().ok_or_else(|| PageError::not_found("This server has no single sign-on."))
    }

    fn sign_on_cookie(&self) -> String {
        format!("shoal-sso-{}", self.sources.data_id)
    }

    /// The provider's redirect brings it along, which a strict cookie would not be.
    fn set_sign_on_cookie(&self, value: &str, seconds: u64) -> String {
        format!("{}={value}; Path=/console/sso; Max-Age={seconds}; HttpOnly; SameSite=Lax", self.sign_on_cookie())
    }
}

/// The address that the browser has of this server.
fn here(headers: &HeaderMap, is_tls: bool) -> Result<String, PageError> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.ok_or_else(|| PageError::new(StatusCode::BAD_REQUEST, "No host", "The request names no host."))?;
    Ok(format!("{}://{host}", if is_tls { "https" } else { "http" }))
}

fn refused(error: SignOnError) -> PageError {
    match error {
        SignOnError::Provider(text) => {
            tracing::warn!("single sign-on: {text}");
            PageError::new(StatusCode::BAD_GATEWAY, "Single sign-on does not work now", &text)
        }
        SignOnError::NoKey(text) => PageError::new(StatusCode::FORBIDDEN, "No key here", &text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_browser_keeps_is_ours_and_ends() {
        let begun =
            Begun::new("https://box:9777/console/sso/callback".to_owned(), "/console/jobs/a.b".to_owned()).unwrap();
        let ticket = begun.ticket("secret", 700);
        assert_eq!(Begun::read(&ticket, "secret", 699), Some(begun.clone()));
        assert_eq!(Begun::read(&ticket, "secret", 700), None, "too late");
        assert_eq!(Begun::read(&ticket, "other", 1), None, "another server's");
        assert_eq!(Begun::read(&ticket.replacen("700.", "900.", 1), "secret", 1), None, "changed");
        assert_eq!(Begun::read("", "secret", 1), None);
        let other = Begun::new(String::new(), String::new()).unwrap();
        assert_ne!(begun.request.state, other.request.state);
        assert!((43..=128).contains(&begun.request.verifier.len()), "RFC 7636, 4.1");
    }

    #[test]
    fn addresses_are_the_browsers() {
        let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("box:9777"))]);
        assert_eq!(here(&headers, true).unwrap(), "https://box:9777");
        assert_eq!(here(&headers, false).unwrap(), "http://box:9777");
        assert!(here(&HeaderMap::new(), false).is_err());
    }
}
