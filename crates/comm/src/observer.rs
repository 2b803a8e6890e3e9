//! Replaces a group's stall message on one thread: operations by name add the names of tensors.

use std::{cell::RefCell, rc::Rc, time::Duration};

/// Hears that this thread's operations wait, instead of the group's own stall message.
pub(crate) trait Observer {
    /// After how long a wait it is asked.
    fn after(&self) -> Duration;

    /// An operation has waited so long for these ranks; whether it fails with a deadline error.
    fn waits(&self, waited: Duration, missing: &[usize]) -> bool;
}

thread_local! {
    static OBSERVER: RefCell<Option<Rc<dyn Observer>>> = const { RefCell::new(None) };
}

/// This thread's, if it has one.
pub(crate) fn current() -> Option<Rc<dyn Observer>> {
    OBSERVER.with_borrow(Clone::clone)
}

/// Does something on this thread whose waits are told to the observer.
pub(crate) fn observed<R>(observer: Rc<dyn Observer>, then: impl FnOnce() -> R) -> R {
    let _before = Before(OBSERVER.replace(Some(observer)));
    then()
}

/// Who was told before; told again when this is dropped, also by a panic.
struct Before(Option<Rc<dyn Observer>>);

impl Drop for Before {
    fn drop(&mut self) {
        OBSERVER.set(self.0.take());
    }
}
