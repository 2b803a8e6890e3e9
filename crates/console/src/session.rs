//! Who may see the console: the owner, by keys or by a one-time link, and then by a cookie.
//!
//! Nothing is stored for a session: link and cookie carry an end, a random number and an HMAC of
//! both under the owner's secret key, so that a restart signs nobody out. What must not count a
//! second time (a link that was used, a cookie that was signed out) is kept until its end by
//! [`Spent`].

use std::{
    io,
    net::IpAddr,
    path::Path,
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use hex_simd::AsciiCase;
use http::{HeaderMap, header};
use shoal_store::StoreError;
use shoal_wire::{proof, sigv4::Credentials};

use super::{spent::Spent, throttle::Throttle};

/// How long a link signs in, in seconds.
const LINK_S: u64 = 10 * 60;
/// How long a session lasts, in seconds.
const SESSION_S: u64 = 14 * 86_400;

/// What a ticket is good for.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    /// A link that signs in.
    SignIn,
    /// A session.
    Session,
}

impl Purpose {
    fn label(self) -> &'static str {
        match self {
            Self::SignIn => "console-sign-in:",
            Self::Session => "console-session:",
        }
    }
}

/// A token that signs a browser in once, within ten minutes of `now_ms` (since the epoch). The
/// server need not be asked for it.
///
/// # Errors
/// The system gives no randomness.
pub fn sign_in_token(owner: &Credentials, now_ms: u64) -> io::Result<String> {
    ticket(owner, Purpose::SignIn, now_ms / 1000 + LINK_S)
}

/// `<end in seconds>.<random>.<HMAC>`.
fn ticket(owner: &Credentials, purpose: Purpose, end_s: u64) -> io::Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let body = format!("{end_s}.{}", hex_simd::encode_to_string(random, AsciiCase::Lower));
    let mac = proof::of(&owner.secret_access_key, purpose.label(), &body);
    Ok(format!("{body}.{mac}"))
}

/// The end of a ticket of ours that is not over, in seconds since the epoch.
fn valid(owner: &Credentials, purpose: Purpose, ticket: &str, now_s: u64) -> Option<u64> {
    let (body, mac) = ticket.rsplit_once('.')?;
    let end_s: u64 = body.split('.').next()?.parse().ok()?;
    (proof::holds(&owner.secret_access_key, purpose.label(), body, mac) && now_s < end_s).then_some(end_s)
}

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Keys or link are not ours, or too old.
    Wrong,
    /// There were too many wrong tries; this many seconds until the next one counts.
    Wait(u64),
}

/// All that opens the console.
pub(crate) struct Sessions {
    owner: Credentials,
    cookie: String,
    spent: Mutex<Spent>,
    throttle: Mutex<Throttle>,
}

impl Sessions {
    /// Sessions of the data directory with this id. Browsers keep one set of cookies for all ports
    /// of a host, so its name carries the id.
    pub(crate) fn open(owner: Credentials, data_id: &str, data_dir: &Path) -> Self {
        let spent = Spent::open(&data_dir.join("console-spent"));
        Self { owner, cookie: format!("shoal-{data_id}"), spent: Mutex::new(spent), throttle: Mutex::default() }
    }

    /// The end of the session that these headers belong to, in seconds since the epoch.
    pub(crate) fn of(&self, headers: &HeaderMap, now_ms: u64) -> Option<u64> {
        let ticket = cookie(headers, &self.cookie)?;
        let end_s = valid(&self.owner, Purpose::Session, ticket, now_ms / 1000)?;
        (!self.spent().holds(ticket)).then_some(end_s)
    }

