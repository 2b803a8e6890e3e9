//! Temporary keys of roles that were assumed. Nothing of them is stored: the id and the token are
//! sealed with the owner's key, and the secret follows from it and the id.

use std::{io, sync::Arc};

use shoal_policy::Policy;
use shoal_s3::KeyFault;

use crate::{
    hex::{hex, random_hex, text_of_hex},
    keys::AccessKeys,
};

/// Hexadecimal digits of an id that are chance, and of its seal.
const CHANCE: usize = 10;
const SEAL: usize = 6;
/// Hexadecimal digits of a token's seal.
const TOKEN_SEAL: usize = 64;
/// Tokens without an issuer had another label, so that none is read as having one.
const TOKEN_LABEL: &str = "session-token-2:";
/// Of tokens whose claims have documents, a line each.
const NARROWED_LABEL: &str = "session-token-3:";

/// Stands for the owner's key in claims.
const OWNER: &str = "-";

/// An assumed role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    /// Id of the key that assumed it, whose rights it has; `None` for the owner's.
    pub(crate) issuer: Option<String>,
    /// The role's name.
    pub(crate) role: String,
    /// Chosen by who assumed it.
    pub(crate) name: String,
    /// In milliseconds since the epoch.
    pub(crate) expires_ms: u64,
    /// Documents that it was opened with, by itself and by the sessions that it was opened from.
    pub(crate) documents: Vec<String>,
}

impl Session {
    /// Makes keys for the session.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub(crate) fn open(&self, owner: &AccessKeys) -> io::Result<AccessKeys> {
        let chance = random_hex(CHANCE / 2)?.to_uppercase();
        let access_key_id = format!("ASIA{chance}{}", id_seal(owner, &chance));
        // Names may have letters that a header cannot carry.
        let issuer = self.issuer.as_deref().unwrap_or(OWNER);
        let claims = format!("{} {issuer} {} {}", self.expires_ms, self.role, self.name);
        let claims = hex(Vec::from_iter([claims].iter().chain(&self.documents).cloned()).join("\n").as_bytes());
        let label = if self.documents.is_empty() { TOKEN_LABEL } else { NARROWED_LABEL };
        let seal = owner.derive(label, &format!("{access_key_id} {claims}"));
        Ok(AccessKeys {
            secret_access_key: secret(owner, &access_key_id),
            session_token: Some(format!("{seal}{claims}")),
            access_key_id,
        })
    }

    /// The session that a key's token speaks of.
    pub(crate) fn of(
        owner: &AccessKeys,
        access_key_id: &str,
        token: Option<&str>,
        now_ms: u64,
    ) -> Result<Self, KeyFault> {
        let (seal, claims) = token.and_then(|token| token.split_at_checked(TOKEN_SEAL)).ok_or(KeyFault::WrongToken)?;
        let is_sealed = |label: &str| owner.equal(seal, &owner.derive(label, &format!("{access_key_id} {claims}")));
        let is_narrowed = is_sealed(NARROWED_LABEL);
        if !is_narrowed && !is_sealed(TOKEN_LABEL) {
            return Err(KeyFault::WrongToken);
        }
        let claims = text_of_hex(claims).ok_or(KeyFault::WrongToken)?;
        let mut lines = claims.split('\n');
        let mut words = if is_narrowed { lines.next().unwrap_or_default() } else { &claims }.splitn(4, ' ');
        let (Some(expires), Some(issuer), Some(role), Some(name)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(KeyFault::WrongToken);
        };
        let expires_ms = expires.parse().map_err(|_| KeyFault::WrongToken)?;
        if expires_ms <= now_ms {
            return Err(KeyFault::Expired);
        }
        let issuer = (issuer != OWNER).then(|| issuer.to_owned());
        let documents = if is_narrowed { lines.map(str::to_owned).collect() } else { Vec::new() };
        Ok(Self { issuer, role: role.to_owned(), name: name.to_owned(), expires_ms, documents })
    }

    /// What narrows it beside its role's policies. A document was read when the session was opened;
    /// one that cannot be read now permits nothing.
    pub(crate) fn policies(&self) -> impl Iterator<Item = Arc<Vec<Policy>>> {
        self.documents.iter().map(|it| Arc::new(Policy::of_identity(it).into_iter().collect()))
    }
}

