//! What of requests becomes a record of the audit log.

use std::{net::IpAddr, sync::Arc};

use http::{StatusCode, request::Parts};
use shoal_s3::Verified;
use shoal_wire::{Call, Error, ErrorCode, OWNER_NAME, Service, sigv4};

use crate::{
    api::{Caller, subject},
    audit::{AuditLog, Outcome, Record},
    clock::now_ms,
    identity::Identity,
    key_ring::{Holder, KeyRing},
    request_id::request_id,
};

/// Longest key id that is noted of a caller that may be anyone, in characters.
const MAX_KEY_ID: usize = 128;

/// Makes records of requests.
#[derive(Clone)]
pub(crate) struct Auditor {
    pub(crate) log: Arc<AuditLog>,
    pub(crate) keys: Arc<KeyRing>,
    pub(crate) identity: Identity,
    /// Reads are noted, too.
    pub(crate) with_reads: bool,
}

impl Auditor {
    /// A call of which nothing is verified: a stranger's key is what the stranger sends.
    pub(crate) fn unknown(&self, service: Service, head: &Parts) -> Record {
        let key = sigv4::access_key_id(head).unwrap_or_default();
        Record { key: key.chars().take(MAX_KEY_ID).collect(), service: service.scope().to_owned(), ..Record::default() }
    }

    /// Notes who calls what.
    pub(crate) fn called(&self, record: &mut Record, call: &Call, caller: &Caller) {
        let subject = subject(call, &self.identity);
        self.caller(record, caller);
        record.agent.clone_from(&caller.user_agent);
        call.operation.name.clone_into(&mut record.operation);
        record.resources = Some(subject).filter(|subject| subject != "*").into_iter().collect();
    }

    fn caller(&self, record: &mut Record, caller: &Caller) {
        record.arn = caller.arn(&self.identity);
        // Names of sessions and jobs are what their makers like.
        record.user = caller.member.as_ref().map_or(OWNER_NAME, |member| &member.name).to_owned();
        record.issuer = match (&caller.holder, &caller.member) {
            (Holder::Session(_), Some(member)) => member.access_key_id.clone(),
            (Holder::Session(_), None) => self.keys.owner.access_key_id.clone(),
            _ => String::new(),
        };
    }

    /// A call was answered.
    pub(crate) fn note_call(
        &self,
        record: Record,
        service: Service,
        error: Option<&Error>,
        request_id: &str,
        source: IpAddr,
    ) {
        let outcome = match error {
            None => Outcome::Done,
            Some(error) => {
                let code = error.code.name(service).to_owned();
                if is_refusal(error.code) { Outcome::Refused(code) } else { Outcome::Failed(code) }
            }
        };
        self.note(record, &outcome, request_id, source);
    }

    /// A request of S3 whose signature is verified.
    pub(crate) fn of_s3(&self, request: &Verified<'_>, agent: &str) -> Record {
        let mut record = Record {
            key: request.access_key_id.to_owned(),
            service: Service::S3.scope().to_owned(),
            agent: agent.to_owned(),
            operation: request.operation.to_owned(),
            ..Record::default()
        };
        self.holder(&mut record, request.access_key_id, request.session_token);
        record.resources.extend(request.place.map(|(bucket, key)| match key {
            "" => format!("arn:aws:s3:::{bucket}"),
            key => format!("arn:aws:s3:::{bucket}/{key}"),
        }));
        record
    }

    /// It was answered.
    pub(crate) fn note_s3(&self, record: Record, status: StatusCode, request_id: &str, source: IpAddr) {
        let outcome = match status {
            StatusCode::FORBIDDEN => Outcome::Refused("AccessDenied".to_owned()),
            status if status.is_client_error() || status.is_server_error() => {
                Outcome::Failed(status.as_u16().to_string())
            }
            _ => Outcome::Done,
        };
        self.note(record, &outcome, request_id, source);
    }

    /// A call of a page of the console was answered.
    pub(crate) fn note_from_console(&self, call: &Call, caller: &Caller, error: Option<&Error>, source: IpAddr) {
        let service = call.operation.service;
        let member = caller.member.as_ref();
        let key = member.map_or(&self.keys.owner.access_key_id, |member| &member.access_key_id).clone();
        let mut record = Record { key, service: service.scope().to_owned(), ..Record::default() };
        self.called(&mut record, call, caller);
        self.note_call(record, service, error, &request_id(), source);
    }

    /// A browser signed in to the console, or tried to.
    pub(crate) fn note_sign_in(&self, access_key_id: &str, identity: Option<&str>, source: IpAddr, is_in: bool) {
        let mut record = Record {
            key: access_key_id.chars().take(MAX_KEY_ID).collect(),
            service: "signin".to_owned(),
            operation: "ConsoleLogin".to_owned(),
            resources: identity.map(str::to_owned).into_iter().collect(),
            ..Record::default()
        };
        if is_in {
            self.holder(&mut record, access_key_id, None);
        }
        let outcome = if is_in { Outcome::Done } else { Outcome::Refused("Failure".to_owned()) };
        self.note(record, &outcome, &request_id(), source);
    }

    fn holder(&self, record: &mut Record, access_key_id: &str, token: Option<&str>) {
        if let Ok(known) = self.keys.find(access_key_id, token) {
            let caller = Caller { user_agent: String::new(), holder: known.holder, member: known.member };
            self.caller(record, &caller);
        }
    }

    fn note(&self, record: Record, outcome: &Outcome, request_id: &str, source: IpAddr) {
        let record = Record { id: request_id.to_owned(), source: source.to_string(), ..record };
        let record = record.complete(outcome, now_ms());
        if record.is_logged(outcome, self.with_reads) {
            self.log.note(record);
        }
    }
}

/// Whether an error means that the caller may not.
fn is_refusal(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::AccessDenied
            | ErrorCode::UnrecognizedClient
            | ErrorCode::InvalidSignature
            | ErrorCode::ExpiredToken
            | ErrorCode::MissingAuthenticationToken
            | ErrorCode::IncompleteSignature
    )
}
