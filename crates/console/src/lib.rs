//! The web console, at `/console` on the server's port: pages made of the same rows, series, logs
//! and objects as the API's answers ([`Sources`]).
//!
//! A page is whole without JavaScript. With it, a page listens to `changes`, loads itself again and
//! takes over what is different; charts and logs get their new parts alone. Nothing is loaded from
//! anywhere else. Stopping a job is the API's own call.

mod about;
mod alarms;
mod amounts;
mod ansi;
mod assets;
mod changes;
mod compare;
mod cost;
mod costs;
mod counts;
mod experiment;
mod experiments;
mod files;
mod frame;
mod job;
mod job_changes;
mod jobs;
mod listed;
mod logs;
mod query;
mod recipe;
mod responses;
mod runs_query;
mod series;
mod series_position;
mod session;
mod sign_in;
mod sign_on;
mod sources;
mod spent;
mod status;
mod stop;
mod study;
mod throttle;
mod timeline;
mod tuning;
mod tunings;
mod utilization;

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt;
use shoal_store::ResourceKind;
use shoal_wire::{ErrorCode, KeyRole};

use self::{
    about::Noted,
    counts::Counts,
    frame::{Frame, PageError},
    query::Query,
    responses::{see_other, text},
    session::Sessions,
};

pub use job_changes::{Growth, JobChanges};
pub use responses::Body;
pub use runs_query::{Cell, RunCells, RunProperty, RunsPage, RunsQuery};
pub use session::sign_in_token;
pub use sign_on::{AuthenticationRequest, SignOn, SignOnError, SignedOn};
pub use sources::{ImageKind, IsOpen, Keys, ObjectsOpen, Server, Sources, Stop, Study};

/// Longest form that is read, in bytes.
const MAX_FORM_BYTES: usize = 16 << 10;
/// How long a form may take to arrive.
const FORM_TIMEOUT: Duration = Duration::from_secs(20);

/// What may load what: our own scripts, styles and answers, nothing inline, nothing from elsewhere,
/// in nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// The console over everything it shows.
#[derive(Clone)]
pub struct Console {
    sources: Arc<Sources>,
    sessions: Arc<Sessions>,
    counts: Arc<Counts>,
}

/// A request for a page, as far as pages look at it.
#[derive(Clone)]
struct Visit {
    head: Parts,
    source: IpAddr,
    is_tls: bool,
    query: Query,
    /// The path below `/console/`, decoded, in segments.
    path: Vec<String>,
    /// Of the key that the visitor has signed in with.
    role: KeyRole,
}

impl Console {
    /// The console of a data directory.
    #[must_use]
    pub fn new(sources: Sources) -> Self {
        let sessions = Arc::new(Sessions::open(sources.keys.clone(), &sources.data_id, &sources.data_dir));
        Self { sources: Arc::new(sources), sessions, counts: Arc::default() }
    }

    /// Whether a request with these headers is that of a key's holder.
    #[must_use]
    pub fn is_signed_in(&self, headers: &HeaderMap) -> bool {
        self.sessions.of(headers, now_ms()).is_some()
    }

    /// Answers a request below `/console`, or one of `/`, `/healthz` and `/favicon.ico`. `source`
    /// is the peer's address.
    pub async fn answer(&self, head: Parts, body: Body, source: IpAddr, is_tls: bool) -> Response<Body> {
        let visit = Visit::new(head, source, is_tls);
        let mut response = match self.route(&visit, body).await {
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

    async fn route(&self, visit: &Visit, body: Body) -> Result<Response<Body>, PageError> {
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
                return Ok(text(self.is_signed_in(&visit.head.headers).to_string()));
            }
            (_, ["sign-in"]) if get => return self.sign_in_page(visit).await,
            (_, ["sign-in"]) if post => return self.sign_in(visit, &form(body).await?),
            (_, ["sso"]) if get => return self.sign_on(visit).await.map_err(PageError::at_the_door),
            (_, ["sso", "callback"]) if get => return self.signed_on(visit).await.map_err(PageError::at_the_door),
            (_, ["sign-out"]) if post => return self.sign_out(visit).await,
            _ => {}
        }
        let Some(session) = self.sessions.of(&visit.head.headers, now_ms()) else { return Ok(sign_in::wanted(visit)) };
        // A key that was removed just now opens nothing.
        let seen = self.sources.keys.seen_by(&session.access_key_id, visit.source, &self.sources);
        let Some(seen) = seen else { return Ok(sign_in::wanted(visit)) };
        // Counts of pages are of what is seen.
        let counts = match seen.objects_open {
            ObjectsOpen::All => self.counts.clone(),
            ObjectsOpen::Some(_) => Arc::default(),
        };
        let visit = &Visit { role: seen.role, ..visit.clone() };
        let console = Self { sources: Arc::new(seen), sessions: self.sessions.clone(), counts };
        console.check_seen(visit, &path).await?;
        console.page(visit, &path, session.until_s, body).await
    }

    /// Refuses pages about what the visitor does not see: some read more than rows.
    async fn check_seen(&self, visit: &Visit, path: &[&str]) -> Result<(), PageError> {
        let named = match path {
            ["jobs", name, ..] => Some((ResourceKind::TRAINING_JOB, (*name).to_owned())),
            ["tuning", name, ..] => Some((ResourceKind::TUNING_JOB, (*name).to_owned())),
            ["changes"] => visit.query.get("job").map(|job| (ResourceKind::TRAINING_JOB, job.to_owned())),
            _ => None,
        };
        let Some((kind, name)) = named.filter(|_| matches!(self.sources.objects_open, ObjectsOpen::Some(_))) else {
            return Ok(());
        };
        let sources = self.sources.clone();
        let is_seen = blocking(move || Ok(sources.rows.resource(kind, &name)?.is_some())).await?;
        if is_seen {
            Ok(())
        } else {
            Err(PageError::not_found("There is no such job, or it was created with another key."))
        }
    }

