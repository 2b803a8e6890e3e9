//! Roles that the owner has declared, with their policies. Where none is declared, every role's
//! name stands for the one account, and nothing narrows who assumes it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use shoal_policy::Policy;
use shoal_wire::{Error, ErrorCode, Service, arn};

/// Members that name a role.
const MEMBERS: [&str; 2] = ["RoleArn", "ExecutionRoleArn"];

/// What a policy of a role is refused for.
pub use shoal_policy::PolicyError;

/// Declared roles: what their sessions may do of what the key may do that assumed them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles(BTreeMap<String, Arc<Vec<Policy>>>);

impl Roles {
    /// Declares a role with these documents.
    ///
    /// # Errors
    /// One is not understood.
    pub fn declare(&mut self, name: &str, documents: &[String]) -> Result<(), PolicyError> {
        let policies = documents.iter().map(|it| Policy::of_identity(it)).collect::<Result<_, _>>()?;
        self.0.insert(name.to_owned(), Arc::new(policies));
        Ok(())
    }

    /// Whether there is a role of this name: without declarations there is every one.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.contains_key(name)
    }

    /// What narrows a role's sessions; `None`: nothing, as no roles are declared.
    pub(crate) fn policies(&self, name: &str) -> Option<Arc<Vec<Policy>>> {
        (!self.0.is_empty()).then(|| self.0.get(name).cloned().unwrap_or_default())
    }

    /// Names of the declared ones.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Refuses a call that names a role which is not declared, wherever it does.
    ///
    /// # Errors
    /// As AWS's services refuse it.
    pub(crate) fn check(&self, service: Service, input: &Value, account: &str, caller: &str) -> Result<(), Error> {
        let named = named(input);
        let prefix = format!("arn:aws:iam::{account}:role/");
        let is_unknown = |role: &&String| {
            // A role's path is no part of its name.
            let name = role.strip_prefix(&prefix).map(|path| path.rsplit_once('/').map_or(path, |(_, name)| name));
            !name.is_some_and(|name| self.has(name))
        };
        match named.iter().find(is_unknown).filter(|_| !self.0.is_empty()) {
            None => Ok(()),
            Some(role) if service == Service::Sts => Err(Error::new(
                ErrorCode::AccessDenied,
                format!("User: {caller} is not authorized to perform: sts:AssumeRole on resource: {role}"),
            )),
            Some(role) => Err(Error::validation(format!(
                "Could not assume role {role}. Please ensure that the role exists and allows principal \
                 'sagemaker.amazonaws.com' to assume the role: the roles of this server are those of [role.NAME] in \
                 shoal.toml."
            ))),
        }
    }

    /// # Errors
    /// `NoSuchEntity`.
    pub(crate) fn found(&self, name: &str) -> Result<(), Error> {
        match self.has(name) {
            true => Ok(()),
            false => {
                Err(Error::new(ErrorCode::ResourceNotFound, format!("The role with name {name} cannot be found.")))
            }
        }
    }
}

/// ARNs of the roles that a call names, wherever it does.
pub(crate) fn named(input: &Value) -> Vec<String> {
    let mut named = Vec::new();
    collect(input, &mut named);
    named
}

fn collect(input: &Value, named: &mut Vec<String>) {
    match input {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(role) if MEMBERS.contains(&name.as_str()) => named.push(role.clone()),
                    value => collect(value, named),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, named)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// How policies name a role's session.
pub(crate) fn principals(account: &str, role: &str, session: &str) -> Vec<String> {
    vec![arn::assumed_role(account, role, session), arn::role(account, role)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_declared_roles_are_there_once_some_are() {
        let mut roles = Roles::default();
        let check = |roles: &Roles, input: Value| {
            roles.check(Service::SageMaker, &input, "123456789012", "me").map_err(|error| error.message)
        };
        let arn = |account: &str, path: &str| format!("arn:aws:iam::{account}:role/{path}");
        let own = |path: &str| json!({"RoleArn": arn("123456789012", path)});
        assert!(roles.has("any") && roles.policies("any").is_none());
        assert_eq!(check(&roles, json!({"RoleArn": "nonsense"})), Ok(()));
        roles.declare("Trainer", &[]).unwrap();
        assert!(roles.has("Trainer") && !roles.has("any"));
        assert_eq!(check(&roles, own("Trainer")), Ok(()));
        assert_eq!(check(&roles, own("service-role/Trainer")), Ok(()));
        assert_eq!(check(&roles, json!({"TrainingJobName": "a"})), Ok(()));
        for refused in [
            own("Other"),
            own("Trainer/Other"),
            json!({"RoleArn": arn("999999999999", "Trainer")}),
            json!({"TrainingJobDefinitions": [{"RoleArn": arn("123456789012", "Other")}]}),
            json!({"ExecutionRoleArn": arn("123456789012", "trainer")}),
        ] {
            let message = check(&roles, refused.clone()).unwrap_err();
            assert!(message.starts_with("Could not assume role arn:aws:iam::"), "{refused}: {message}");
        }
        let sts = roles.check(Service::Sts, &own("Other"), "123456789012", "me").unwrap_err();
        assert_eq!(sts.code, ErrorCode::AccessDenied);
        assert_eq!(roles.found("Other").unwrap_err().code, ErrorCode::ResourceNotFound);
        assert!(roles.declare("Broken", &["{}".to_owned()]).is_err());
    }
}
