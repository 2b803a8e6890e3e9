//! The web console, at `/console` on the server's port: pages made here, from the same rows, series, logs and objects as the API's answers.
//!
//! A page is whole without JavaScript. With it, a page listens to [`changes`], loads itself again and takes over what is
//! different; charts and logs get their new parts alone. Nothing is loaded from anywhere else. Stopping a job is the API's own call.

mod amounts;
mod ansi;
mod assets;
mod changes;
mod cost;
mod counts;
mod files;
mod frame;
mod job;
mod jobs;
mod listed;
mod logs;
mod query;
mod recipe;
mod series;
mod session;
mod sign_in;
mod spent;
mod status;
mod stop;
mod throttle;
mod timeline;
mod tuning;
mod tunings;

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt;
use shoal_plane::Catalog;
use shoal_wire::ErrorCode;

use self::{
    counts::Counts,
    frame::{Frame, Trouble},
    query::Query,
    session::Sessions,
};
use crate::{
    api::Api,
    bodies::UNVERIFIED_TIMEOUT,
    connections::Signer,
    core::now_ms,
    effects::World,
    expectations::ExpectedBody,
    http::{Body, Origin, full},
};

/// Longest form that is read, in bytes.
const MOST_FORM: usize = 16 << 10;

/// What may load what: our own scripts, styles and answers, nothing inline, nothing from elsewhere, in nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// The console over everything it shows.
#[derive(Clone)]
pub(crate) struct Console {
    world: Arc<World>,
    catalog: Arc<Catalog>,
    sessions: Arc<Sessions>,
    counts: Arc<Counts>,
}

/// A request for a page, as far as pages look at it.
struct Visit {
    head: Parts,
    source: IpAddr,
    is_tls: bool,
    query: Query,
    /// The path below `/console/`, decoded, in segments.
    path: Vec<String>,
}

impl Console {
    pub(crate) fn new(world: Arc<World>, catalog: Catalog) -> Self {
        let sessions = Arc::new(Sessions::open(world.keys.clone(), &world.data_id, world.data_dir.root()));
        Self { world, catalog: Arc::new(catalog), sessions, counts: Arc::default() }
    }

    /// Answers a request below `/console`, or one of `/`, `/healthz` and `/favicon.ico`.
    pub(crate) async fn answer(&self, api: &Api, head: Parts, body: ExpectedBody, origin: &Origin) -> Response<Body> {
        let visit = Visit::new(head, origin);
        if self.sessions.of(&visit.head.headers, now_ms()).is_some() {
            origin.connection.signed(Signer::Owner);
        }
        let mut response = match self.route(api, &visit, body).await {
            Ok(response) => response,
            Err(trouble) => trouble.page(&visit),
        };
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "DENY"),
            // Not `no-referrer`: with that a browser hides the origin of our own forms from us.
            (header::REFERRER_POLICY, "same-origin"),
            (header::CACHE_CONTROL, "no-store"),
        ] {
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
        response
    }

    async fn route(&self, api: &Api, visit: &Visit, body: ExpectedBody) -> Result<Response<Body>, Trouble> {
        let path: Vec<&str> = visit.path.iter().map(String::as_str).collect();
        let get = matches!(visit.head.method, Method::GET | Method::HEAD);
        let post = visit.head.method == Method::POST;
        if post {
            same_origin(&visit.head)?;
        }
        match (visit.head.uri.path(), &path[..]) {
            ("/healthz", _) => return Ok(text(format!("shoal {}\n", env!("CARGO_PKG_VERSION")))),
            ("/", _) => return Ok(front_door(visit)),
            ("/favicon.ico", _) => return Ok(see_other(&assets::path("icon.svg"))),
            (_, ["assets", version, name @ ..]) if get => return assets::answer_of(version, &name.join("/")),
            (_, ["session"]) if get => {
                let signed_in = self.sessions.of(&visit.head.headers, now_ms()).is_some();
                return Ok(text(signed_in.to_string()));
            }
            (_, ["sign-in"]) if get => return self.sign_in_page(visit).await,
            (_, ["sign-in"]) if post => return self.sign_in(visit, &form(body).await?),
            (_, ["sign-out"]) if post => return self.sign_out(visit).await,
            _ => {}
        }
        let Some(until_s) = self.sessions.of(&visit.head.headers, now_ms()) else { return Ok(sign_in::wanted(visit)) };
        match &path[..] {
            [] if get => self.jobs_page(visit).await,
            ["changes"] if get => Ok(self.changes(visit.query.get("job"), until_s)),
            ["object"] if get => self.download(visit).await,
            ["jobs"] if get => Ok(see_other("/console")),
            ["tuning"] if get => self.tunings_page(visit).await,
            ["tuning", name] if get => self.tuning_page(visit, name).await,
            ["tuning", name, "stop"] if post => self.stop_tuning(api, name).await,
            ["jobs", name] if get => self.job_page(visit, name).await,
            ["jobs", name, "series"] if get => self.series(visit, name).await,
            ["jobs", name, "logs"] if get => self.log_lines(visit, name).await,
            ["jobs", name, "log.txt"] if get => self.log_file(name).await,
            ["jobs", name, "stop"] if get => self.stop_page(visit, name).await,
            ["jobs", name, "stop"] if post => self.stop(api, name).await,
            _ if get => Err(Trouble::not_found("There is no such page. The address may be mistyped.")),
            _ => Err(Trouble::new(StatusCode::METHOD_NOT_ALLOWED, "Not here", "This address takes no such request.")),
        }
    }
}

