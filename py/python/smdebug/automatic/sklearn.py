"""scikit-learn's estimators have no steps: the log gets a sentence of it, if nothing else was seen. Keras
and XGBoost import scikit-learn, too: then it is not what the program trains.
"""

import atexit
import sys

from smdebug import automatic
from smdebug.core.logger import get_logger
from smdebug.core.singleton import get_hook


def attach(sklearn) -> None:
    """Warns at the end of the program that nothing was saved."""

    def warn() -> None:
        others = automatic.FRAMEWORKS.keys() - {"sklearn"}
        if get_hook() is None and not any(name in sys.modules for name in others):
            get_logger().warning(
                f"Debugger's hook has saved nothing: estimators of scikit-learn {sklearn.__version__} are fitted "
                "without steps that it could see. Save numbers of yours with "
                "smdebug.core.writer.FileWriter, or print metrics for metric definitions"
            )

    atexit.register(warn)
