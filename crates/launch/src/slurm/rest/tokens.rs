//! Tokens for slurmrestd: read from a file, or printed by a command and renewed before their end.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::LaunchError;
use crate::slurm::commands::Commands;
use crate::slurm::users::words_for;

/// For a command that prints one.
const TIMEOUT: Duration = Duration::from_secs(20);
/// A token is renewed so long before its end; a short one after three quarters of its time.
const MARGIN: u64 = 60;
/// How long one is used whose end cannot be read.
const UNKNOWN_END: u64 = 600;
/// slurmrestd has the same words for a token that has ended and for a controller that is away:
/// while that lasts, a token is renewed so often.
const DOUBT: Duration = Duration::from_secs(30);

/// Where a token comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A file, which something else renews.
    File(PathBuf),
    /// What a command prints, such as `scontrol token lifespan=3600`; with `{user}` in it, that
    /// user's.
    Command(Vec<String>),
}

impl Token {
    /// A user's: `{user}` in a command is the name.
    pub(super) fn of(&self, user: &str) -> Token {
        match self {
            Token::File(path) => Token::File(path.clone()),
            Token::Command(words) => Token::Command(words_for(words, user)),
        }
    }
}

/// The token in use.
#[derive(Debug)]
pub(super) struct Tokens {
    source: Option<Token>,
    /// A command's last one, until it is to be renewed (seconds since 1970).
    known: Mutex<Option<(String, u64)>>,
    /// When one was renewed last without being sure that it was refused.
    doubted: Mutex<Option<Instant>>,
}

impl Tokens {
    pub(super) fn new(source: Option<Token>) -> Self {
        Self { source, known: Mutex::default(), doubted: Mutex::default() }
    }

    /// Forgets the token, which was refused; whether another one may be had now.
    pub(super) fn renew(&self) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).take();
        matches!(self.source, Some(Token::Command(_))) && known.is_some()
    }

    /// Forgets the token if it may be the reason why slurmctld gives none; whether another one may
    /// be had now. One that is new is not the reason.
    pub(super) fn renew_doubtful(&self) -> bool {
        let mut tried = self.doubted.lock().unwrap_or_else(PoisonError::into_inner);
        if tried.is_some_and(|at| at.elapsed() < DOUBT) {
            return false;
        }
        *tried = Some(Instant::now());
        self.renew()
    }

    /// None: none is configured. `limit`: for a command. A command that refuses may give one later.
    pub(super) fn token(&self, commands: &Commands, limit: Duration) -> Result<Option<String>, LaunchError> {
        self.find(commands, limit).map_err(|error| match error {
            LaunchError::Refused { target, what, .. } => LaunchError::Unavailable { target, what },
            other => other,
        })
    }

    /// The same; [`LaunchError::Refused`]: the command gives none.
    pub(super) fn find(&self, commands: &Commands, limit: Duration) -> Result<Option<String>, LaunchError> {
        let unavailable = |what: String| LaunchError::Unavailable { target: commands.target.clone(), what };
        match &self.source {
            None => Ok(None),
            Some(Token::File(path)) => {
                let place = path.display();
                let text =
                    fs::read_to_string(path).map_err(|error| unavailable(format!("token_file {place}: {error}")))?;
                parse(&text).map(Some).ok_or_else(|| unavailable(format!("token_file {place} has no token in it")))
            }
            Some(Token::Command(words)) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((token, _)) = known.as_ref().filter(|(_, until)| *until > now) {
                    return Ok(Some(token.clone()));
                }
                let of_command = |what: String| format!("token_command {}: {what}", words.join(" "));
                let words = Vec::from_iter(words.iter().map(String::as_str));
                let printed = commands.run_as_owner(&words, TIMEOUT.min(limit)).map_err(|error| match error {
                    LaunchError::Refused { scheduler, target, what } => {
                        LaunchError::Refused { scheduler, target, what: of_command(what) }
                    }
                    LaunchError::Unavailable { what, .. } => unavailable(of_command(what)),
                    other => unavailable(of_command(other.to_string())),
                })?;
                let token = parse(&printed).ok_or_else(|| unavailable(of_command("it prints no token".to_owned())))?;
                *known = Some((token.clone(), renewal(&token, now)));
                Ok(Some(token))
            }
        }
    }
}

