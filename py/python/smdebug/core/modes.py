"""What a step is of."""

from enum import Enum


class ModeKeys(Enum):
    """A step is of one of these; steps of all modes together are numbered as `GLOBAL`."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4


ALLOWED_MODES = list(ModeKeys)
ALLOWED_MODE_NAMES = [mode.name for mode in ModeKeys]
#: Names under which a record has its mode and the number of the step in it.
MODE_STEP_PLUGIN_NAME = "mode_step"
MODE_PLUGIN_NAME = "mode"


def str_to_mode_keys(text: str) -> ModeKeys:
    """The mode of that name, in small letters."""
    return ModeKeys[text.upper()]
