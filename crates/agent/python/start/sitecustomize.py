"""Python imports this when it starts. Where the job has Debugger's configuration, the hook attaches
itself to the frameworks that the program imports (`smdebug.automatic`), and where it has the
profiler's, its steps are timed (`smdebug.profiler`); else nothing happens.
"""

import os
import sys
from _thread import get_ident

_CONFIG = os.environ.get("SMDEBUG_CONFIG_FILE_PATH", "/opt/ml/input/config/debughookconfig.json")
_PROFILER = os.environ.get("SMPROFILER_CONFIG_PATH", "/opt/ml/input/config/profilerconfig.json")
#: The keys of `smdebug.automatic.FRAMEWORKS`, which is not imported before one of them is.
_DEBUGGED = {"keras", "sklearn", "tf_keras", "torch", "xgboost"}
#: The keys of `smdebug.profiler.FRAMEWORKS`.
_PROFILED = {
    "horovod.torch.handles",
    "keras",
    "shoal.torch.collectives",
    "shoal.torch.work",
    "tf_keras",
    "torch",
    "xgboost",
}
#: What attaches to which modules that are not imported yet.
_FRAMEWORKS = {}


class _Loader:
    """Loads a framework as its own loader does, then attaches the hook."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        """What the framework's own loader makes."""
        return self._loader.create_module(spec)

    def exec_module(self, module):
        """Runs the framework's code; from then on nothing has this loader."""
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        for package in _FRAMEWORKS.pop(module.__name__, ()):
            __import__(package, fromlist=["attach"]).attach(module)


class _Finder:
    """Finds frameworks by the other finders, as often as they are looked for: tensorflow looks where
    Keras is before it imports it.
    """

    #: What threads look for at present: finders that ask all finders get no answer of this one.
    finding = set()

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Where a framework is; nothing for other modules."""
        mark = (name, get_ident())
        if name not in _FRAMEWORKS or mark in _Finder.finding:
            return None
        _Finder.finding.add(mark)
        try:
            for finder in sys.meta_path:
                spec = None if finder is _Finder else finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader)
                    return spec
            return None
        finally:
            _Finder.finding.discard(mark)


def _run_next():
    """Runs the one that Python would have found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry) != here]
    for finder in sys.meta_path:
        if getattr(finder, "__name__", "") == "PathFinder":
            spec = finder.find_spec(__name__, others)
            if spec is not None and spec.loader is not None:
                module = type(sys)(__name__)
                module.__spec__, module.__file__ = spec, spec.origin
                sys.modules[__name__] = module
                spec.loader.exec_module(module)


if os.environ.get("USE_SMDEBUG", "").lower() not in ("0", "false"):
    for _file, _names, _package in (
        (_CONFIG, _DEBUGGED, "smdebug.automatic"),
        (_PROFILER, _PROFILED, "smdebug.profiler"),
    ):
        for _name in _names if os.path.exists(_file) else ():
            _FRAMEWORKS.setdefault(_name, []).append(_package)
    if _FRAMEWORKS:
        sys.meta_path.insert(0, _Finder)
_run_next()
