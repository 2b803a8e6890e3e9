//! What ranks say to each other on control connections. Pure: bytes in, messages out.

use crate::{
    guard::Fault,
    rendezvous::{
        Member,
        frame::{self, Fields, Frame, put_bytes},
    },
};

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// A sign of life.
    Beat,
    /// Another rank is lost, by its number in the first formation; silent for so long, or gone in
    /// that way.
    Lost { node: u32, silent: Option<u64>, how: String },
    /// The receiver was taken for hung and is no part of the group any more.
    Expelled { milliseconds: u64 },
    /// The sender has done all that it wanted, and ends.
    Bye,
    /// Something that ends the work of the group of that epoch; ranks are those of the group.
    Fault { epoch: u64, fault: Fault },
    /// What the sender called in a dispute of these members of that epoch's group.
    Call { epoch: u64, members: Vec<u32>, text: Option<String> },
    /// The sender has waited long in an operation of these members; what it called, as a number.
    Waits { epoch: u64, waiting: Waiting },
    /// The sender wants to form the group anew; the highest epoch that it knows of, and whether it
    /// waits for replacements.
    Ready { epoch: u64, rejoin: bool },
    /// A rank as it is now, before the `Form` that names it; whether it is a replacement that is
    /// taken in by that.
    Newcomer { epoch: u64, fresh: bool, member: Member },
    /// The leader's proposal: these nodes under that epoch.
    Form { epoch: u64, nodes: Vec<u32> },
    /// The sender has all connections of that epoch.
    Formed { epoch: u64 },
    /// All have.
    Go { epoch: u64 },
}

/// An operation in which a rank waits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Waiting {
    /// The group within the epoch's group, by numbers there.
    pub(crate) members: Vec<u32>,
    /// Which operation.
    pub(crate) number: u64,
    /// Sender and receiver where it is a message, by numbers within `members`.
    pub(crate) between: Option<(u32, u32)>,
    /// What was called.
    pub(crate) signature: u64,
}

/// How deep groups may be split off from each other in one fault.
const DEPTH: usize = 16;

fn put_list(out: &mut Vec<u8>, list: impl ExactSizeIterator<Item = u32>) {
    out.extend(u16::try_from(list.len()).expect("at most 1024 ranks").to_le_bytes());
    list.for_each(|item| out.extend(item.to_le_bytes()));
}

