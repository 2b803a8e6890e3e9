"""The training job as its script sees it: `Environment().hyperparameters`,
`.channel_input_dirs["train"]`, `.model_dir`, ...

All of it is also in the variables `SM_*`.
"""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

_TRAINING_ENV = "SM_TRAINING_ENV"


class Environment(Mapping):
    """Attributes are the names of `SM_TRAINING_ENV`; they are items, too."""

    def __init__(
        self,
        resource_config: dict | None = None,
        input_data_config: dict | None = None,
        hyperparameters: dict | None = None,
    ):
        told = os.environ.get(_TRAINING_ENV)
        if not told:
            raise RuntimeError(f"{_TRAINING_ENV} is not set: this is no script of a training job")
        self._told: dict[str, Any] = json.loads(told)
        given = {
            "resource_config": resource_config,
            "input_data_config": input_data_config,
            "hyperparameters": hyperparameters,
        }
        self._told.update({name: value for name, value in given.items() if value is not None})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._told[name]
        except KeyError:
            raise AttributeError(
                f"a training job's environment has no {name}; it has {', '.join(sorted(self._told))}"
            ) from None

    def __getitem__(self, name: str) -> Any:
        return self._told[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._told)

    def __len__(self) -> int:
        return len(self._told)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._told]

    @property
    def is_main(self) -> bool:
        return self._told["is_master"]

    def properties(self) -> list[str]:
        """Names of the attributes."""
        return sorted(self._told)

    def to_cmd_args(self) -> list[str]:
        """The script's arguments that the hyperparameters make."""
        return json.loads(os.environ.get("SM_USER_ARGS", "[]"))

    def to_env_vars(self) -> dict[str, str]:
        """The variables that say the same."""
        return {name: value for name, value in os.environ.items() if name.startswith("SM_")}
