"""What is registered on modules: it is no part of them when they are copied or stored."""

import contextlib


class Callback:
    """Calls a function. Copies and pickles have a function of Python's own in its place that does
    nothing: whoever loads a stored model needs nothing of this library.
    """

    def __init__(self, function, *first):
        self._function, self._first = function, first

    def __call__(self, *args):
        return self._function(*self._first, *args)

    def __reduce__(self):
        return getattr, (contextlib.nullcontext(), "__exit__")