/// `TOKEN`, or `SLURM_JWT=TOKEN` as `scontrol token` prints it.
fn parse(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let token = line.strip_prefix("SLURM_JWT=").unwrap_or(line);
    let is_fine = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_fine.then(|| token.to_owned())
}

/// The claims of a token; null: it cannot be read.
fn claims(token: &str) -> Value {
    let read = || {
        let claims = token.split('.').nth(1)?.trim_end_matches('=');
        let claims = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(claims).ok()?;
        serde_json::from_slice(&claims).ok()
    };
    read().unwrap_or_default()
}

/// Whose token it is.
pub(super) fn user(token: &str) -> Option<String> {
    claims(token)["sun"].as_str().map(str::to_owned)
}

/// When a token that is new now is to be renewed.
fn renewal(token: &str, now: u64) -> u64 {
    match claims(token)["exp"].as_u64() {
        Some(end) => end - MARGIN.min(end.saturating_sub(now) / 4).min(end),
        None => now + UNKNOWN_END,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `scontrol token lifespan=3600 username=alice`, Slurm 22.05: ends at 1795795200.
    const TOKEN: &str = concat!(
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.",
        "eyJleHAiOjE3OTU3OTUyMDAsImlhdCI6MTc5NTc5MTYwMCwic3VuIjoiYWxpY2UifQ.",
        "c2lnbmF0dXJl"
    );

    fn commands() -> Commands {
        Commands::new("lab", None, Vec::new())
    }

    #[test]
    fn tokens_are_renewed_before_they_end() {
        assert_eq!(renewal(TOKEN, 1_795_791_600), 1_795_795_140);
        assert_eq!(renewal(TOKEN, 1_795_795_160), 1_795_795_190, "a short one");
        assert_eq!(renewal("opaque", 1000), 1600);
        assert_eq!((user(TOKEN).as_deref(), user("opaque")), (Some("alice"), None));
    }

    #[test]
    fn a_command_is_asked_again_when_its_token_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let count = dir.path().join("count");
        let script = format!("echo x >> {}; echo SLURM_JWT=token$(wc -l < {0})", count.display());
        let tokens = Tokens::new(Some(Token::Command(["/bin/sh", "-c", &script].map(str::to_owned).to_vec())));
        let token = || tokens.token(&commands(), TIMEOUT).expect("a token").expect("one is configured");
        assert_eq!([token(), token()], ["token1", "token1"]);
        assert!(tokens.renew());
        assert_eq!(token(), "token2");
        assert!(tokens.renew_doubtful());
        assert_eq!(token(), "token3");
        assert!(!tokens.renew_doubtful(), "not at each look while the controller is away");
        assert_eq!(token(), "token3");
    }

    #[test]
    fn a_file_is_read_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let tokens = Tokens::new(Some(Token::File(path.clone())));
        let error = tokens.token(&commands(), TIMEOUT).expect_err("there is none").to_string();
        assert!(error.contains("token_file") && error.contains("No such file"), "{error}");
        for text in ["one\n", "SLURM_JWT=two\n"] {
            fs::write(&path, text).expect("write");
            let token = tokens.token(&commands(), TIMEOUT).expect("a token").expect("one is configured");
            assert!(text.contains(&token));
        }
        fs::write(&path, "\n").expect("write");
        assert!(tokens.token(&commands(), TIMEOUT).is_err_and(|error| error.to_string().contains("no token in it")));
        assert!(!tokens.renew(), "nothing here renews it");
    }

    #[test]
    fn a_command_that_fails_is_named() {
        let tokens = Tokens::new(Some(Token::Command(vec!["/bin/false".to_owned()])));
        let error = tokens.token(&commands(), TIMEOUT).expect_err("it fails").to_string();
        assert!(error.contains("token_command /bin/false"), "{error}");
    }
}