impl Visit {
    fn new(head: Parts, origin: &Origin) -> Self {
        let below = head.uri.path().strip_prefix("/console").unwrap_or_default();
        let path = below.split('/').filter(|segment| !segment.is_empty()).map(query::decode).collect();
        Self { query: Query::parse(head.uri.query().unwrap_or_default()), path, head, source: origin.source, is_tls: origin.is_tls }
    }

    /// What every page shows around its own contents.
    fn frame(&self, title: &str) -> Frame {
        Frame::new(title, session::cookie(&self.head.headers, "shoal-theme"))
    }
}

/// A browser's POST says where it comes from. Anything else could be another site's form, sent with our cookie.
fn same_origin(head: &Parts) -> Result<(), Trouble> {
    let named = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let origin = named(header::ORIGIN).and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    if origin.is_some() && origin == named(header::HOST) {
        return Ok(());
    }
    Err(Trouble::new(
        StatusCode::FORBIDDEN,
        "Not from here",
        "This request did not come from a page of this server. If a proxy stands between, it must pass on the Host header.",
    ))
}

/// Browsers go on to the console; others learn who answers here.
fn front_door(visit: &Visit) -> Response<Body> {
    let accepts = visit.head.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accepts.contains("text/html") { see_other("/console") } else { text(format!("shoal {}\n", env!("CARGO_PKG_VERSION"))) }
}

async fn form(body: ExpectedBody) -> Result<Query, Trouble> {
    let limited = http_body_util::Limited::new(body, MOST_FORM);
    let read = tokio::time::timeout(UNVERIFIED_TIMEOUT, limited.collect()).await;
    let read = read.map_err(|_| Trouble::new(StatusCode::REQUEST_TIMEOUT, "Too slow", "The form took too long; send it again."))?;
    let bytes = read.map_err(|_| Trouble::new(StatusCode::BAD_REQUEST, "Too long", "The form could not be read."))?;
    Ok(Query::parse(&String::from_utf8_lossy(&bytes.to_bytes())))
}

/// Runs what may wait for the disk off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Trouble> + Send + 'static) -> Result<T, Trouble> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Trouble::ours(&error)))
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Vec::new()));
    *response.status_mut() = status;
    response
}

fn answer(kind: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn html(page: String) -> Response<Body> {
    answer("text/html; charset=utf-8", page)
}

fn text(text: String) -> Response<Body> {
    answer("text/plain; charset=utf-8", text)
}

fn see_other(path: &str) -> Response<Body> {
    let mut response = empty(StatusCode::SEE_OTHER);
    // A path that cannot stand in a header is none of ours.
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/console")));
    response
}

impl From<shoal_store::StoreError> for Trouble {
    fn from(error: shoal_store::StoreError) -> Self {
        Self::ours(&error)
    }
}

impl From<shoal_wire::Error> for Trouble {
    fn from(error: shoal_wire::Error) -> Self {
        match error.code {
            ErrorCode::ValidationException | ErrorCode::ResourceNotFound => {
                Self::new(StatusCode::CONFLICT, "That is not possible", &error.message)
            }
            _ => Self::ours(&error),
        }
    }
}