    /// The `Set-Cookie` of a new session for a client that has the owner's keys. Wrong tries slow
    /// down their own source alone.
    pub(crate) fn by_keys(
        &self,
        source: IpAddr,
        access_key_id: &str,
        secret_access_key: &str,
        now_ms: u64,
    ) -> Result<String, Refused> {
        let wait = self.throttle().wait_s(source, Instant::now());
        if wait > 0 {
            return Err(Refused::Wait(wait));
        }
        // Both are compared, whatever the first comparison says, and as HMACs: the time taken tells
        // nothing.
        let id = proof::equal(&self.owner.secret_access_key, access_key_id, &self.owner.access_key_id);
        let secret = proof::equal(&self.owner.secret_access_key, secret_access_key, &self.owner.secret_access_key);
        if !(id & secret) {
            self.throttle().failed(source, Instant::now());
            return Err(Refused::Wrong);
        }
        self.begin(now_ms)
    }

    /// The `Set-Cookie` of a new session for who brings a token of [`sign_in_token`] for the first
    /// time. Blocks on the disk. Not throttled: 128 bits cannot be guessed, and wrong attempts at
    /// the form must not lock the owner out.
    ///
    /// # Errors
    /// That the token was used cannot be written down; it can be used later.
    pub(crate) fn by_token(&self, token: &str, now_ms: u64) -> Result<Result<String, Refused>, StoreError> {
        let Some(end_s) = valid(&self.owner, Purpose::SignIn, token, now_ms / 1000) else {
            return Ok(Err(Refused::Wrong));
        };
        let is_first = self.spent().spend(token, end_s, now_ms / 1000)?;
        Ok(if is_first { self.begin(now_ms) } else { Err(Refused::Wrong) })
    }

    /// Ends the session of these headers, if there is one, and gives the `Set-Cookie` that removes
    /// it. Blocks on the disk.
    ///
    /// # Errors
    /// The end cannot be written down; the session goes on.
    pub(crate) fn end(&self, headers: &HeaderMap, now_ms: u64) -> Result<String, StoreError> {
        if let (Some(ticket), Some(end_s)) = (cookie(headers, &self.cookie), self.of(headers, now_ms)) {
            self.spent().spend(ticket, end_s, now_ms / 1000)?;
        }
        Ok(self.set_cookie("", 0))
    }

    fn begin(&self, now_ms: u64) -> Result<String, Refused> {
        match ticket(&self.owner, Purpose::Session, now_ms / 1000 + SESSION_S) {
            Ok(ticket) => Ok(self.set_cookie(&ticket, SESSION_S)),
            Err(error) => {
                tracing::error!("no session without randomness: {error}");
                Err(Refused::Wait(1))
            }
        }
    }

    fn set_cookie(&self, value: &str, seconds: u64) -> String {
        format!("{}={value}; Path=/console; Max-Age={seconds}; HttpOnly; SameSite=Strict", self.cookie)
    }

