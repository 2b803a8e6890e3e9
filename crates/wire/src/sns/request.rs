//! Requests about topics and subscriptions, and the rules that a table of shapes cannot say.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{
    ConfirmSubscription, CreateTopic, ListAll, ListByTopic, ListTopicTags, MessageAttribute, NamedSubscription,
    NamedTopic, Publish, PublishedMessage, SetTopicAttributes, Subscribe, TagTopic, TopicProtocol, UntagTopic,
};
use crate::{
    Call, Error, Input, Tag,
    call::{plain_inputs, read},
    tags,
};

/// Bytes of a message with its attributes, as AWS has it.
const MAX_MESSAGE_BYTES: usize = 256 * 1024;
/// Characters of a subject and of a topic's name, as AWS has it.
const MAX_SUBJECT: usize = 100;
const MAX_NAME: usize = 256;
/// Attributes that topics have here, and what can be set of AWS's others is refused.
const TOPIC_ATTRIBUTES: [&str; 1] = ["DisplayName"];

plain_inputs!(NamedTopic, ListAll, ListByTopic, NamedSubscription, UntagTopic, ListTopicTags);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreateTopicRequest {
    name: String,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    #[serde(default)]
    tags: Vec<Tag>,
    data_protection_policy: Option<Value>,
}

impl Input for CreateTopic {
    fn read(call: Call) -> Result<Self, Error> {
        let request: CreateTopicRequest = read(call.input)?;
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        if request.name.ends_with(".fifo") || request.attributes.get("FifoTopic").is_some_and(|it| it == "true") {
            return Err(invalid("Topic Name", "Shoal has standard topics only, no FIFO topics"));
        }
        if request.name.is_empty() || request.name.len() > MAX_NAME || !request.name.chars().all(is_plain) {
            return Err(invalid("Topic Name", "it has 1 to 256 letters, digits, hyphens and underscores"));
        }
        if request.data_protection_policy.is_some() {
            return Err(invalid("DataProtectionPolicy", "Shoal inspects no messages: leave it out"));
        }
        let mut attributes = request.attributes;
        attributes.retain(|name, value| !(name == "FifoTopic" && value == "false"));
        attributes.keys().try_for_each(|name| known_attribute(name))?;
        Ok(Self { name: request.name, attributes, tags: tags::check(request.tags)? })
    }
}

