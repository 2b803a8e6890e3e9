//! Documents: from JSON to statements.

use serde_json::{Map, Value};

use crate::{condition::Condition, evaluate::Request, pattern::Pattern};

/// Why a document is refused: `MalformedPolicyDocument`, of a bucket `MalformedPolicy`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

impl PolicyError {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }
}

/// What a statement that fits does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It permits.
    Allow,
    /// It forbids, whatever permits.
    Deny,
}

/// A document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub(crate) statements: Vec<Statement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) effect: Effect,
    /// Of a resource's policy.
    principals: Option<Among<Principal>>,
    /// In lower case.
    actions: Among<Pattern>,
    resources: Among<Pattern>,
    conditions: Vec<Condition>,
}

/// One of these, or anything but these.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Among<T> {
    of: Vec<T>,
    is_negated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Principal {
    Anyone,
    /// All of an account.
    Account(String),
    Arn(String),
    /// A service or a federation: none of them calls here.
    Absent,
}

/// Longest document, in bytes: that of a bucket's policy.
const MOST_BYTES: usize = 20 * 1024;

impl Policy {
    /// Of an identity: a role's or a session's.
    ///
    /// # Errors
    /// An element is not understood; the text names it.
    pub fn of_identity(json: &str) -> Result<Self, PolicyError> {
        Self::of(json, false)
    }

    /// Of a resource: it names whom it is about.
    ///
    /// # Errors
    /// As of an identity's.
    pub fn of_resource(json: &str) -> Result<Self, PolicyError> {
        Self::of(json, true)
    }

    fn of(json: &str, of_resource: bool) -> Result<Self, PolicyError> {
        if json.len() > MOST_BYTES {
            return Err(PolicyError::new(format!("the document is longer than {MOST_BYTES} bytes")));
        }
        let document: Map<String, Value> =
            serde_json::from_str(json).map_err(|error| PolicyError::new(format!("it is no JSON object: {error}")))?;
        known(&document, &["Version", "Id", "Statement"])?;
        if let Some(version) = document.get("Version")
            && !matches!(version.as_str(), Some("2012-10-17" | "2008-10-17"))
        {
            return Err(PolicyError::new(format!("Version is \"2012-10-17\", not {version}")));
        }
        let statements = match document.get("Statement") {
            None => return Err(PolicyError::new("Statement is missing".to_owned())),
            Some(Value::Array(all)) if all.is_empty() => {
                return Err(PolicyError::new("Statement is empty".to_owned()));
            }
            Some(Value::Array(all)) => all.iter().map(|it| Statement::of(it, of_resource)).collect::<Result<_, _>>()?,
            Some(one) => vec![Statement::of(one, of_resource)?],
        };
        Ok(Self { statements })
    }

    /// Some statement permits something to callers that it does not name.
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|statement| {
            let is_for_all = statement
                .principals
                .as_ref()
                .is_some_and(|principals| principals.is_negated || principals.of.contains(&Principal::Anyone));
            statement.effect == Effect::Allow
                && is_for_all
                && !statement.conditions.iter().any(Condition::names_callers)
        })
    }

    /// The first resource that a statement names and that does not begin so; `*` alone is one.
    pub fn resource_outside(&self, arns: &[String]) -> bool {
        let is_inside = |pattern: &Pattern| arns.iter().any(|arn| pattern.begins(arn));
        self.statements.iter().any(|statement| !statement.resources.of.iter().all(is_inside))
    }
}

fn known(object: &Map<String, Value>, names: &[&str]) -> Result<(), PolicyError> {
    match object.keys().find(|name| !names.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            Err(PolicyError::new(format!("there is no element '{unknown}'; there are {}", names.join(", "))))
        }
    }
}

/// The texts of an element: one, or a list.
fn texts<'a>(value: &'a Value, name: &str) -> Result<Vec<&'a str>, PolicyError> {
    let wrong = || PolicyError::new(format!("{name} is a text or a list of texts, not empty"));
    let all = match value {
        Value::String(text) => vec![text.as_str()],
        Value::Array(all) => all.iter().map(|it| it.as_str().ok_or_else(wrong)).collect::<Result<Vec<_>, _>>()?,
        _ => return Err(wrong()),
    };
    if all.is_empty() { Err(wrong()) } else { Ok(all) }
}

