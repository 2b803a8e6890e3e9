"""At which steps tensors are saved, by mode."""

import json

from smdebug.core.modes import ModeKeys
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError

DEFAULT_SAVE_CONFIG_INTERVAL = 500


def step_in_range(bounds, step: int) -> bool:
    """Whether the step is from the first bound on and before the second; None is no bound."""
    first, last = bounds
    return (first is None or step >= first) and (last is None or step < last)


def _number(name: str, value, default):
    if value is None:
        return default
    try:
        return int(value)
    except (TypeError, ValueError):
        raise SMDebugValueError(f"{name}={value!r} must be a whole number") from None


class SaveConfigMode:
    """Each `save_interval` steps from `start_step` on and before `end_step`, and at `save_steps`."""

    def __init__(self, save_interval=None, start_step=None, end_step=None, save_steps=None):
        self.save_interval = _number("save_interval", save_interval, DEFAULT_SAVE_CONFIG_INTERVAL)
        self.start_step = _number("start_step", start_step, 0)
        self.end_step = _number("end_step", end_step, None)
        self.save_steps = [] if save_steps is None else save_steps
        if not isinstance(self.save_steps, list) or not all(isinstance(step, int) for step in self.save_steps):
            raise SMDebugValueError(f"save_steps={self.save_steps} must be type(list(int))")
        if self.save_interval < 1:
            raise SMDebugValueError(f"save_interval={self.save_interval} must be at least 1")

    def should_save_step(self, step_num: int) -> bool:
        """Whether this step is one of them."""
        if step_num in self.save_steps:
            return True
        return step_in_range((self.start_step, self.end_step), step_num) and step_num % self.save_interval == 0

    def next_step(self, behind: int):
        """The first step behind this one that is one of them; nothing where there is none."""
        first = max(behind + 1, self.start_step)
        regular = -(-first // self.save_interval) * self.save_interval
        others = [step for step in self.save_steps if step > behind]
        return min([*others, regular] if self.end_step is None or regular < self.end_step else others, default=None)

    def joined(self, other):
        """For a collection that is configured twice: the smaller interval, and the steps of both."""
        ends = self.end_step, other.end_step
        return SaveConfigMode(
            min(self.save_interval, other.save_interval),
            min(self.start_step, other.start_step),
            None if None in ends else max(ends),
            sorted({*self.save_steps, *other.save_steps}),
        )

    def to_json_dict(self) -> dict:
        """As it stands in files."""
        return {
            "save_interval": self.save_interval,
            "save_steps": self.save_steps,
            "start_step": self.start_step,
            "end_step": self.end_step,
        }

    @classmethod
    def from_dict(cls, params, default_values=None):
        """From what `to_json_dict` gives; `default_values` are for what is missing."""
        if params is None:
            return None
        if not isinstance(params, dict):
            raise SMDebugTypeError(f"params={params} is not a dict.")
        names = "save_interval", "start_step", "end_step", "save_steps"
        return cls(**{name: params.get(name, (default_values or {}).get(name)) for name in names})

    def __eq__(self, other):
        return isinstance(other, SaveConfigMode) and self.to_json_dict() == other.to_json_dict()

    def __repr__(self):
        values = ", ".join(f"{name}={value}" for name, value in self.to_json_dict().items())
        return f"<class SaveConfig: {values}>"


class SaveConfig:
    """A `SaveConfigMode` for each mode; of modes without one, the hook's applies."""

    def __init__(self, mode_save_configs=None, save_interval=None, start_step=None, end_step=None, save_steps=None):
        if mode_save_configs is None:
            one = {"save_interval": save_interval, "start_step": start_step}
            one |= {"end_step": end_step, "save_steps": save_steps}
            mode_save_configs = {mode: SaveConfigMode(**one) for mode in ModeKeys}
        for mode, config in mode_save_configs.items():
            if not isinstance(mode, ModeKeys) or not isinstance(config, (SaveConfigMode, type(None))):
                raise SMDebugValueError(
                    f"Each key,value in mode_save_configs={mode_save_configs} must be of type ModeKey,SaveConfigMode"
                )
        self.mode_save_configs = {mode: mode_save_configs.get(mode) for mode in ModeKeys}

    def get_save_config(self, mode) -> SaveConfigMode:
        """That of the mode."""
        config = self.mode_save_configs[mode]
        if config is None:
            raise SMDebugValueError(f"SaveConfig={self} has nothing for the mode {mode.name}.")
        return config

    def set_save_config(self, mode, save_config_mode) -> None:
        """Replaces that of the mode."""
        if not isinstance(save_config_mode, SaveConfigMode):
            raise SMDebugValueError(f"save_config_mode={save_config_mode} must be type SaveConfigMode")
        self.mode_save_configs[mode] = save_config_mode

    def should_save_step(self, mode, step_num) -> bool:
        """Whether this step of the mode is saved."""
        return self.get_save_config(mode).should_save_step(step_num)

    def merge_default_save_config(self, default_save_config) -> None:
        """Takes what is missing from there."""
        for mode, config in self.mode_save_configs.items():
            if config is None:
                self.mode_save_configs[mode] = default_save_config.mode_save_configs[mode] or SaveConfigMode()

    def to_json_dict(self) -> dict:
        """As it stands in files."""
        return {mode.name: config.to_json_dict() if config else None for mode, config in self.mode_save_configs.items()}

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params, default_values=None):
        """From modes, or their names, and their configurations, or what those are in files."""
        if params is None:
            return None
        modes = {ModeKeys[mode] if isinstance(mode, str) else mode: config for mode, config in params.items()}
        made = {
            mode: SaveConfigMode.from_dict(config, default_values) if isinstance(config, dict) else config
            for mode, config in modes.items()
        }
        return cls(mode_save_configs=made)

    @classmethod
    def from_json(cls, json_str: str):
        """From JSON."""
        return cls.from_dict(json.loads(json_str))

    @classmethod
    def parse(cls, obj):
        """From whatever a hook takes as `save_config`."""
        if obj is None:
            return cls()
        if isinstance(obj, SaveConfig):
            return obj
        if isinstance(obj, SaveConfigMode):
            return cls(mode_save_configs={mode: obj for mode in ModeKeys})
        if isinstance(obj, dict):
            return cls.from_dict(obj)
        raise SMDebugTypeError(f"obj={obj} cannot be parsed into a SaveConfig object")

    def __eq__(self, other):
        return isinstance(other, SaveConfig) and self.mode_save_configs == other.mode_save_configs

    def __repr__(self):
        return f"<class SaveConfig: {self.mode_save_configs}>"