fn known_attribute(name: &str) -> Result<(), Error> {
    if TOPIC_ATTRIBUTES.contains(&name) {
        return Ok(());
    }
    Err(invalid(
        "AttributeName",
        &format!("topics have no attribute {name} here; {} can be set", TOPIC_ATTRIBUTES.join(", ")),
    ))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SetTopicAttributesRequest {
    topic_arn: String,
    attribute_name: String,
    #[serde(default)]
    attribute_value: String,
}

impl Input for SetTopicAttributes {
    fn read(call: Call) -> Result<Self, Error> {
        let request: SetTopicAttributesRequest = read(call.input)?;
        known_attribute(&request.attribute_name)?;
        Ok(Self { topic_arn: request.topic_arn, name: request.attribute_name, value: request.attribute_value })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SubscribeRequest {
    topic_arn: String,
    protocol: String,
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    #[serde(default)]
    return_subscription_arn: bool,
}

impl Input for Subscribe {
    fn read(call: Call) -> Result<Self, Error> {
        let request: SubscribeRequest = read(call.input)?;
        let Some((_, protocol)) = TopicProtocol::ALL.iter().find(|(name, _)| *name == request.protocol) else {
            let known: Vec<&str> = TopicProtocol::ALL.iter().map(|(name, _)| *name).collect();
            let why =
                format!("Shoal delivers by {}; {} is none of them", known.join(", "), request.protocol.escape_debug());
            return Err(invalid("Protocol", &why));
        };
        endpoint(*protocol, &request.endpoint)?;
        let mut is_raw = false;
        for (name, value) in &request.attributes {
            match (name.as_str(), value.as_str(), protocol) {
                ("RawMessageDelivery", "false", _) => {}
                ("RawMessageDelivery", "true", TopicProtocol::Http | TopicProtocol::Https) => is_raw = true,
                ("RawMessageDelivery", _, _) => {
                    return Err(invalid("RawMessageDelivery", "it is true or false, and true for http and https only"));
                }
                (name, ..) => {
                    let why = format!("subscriptions have no attribute {name} here, only RawMessageDelivery");
                    return Err(invalid("Attributes", &why));
                }
            }
        }
        Ok(Self {
            topic_arn: request.topic_arn,
            protocol: *protocol,
            endpoint: request.endpoint,
            is_raw,
            return_arn: request.return_subscription_arn,
        })
    }
}

fn endpoint(protocol: TopicProtocol, endpoint: &str) -> Result<(), Error> {
    let after = |scheme: &str| endpoint.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty());
    let is_clean = !endpoint.chars().any(|letter| letter.is_control() || letter == ' ');
    let (is_right, wanted) = match protocol {
        TopicProtocol::Http => (after("http://"), "a URL that begins with http://"),
        TopicProtocol::Https => (after("https://"), "a URL that begins with https://"),
        TopicProtocol::Email | TopicProtocol::EmailJson => {
            let parts = endpoint.split_once('@');
            (
                parts.is_some_and(|(name, host)| !name.is_empty() && !host.is_empty()),
                "an address such as me@example.org",
            )
        }
        TopicProtocol::Command => (!endpoint.is_empty(), "the name of a command of shoal.toml's [notifications]"),
    };
    if is_right && is_clean && endpoint.len() <= 2048 {
        return Ok(());
    }
    Err(invalid("Endpoint", &format!("the protocol {} needs {wanted}", protocol.name())))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConfirmSubscriptionRequest {
    topic_arn: String,
    token: String,
    authenticate_on_unsubscribe: Option<String>,
}

impl Input for ConfirmSubscription {
    fn read(call: Call) -> Result<Self, Error> {
        let request: ConfirmSubscriptionRequest = read(call.input)?;
        Ok(Self {
            topic_arn: request.topic_arn,
            token: request.token,
            authenticate_on_unsubscribe: request.authenticate_on_unsubscribe.as_deref() == Some("true"),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PublishRequest {
    topic_arn: Option<String>,
    target_arn: Option<String>,
    phone_number: Option<Value>,
    message: String,
    subject: Option<String>,
    message_structure: Option<String>,
    #[serde(default)]
    message_attributes: BTreeMap<String, AttributeRequest>,
    message_deduplication_id: Option<Value>,
    message_group_id: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AttributeRequest {
    data_type: String,
    string_value: Option<String>,
    binary_value: Option<String>,
}

impl Input for Publish {
    fn read(call: Call) -> Result<Self, Error> {
        let request: PublishRequest = read(call.input)?;
        if request.phone_number.is_some() {
            return Err(invalid("PhoneNumber", "Shoal sends no SMS: publish to a topic"));
        }
        if request.message_deduplication_id.is_some() || request.message_group_id.is_some() {
            return Err(invalid("MessageGroupId", "it is for FIFO topics, which Shoal does not have"));
        }
        let ((Some(topic_arn), None) | (None, Some(topic_arn))) = (request.topic_arn, request.target_arn) else {
            return Err(invalid("TopicArn or TargetArn", "give exactly one of them"));
        };
        let sizes = request.message_attributes.iter().map(|(name, it)| {
            let value = it.string_value.as_ref().or(it.binary_value.as_ref());
            name.len() + it.data_type.len() + value.map_or(0, String::len)
        });
        if request.message.len() + sizes.sum::<usize>() > MAX_MESSAGE_BYTES {
            return Err(invalid("Message", "Message too long: 262144 bytes with its attributes are allowed"));
        }
        if request.message.is_empty() {
            return Err(invalid("Message", "Empty message"));
        }
        request.subject.iter().try_for_each(|subject| check_subject(subject))?;
        let (text, by_protocol) = texts(request.message, request.message_structure.as_deref())?;
        let attribute = |(name, it): (String, AttributeRequest)| Ok((name.clone(), it.check(&name)?));
        let attributes = request.message_attributes.into_iter().map(attribute).collect::<Result<_, Error>>()?;
        Ok(Self { topic_arn, message: PublishedMessage { subject: request.subject, text, by_protocol, attributes } })
    }
}

fn check_subject(subject: &str) -> Result<(), Error> {
    let starts = subject.chars().next().is_some_and(|letter| letter.is_ascii_graphic());
    if starts
        && subject.len() <= MAX_SUBJECT
        && subject.chars().all(|letter| letter == ' ' || letter.is_ascii_graphic())
    {
        return Ok(());
    }
    Err(invalid("Subject", "it has 1 to 100 ASCII characters without line breaks, and begins with no space"))
}

/// The text for all, and those of protocols.
fn texts(message: String, structure: Option<&str>) -> Result<(String, BTreeMap<String, String>), Error> {
    match structure {
        None | Some("") => Ok((message, BTreeMap::new())),
        Some("json") => {
            let parsed: Result<BTreeMap<String, Value>, _> = serde_json::from_str(&message);
            let mut texts = parsed.map_err(|error| {
                invalid("Message Structure", &format!("JSON message body failed to parse: {error}"))
            })?;
            let default = texts.remove("default");
            let Some(default) = default.as_ref().and_then(Value::as_str) else {
                return Err(invalid("Message Structure", "No default entry in JSON message body"));
            };
            let of_protocol = |(name, text): (String, Value)| Some((name, text.as_str()?.to_owned()));
            Ok((default.to_owned(), texts.into_iter().filter_map(of_protocol).collect()))
        }
        Some(_) => Err(invalid("MessageStructure", "it is json, or is left out")),
    }
}

impl AttributeRequest {
    fn check(self, name: &str) -> Result<MessageAttribute, Error> {
        let kind = self.data_type.split('.').next().unwrap_or_default();
        let value = match (kind, self.string_value, self.binary_value) {
            ("String" | "Number", Some(text), None) if !text.is_empty() => Some(text),
            ("Binary", None, Some(bytes)) if !bytes.is_empty() => Some(bytes),
            _ => None,
        };
        let why = format!(
            "the message attribute {name} must have the data type String, Number or Binary, and a StringValue, or \
             BinaryValue for Binary"
        );
        Ok(MessageAttribute { kind: self.data_type, value: value.ok_or_else(|| invalid("MessageAttributes", &why))? })
    }
}

impl Input for TagTopic {
    fn read(call: Call) -> Result<Self, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Request {
            resource_arn: String,
            tags: Vec<Tag>,
        }
        let Request { resource_arn, tags } = read(call.input)?;
        Ok(Self { resource_arn, tags: tags::check(tags)? })
    }
}

fn invalid(member: &str, why: &str) -> Error {
    Error::validation(format!("Invalid parameter: {member} Reason: {why}."))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(operation: &str, input: Value) -> Call {
        let operation = crate::operations().find(|it| it.name == operation).expect("it is served");
        Call { operation, input }
    }

    #[test]
    fn subscriptions_need_an_endpoint_of_their_protocol() {
        let subscribe = |protocol: &str, endpoint: &str| {
            let input = json!({"TopicArn": "t", "Protocol": protocol, "Endpoint": endpoint});
            Subscribe::read(call("Subscribe", input)).map(|it| it.protocol).map_err(|error| error.message)
        };
        for (protocol, endpoint, expected) in [
            ("http", "http://x/y", TopicProtocol::Http),
            ("https", "https://x", TopicProtocol::Https),
            ("email", "a@b", TopicProtocol::Email),
            ("email-json", "a@b", TopicProtocol::EmailJson),
            ("command", "page-me", TopicProtocol::Command),
        ] {
            assert_eq!(subscribe(protocol, endpoint), Ok(expected));
            assert_eq!(expected.name(), protocol);
        }
        for (protocol, endpoint, hint) in [
            ("http", "https://x", "begins with http://"),
            ("http", "http://", "begins with http://"),
            ("https", "https://a b", "begins with https://"),
            ("email", "me", "an address"),
            ("email", "me@x\r\nBcc: you@y", "an address"),
            ("command", "", "the name of a command"),
            ("sqs", "arn", "Shoal delivers by"),
            ("sms", "+1", "Shoal delivers by"),
        ] {
            let message = subscribe(protocol, endpoint).expect_err(hint);
            assert!(message.contains(hint), "{message}");
        }
    }

    #[test]
    fn messages_may_differ_by_protocol() {
        let publish = |changes: Value| {
            let mut input = json!({"TopicArn": "t", "Message": "hello"});
            changes.as_object().unwrap().iter().for_each(|(name, value)| input[name] = value.clone());
            Publish::read(call("Publish", input)).map(|it| it.message).map_err(|error| error.message)
        };
        assert_eq!(publish(json!({})).unwrap().text_for(TopicProtocol::Http), "hello");
        let both = json!({"default": "all", "email": "dear"}).to_string();
        let message = publish(json!({"Message": both, "MessageStructure": "json"})).unwrap();
        assert_eq!([TopicProtocol::Http, TopicProtocol::Email].map(|it| message.text_for(it)), ["all", "dear"]);
        let attribute = json!({"a": {"DataType": "Number.x", "StringValue": "4"}});
        assert_eq!(publish(json!({"MessageAttributes": attribute})).unwrap().attributes["a"].value, "4");
        for (changes, hint) in [
            (json!({"MessageStructure": "json"}), "failed to parse"),
            (json!({"Message": "{}", "MessageStructure": "json"}), "No default entry"),
            (json!({"MessageStructure": "xml"}), "it is json"),
            (json!({"Subject": "a\nb"}), "100 ASCII"),
            (json!({"Subject": "x".repeat(101)}), "100 ASCII"),
            (json!({"Message": "x".repeat(262_145)}), "too long"),
            (json!({"Message": ""}), "Empty"),
            (json!({"TargetArn": "t"}), "exactly one"),
            (json!({"PhoneNumber": "+1"}), "no SMS"),
            (json!({"MessageGroupId": "g"}), "FIFO"),
            (json!({"MessageAttributes": {"a": {"DataType": "String"}}}), "attribute a"),
        ] {
            let message = publish(changes.clone()).expect_err(hint);
            assert!(message.contains(hint), "{changes}: {message}");
        }
    }

    #[test]
    fn topics_have_plain_names_and_few_attributes() {
        let create = |input: Value| CreateTopic::read(call("CreateTopic", input)).map_err(|error| error.message);
        assert_eq!(create(json!({"Name": "a-B_9", "Attributes": {"DisplayName": "d"}})).unwrap().attributes.len(), 1);
        for (input, hint) in [
            (json!({"Name": "a b"}), "1 to 256"),
            (json!({"Name": ""}), "1 to 256"),
            (json!({"Name": "a.fifo"}), "no FIFO"),
            (json!({"Name": "a", "Attributes": {"KmsMasterKeyId": "k"}}), "no attribute KmsMasterKeyId"),
            (json!({"Name": "a", "DataProtectionPolicy": "{}"}), "DataProtectionPolicy"),
        ] {
            let message = create(input.clone()).expect_err(hint);
            assert!(message.contains(hint), "{input}: {message}");
        }
    }
}
