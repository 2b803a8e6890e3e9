//! How a registry is shown who asks: what it demands (`WWW-Authenticate`), and what is answered.

use base64_simd::STANDARD;
use http::{HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;
use hyper::body::Bytes;
use serde::Deserialize;

use super::logins::Login;

/// Names this program to the services that give tokens.
const CLIENT: &str = "shoal";

/// What a registry demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Demand {
    /// A password with each request.
    Password,
    /// A token, which a service gives.
    Token { realm: String, service: Option<String>, scope: Option<String> },
}

/// The demand of an answer's header; of several, a token's.
pub(super) fn demand(header: &str) -> Option<Demand> {
    let challenges = http_auth::parse_challenges(header).ok()?;
    let token = challenges.iter().find(|it| it.scheme.eq_ignore_ascii_case("Bearer")).and_then(|challenge| {
        let of = |name: &str| {
            let found = challenge.params.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_unescaped())
        };
        Some(Demand::Token { realm: of("realm")?, service: of("service"), scope: of("scope") })
    });
    let password = || challenges.iter().any(|it| it.scheme.eq_ignore_ascii_case("Basic")).then_some(Demand::Password);
    token.or_else(password)
}

/// The header with a password.
pub(super) fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    secret(&format!("Basic {}", STANDARD.encode_to_string(format!("{user}:{password}"))))
}

fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Asks the service for a token that reads a repository.
pub(super) fn token_request(
    realm: &str,
    service: Option<&str>,
    scope: &str,
    login: Option<&Login>,
) -> Option<Request<Full<Bytes>>> {
    let mut parameters = form_urlencoded::Serializer::new(String::new());
    parameters.extend_pairs(service.map(|service| ("service", service)));
    parameters.append_pair("scope", scope);
    if let Some(Login::Identity(token)) = login {
        parameters.extend_pairs([("grant_type", "refresh_token"), ("client_id", CLIENT), ("refresh_token", token)]);
        let request = Request::builder().method(Method::POST).uri(realm);
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        return request.body(Full::from(parameters.finish())).ok();
    }
    let joint = if realm.contains('?') { '&' } else { '?' };
    let uri: Uri = format!("{realm}{joint}{}", parameters.finish()).parse().ok()?;
    let mut request = Request::builder().uri(uri);
    if let Some(Login::Password { user, password }) = login {
        request = request.header(header::AUTHORIZATION, basic(user, password)?);
    }
    request.body(Full::default()).ok()
}

/// The header with the token of a service's answer.
pub(super) fn bearer(answer: &[u8]) -> Option<HeaderValue> {
    #[derive(Deserialize)]
    struct Given {
        token: Option<String>,
        access_token: Option<String>,
    }
    let given: Given = serde_json::from_slice(answer).ok()?;
    secret(&format!("Bearer {}", given.token.or(given.access_token)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_registry_demands() {
        let token = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            let text = |it: Option<&str>| it.map(str::to_owned);
            Some(Demand::Token { realm: realm.to_owned(), service: text(service), scope: text(scope) })
        };
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/a:pull""#;
        let scope = Some("repository:library/a:pull");
        assert_eq!(demand(hub), token("https://auth.docker.io/token", Some("registry.docker.io"), scope));
        let both = r#"Basic realm="x", bearer realm="https://a.org/t""#;
        assert_eq!(demand(both), token("https://a.org/t", None, None));
        assert_eq!(demand(r#"Basic realm="x""#), Some(Demand::Password));
        for other in ["Negotiate", "", "Bearer service=\"x\"", "\"\""] {
            assert_eq!(demand(other), None, "{other}");
        }
    }

    #[test]
    fn a_token_is_asked_for_with_what_there_is() {
        let scope = "repository:me/a:pull";
        let of = |login| token_request("https://a.org/t?x=1", Some("a b"), scope, login).expect("a request");
        let anonymous = of(None);
        assert_eq!(anonymous.uri(), "https://a.org/t?x=1&service=a+b&scope=repository%3Ame%2Fa%3Apull");
        assert!(!anonymous.headers().contains_key(header::AUTHORIZATION));
        let login = Login::Password { user: "me".to_owned(), password: "a:b".to_owned() };
        assert_eq!(of(Some(&login)).headers()[header::AUTHORIZATION], "Basic bWU6YTpi");
        let identity = of(Some(&Login::Identity("secret".to_owned())));
        assert_eq!((identity.method(), identity.uri().to_string().contains("secret")), (&Method::POST, false));
        assert_eq!(bearer(br#"{"access_token": "x"}"#), HeaderValue::from_str("Bearer x").ok());
        assert_eq!(bearer(br#"{"errors": []}"#), None);
    }
}
