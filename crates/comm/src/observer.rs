//! Who is told that a thread's operations wait, where that is not the group's own affair: operations by name know their tensors.

use std::{cell::RefCell, rc::Rc, time::Duration};

/// Who wants to know that this thread's operations wait, in the place of whom the group tells.
pub(crate) trait Observer {
    /// Whether to ask again: how long an operation has waited then.
    fn after(&self) -> Duration;

    /// An operation has waited so long for these ranks. Whether it is to fail, as if its deadline had come.
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