impl Statement {
    fn of(value: &Value, of_resource: bool) -> Result<Self, PolicyError> {
        let wrong = || PolicyError::new("a statement is an object".to_owned());
        let object = value.as_object().ok_or_else(wrong)?;
        let names = [
            "Sid",
            "Effect",
            "Principal",
            "NotPrincipal",
            "Action",
            "NotAction",
            "Resource",
            "NotResource",
            "Condition",
        ];
        known(object, &names)?;
        let effect = match object.get("Effect").and_then(Value::as_str) {
            Some("Allow") => Effect::Allow,
            Some("Deny") => Effect::Deny,
            _ => return Err(PolicyError::new("Effect is \"Allow\" or \"Deny\"".to_owned())),
        };
        let (principals, not_action) =
            (among(object, "Principal", "NotPrincipal")?, among(object, "Action", "NotAction")?);
        let principals = match (principals, of_resource) {
            (None, true) => {
                return Err(PolicyError::new("a statement of a resource's policy has a Principal".to_owned()));
            }
            (Some(_), false) => {
                return Err(PolicyError::new("a statement of a role's policy has no Principal".to_owned()));
            }
            (None, false) => None,
            (Some((value, is_negated)), true) => Some(Among { of: principals_of(value)?, is_negated }),
        };
        if effect == Effect::Allow && principals.as_ref().is_some_and(|it| it.is_negated) {
            return Err(PolicyError::new(
                "Allow with NotPrincipal permits everything to everyone else: name them".to_owned(),
            ));
        }
        let action = |text: &str| {
            if text != "*" && !text.contains(':') {
                return Err(PolicyError::new(format!("'{text}' is no action: write service:Operation")));
            }
            Pattern::of(&text.to_ascii_lowercase(), false)
        };
        let (value, is_negated) = not_action.ok_or_else(|| PolicyError::new("Action is missing".to_owned()))?;
        let actions = texts(value, "Action")?.into_iter().map(action).collect::<Result<_, _>>()?;
        let actions = Among { of: actions, is_negated };
        let (value, is_negated) = among(object, "Resource", "NotResource")?
            .ok_or_else(|| PolicyError::new("Resource is missing".to_owned()))?;
        let resource = |text: &str| {
            if text != "*" && !text.starts_with("arn:") {
                return Err(PolicyError::new(format!("'{text}' is no resource: write an ARN, or *")));
            }
            Pattern::of(text, false)
        };
        let resources = texts(value, "Resource")?.into_iter().map(resource).collect::<Result<_, _>>()?;
        let resources = Among { of: resources, is_negated };
        let conditions = object.get("Condition").map(Condition::all).transpose()?.unwrap_or_default();
        Ok(Self { effect, principals, actions, resources, conditions })
    }

    /// Whether it is about this request.
    pub(crate) fn fits(&self, request: &Request<'_>) -> bool {
        let is_of_caller = self.principals.as_ref().is_none_or(|principals| {
            let fits = principals.of.iter().any(|principal| principal.is(request, self.effect));
            fits != principals.is_negated
        });
        let action = request.action.to_ascii_lowercase();
        let any = |among: &Among<Pattern>, text: &str| {
            among.of.iter().any(|pattern| pattern.fits(text, request.username())) != among.is_negated
        };
        is_of_caller
            && any(&self.actions, &action)
            && any(&self.resources, request.resource)
            && self.conditions.iter().all(|condition| condition.holds(request))
    }
}

fn among<'a>(object: &'a Map<String, Value>, name: &str, not: &str) -> Result<Option<(&'a Value, bool)>, PolicyError> {
    match (object.get(name), object.get(not)) {
        (Some(_), Some(_)) => Err(PolicyError::new(format!("a statement has {name} or {not}, not both"))),
        (Some(value), None) => Ok(Some((value, false))),
        (None, Some(value)) => Ok(Some((value, true))),
        (None, None) => Ok(None),
    }
}

fn principals_of(value: &Value) -> Result<Vec<Principal>, PolicyError> {
    let wrong = || PolicyError::new("Principal is \"*\" or an object such as {\"AWS\": \"arn:..\"}".to_owned());
    let object = match value {
        Value::String(text) if text == "*" => return Ok(vec![Principal::Anyone]),
        Value::Object(object) if !object.is_empty() => object,
        _ => return Err(wrong()),
    };
    let mut all = Vec::new();
    for (kind, value) in object {
        for text in texts(value, "Principal")? {
            all.push(match kind.as_str() {
                "AWS" => Principal::of(text)?,
                "Service" | "Federated" | "CanonicalUser" => Principal::Absent,
                _ => return Err(wrong()),
            });
        }
    }
    Ok(all)
}

impl Principal {
    fn of(text: &str) -> Result<Self, PolicyError> {
        let is_account = |text: &str| text.len() == 12 && text.bytes().all(|it| it.is_ascii_digit());
        let root = text.strip_suffix(":root").and_then(|text| text.strip_prefix("arn:aws:iam::"));
        match text {
            "*" => Ok(Self::Anyone),
            account if is_account(account) => Ok(Self::Account(account.to_owned())),
            _ if root.is_some_and(is_account) => Ok(Self::Account(root.unwrap_or_default().to_owned())),
            arn if (arn.starts_with("arn:aws:iam::") || arn.starts_with("arn:aws:sts::")) && !arn.contains('*') => {
                Ok(Self::Arn(arn.to_owned()))
            }
            _ => Err(PolicyError::new(format!(
                "'{text}' is no principal: write *, an account, or the whole ARN of a user, a role or its session"
            ))),
        }
    }

    /// An account as a principal leaves to its own policies what its users may, and allows nothing
    /// by itself.
    fn is(&self, request: &Request<'_>, effect: Effect) -> bool {
        match self {
            Self::Anyone => true,
            Self::Account(account) => effect == Effect::Deny && account == request.account,
            Self::Arn(arn) => request.principals.iter().any(|principal| principal == arn),
            Self::Absent => false,
        }
    }
}
