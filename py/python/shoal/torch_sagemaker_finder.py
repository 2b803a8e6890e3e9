"""Answers for the name `torch.sagemaker`: SageMaker's model parallel library v2 is a part of
SageMaker's own build of torch, and scripts import it from there.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

__all__ = ["Finder", "install"]

NAME = "torch.sagemaker"
HERE = Path(__file__).parent / "torch_sagemaker"


class Finder:
    """Finds the package itself; what is in it is found by its path."""

    @staticmethod
    def find_spec(name: str, _path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        """Where the module is; nothing for other modules."""
        if name != NAME:
            return None
        return importlib.util.spec_from_file_location(
            name, HERE / "__init__.py", submodule_search_locations=[str(HERE)]
        )


def install() -> None:
    """Makes `import torch.sagemaker` work. A torch that has the package itself, as SageMaker's
    does, keeps its own.
    """
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
