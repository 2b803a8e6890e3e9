//! Messages of two ranks as they come: what each transport has of its own, and what `front::inbox`
//! makes of it.

use std::fmt;
use std::time::Duration;

use crate::guard::Guard;
use crate::timeline::Way;
use crate::{Call, Error};

/// What a sender says of a message before its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) bytes: usize,
    pub(crate) tag: u32,
    /// Half of the call's signature: type, length and epoch, in which both sides must agree.
    pub(crate) signature: u32,
}

impl Label {
    /// Of a message as either side calls it.
    pub(crate) fn of(call: &Call, epoch: u64) -> Self {
        let signature = call.signature(epoch);
        let tag = call.kind.tag().unwrap_or_default();
        Self { bytes: call.len * call.dtype.size(), tag, signature: (signature ^ (signature >> 32)) as u32 }
    }

    pub(crate) const fn words(self) -> [u64; 2] {
        [self.bytes as u64, (self.tag as u64) << 32 | self.signature as u64]
    }

    pub(crate) const fn of_words([bytes, rest]: [u64; 2]) -> Self {
        Self { bytes: bytes as usize, tag: (rest >> 32) as u32, signature: rest as u32 }
    }
}

/// The messages of a group. Those of one sender come in the order in which they were sent, one
/// after the other: label, then bytes. Which receive gets one is not decided here; one at a time
/// asks for those of a sender.
#[expect(unsafe_code, reason = "calls are addresses")]
pub(crate) trait Wire: Send + Sync + fmt::Debug {
    /// Sends the call's message, which has that label. A small one should not wait for its
    /// receiver, a large one may. Those to one rank come one after the other.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`].
    unsafe fn send(&self, to: usize, call: &Call, label: Label, guard: &Guard<'_>) -> Result<(), Error>;

    /// The label of the next message of that rank, once, if it has come and all bytes of the one
    /// before were taken. Waits for nothing.
    fn next(&self, from: usize, guard: &Guard<'_>) -> Result<Option<Label>, Error>;

    /// Takes some of the `left` bytes (at least one) of the message whose label came last to
    /// `target`; how many. Waits for nothing.
    ///
    /// # Safety
    /// `left` bytes at `target` may be written.
    unsafe fn take(&self, from: usize, target: *mut u8, left: usize, guard: &Guard<'_>) -> Result<usize, Error>;

    /// For how long it is worth looking again and again before [`Wire::pause`] for a message of
    /// those ranks; none: the guard's own pace.
    fn awake(&self, from: &[usize]) -> Option<Duration>;

    /// Sleeps that long, or until something may have come of those ranks.
    fn pause(&self, from: &[usize], time: Duration);

    /// How a message of that rank comes, for the timeline.
    fn way(&self, _from: usize) -> Way {
        Way::Only
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Kind};

    #[test]
    fn both_sides_of_a_message_have_one_label() {
        let call = |kind| Call::new(kind, DType::F32, std::ptr::null(), std::ptr::null_mut(), 5);
        let label = Label::of(&call(Kind::Send { to: 1, tag: u32::MAX }), 3);
        assert_eq!((label.bytes, label.tag), (20, u32::MAX));
        assert_eq!(Label::of_words(label.words()), label);
        assert_eq!(Label::of(&call(Kind::Recv { from: 0, tag: u32::MAX }), 3), label);
        assert_eq!(Label::of(&call(Kind::RecvAny { tag: u32::MAX }), 3), label);
        let ints = Call { dtype: DType::I32, ..call(Kind::RecvAny { tag: u32::MAX }) };
        assert_ne!(Label::of(&ints, 3), label);
    }
}