    async fn page(&self, visit: &Visit, path: &[&str], until_s: u64, body: Body) -> Result<Response<Body>, PageError> {
        let get = matches!(visit.head.method, Method::GET | Method::HEAD);
        let post = visit.head.method == Method::POST;
        match path {
            [] if get => self.jobs_page(visit).await,
            ["changes"] if get => Ok(self.changes(visit.query.get("job"), until_s)),
            ["object"] if get => self.download(visit).await,
            ["jobs"] if get => Ok(see_other("/console")),
            ["tuning"] if get => self.tunings_page(visit).await,
            ["tuning", name] if get => self.tuning_page(visit, name).await,
            ["tuning", name, "stop"] if post => self.stop_tuning(name).await,
            ["compare"] if get => self.compare_page(visit).await,
            ["compare", "series"] if get => self.compared_series(visit).await,
            ["alarms"] if get => self.alarms_page(visit).await,
            ["cost"] if get => self.costs_page(visit).await,
            ["tuning", name, "study"] if get => self.study(name).await,
            ["experiments"] if get => self.experiments_page(visit).await,
            ["experiments", name] if get => self.experiment_page(visit, name).await,
            ["experiments", name, "runs"] if post => self.change_runs(visit, name, &form(body).await?).await,
            ["experiments", name, "about"] if post => self.rename(Noted::Experiment, name, &form(body).await?).await,
            ["experiments", name, "tags"] if post => self.retag(Noted::Experiment, name, &form(body).await?).await,
            ["runs", name, "about"] if post => self.rename(Noted::Run, name, &form(body).await?).await,
            ["runs", name, "tags"] if post => self.retag(Noted::Run, name, &form(body).await?).await,
            ["jobs", name] if get => self.job_page(visit, name).await,
            ["jobs", name, "utilization"] if get => self.utilization(name).await,
            ["jobs", name, "series"] if get => self.series(visit, name).await,
            ["jobs", name, "logs"] if get => self.log_lines(visit, name).await,
            ["jobs", name, "log.txt"] if get => self.log_file(name).await,
            ["jobs", name, "stop"] if get => self.stop_page(visit, name).await,
            ["jobs", name, "stop"] if post => self.stop(name).await,
            _ if get => Err(PageError::not_found("There is no such page. The address may be mistyped.")),
            _ => Err(PageError::new(StatusCode::METHOD_NOT_ALLOWED, "Not here", "This address takes no such request.")),
        }
    }
}

impl Visit {
    fn new(head: Parts, source: IpAddr, is_tls: bool) -> Self {
        let below = head.uri.path().strip_prefix("/console").unwrap_or_default();
        let path = below.split('/').filter(|segment| !segment.is_empty()).map(query::decode).collect();
        Self {
            query: Query::parse(head.uri.query().unwrap_or_default()),
            path,
            head,
            source,
            is_tls,
            role: KeyRole::Owner,
        }
    }

    /// What every page shows around its own contents.
    fn frame(&self, title: &str) -> Frame {
        Frame::new(title, session::cookie(&self.head.headers, "shoal-theme"), self.role)
    }
}

/// A browser's POST says where it comes from. Anything else could be another site's form, sent with
/// our cookie.
fn same_origin(head: &Parts) -> Result<(), PageError> {
    let named = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let origin = named(header::ORIGIN).and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    if origin.is_some() && origin == named(header::HOST) {
        return Ok(());
    }
    Err(PageError::new(
        StatusCode::FORBIDDEN,
        "Not from here",
        "This request did not come from a page of this server. If a proxy stands between, it must pass on the Host \
         header.",
    ))
}

/// Browsers go on to the console; others learn who answers here.
fn front_door(visit: &Visit) -> Response<Body> {
    let accepts = visit.head.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accepts.contains("text/html") {
        see_other("/console")
    } else {
        text(format!("shoal {}\n", env!("CARGO_PKG_VERSION")))
    }
}

async fn form(mut body: Body) -> Result<Query, PageError> {
    let read = async {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            bytes.extend_from_slice(&frame.ok()?.into_data().unwrap_or_default());
            if bytes.len() > MAX_FORM_BYTES {
                return None;
            }
        }
        Some(bytes)
    };
    let read = tokio::time::timeout(FORM_TIMEOUT, read).await;
    let read = read.map_err(|_| {
        PageError::new(StatusCode::REQUEST_TIMEOUT, "Too slow", "The form took too long; send it again.")
    })?;
    let bytes =
        read.ok_or_else(|| PageError::new(StatusCode::BAD_REQUEST, "Too long", "The form could not be read."))?;
    Ok(Query::parse(&String::from_utf8_lossy(&bytes)))
}

/// Runs what may wait for the disk off the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PageError> + Send + 'static,
) -> Result<T, PageError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(PageError::ours(&error)))
}

/// Milliseconds since the epoch.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl From<shoal_store::StoreError> for PageError {
    fn from(error: shoal_store::StoreError) -> Self {
        Self::ours(&error)
    }
}

impl From<shoal_wire::Error> for PageError {
    fn from(error: shoal_wire::Error) -> Self {
        match error.code {
            ErrorCode::ValidationException | ErrorCode::ResourceNotFound => {
                Self::new(StatusCode::CONFLICT, "That is not possible", &error.message)
            }
            ErrorCode::AccessDenied => Self::new(StatusCode::FORBIDDEN, "Not with this key", &error.message),
            _ => Self::ours(&error),
        }
    }
}