/// The secret of a session's key; `None` for an id that was never given out.
pub(crate) fn secret_of(owner: &AccessKeys, access_key_id: &str) -> Option<String> {
    let (chance, seal) = access_key_id.strip_prefix("ASIA")?.split_at_checked(CHANCE)?;
    owner.equal(seal, &id_seal(owner, chance)).then(|| secret(owner, access_key_id))
}

fn id_seal(owner: &AccessKeys, chance: &str) -> String {
    owner.derive("session-id:", chance)[..SEAL].to_uppercase()
}

fn secret(owner: &AccessKeys, access_key_id: &str) -> String {
    owner.derive("session-secret:", access_key_id)[..40].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_its_keys_until_it_expires() {
        let owner = |secret: &str| AccessKeys {
            access_key_id: "AKIA0".to_owned(),
            secret_access_key: secret.to_owned(),
            session_token: None,
        };
        let (mine, other) = (owner("mine"), owner("other"));
        let session = Session {
            issuer: None,
            role: "Trainer".to_owned(),
            name: "jürgen me".to_owned(),
            expires_ms: 2000,
            documents: Vec::new(),
        };
        let keys = session.open(&mine).unwrap();
        let (id, token) = (keys.access_key_id.as_str(), keys.session_token.as_deref());
        assert_eq!(id.len(), 20);
        assert_eq!(secret_of(&mine, id), Some(keys.secret_access_key.clone()));
        assert_eq!(Session::of(&mine, id, token, 1999), Ok(session.clone()));
        assert_eq!(Session::of(&mine, id, token, 2000), Err(KeyFault::Expired));
        let members = Session { issuer: Some("AKIA1".to_owned()), ..session.clone() };
        let narrowed = Session { documents: vec!["{\"a\": 1}".to_owned(), "{}".to_owned()], ..session.clone() };
        let of_narrowed = narrowed.open(&mine).unwrap();
        let read = |token: Option<&str>| Session::of(&mine, &of_narrowed.access_key_id, token, 0);
        assert_eq!(read(of_narrowed.session_token.as_deref()), Ok(narrowed.clone()));
        assert_eq!(narrowed.policies().map(|it| it.len()).collect::<Vec<_>>(), [0, 0], "nothing is permitted");
        let of_member = members.open(&mine).unwrap();
        let read = Session::of(&mine, &of_member.access_key_id, of_member.session_token.as_deref(), 0);
        assert_eq!(read, Ok(members));
        assert_eq!(Session::of(&other, id, token, 0), Err(KeyFault::WrongToken), "of another server");
        assert_eq!(Session::of(&mine, id, None, 0), Err(KeyFault::WrongToken));
        let sibling = session.open(&mine).unwrap();
        assert_ne!(sibling.access_key_id, keys.access_key_id);
        assert_eq!(
            Session::of(&mine, id, sibling.session_token.as_deref(), 0),
            Err(KeyFault::WrongToken),
            "of another key"
        );
        let token = keys.session_token.unwrap();
        for at in 0..token.len() {
            let mut letters = token.clone().into_bytes();
            letters[at] = if letters[at] == b'0' { b'1' } else { b'0' };
            let tampered = String::from_utf8(letters).unwrap();
            assert_eq!(
                Session::of(&mine, &keys.access_key_id, Some(&tampered), 0),
                Err(KeyFault::WrongToken),
                "{tampered}"
            );
        }
        for made_up in ["", "ASIA", "AKIA0", "ASIA0000000000000000", "ASIAé", &sibling.access_key_id[..19]] {
            assert_eq!(secret_of(&mine, made_up), None, "{made_up}");
        }
        assert_eq!(secret_of(&other, &keys.access_key_id), None);
    }
}