    fn throttle(&self) -> MutexGuard<'_, Throttle> {
        self.throttle.lock().expect("no holder of this lock panics")
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().expect("no holder of this lock panics")
    }
}

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NOW: u64 = 1_700_000_000_000;
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn keys(secret: &str) -> Credentials {
        Credentials { access_key_id: "AKIA0".to_owned(), secret_access_key: secret.to_owned(), session_token: None }
    }

    fn sessions(dir: &Path) -> Sessions {
        Sessions::open(keys("secret"), "1f", dir)
    }

    fn headers(set_cookie: &str) -> HeaderMap {
        let pair = set_cookie.split(';').next().unwrap();
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(&format!("theme=dark; {pair}")).unwrap())])
    }

    #[test]
    fn a_session_outlives_the_server_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let cookie = sessions(dir.path()).by_keys(HERE, "AKIA0", "secret", NOW).unwrap();
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict"), "{cookie}");
        let again = sessions(dir.path());
        assert!(again.of(&headers(&cookie), NOW + 1).is_some());
        assert!(again.of(&headers(&cookie), NOW + SESSION_S * 1000).is_none(), "it is over");
        again.end(&headers(&cookie), NOW + 2).unwrap();
        assert!(again.of(&headers(&cookie), NOW + 3).is_none(), "signed out");
        assert!(sessions(dir.path()).of(&headers(&cookie), NOW + 3).is_none(), "also after a restart");
    }

    #[test]
    fn what_is_not_ours_opens_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = sessions(dir.path());
        let good = ticket(&keys("secret"), Purpose::Session, NOW / 1000 + 9).unwrap();
        let later = good.replacen(&(NOW / 1000 + 9).to_string(), &(NOW / 1000 + 99).to_string(), 1);
        let link = sign_in_token(&keys("secret"), NOW).unwrap();
        let others = ticket(&keys("other"), Purpose::Session, NOW / 1000 + 9).unwrap();
        for (ticket, expected) in [
            (good.as_str(), true),
            (&later, false),
            (&link, false),
            (&others, false),
            ("", false),
            ("..", false),
            ("9", false),
        ] {
            assert_eq!(sessions.of(&headers(&format!("shoal-1f={ticket}; x")), NOW).is_some(), expected, "{ticket}");
        }
        assert!(sessions.of(&headers(&format!("shoal-2e={good}; x")), NOW).is_none(), "another server's cookie");
    }

    #[test]
    fn a_link_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) =
            (sign_in_token(&keys("secret"), NOW).unwrap(), sign_in_token(&keys("secret"), NOW).unwrap());
        assert!(sessions(dir.path()).by_token(&first, NOW).unwrap().is_ok());
        assert_eq!(
            sessions(dir.path()).by_token(&first, NOW).unwrap(),
            Err(Refused::Wrong),
            "not even after a restart"
        );
        assert_eq!(
            sessions(dir.path()).by_token(&second, NOW + LINK_S * 1000).unwrap(),
            Err(Refused::Wrong),
            "too late"
        );
        assert!(sessions(dir.path()).by_token(&second, NOW + 1000).unwrap().is_ok());
    }

    #[test]
    fn what_cannot_be_written_down_is_not_spent() {
        let parent = tempfile::tempdir().unwrap();
        // A directory that is not there takes no file, whoever writes.
        let dir = parent.path().join("later");
        let sessions = sessions(&dir);
        let link = sign_in_token(&keys("secret"), NOW).unwrap();
        let session = sessions.by_keys(HERE, "AKIA0", "secret", NOW).unwrap();
        assert!(sessions.by_token(&link, NOW).is_err());
        assert!(sessions.end(&headers(&session), NOW).is_err());
        assert!(sessions.of(&headers(&session), NOW).is_some(), "the session goes on");
        std::fs::create_dir(&dir).unwrap();
        assert!(sessions.by_token(&link, NOW).unwrap().is_ok(), "the link is not burnt");
        sessions.end(&headers(&session), NOW).unwrap();
        assert!(sessions.of(&headers(&session), NOW).is_none());
    }

    #[test]
    fn wrong_keys_are_refused_and_then_slowed() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = sessions(dir.path());
        for (id, secret) in [("AKIA0", "secre"), ("AKIA0", ""), ("AKIA", "secret"), ("", "")] {
            assert_eq!(sessions.by_keys(HERE, id, secret, NOW), Err(Refused::Wrong), "{id} {secret}");
        }
        let waits = |answer: &Result<String, Refused>| matches!(answer, Err(Refused::Wait(_)));
        let tries: Vec<_> = (0..20).map(|_| sessions.by_keys(HERE, "AKIA0", "guess", NOW)).collect();
        assert!(tries.iter().any(waits));
        assert!(
            waits(&sessions.by_keys(HERE, "AKIA0", "secret", NOW)),
            "guesses beyond the limit say nothing, even right ones"
        );
        let elsewhere = IpAddr::from([192, 0, 2, 1]);
        assert!(
            sessions.by_keys(elsewhere, "AKIA0", "secret", NOW).is_ok(),
            "the owner elsewhere does not wait for them"
        );
    }
}
