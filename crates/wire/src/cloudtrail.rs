//! CloudTrail: who called what (`LookupEvents`).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Call, Error, ErrorCode, Input, Reply, call::read, timestamp};

/// Events on a page by default, and at most.
const MAX_RESULTS: usize = 50;

/// A `LookupEvents`. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupEvents {
    /// Which events; AWS takes one attribute at most.
    pub attribute: Option<LookupAttribute>,
    /// From here.
    pub start_ms: Option<u64>,
    /// Up to here, with it.
    pub end_ms: Option<u64>,
    /// 1 to 50.
    pub limit: usize,
    /// From the page before.
    pub next_token: Option<String>,
}

/// What an event is looked up by.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub enum LookupAttribute {
    /// The event's id.
    EventId(String),
    /// The operation.
    EventName(String),
    /// Whether it changed nothing.
    ReadOnly(bool),
    /// Name of the caller.
    Username(String),
    /// Kind of a resource, as CloudFormation names it.
    ResourceType(String),
    /// Name or ARN of a resource.
    ResourceName(String),
    /// `sagemaker.amazonaws.com`.
    EventSource(String),
    /// Id of the key.
    AccessKeyId(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Request {
    #[serde(default)]
    lookup_attributes: Vec<Attribute>,
    start_time: Option<f64>,
    end_time: Option<f64>,
    event_category: Option<String>,
    max_results: Option<usize>,
    next_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attribute {
    attribute_key: String,
    attribute_value: String,
}

impl Input for LookupEvents {
    fn read(call: Call) -> Result<Self, Error> {
        let request: Request = read(call.input)?;
        // There are no events of Insights to look up.
        if request.event_category.is_some() {
            return Err(Error::new(
                ErrorCode::InvalidFormat,
                "This server has no Insights events: leave EventCategory out.",
            ));
        }
        let (start_ms, end_ms) =
            (request.start_time.map(timestamp::from_seconds), request.end_time.map(timestamp::from_seconds));
        if start_ms.zip(end_ms).is_some_and(|(start, end)| start > end) {
            return Err(Error::new(ErrorCode::InvalidParameterCombination, "StartTime is after EndTime."));
        }
        let attribute = match request.lookup_attributes.as_slice() {
            [] => None,
            [one] => Some(attribute(one)?),
            _ => {
                return Err(Error::new(ErrorCode::InvalidParameterValue, "Give one lookup attribute at most."));
            }
        };
        let limit = request.max_results.unwrap_or(MAX_RESULTS);
        Ok(Self { attribute, start_ms, end_ms, limit, next_token: request.next_token })
    }
}

fn attribute(given: &Attribute) -> Result<LookupAttribute, Error> {
    let value = given.attribute_value.clone();
    Ok(match given.attribute_key.as_str() {
        "EventId" => LookupAttribute::EventId(value),
        "EventName" => LookupAttribute::EventName(value),
        "Username" => LookupAttribute::Username(value),
        "ResourceType" => LookupAttribute::ResourceType(value),
        "ResourceName" => LookupAttribute::ResourceName(value),
        "EventSource" => LookupAttribute::EventSource(value),
        "AccessKeyId" => LookupAttribute::AccessKeyId(value),
        "ReadOnly" => match value.as_str() {
            "true" => LookupAttribute::ReadOnly(true),
            "false" => LookupAttribute::ReadOnly(false),
            _ => return Err(Error::new(ErrorCode::InvalidParameterValue, "ReadOnly is true or false.")),
        },
        other => {
            let text = format!("'{}' is no lookup attribute.", other.escape_debug());
            return Err(Error::new(ErrorCode::InvalidParameterValue, text));
        }
    })
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// Unique.
    pub id: String,
    /// The operation.
    pub name: String,
    /// It changed nothing.
    pub is_read: bool,
    /// Id of the caller's key.
    pub access_key_id: String,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// `sagemaker.amazonaws.com`.
    pub source: String,
    /// Name of the caller.
    pub user: String,
    /// The caller's ARN.
    pub arn: String,
    /// The peer's address.
    pub address: String,
    /// The request's `User-Agent`.
    pub agent: String,
    /// The server's region.
    pub region: String,
    /// Code of the error that was answered.
    pub error: Option<String>,
    /// Kinds and names.
    pub resources: Vec<(String, String)>,
}

impl Reply {
    /// `LookupEvents`: one page.
    pub fn lookup_events(events: &[AuditEvent], next_token: Option<&str>) -> Self {
        let mut page = json!({"Events": events.iter().map(shown).collect::<Vec<_>>()});
        if let Some(token) = next_token {
            page["NextToken"] = json!(token);
        }
        Self::of(page)
    }
}

fn shown(event: &AuditEvent) -> Value {
    let resources: Vec<_> =
        event.resources.iter().map(|(kind, name)| json!({"ResourceType": kind, "ResourceName": name})).collect();
    json!({
        "EventId": event.id,
        "EventName": event.name,
        "ReadOnly": event.is_read.to_string(),
        "AccessKeyId": event.access_key_id,
        "EventTime": timestamp::seconds(event.at_ms),
        "EventSource": event.source,
        "Username": event.user,
        "Resources": resources,
        "CloudTrailEvent": record(event).to_string(),
    })
}

/// The event as CloudTrail's log files have it.
fn record(event: &AuditEvent) -> Value {
    let kind = if event.arn.contains(":user/") { "IAMUser" } else { "AssumedRole" };
    let account = event.arn.split(':').nth(4).unwrap_or_default();
    let resources: Vec<_> = event.resources.iter().map(|(kind, name)| json!({"type": kind, "ARN": name})).collect();
    let mut record = json!({
        "eventVersion": "1.08",
        "userIdentity": {
            "type": kind,
            "arn": event.arn,
            "accountId": account,
            "accessKeyId": event.access_key_id,
            "userName": event.user,
        },
        "eventTime": timestamp::iso8601(event.at_ms),
        "eventSource": event.source,
        "eventName": event.name,
        "awsRegion": event.region,
        "sourceIPAddress": event.address,
        "userAgent": event.agent,
        "requestID": event.id,
        "eventID": event.id,
        "readOnly": event.is_read,
        "resources": resources,
        "eventType": "AwsApiCall",
        "managementEvent": true,
    });
    if let Some(code) = &event.error {
        record["errorCode"] = json!(code);
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Service, parse};

    fn asked(input: &Value) -> Result<LookupEvents, Error> {
        let target = "com.amazonaws.cloudtrail.v20131101.CloudTrail_20131101.LookupEvents";
        let head = http::Request::post("/").header("x-amz-target", target).body(()).unwrap().into_parts().0;
        assert_eq!(Service::of_target(target), Some(Service::CloudTrail));
        parse(Service::CloudTrail, &head, input.to_string().as_bytes())?.read()
    }

    #[test]
    fn a_lookup_has_one_attribute_and_a_range() {
        let by = |key: &str, value: &str| json!({"LookupAttributes": [{"AttributeKey": key, "AttributeValue": value}]});
        let plain = asked(&json!({})).unwrap();
        assert_eq!((plain.attribute, plain.limit), (None, 50));
        let found = asked(&by("Username", "anna")).unwrap();
        assert_eq!(found.attribute, Some(LookupAttribute::Username("anna".to_owned())));
        assert_eq!(asked(&by("ReadOnly", "false")).unwrap().attribute, Some(LookupAttribute::ReadOnly(false)));
        let range = asked(&json!({"StartTime": 1.5, "EndTime": 1.5, "MaxResults": 7})).unwrap();
        assert_eq!((range.start_ms, range.end_ms, range.limit), (Some(1500), Some(1500), 7));
        let two = json!({"LookupAttributes": [by("Username", "a")["LookupAttributes"][0].clone(),
            by("EventName", "b")["LookupAttributes"][0].clone()]});
        for refused in [
            by("ReadOnly", "maybe"),
            by("Color", "red"),
            two,
            json!({"StartTime": 2, "EndTime": 1}),
            json!({"EventCategory": "insight"}),
            json!({"MaxResults": 51}),
            json!({"MaxResults": 0}),
        ] {
            assert!(asked(&refused).is_err(), "{refused}");
        }
    }
}
