//! Over a wire whose messages come as a script says.

use super::*;
use crate::{
    DType,
    guard::{Alarm, Stall, Terms},
};

/// Messages of rank 1, which come a few bytes at a time; none after so many bytes.
#[derive(Debug, Default)]
struct Script {
    messages: Mutex<VecDeque<(Label, Vec<u8>)>>,
    most: AtomicU64,
}

impl Script {
    fn new(messages: &[(u32, Vec<u8>)]) -> Self {
        let label = |tag: u32, bytes: &[u8]| {
            Label::of(
                &Call::new(Kind::RecvAny { tag }, DType::U8, bytes.as_ptr(), std::ptr::null_mut(), bytes.len()),
                0,
            )
        };
        let messages = messages.iter().map(|(tag, bytes)| (label(*tag, bytes), bytes.clone())).collect();
        Self { messages: Mutex::new(messages), most: AtomicU64::new(u64::MAX) }
    }
}

impl Wire for Script {
    unsafe fn send(&self, _to: usize, _call: &Call, _label: Label, _guard: &Guard<'_>) -> Result<(), Error> {
        unreachable!("nothing is sent here")
    }

    fn next(&self, _from: usize, _guard: &Guard<'_>) -> Result<Option<Label>, Error> {
        Ok(self.messages.lock().unwrap().front().map(|(label, _)| *label))
    }

    unsafe fn take(&self, _from: usize, target: *mut u8, left: usize, _guard: &Guard<'_>) -> Result<usize, Error> {
        let mut messages = self.messages.lock().unwrap();
        let count = left.min(7).min(self.most.load(Ordering::Relaxed) as usize);
        self.most.fetch_sub(count as u64, Ordering::Relaxed);
        let bytes = &mut messages.front_mut().unwrap().1;
        let rest = bytes.split_off(count);
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts_mut(target, count) }.copy_from_slice(bytes);
        *bytes = rest;
        if left == count {
            messages.pop_front();
        }
        Ok(count)
    }

    fn awake(&self, _from: &[usize]) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn pause(&self, _from: &[usize], time: Duration) {
        std::thread::sleep(time);
    }
}

/// What a receive of rank 0 with that tag gets within a moment.
fn receive(inbox: &Inbox, script: &Script, kind: Kind, target: &mut [u8]) -> Result<usize, Error> {
    let call = Call::new(kind, DType::U8, std::ptr::null(), target.as_mut_ptr(), target.len());
    let (alarm, stall) = (Alarm::default(), Stall::default());
    let terms =
        Terms { epoch: 0, alarm: &alarm, limit: Duration::from_millis(20), spins: 0, stall: &stall, watch: None };
    let slot = inbox.slot(&call, 0, None);
    // SAFETY: the target is borrowed until the wait is over, after which nobody has the slot.
    unsafe { inbox.post(&slot, script) };
    inbox.wait(&slot, script, &Guard::new(&call, 0, slot.number, &terms))
}

#[test]
fn what_is_kept_is_bounded_and_room_lets_the_next_come() {
    let mut messages: Vec<_> = (0..5).map(|i| (1, vec![i; 100])).collect();
    messages.push((2, vec![9; 50]));
    let (inbox, script) = (Inbox::new(0, 2, 3 * (100 + ENTRY)), Script::new(&messages));
    let mut target = vec![0; 50];
    let error = receive(&inbox, &script, Kind::Recv { from: 1, tag: 2 }, &mut target).unwrap_err().to_string();
    assert!(error.contains("rank 1 has sent messages of tag 1 that nobody receives, as much as is kept"), "{error}");
    assert_eq!(script.messages.lock().unwrap().len(), 3, "three are kept, one of the others has begun");
    let mut first = vec![0; 100];
    for (i, kind) in [Kind::Recv { from: 1, tag: 1 }, Kind::RecvAny { tag: 1 }, Kind::Recv { from: 1, tag: 1 }]
        .into_iter()
        .enumerate()
    {
        assert_eq!((receive(&inbox, &script, kind, &mut first), &first), (Ok(1), &vec![i as u8; 100]));
    }
    assert_eq!((receive(&inbox, &script, Kind::RecvAny { tag: 2 }, &mut target), target), (Ok(1), vec![9; 50]));
    assert_eq!(inbox.matching().used, [0, 2 * (100 + ENTRY)]);
}

#[test]
fn a_message_of_any_length_is_kept_where_there_is_room() {
    let script = Script::new(&[(1, vec![3; 1000]), (2, vec![4; 5])]);
    let inbox = Inbox::new(0, 2, 10);
    let mut target = vec![0; 1000];
    // What is received needs none behind it.
    assert_eq!(receive(&inbox, &script, Kind::RecvAny { tag: 2 }, &mut target[..5]), Ok(1));
    assert_eq!((receive(&inbox, &script, Kind::RecvAny { tag: 1 }, &mut target), target), (Ok(1), vec![3; 1000]));
}

#[test]
fn memory_of_a_receive_that_is_over_is_touched_by_nobody() {
    let script = Script::new(&[(1, vec![3; 100])]);
    script.most.store(40, Ordering::Relaxed);
    let inbox = Inbox::new(0, 2, ROOM);
    let mut target = vec![0; 100];
    assert!(matches!(
        receive(&inbox, &script, Kind::Recv { from: 1, tag: 1 }, &mut target),
        Err(Error::Deadline { .. })
    ));
    assert_eq!(target.iter().filter(|byte| **byte == 3).count(), 40);
    script.most.store(u64::MAX, Ordering::Relaxed);
    assert!(receive(&inbox, &script, Kind::RecvAny { tag: 5 }, &mut [0; 5]).is_err());
    assert_eq!(target.iter().filter(|byte| **byte == 3).count(), 40, "the inlet is closed");
    assert!(inbox.matching().posted.is_empty());
}

#[test]
fn a_receive_posted_while_its_message_is_being_kept_gets_it() {
    let script = Script::new(&[(1, vec![3; 100])]);
    script.most.store(40, Ordering::Relaxed);
    let inbox = Inbox::new(0, 2, ROOM);
    assert!(receive(&inbox, &script, Kind::RecvAny { tag: 5 }, &mut [0; 5]).is_err());
    let mut target = vec![0; 100];
    assert!(receive(&inbox, &script, Kind::RecvAny { tag: 1 }, &mut target).is_err(), "the rest does not come");
    script.most.store(u64::MAX, Ordering::Relaxed);
    assert_eq!((receive(&inbox, &script, Kind::Recv { from: 1, tag: 1 }, &mut target), target), (Ok(1), vec![3; 100]));
}
