"""Makes clients that look seldom look oftener: the server is next door.

By themselves, SageMaker's SDKs look at a job every 5 s, at its logs every 10 s, and SDK v2's fit()
looks at the job every 30 s only; botocore's waiters (boto3's, and `aws sagemaker wait`) pause for
up to two minutes. Here every function of the SDKs that has a parameter `poll` gets a short default,
and every waiter a short pause with the same patience. A pace that the user gives goes first.
Modules of the SDKs that are imported later are treated when they come.
"""

import __future__

import ast
import importlib.abc
import inspect
import sys
import textwrap
import types

# Seconds between two looks.
PACE = 0.25
# In the User-Agent: answers to who looks often need not be held back (server/src/api/hold.rs).
MARK = "shoal-polling"
# Where an SDK's function keeps when it last looked at the job, to look again 30 s later.
LAST_LOOK = "last_describe_job_call"


def quicken(client):
    """This client's waiters, and the SDKs of this process."""
    _quicken_waiters(client)
    # Last: botocore's own handler writes the header anew.
    client.meta.events.register_last("request-created.sagemaker", _mark)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        for name, module in list(sys.modules.items()):
            if _is_of_sdk(name):
                _quicken_module(module)


def _mark(request, **_):
    request.headers.replace_header("User-Agent", f"{request.headers['User-Agent']} {MARK}")


def _quicken_waiters(client):
    waiters = getattr(client, "_get_waiter_config", dict)().get("waiters", {})
    for waiter in waiters.values():
        if waiter.get("delay", 0) > PACE:
            waiter["maxAttempts"], waiter["delay"] = int(waiter["maxAttempts"] * waiter["delay"] / PACE), PACE


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the others find modules, and treats those of the SDKs once they are executed."""

    def find_spec(self, name, path, target=None):
        if not _is_of_sdk(name):
            return None
        finders = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next((spec for spec in (finder.find_spec(name, path, target) for finder in finders) if spec), None)
        execute = getattr(spec and spec.loader, "exec_module", None)
        if execute:

            def execute_and_quicken(module):
                execute(module)
                _quicken_module(module)

            spec.loader.exec_module = execute_and_quicken
        return spec


def _is_of_sdk(name):
    return str(name).split(".", 1)[0] in ("sagemaker", "sagemaker_core")


def _quicken_module(module):
    owners = [
        module,
        *(value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__),
    ]
    for value in [value for owner in owners for value in list(vars(owner).values())]:
        function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if not isinstance(function, types.FunctionType):
            continue
        # Beneath its decorators.
        function = inspect.unwrap(function)
        if isinstance(function, types.FunctionType) and _is_of_sdk(function.__module__):
            _shorten_poll(function)
            _look_at_every_turn(function)


def _shorten_poll(function):
    def shortened(name, value):
        return PACE if name == "poll" and isinstance(value, (int, float)) and value > PACE else value

    code, defaults, by_name = function.__code__, function.__defaults__, function.__kwdefaults__
    names = code.co_varnames[: code.co_argcount]
    if "poll" in names and defaults:
        function.__defaults__ = tuple(map(shortened, names[-len(defaults) :], defaults))
    if "poll" in (by_name or ()):
        by_name["poll"] = shortened("poll", by_name["poll"])


def _look_at_every_turn(function):
    """Where the SDKs follow logs, only these come by `poll`; the look at the job has a number of
    its own inside of the function.
    """
    code = function.__code__
    if LAST_LOOK not in code.co_varnames:
        return
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and any(
                getattr(part, "id", None) == LAST_LOOK for part in ast.walk(node.left)
            ):
                node.comparators = [ast.copy_location(ast.Constant(PACE), number) for number in node.comparators]
        ast.increment_lineno(tree, code.co_firstlineno - 1)
        flags = code.co_flags & __future__.annotations.compiler_flag
        compiled = compile(tree, code.co_filename, "exec", flags, dont_inherit=True)
        function.__code__ = next(each for each in compiled.co_consts if getattr(each, "co_name", None) == code.co_name)
    except (OSError, SyntaxError, StopIteration, TypeError, ValueError):
        # Without its source, or in another shape, it keeps its pace.
        return
