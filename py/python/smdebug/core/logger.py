"""The library's log: lines on stderr, as AWS's are."""

import logging
import os
import sys

_FORMAT = "[%(asctime)s.%(msecs)03d %(name)s:%(process)d %(levelname)s %(filename)s:%(lineno)d] %(message)s"


def get_logger(name: str = "smdebug") -> logging.Logger:
    """The logger, with a handler of its own; `SMDEBUG_LOG_LEVEL` is its level."""
    logger = logging.getLogger(name)
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(_FORMAT, "%Y-%m-%d %H:%M:%S"))
        logger.addHandler(handler)
        logger.setLevel(os.environ.get("SMDEBUG_LOG_LEVEL", "INFO").upper())
        logger.propagate = False
    return logger
