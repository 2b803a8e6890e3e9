//! Who may see the console: holders of keys, by them or by a one-time link, and then by a cookie.
//!
//! Nothing is stored for a session: link and cookie carry an end, a random number, the key's id and
//! an HMAC of all under the key's secret, so that sessions outlive a restart
//! and end with their key. What must not count a
//! second time (a link that was used, a cookie that was signed out) is kept until its end by
//! [`Spent`].

use std::{
    io,
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use hex_simd::AsciiCase;
use http::{HeaderMap, header};
use shoal_store::StoreError;
use shoal_wire::{proof, sigv4::Credentials};

use super::{Keys, spent::Spent, throttle::Throttle};

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
pub fn sign_in_token(keys: &Credentials, now_ms: u64) -> io::Result<String> {
    ticket(&keys.access_key_id, &keys.secret_access_key, Purpose::SignIn, now_ms / 1000 + LINK_S)
}

/// `<end in seconds>.<random>.<key's id>.<HMAC>`.
fn ticket(access_key_id: &str, secret: &str, purpose: Purpose, end_s: u64) -> io::Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let body = format!("{end_s}.{}.{access_key_id}", hex_simd::encode_to_string(random, AsciiCase::Lower));
    let mac = proof::of(secret, purpose.label(), &body);
    Ok(format!("{body}.{mac}"))
}

/// What a ticket of ours that is not over opens. Earlier ones name no key and are the owner's.
fn valid(keys: &dyn Keys, purpose: Purpose, ticket: &str, now_s: u64) -> Option<Session> {
    let (body, mac) = ticket.rsplit_once('.')?;
    let mut words = body.split('.');
    let until_s: u64 = words.next()?.parse().ok()?;
    let access_key_id = words.nth(1).map_or_else(|| keys.owner().access_key_id, str::to_owned);
    let secret = keys.secret(&access_key_id)?;
    (proof::holds(&secret, purpose.label(), body, mac) && now_s < until_s).then_some(Session { until_s, access_key_id })
}

/// A browser that is signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    /// Its end, in seconds since the epoch.
    pub(crate) until_s: u64,
    /// Of the key that it was signed in with.
    pub(crate) access_key_id: String,
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
    keys: Arc<dyn Keys>,
    cookie: String,
    spent: Mutex<Spent>,
    throttle: Mutex<Throttle>,
}

impl Sessions {
    /// Sessions of the data directory with this id. Browsers keep one set of cookies for all ports
    /// of a host, so its name carries the id.
    pub(crate) fn open(keys: Arc<dyn Keys>, data_id: &str, data_dir: &Path) -> Self {
        let spent = Spent::open(&data_dir.join("console-spent"));
        Self { keys, cookie: format!("shoal-{data_id}"), spent: Mutex::new(spent), throttle: Mutex::default() }
    }

    /// The session that these headers belong to.
    pub(crate) fn of(&self, headers: &HeaderMap, now_ms: u64) -> Option<Session> {
        let ticket = cookie(headers, &self.cookie)?;
        let session = valid(&*self.keys, Purpose::Session, ticket, now_ms / 1000)?;
        (!self.spent().holds(ticket)).then_some(session)
    }

