//! Keys beside the owner's: add, list, rotate, remove; and IAM's view of them.

use std::sync::Arc;

use shoal_store::ResourceRow;
use shoal_wire::{AddKey, Error, ErrorCode, GetUser, KeyRole, KeySummary, NamedKey, OWNER_NAME, Reply, S3Uri, arn};

use super::{Api, Caller, blocking, user_id};
use crate::{
    clock::now_ms,
    core::refused,
    hex::random_hex,
    internal::internal,
    team::{KEY, Member, Places},
};

impl Api {
    pub(super) async fn add_key(&self, request: AddKey) -> Result<Reply, Error> {
        let AddKey { name, role, read, write } = request;
        // By default a user writes below an own prefix of the default bucket.
        let own = || vec![(self.default_bucket.clone(), format!("{name}/"))];
        let now = now_ms();
        let member = Member {
            read: read.map(places),
            write: if role == KeyRole::User { write.map_or_else(own, places) } else { Vec::new() },
            access_key_id: new_id()?,
            created_ms: now,
            rotated_ms: now,
            name,
            role,
        };
        let (rows, wanted) = (self.rows.clone(), member.name.clone());
        let taken = blocking(move || rows.names(KEY, &wanted).map_err(|error| internal(&error))).await?;
        let (row, name) = (member.to_row(&self.identity.account), member.name.clone());
        let add = move |present: Option<ResourceRow>| match taken.first().or(present.as_ref().map(|row| &row.name)) {
            None => Ok(Some(row)),
            Some(taken) => Err(Error::new(
                ErrorCode::ResourceInUse,
                format!("There is a key {taken}; `shoal keys rotate {taken}` replaces it."),
            )),
        };
        self.core.edit(KEY, &name, add).await.map_err(|refusal| refused(&refusal))?;
        self.changed_key(&member).await
    }

    pub(super) fn list_keys(&self) -> Result<Reply, Error> {
        let members = self.team.all().into_iter().map(|member| member.summary(&self.identity.account));
        Ok(Reply::list_keys(&[self.owner_summary()].into_iter().chain(members).collect::<Vec<_>>()))
    }

    pub(super) async fn rotate_key(&self, request: NamedKey) -> Result<Reply, Error> {
        let account = self.identity.account.clone();
        let (present, id) = (self.member(&request.name)?, new_id()?);
        let rotated = Member { access_key_id: id, rotated_ms: now_ms(), ..(*present).clone() };
        let (row, name) = (rotated.to_row(&account), rotated.name.clone());
        let rotate = move |there: Option<ResourceRow>| match there {
            Some(_) => Ok(Some(row)),
            None => Err(no_key(&request.name)),
        };
        self.core.edit(KEY, &name, rotate).await.map_err(|refusal| refused(&refusal))?;
        self.changed_key(&rotated).await
    }

    pub(super) async fn remove_key(&self, request: NamedKey) -> Result<Reply, Error> {
        let name = self.member(&request.name)?.name.clone();
        self.core.edit(KEY, &name, |_| Ok(None)).await.map_err(|refusal| refused(&refusal))?;
        self.reload_keys().await?;
        Ok(Reply::done())
    }

    /// IAM's `GetUser`: by name, or the caller.
    pub(super) fn get_user(&self, request: &GetUser, caller: &Caller) -> Result<Reply, Error> {
        let account = &self.identity.account;
        let name = request.user_name.clone().or_else(|| caller.creator());
        let summary = match name.as_deref() {
            None | Some(OWNER_NAME) => self.owner_summary(),
            Some(name) => match self.team.by_name(name) {
                Some(member) => member.summary(account),
                None => {
                    let text = format!("The user with name {name} cannot be found.");
                    return Err(Error::new(ErrorCode::ResourceNotFound, text));
                }
            },
        };
        let id = user_id(&summary.name);
        Ok(Reply::get_user(&summary, &id))
    }

    /// The key in the data directory's file.
    fn owner_summary(&self) -> KeySummary {
        KeySummary {
            name: OWNER_NAME.to_owned(),
            role: KeyRole::Owner,
            access_key_id: self.keys.access_key_id.clone(),
            arn: arn::user(&self.identity.account, OWNER_NAME),
            read: None,
            write: None,
            created_ms: 0,
            rotated_ms: 0,
        }
    }

    fn member(&self, name: &str) -> Result<Arc<Member>, Error> {
        if name == OWNER_NAME {
            return Err(Error::validation(
                "The owner's key is the file keys in the data directory, from which all others follow: with the \
                 server stopped, remove it, and the next start makes another one; all keys have to be rotated then.",
            ));
        }
        self.team.by_name(name).ok_or_else(|| no_key(name))
    }

    /// What is answered once a key is durable.
    async fn changed_key(&self, member: &Member) -> Result<Reply, Error> {
        self.reload_keys().await?;
        let secret = self.team.secret(&member.access_key_id);
        Ok(Reply::new_key(&member.summary(&self.identity.account), &secret))
    }

    async fn reload_keys(&self) -> Result<(), Error> {
        let team = self.team.clone();
        blocking(move || team.reload().map_err(|error| internal(&error))).await
    }
}

fn new_id() -> Result<String, Error> {
    Ok(format!("AKIA{}", random_hex(8).map_err(|error| internal(&error))?.to_uppercase()))
}

fn places(uris: Vec<S3Uri>) -> Places {
    uris.into_iter().map(|uri| (uri.bucket, uri.prefix)).collect()
}

fn no_key(name: &str) -> Error {
    Error::new(
        ErrorCode::ResourceNotFound,
        format!("There is no key {}; `shoal keys list` shows those that there are.", name.escape_debug()),
    )
}
