"""scikit-learn's estimators have no steps: the log gets a sentence of it, if nothing else was seen."""

import atexit

from smdebug.core.logger import get_logger
from smdebug.core.singleton import get_hook


def attach(sklearn) -> None:
    """Warns at the end of the program that nothing was saved."""

    def warn() -> None:
        if get_hook() is None:
            get_logger().warning(
                f"Debugger's hook has saved nothing: estimators of scikit-learn {sklearn.__version__} are fitted "
                "without steps that it could see. Save numbers of yours with "
                "smdebug.core.writer.FileWriter, or print metrics for metric definitions"
            )

    atexit.register(warn)