fn list(fields: &mut Fields<'_>) -> Option<Vec<u32>> {
    let count = fields.u16()?;
    (0..count).map(|_| fields.u32()).collect()
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // Cut where a text is longer than anybody reads, at a character's end.
    let end = (0..=text.len().min(4000)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    put_bytes(out, &text.as_bytes()[..end]);
}

fn put_fault(out: &mut Vec<u8>, fault: &Fault) {
    let rank = |rank: usize| u32::try_from(rank).expect("at most 1024 ranks").to_le_bytes();
    match fault {
        Fault::Died { rank: who, how } => {
            out.push(1);
            out.extend(rank(*who));
            put_text(out, how);
        }
        Fault::Hung { rank: who, milliseconds } => {
            out.push(2);
            out.extend(rank(*who));
            out.extend(milliseconds.to_le_bytes());
        }
        Fault::GaveUp { rank: who, why } => {
            out.push(3);
            out.extend(rank(*who));
            put_text(out, why);
        }
        Fault::Dispute { number, between } => {
            out.push(4);
            out.extend(number.to_le_bytes());
            out.push(u8::from(between.is_some()));
            let (sender, receiver) = between.unwrap_or_default();
            out.extend(rank(sender));
            out.extend(rank(receiver));
        }
        Fault::Revoked => out.push(5),
        Fault::Within { members, fault } => {
            out.push(6);
            put_list(out, members.iter().map(|member| u32::from_le_bytes(rank(*member))));
            put_fault(out, fault);
        }
    }
}

fn fault(fields: &mut Fields<'_>, depth: usize) -> Option<Fault> {
    let kind = fields.byte()?;
    Some(match kind {
        1 => Fault::Died { rank: fields.u32()? as usize, how: fields.text()? },
        2 => Fault::Hung { rank: fields.u32()? as usize, milliseconds: fields.u64()? },
        3 => Fault::GaveUp { rank: fields.u32()? as usize, why: fields.text()? },
        4 => {
            let number = fields.u64()?;
            let is_between = flag(fields)?;
            let (sender, receiver) = (fields.u32()? as usize, fields.u32()? as usize);
            Fault::Dispute { number, between: is_between.then_some((sender, receiver)) }
        }
        5 => Fault::Revoked,
        6 if depth > 0 => {
            let members = list(fields)?.into_iter().map(|member| member as usize).collect();
            Fault::Within { members, fault: Box::new(fault(fields, depth - 1)?) }
        }
        _ => return None,
    })
}

fn flag(fields: &mut Fields<'_>) -> Option<bool> {
    match fields.byte()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

impl Message {
    /// As a frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let kind = match self {
            Self::Beat => 1,
            Self::Lost { node, silent, how } => {
                out.extend(node.to_le_bytes());
                out.push(u8::from(silent.is_some()));
                out.extend(silent.unwrap_or_default().to_le_bytes());
                put_text(&mut out, how);
                2
            }
            Self::Expelled { milliseconds } => {
                out.extend(milliseconds.to_le_bytes());
                3
            }
            Self::Bye => 4,
            Self::Fault { epoch, fault } => {
                out.extend(epoch.to_le_bytes());
                put_fault(&mut out, fault);
                5
            }
            Self::Call { epoch, members, text } => {
                out.extend(epoch.to_le_bytes());
                put_list(&mut out, members.iter().copied());
                out.push(u8::from(text.is_some()));
                put_text(&mut out, text.as_deref().unwrap_or_default());
                6
            }
            Self::Waits { epoch, waiting } => {
                out.extend(epoch.to_le_bytes());
                put_list(&mut out, waiting.members.iter().copied());
                out.extend(waiting.number.to_le_bytes());
                out.push(u8::from(waiting.between.is_some()));
                let (sender, receiver) = waiting.between.unwrap_or_default();
                out.extend(sender.to_le_bytes());
                out.extend(receiver.to_le_bytes());
                out.extend(waiting.signature.to_le_bytes());
                7
            }
            Self::Ready { epoch, rejoin } => {
                out.extend(epoch.to_le_bytes());
                out.push(u8::from(*rejoin));
                8
            }
            Self::Newcomer { epoch, fresh, member } => {
                out.extend(epoch.to_le_bytes());
                out.push(u8::from(*fresh));
                put_bytes(&mut out, &member.encode());
                9
            }
            Self::Form { epoch, nodes } => {
                out.extend(epoch.to_le_bytes());
                put_list(&mut out, nodes.iter().copied());
                10
            }
            Self::Formed { epoch } => {
                out.extend(epoch.to_le_bytes());
                11
            }
            Self::Go { epoch } => {
                out.extend(epoch.to_le_bytes());
                12
            }
        };
        frame::encode(kind, &out)
    }

    /// Reads one; `None` if it is none that we know.
    pub(crate) fn decode(frame: &Frame) -> Option<Self> {
        let mut fields = Fields(&frame.payload);
        let message = match frame.kind {
            1 => Self::Beat,
            2 => {
                let node = fields.u32()?;
                let is_silent = flag(&mut fields)?;
                let silent = fields.u64()?;
                Self::Lost { node, silent: is_silent.then_some(silent), how: fields.text()? }
            }
            3 => Self::Expelled { milliseconds: fields.u64()? },
            4 => Self::Bye,
            5 => Self::Fault { epoch: fields.u64()?, fault: fault(&mut fields, DEPTH)? },
            6 => {
                let (epoch, members, has_text) = (fields.u64()?, list(&mut fields)?, flag(&mut fields)?);
                let text = fields.text()?;
                Self::Call { epoch, members, text: has_text.then_some(text) }
            }
            7 => {
                let (epoch, members, number) = (fields.u64()?, list(&mut fields)?, fields.u64()?);
                let is_between = flag(&mut fields)?;
                let pair = (fields.u32()?, fields.u32()?);
                let signature = fields.u64()?;
                Self::Waits {
                    epoch,
                    waiting: Waiting { members, number, between: is_between.then_some(pair), signature },
                }
            }
            8 => Self::Ready { epoch: fields.u64()?, rejoin: flag(&mut fields)? },
            9 => Self::Newcomer {
                epoch: fields.u64()?,
                fresh: flag(&mut fields)?,
                member: Member::decode(fields.bytes()?)?,
            },
            10 => Self::Form { epoch: fields.u64()?, nodes: list(&mut fields)? },
            11 => Self::Formed { epoch: fields.u64()? },
            12 => Self::Go { epoch: fields.u64()? },
            _ => return None,
        };
        fields.end()?;
        Some(message)
    }
}

