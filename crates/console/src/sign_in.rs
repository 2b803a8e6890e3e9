//! Signing in and out.

use std::io;

use askama::Template;
use http::{HeaderValue, Method, Response, StatusCode, header};

use super::{
    Console, Visit, blocking,
    frame::{Frame, PageError, rendered},
    now_ms,
    query::{Query, address},
    responses::{Body, empty, see_other},
    session::Refused,
};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    frame: Frame,
    /// Where to go afterwards.
    next: String,
    access_key_id: String,
    complaint: Option<String>,
    /// Who else identifies visitors.
    provider: Option<String>,
    /// Where that begins.
    sign_on: String,
}

/// A page was asked for by somebody who is not signed in: browsers get the form, scripts a status.
pub(crate) fn wanted(visit: &Visit) -> Response<Body> {
    let path = visit.head.uri.path_and_query().map_or("/console", |whole| whole.as_str());
    let page = visit.head.headers.get("sec-fetch-mode").is_none_or(|mode| mode == "navigate");
    if visit.head.method != Method::GET || !page {
        return empty(StatusCode::UNAUTHORIZED);
    }
    see_other(&address("/console/sign-in", &[("next", path)]))
}

/// A page of ours, whatever the address says.
pub(super) fn next(query: &Query) -> String {
    let ours = |path: &&str| *path == "/console" || path.starts_with("/console/") || path.starts_with("/console?");
    query.get("next").filter(ours).unwrap_or("/console").to_owned()
}

impl Console {
    /// The form; or, with a token, in.
    pub(super) async fn sign_in_page(&self, visit: &Visit) -> Result<Response<Body>, PageError> {
        let next = next(&visit.query);
        if let Some(token) = visit.query.get("token").map(str::to_owned) {
            let (sessions, source) = (self.sessions.clone(), visit.source);
            let begun =
                blocking(move || sessions.by_token(source, &token, now_ms()).map_err(|error| PageError::ours(&error)))
                    .await?;
            return match begun {
                Ok(cookie) => with_cookie(see_other(&next), &cookie, visit),
                Err(_) => {
                    let complaint = "That link has been used already, or is too old. `shoal console` prints a new one.";
                    Ok(self.form(visit, next, String::new(), Some((StatusCode::FORBIDDEN, complaint.to_owned()))))
                }
            };
        }
        if self.sessions.of(&visit.head.headers, now_ms()).is_some() {
            return Ok(see_other(&next));
        }
        Ok(self.form(visit, next, String::new(), None))
    }

    /// Keys from the form.
    pub(super) fn sign_in(&self, visit: &Visit, form: &Query) -> Result<Response<Body>, PageError> {
        let (id, secret) = (
            form.get("access_key_id").unwrap_or_default().trim(),
            form.get("secret_access_key").unwrap_or_default().trim(),
        );
        let next = next(form);
        let complaint = match self.sessions.by_keys(visit.source, id, secret, now_ms()) {
            Ok(cookie) => return with_cookie(see_other(&next), &cookie, visit),
            Err(Refused::Wrong) => (
                StatusCode::FORBIDDEN,
                "These are not this server's keys. `shoal env` prints them, `shoal console` a link that needs none."
                    .to_owned(),
            ),
            Err(Refused::Wait(seconds)) => {
                let text = format!(
                    "Too many wrong tries from your address: the next one counts in {seconds} s. A link from `shoal \
                     console` works at once."
                );
                (StatusCode::TOO_MANY_REQUESTS, text)
            }
        };
        Ok(self.form(visit, next, id.to_owned(), Some(complaint)))
    }

    pub(super) async fn sign_out(&self, visit: &Visit) -> Result<Response<Body>, PageError> {
        let (sessions, headers) = (self.sessions.clone(), visit.head.headers.clone());
        let cookie =
            blocking(move || sessions.end(&headers, now_ms()).map_err(|error| PageError::ours(&error))).await?;
        with_cookie(see_other("/console/sign-in"), &cookie, visit)
    }

    fn form(
        &self,
        visit: &Visit,
        next: String,
        access_key_id: String,
        complaint: Option<(StatusCode, String)>,
    ) -> Response<Body> {
        let (status, complaint) = complaint.map_or((StatusCode::OK, None), |(status, text)| (status, Some(text)));
        let mut frame = visit.frame("Sign in");
        frame.signed_in = false;
        let provider = self.sources.sign_on.as_ref().map(|it| it.provider());
        let sign_on = address("/console/sso", &[("next", &next)]);
        let mut response = rendered(&SignInPage { frame, next, access_key_id, complaint, provider, sign_on });
        *response.status_mut() = status;
        response
    }
}

/// Over TLS browsers show the cookie nowhere else.
pub(super) fn with_cookie(
    mut response: Response<Body>,
    cookie: &str,
    visit: &Visit,
) -> Result<Response<Body>, PageError> {
    let secure = if visit.is_tls { "; Secure" } else { "" };
    let value = HeaderValue::from_str(&format!("{cookie}{secure}"))
        .map_err(|error| PageError::ours(&io::Error::other(error)))?;
    response.headers_mut().append(header::SET_COOKIE, value);
    Ok(response)
}
