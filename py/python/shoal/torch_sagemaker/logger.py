"""The library's logger."""

import logging
import os

__all__ = ["get_logger"]


def get_logger(name: str = "smp") -> logging.Logger:
    """A logger that writes lines with this process's rank to standard error; its level is that
    of SMP_LOG_LEVEL (INFO).
    """
    logger = logging.getLogger(name)
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(
            logging.Formatter(
                f"[%(asctime)s: %(levelname)s] rank {os.environ.get('RANK', '0')}: %(message)s", "%Y-%m-%d %H:%M:%S"
            )
        )
        logger.addHandler(handler)
        logger.setLevel(os.environ.get("SMP_LOG_LEVEL", "INFO").upper())
        logger.propagate = False
    return logger