/// For fuzzing: what comes over a control connection, in any pieces, is read or refused.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_control(bytes: &[u8]) -> usize {
    let mut decoder = frame::Decoder::default();
    let mut read = 0;
    for part in bytes.chunks(7) {
        decoder.push(part);
        while let Ok(Some(frame)) = decoder.next() {
            if let Some(message) = Message::decode(&frame) {
                let mut again = frame::Decoder::default();
                again.push(&message.encode());
                let frame = again.next().expect("bounded").expect("whole");
                assert_eq!(Message::decode(&frame), Some(message), "what was read can be said");
                read += 1;
            }
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<Message> {
        let dispute = Fault::Dispute { number: 4, between: Some((1, 2)) };
        let within = Fault::Within { members: vec![0, 2], fault: Box::new(dispute.clone()) };
        let member = Member {
            rank: 1,
            size: 2,
            incarnation: 3,
            address: "[::1]:5".parse().unwrap(),
            host: "h".into(),
            pid: 6,
            pid_namespace: 7,
            heartbeat: 500,
        };
        let mut all = vec![
            Message::Beat,
            Message::Lost { node: 3, silent: None, how: "gone".into() },
            Message::Lost { node: 3, silent: Some(450), how: String::new() },
            Message::Expelled { milliseconds: 9 },
            Message::Bye,
            Message::Call { epoch: 1, members: vec![0, 1], text: Some("barrier".into()) },
            Message::Call { epoch: 1, members: vec![], text: None },
            Message::Waits {
                epoch: 2,
                waiting: Waiting { members: vec![1], number: 5, between: Some((0, 1)), signature: u64::MAX },
            },
            Message::Ready { epoch: 1, rejoin: true },
            Message::Newcomer { epoch: 2, fresh: true, member },
            Message::Form { epoch: 2, nodes: vec![0, 2, 3] },
            Message::Formed { epoch: 2 },
            Message::Go { epoch: 2 },
        ];
        let died = Fault::Died { rank: 1, how: "x".into() };
        for fault in [
            died,
            Fault::Hung { rank: 0, milliseconds: 1 },
            Fault::GaveUp { rank: 2, why: "y".into() },
            dispute,
            Fault::Revoked,
            within,
        ] {
            all.push(Message::Fault { epoch: 8, fault });
        }
        all
    }

    #[test]
    fn messages_come_back_and_cut_ones_do_not() {
        for message in examples() {
            let bytes = message.encode();
            let mut decoder = frame::Decoder::default();
            decoder.push(&bytes);
            let frame = decoder.next().unwrap().unwrap();
            assert_eq!(Message::decode(&frame), Some(message));
            for cut in 0..frame.payload.len() {
                assert_eq!(Message::decode(&Frame { kind: frame.kind, payload: frame.payload[..cut].to_vec() }), None);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused() {
        // A generator of its own, so that a failure can be repeated.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..20_000_u32 {
            let payload: Vec<u8> = (0..round % 67)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Small numbers are likelier to be lengths and kinds.
                    let byte = (state >> 56) as u8;
                    if byte & 1 == 0 { byte >> 5 } else { byte }
                })
                .collect();
            let frame = Frame { kind: (round % 14) as u8, payload };
            if let Some(message) = Message::decode(&frame) {
                assert_eq!(message.encode()[5..], frame.payload, "round {round}: {message:?}");
            }
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let mut payload = 1_u64.to_le_bytes().to_vec();
        (0..20_000).for_each(|_| payload.extend([6, 0, 0]));
        assert_eq!(Message::decode(&Frame { kind: 5, payload }), None);
    }
}
