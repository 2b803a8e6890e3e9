//! Replaces a group's stall message on one thread, as operations by name do to add the tensors'
//! names.

use std::{cell::RefCell, rc::Rc, time::Duration};

/// Called when this thread's operations wait, instead of the group's own stall message.
pub(crate) trait Observer {
    /// The length of a wait after which it is called.
    fn after(&self) -> Duration;

    /// An operation has `waited` this long for these ranks; true to fail it with a deadline error.
    fn waits(&self, waited: Duration, missing: &[usize]) -> bool;
}

thread_local! {
    static OBSERVER: RefCell<Option<Rc<dyn Observer>>> = const { RefCell::new(None) };
}

/// This thread's observer, if it has one.
pub(crate) fn current() -> Option<Rc<dyn Observer>> {
    OBSERVER.with_borrow(Clone::clone)
}

/// Runs a function on this thread, with its waits reported to the observer.
pub(crate) fn observed<R>(observer: Rc<dyn Observer>, then: impl FnOnce() -> R) -> R {
    let _before = Before(OBSERVER.replace(Some(observer)));
    then()
}

/// The observer before; restored when this is dropped, also by a panic.
struct Before(Option<Rc<dyn Observer>>);

impl Drop for Before {
    fn drop(&mut self) {
        OBSERVER.set(self.0.take());
    }
}
