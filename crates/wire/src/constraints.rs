//! The constraint table: what the service models say of each operation's input. The tables below this module are generated.

mod iam;
mod logs;
mod sagemaker;
mod sts;

use crate::Service;
pub(crate) use crate::pattern::Pattern;

/// A shape of a service model, with its limits. Sizes and lengths are inclusive.
#[derive(Debug)]
pub(crate) enum Shape {
    Structure(&'static [Member]),
    String { min: u64, max: u64, pattern: Option<Pattern> },
    Enum(&'static [&'static str]),
    List { min: u64, max: u64, member: &'static Self },
    Map { min: u64, max: u64, key: &'static Self, value: &'static Self },
    Integer { bits: u8, min: i64, max: i64 },
    Boolean,
    Timestamp,
}

/// A member of a structure.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    pub(crate) shape: &'static Shape,
}

/// The input of an operation; `None` if the table does not have the operation.
pub(crate) fn input(service: Service, operation: &str) -> Option<&'static Shape> {
    let operations = match service {
        Service::SageMaker => sagemaker::OPERATIONS,
        Service::Logs => logs::OPERATIONS,
        Service::Sts => sts::OPERATIONS,
        Service::Iam => iam::OPERATIONS,
        Service::S3 | Service::CloudWatch => &[],
    };
    operations.iter().find(|(name, _)| *name == operation).map(|(_, shape)| *shape)
}