    /// The `Set-Cookie` of a new session for a client that has a key and its secret. Wrong tries
    /// slow down their own source alone.
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
        // Something is compared, whether or not there is such a key, and as HMACs: the time taken
        // depends on neither.
        let owner = self.keys.owner();
        let found = self.keys.secret(access_key_id);
        let wanted = found.as_deref().unwrap_or(&owner.secret_access_key);
        let is_secret = proof::equal(&owner.secret_access_key, secret_access_key, wanted);
        if !(is_secret & found.is_some()) {
            self.keys.signed_in(access_key_id, None, source, false);
            self.throttle().failed(source, Instant::now());
            return Err(Refused::Wrong);
        }
        self.keys.signed_in(access_key_id, None, source, true);
        self.begin(access_key_id, now_ms)
    }

    /// The `Set-Cookie` of a new session for who brings a token of [`sign_in_token`] for the first
    /// time. Blocks on the disk. Not throttled: 128 bits cannot be guessed, and wrong attempts at
    /// the form must not lock the owner out.
    ///
    /// # Errors
    /// That the token was used cannot be written down; it can be used later.
    pub(crate) fn by_token(
        &self,
        source: IpAddr,
        token: &str,
        now_ms: u64,
    ) -> Result<Result<String, Refused>, StoreError> {
        let Some(link) = valid(&*self.keys, Purpose::SignIn, token, now_ms / 1000) else {
            return Ok(Err(Refused::Wrong));
        };
        let is_first = self.spent().spend(token, link.until_s, now_ms / 1000)?;
        self.keys.signed_in(&link.access_key_id, None, source, is_first);
        Ok(if is_first { self.begin(&link.access_key_id, now_ms) } else { Err(Refused::Wrong) })
    }

    /// The `Set-Cookie` of a new session for a visitor whom a provider has identified.
    pub(crate) fn by_identity(
        &self,
        access_key_id: &str,
        identity: &str,
        source: IpAddr,
        now_ms: u64,
    ) -> Result<String, Refused> {
        let cookie = self.begin(access_key_id, now_ms)?;
        self.keys.signed_in(access_key_id, Some(identity), source, true);
        Ok(cookie)
    }

    /// Ends the session of these headers, if there is one, and gives the `Set-Cookie` that removes
    /// it. Blocks on the disk.
    ///
    /// # Errors
    /// The end cannot be written down; the session goes on.
    pub(crate) fn end(&self, headers: &HeaderMap, now_ms: u64) -> Result<String, StoreError> {
        if let (Some(ticket), Some(session)) = (cookie(headers, &self.cookie), self.of(headers, now_ms)) {
            self.spent().spend(ticket, session.until_s, now_ms / 1000)?;
        }
        Ok(self.set_cookie("", 0))
    }

    fn begin(&self, access_key_id: &str, now_ms: u64) -> Result<String, Refused> {
        let secret = self.keys.secret(access_key_id).ok_or(Refused::Wrong)?;
        match ticket(access_key_id, &secret, Purpose::Session, now_ms / 1000 + SESSION_S) {
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

    /// The owner's key, and perhaps another one.
    struct Two(Option<&'static str>);

    impl Keys for Two {
        fn owner(&self) -> Credentials {
            keys("secret")
        }

        fn secret(&self, access_key_id: &str) -> Option<String> {
            match access_key_id {
                "AKIA0" => Some("secret".to_owned()),
                "AKIA1" => self.0.map(str::to_owned),
                _ => None,
            }
        }

        fn seen_by(&self, _: &str, _: IpAddr, _: &crate::Sources) -> Option<crate::Sources> {
            None
        }

        fn signed_in(&self, _: &str, _: Option<&str>, _: IpAddr, _: bool) {}
    }

    fn sessions(dir: &Path) -> Sessions {
        with_other(dir, Some("anna's"))
    }

    fn with_other(dir: &Path, secret: Option<&'static str>) -> Sessions {
        Sessions::open(Arc::new(Two(secret)), "1f", dir)
    }

    #[test]
    fn a_session_is_that_of_its_key_and_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let cookie = sessions(dir.path()).by_keys(HERE, "AKIA1", "anna's", NOW).unwrap();
        let whose = |sessions: &Sessions| sessions.of(&headers(&cookie), NOW).map(|session| session.access_key_id);
        assert_eq!(whose(&sessions(dir.path())).as_deref(), Some("AKIA1"));
        assert_eq!(whose(&with_other(dir.path(), None)), None, "the key was removed");
        let anna = Credentials { access_key_id: "AKIA1".to_owned(), ..keys("anna's") };
        let link = sign_in_token(&anna, NOW).unwrap();
        let forged = link.replace("AKIA1", "AKIA0");
        let before = forged.replace(".AKIA0", "");
        for wrong in [&forged, &before] {
            assert_eq!(sessions(dir.path()).by_token(HERE, wrong, NOW).unwrap(), Err(Refused::Wrong), "{wrong}");
        }
        assert!(sessions(dir.path()).by_token(HERE, &link, NOW).unwrap().is_ok());
        assert_eq!(
            sessions(dir.path()).by_keys(HERE, "AKIA1", "secret", NOW),
            Err(Refused::Wrong),
            "the secret of another key"
        );
        assert_eq!(with_other(dir.path(), None).by_keys(HERE, "AKIA1", "secret", NOW), Err(Refused::Wrong));
    }

    #[test]
    fn tickets_that_name_no_key_are_the_owners() {
        let dir = tempfile::tempdir().unwrap();
        let body = format!("{}.{}", NOW / 1000 + 9, "0".repeat(32));
        let old = format!("{body}.{}", proof::of("secret", Purpose::Session.label(), &body));
        let session = sessions(dir.path()).of(&headers(&format!("shoal-1f={old}; x")), NOW).unwrap();
        assert_eq!(session, Session { until_s: NOW / 1000 + 9, access_key_id: "AKIA0".to_owned() });
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
        let of = |secret: &str| ticket("AKIA0", secret, Purpose::Session, NOW / 1000 + 9).unwrap();
        let good = of("secret");
        let later = good.replacen(&(NOW / 1000 + 9).to_string(), &(NOW / 1000 + 99).to_string(), 1);
        let link = sign_in_token(&keys("secret"), NOW).unwrap();
        let others = of("other");
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
        assert!(sessions(dir.path()).by_token(HERE, &first, NOW).unwrap().is_ok());
        assert_eq!(
            sessions(dir.path()).by_token(HERE, &first, NOW).unwrap(),
            Err(Refused::Wrong),
            "not even after a restart"
        );
        assert_eq!(
            sessions(dir.path()).by_token(HERE, &second, NOW + LINK_S * 1000).unwrap(),
            Err(Refused::Wrong),
            "too late"
        );
        assert!(sessions(dir.path()).by_token(HERE, &second, NOW + 1000).unwrap().is_ok());
    }

    #[test]
    fn what_cannot_be_written_down_is_not_spent() {
        let parent = tempfile::tempdir().unwrap();
        // A directory that is not there takes no file, whoever writes.
        let dir = parent.path().join("later");
        let sessions = sessions(&dir);
        let link = sign_in_token(&keys("secret"), NOW).unwrap();
        let session = sessions.by_keys(HERE, "AKIA0", "secret", NOW).unwrap();
        assert!(sessions.by_token(HERE, &link, NOW).is_err());
        assert!(sessions.end(&headers(&session), NOW).is_err());
        assert!(sessions.of(&headers(&session), NOW).is_some(), "the session goes on");
        std::fs::create_dir(&dir).unwrap();
        assert!(sessions.by_token(HERE, &link, NOW).unwrap().is_ok(), "the link is not burnt");
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
