"""What ranks expect of calls that must fail or warn; they run where there is no pytest."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def raises(kind: type[BaseException], match: str = "") -> Iterator[None]:
    """AssertionError unless the block raises such an error, whose text has `match` in it."""
    try:
        yield
    except kind as error:
        assert re.search(match, str(error)), f"{match!r} is not in {error!r}"
        return
    raise AssertionError(f"no {kind.__name__} was raised")


@contextmanager
def warns(kind: type[Warning], match: str = "") -> Iterator[None]:
    """AssertionError unless the block warns so."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield
    texts = [str(it.message) for it in told if issubclass(it.category, kind)]
    assert any(re.search(match, it) for it in texts), f"no {kind.__name__} with {match!r}: {texts}"
