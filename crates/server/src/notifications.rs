//! Notifications: topics, who subscribes to them, and the deliveries of what is published.
//!
//! A message is a row, written in the transaction of what it is about. Another transaction replaces
//! it by one delivery for each confirmed subscription, and each delivery is attempted until its row
//! has its end. So a server that is killed at any moment loses no message and makes none
//! twice; a receiver may get one twice, if the server is killed between the receiver's answer and
//! the row.

mod deliverer;
mod delivery;
pub(crate) mod fan_out;
mod job_states;
mod journal;
mod mail;
mod message;
mod post;
mod program;
pub(crate) mod rows;

pub(crate) use self::{
    deliverer::Deliverer,
    delivery::Transport,
    job_states::JobStates,
    journal::watch,
    message::{Message, TopicArn, message_id},
    rows::TOPIC,
};
