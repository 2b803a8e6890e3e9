//! What one command puts into a bucket before it asks for its job: below keys that no other command
//! has, so that it overwrites nothing of a job of the same name, and can take all of it back if it
//! gets no job.

use std::{
    hash::{BuildHasher, RandomState},
    io::Read,
};

use anyhow::{Context, Error, Result};

use crate::client::{Client, ClientError};

/// Uploads on their way.
pub(crate) struct Delivery<'a> {
    /// Where to.
    pub(super) client: &'a Client,
    pub(super) bucket: &'a str,
    /// In all of its keys.
    pub(super) mark: String,
    keys: Vec<String>,
}

impl Delivery<'_> {
    /// Stores an object.
    ///
    /// # Errors
    /// The content cannot be read, or the server refuses it.
    pub(super) fn put(&mut self, key: &str, content: &mut dyn Read) -> Result<()> {
        // What fails may have stored it all the same, but where the key may not write.
        self.keys.push(key.to_owned());
        let put = self.client.put_object(self.bucket, key, content);
        if put.as_ref().is_err_and(is_denied) {
            self.keys.pop();
            return put.with_context(|| {
                format!(
                    "this key may not write s3://{}/{key}; its owner knows where it may (`shoal keys list`): name that place \
                     by --output and in SHOAL_DEFAULT_BUCKET and SHOAL_DEFAULT_PREFIX (docs/team.md)",
                    self.bucket
                )
            });
        }
        put
    }

    fn take_back(&self) {
        let keys = Vec::from_iter(self.keys.iter().map(String::as_str));
        for (key, why) in self.client.delete_objects(self.bucket, &keys) {
            eprintln!("shoal: s3://{}/{key} was uploaded for nothing, and could not be removed: {why}", self.bucket);
        }
    }
}

/// Uploads and asks for the job, both in `work`. If there is no job in the end, nothing of what was
/// uploaded stays.
///
/// # Errors
/// Those of `work`.
pub(crate) fn deliver<T>(
    client: &Client,
    bucket: &str,
    work: impl FnOnce(&mut Delivery<'_>) -> Result<T>,
) -> Result<T> {
    let mut delivery = Delivery { client, bucket, mark: mark(), keys: Vec::new() };
    let done = work(&mut delivery);
    if done.as_ref().is_err_and(is_final) {
        delivery.take_back();
    }
    done
}

fn is_denied(error: &Error) -> bool {
    matches!(error.downcast_ref::<ClientError>(), Some(ClientError::Refused(refusal)) if refusal.code == "AccessDenied")
}

/// A part of keys that is drawn at random.
pub(super) fn mark() -> String {
    format!("{:012x}", RandomState::new().hash_one(()) >> 16)
}

/// Whether no job can have come of it. Who hears nothing, or of trouble inside the server, does not
/// know.
fn is_final(error: &Error) -> bool {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused(refusal)) => refusal.status < 500,
        Some(ClientError::Unreachable { .. } | ClientError::NotUnderstood { .. }) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use shoal_wire::client::ServiceError;

    #[test]
    fn no_two_commands_have_the_same_keys() {
        let [one, two] = [mark(), mark()];
        assert!(one != two && one.len() == 12 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one} {two}");
    }

    #[test]
    fn uploads_stay_where_a_job_may_have_come_of_them() {
        let refused = |status| {
            let refusal = ServiceError { status, code: "ResourceInUse".into(), message: String::new() };
            is_final(&Err::<(), _>(ClientError::Refused(refusal)).context("training job x").unwrap_err())
        };
        assert_eq!([refused(400), refused(500)], [true, false]);
        assert!(!is_final(&ClientError::NotUnderstood { endpoint: String::new(), what: String::new() }.into()));
        assert!(is_final(&anyhow!("could not read a.csv")));
    }
}
