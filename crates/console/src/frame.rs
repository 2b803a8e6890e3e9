//! What stands around every page, and the page that tells of trouble.

use askama::Template;
use http::{Response, StatusCode};
use shoal_wire::KeyRole;

use super::{
    Visit, assets,
    responses::{Body, html},
};

/// The layout's own values.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) title: String,
    /// `light` or `dark`, if the visitor has chosen.
    pub(crate) theme: Option<&'static str>,
    /// Where scripts and styles of this build lie.
    pub(crate) assets: String,
    pub(crate) version: &'static str,
    pub(crate) signed_in: bool,
    role: KeyRole,
}

impl Frame {
    pub(crate) fn new(title: &str, theme: Option<&str>, role: KeyRole) -> Self {
        let theme = ["light", "dark"].into_iter().find(|known| Some(*known) == theme);
        Self {
            title: title.to_owned(),
            theme,
            assets: assets::path(""),
            version: env!("CARGO_PKG_VERSION"),
            signed_in: true,
            role,
        }
    }

    /// Whether the visitor may stop, delete and rename what is seen.
    pub(crate) fn may_change(&self) -> bool {
        self.role != KeyRole::Reader
    }

    /// Whether the visitor may read what belongs to all together: costs, alarms.
    pub(crate) fn sees_overview(&self) -> bool {
        self.role != KeyRole::User
    }
}

/// Why there is no page, told to the visitor.
#[derive(Debug)]
pub(crate) struct PageError {
    status: StatusCode,
    title: String,
    text: String,
    signed_in: bool,
}

#[derive(Template)]
#[template(path = "trouble.html")]
struct ErrorPage<'a> {
    frame: Frame,
    status: u16,
    title: &'a str,
    text: &'a str,
}

impl PageError {
    pub(crate) fn new(status: StatusCode, title: &str, text: &str) -> Self {
        Self { status, title: title.to_owned(), text: text.to_owned(), signed_in: true }
    }

    /// The same for a visitor who is not signed in.
    pub(crate) fn at_the_door(self) -> Self {
        Self { signed_in: false, ..self }
    }

    pub(crate) fn not_found(text: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "Not found", text)
    }

    /// Our own fault.
    pub(crate) fn ours(error: &dyn std::error::Error) -> Self {
        let text = with_causes(error);
        tracing::error!("console: {text}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong here", &text)
    }

    pub(super) fn page(&self, visit: &Visit) -> Response<Body> {
        let mut frame = visit.frame(&self.title);
        frame.signed_in = self.signed_in;
        let page = ErrorPage { frame, status: self.status.as_u16(), title: &self.title, text: &self.text };
        let mut response = rendered(&page);
        *response.status_mut() = self.status;
        response
    }
}

/// An error and its causes in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source()).map(ToString::to_string);
    causes.fold(error.to_string(), |text, cause| if text.contains(&cause) { text } else { format!("{text}: {cause}") })
}

/// A page from its template.
pub(crate) fn rendered(page: &impl Template) -> Response<Body> {
    html(page.render().expect("our templates only write to memory"))
}
