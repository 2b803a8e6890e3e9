"""Text or bytes from one thread to another."""

import threading


class Pipe:
    """What one thread writes, others read: strings or bytes. A write waits until what was
    written before is read; a read waits for a write, and is None after `close`.
    """

    def __init__(self):
        self._changed = threading.Condition()
        self._content = None
        self._closed = False

    def write(self, buf) -> None:
        """Waits for its turn, and lets others read it; `RuntimeError` once the pipe is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._content is None or self._closed)
            if self._closed:
                raise RuntimeError("Pipe is closed")
            self._content = buf
            self._changed.notify_all()

    def read(self, length: int = -1):
        """What was written, at most `length` of it where that is more than 0; None when the pipe
        is closed and empty.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._content is not None or self._closed)
            if self._content is None:
                return None
            if 0 < length < len(self._content):
                part, self._content = self._content[:length], self._content[length:]
                return part
            part, self._content = self._content, None
            self._changed.notify_all()
            return part

    def flush(self) -> None:
        """Nothing: what is written can be read at once."""

    def close(self) -> None:
        """No more is written; what was can still be read."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
