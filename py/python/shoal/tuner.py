"""Hyperparameter search: what to try next, and which trials go on.

A `Study` is asked for trials and told how they went:

    study = Study({"lr": continuous(1e-5, 1.0, "Logarithmic")}, searcher="bayesian", seed=7)
    for _ in range(20):
        trial = study.ask()
        study.tell(trial, loss(trial.config["lr"]))
    print(study.best)

With a scheduler, trials report on their way and bad ones end early:

    study = Study(space, scheduler="asha", max_resource=81)
    while trial := study.ask():
        model = resume(trial.id) if trial.start else new_model(trial.config)
        for epoch in itertools.count(trial.start + 1):
            if study.report(trial, epoch, model.train_epoch()) != "continue":
                break

The same seed and the same order of calls give the same trials bit for bit, on every machine.
Nothing here reads a clock, a file or a network. Studies may be shared by threads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from shoal import _native

__all__ = ["Result", "Study", "Trial", "categorical", "continuous", "integer", "strategies"]

Scaling = Literal["Linear", "Logarithmic", "ReverseLogarithmic", "Auto"]
Decision = Literal["continue", "stop", "pause"]
Direction = Literal["minimize", "maximize"]
Parameter = dict[str, Any]
Config = dict[str, Any]
#: One number, or one per objective; `None` (or a number that is not finite): the trial failed.
Outcome = float | Sequence[float] | None


def continuous(
    low: float, high: float, scaling: Scaling = "Linear", *, when: Mapping[str, Sequence[Any]] | None = None
) -> Parameter:
    """A real number from `low` to `high`, both included. `when={"opt": ["sgd"]}`: only where the
    parameter `opt` has one of these values.
    """
    return _parameter({"type": "continuous", "min": low, "max": high, "scaling": scaling}, when)


def integer(
    low: int, high: int, scaling: Scaling = "Linear", *, when: Mapping[str, Sequence[Any]] | None = None
) -> Parameter:
    """A whole number from `low` to `high`, both included."""
    return _parameter({"type": "integer", "min": low, "max": high, "scaling": scaling}, when)


def categorical(values: Sequence[Any], *, when: Mapping[str, Sequence[Any]] | None = None) -> Parameter:
    """One of some values without an order: strings, numbers or booleans, which come back as they
    are.
    """
    return _parameter({"type": "categorical", "values": list(values)}, when)


def strategies() -> dict[str, str]:
    """Names for `searcher`, `scheduler` and `strategy`, and what each does."""
    return dict(_native.names())


def _parameter(parameter: Parameter, when: Mapping[str, Sequence[Any]] | None) -> Parameter:
    if when is not None:
        if len(when) != 1:
            raise ValueError(f"when must name one parent and its values, and names {len(when)}")
        [(parent, values)] = when.items()
        parameter["condition"] = {"parent": parent, "in": list(values)}
    return parameter


@dataclass(frozen=True)
class Trial:
    """What to try."""

    #: Its number in the study.
    id: int
    #: Values of the active parameters by name.
    config: Config
    #: Units of resource that are done already: 0 for a new trial, more for a paused one that goes
    #: on.
    start: int = 0
    #: Where the scheduler will look next, if it has said so. `Study.report` says what follows.
    to: int | None = None
    #: Whose checkpoint to begin with, and after how many units (population based training).
    origin: tuple[int, int] | None = None


@dataclass(frozen=True)
class Result:
    """What is known of a trial."""

    id: int
    config: Config
    #: `running`, `paused`, `completed`, `stopped` or `failed`.
    state: str
    #: One per objective, once it has any; of a stopped trial, its last report.
    values: list[float]
    #: Units of resource and the first objective's value after them.
    reports: list[tuple[int, float]] = field(repr=False)
    #: It was told by `inject` or `warm_start`.
    injected: bool = False

    @property
    def value(self) -> float | None:
        """Of the first objective."""
        return self.values[0] if self.values else None


class Study:
    """A searcher and a scheduler over one history.

    `space` maps names to `continuous`, `integer` or `categorical`; or it is a list of such, each
    with a `"name"` (the protocol's JSON). `searcher` and `scheduler` are names (`strategies()`) or
    specifications such as `{"kind": "asha", "max_resource": 81, "eta": 4}`; `strategy` is a name
    for both together, as in `"bayesian+asha"`. `max_resource`, `min_resource` and `eta` are for
    schedulers that are given by name. `max_trials`: no more than this are started.

    Raises `ValueError` with what is wrong and what would be right.
    """

    def __init__(
        self,
        space: Mapping[str, Parameter] | Sequence[Parameter],
        *,
        strategy: str | None = None,
        searcher: str | Mapping[str, Any] | None = None,
        scheduler: str | Mapping[str, Any] | None = None,
        objectives: Direction | Sequence[Direction] = "minimize",
        seed: int = 0,
        max_trials: int | None = None,
        max_resource: int | None = None,
        min_resource: int | None = None,
        eta: int | None = None,
    ) -> None:
        if strategy is not None and searcher is not None:
            raise ValueError("give a strategy, or a searcher (and a scheduler), not both")
        parameters = (
            [{"name": name, **parameter} for name, parameter in space.items()]
            if isinstance(space, Mapping)
            else list(space)
        )
        init = {
            "space": parameters,
            "seed": seed,
            "searcher": searcher,
            "scheduler": scheduler,
            "objectives": [objectives] if isinstance(objectives, str) else list(objectives),
            "max_trials": max_trials,
            "max_resource": max_resource,
            "min_resource": min_resource,
            "eta": eta,
        }
        self._open(_native.Study(_json(init), strategy or "bayesian"))

    def _open(self, native: _native.Study) -> None:
        self._native = native
        self._finished = False
        self._orders: list[tuple[int, Decision]] = []

    def ask(self) -> Trial | None:
        """What an idle worker is to do; `None`: nothing now. Then `finished` says whether that is
        for ever, or until another trial reports or ends.

        Several trials may be out at once. One that goes on after a pause has `start > 0`.
        """
        kind, trial, start, to, origin = self._native.ask()
        self._finished = kind == "end"
        if kind in ("wait", "end"):
            return None
        return Trial(trial, self[trial].config, start, to, origin)

    @property
    def finished(self) -> bool:
        """The last `ask` found nothing more to do, ever."""
        return self._finished

    def report(self, trial: Trial | int, resource: int, value: float | None) -> Decision:
        """After `resource` units (from 1) the first objective is `value`; `None` or not a number
        counts as worse than all.

        `"continue"`: go on with the next unit. `"pause"`: keep a checkpoint and ask again; the
        trial may come back. `"stop"`: it is over, and needs no `tell`.
        """
        trial = _id(trial)
        if resource < 1:
            raise ValueError(f"resource counts finished units, from 1, and is {resource}")
        own = self._take(self._native.report(trial, resource, math.nan if value is None else value), trial)
        if own is not None:
            return own
        state = self[trial].state
        return "continue" if state == "running" else "pause" if state == "paused" else "stop"

    def tell(self, trial: Trial | int, value: Outcome) -> None:
        """The trial has ended with this value (one per objective); `None`: it failed. A repeated
        end changes nothing.
        """
        trial = _id(trial)
        self._take(self._native.tell(trial, _values(value)), trial)

    def stop(self, trial: Trial | int) -> None:
        """The trial was stopped from outside; what it reported counts."""
        trial = _id(trial)
        self._take(self._native.stop(trial), trial)

    def orders(self) -> list[tuple[int, Decision]]:
        """Decisions on trials other than the one that reported, since the last call."""
        orders, self._orders = self._orders, []
        return orders

    def inject(self, config: Mapping[str, Any], value: Outcome) -> None:
        """A finished trial of elsewhere."""
        self._native.inject(_json(dict(config)), _values(value))

    def warm_start(self, trials: Iterable[tuple[Mapping[str, Any], Outcome]]) -> list[tuple[int, str]]:
        """Finished trials of other searches, perhaps over another space: what is not a parameter
        here is left out of a configuration, and a configuration that is not one of this space is
        left out of the study. Returns those: place and reason.
        """
        names = {parameter["name"] for parameter in self._space()}
        dropped = []
        for place, (config, value) in enumerate(trials):
            try:
                self.inject({name: it for name, it in config.items() if name in names}, value)
            except ValueError as error:
                dropped.append((place, str(error)))
        return dropped

    def __len__(self) -> int:
        """How many trials it knows."""
        return self._native.trials()

    def __getitem__(self, trial: int) -> Result:
        """What is known of a trial."""
        if not 0 <= trial < len(self):
            raise IndexError(f"there is no trial {trial}")
        config, state, values, reports, injected = self._native.trial(trial)
        return Result(trial, json.loads(config), state, values, reports, injected)

    def __iter__(self) -> Iterator[Result]:
        return (self[trial] for trial in range(len(self)))

    @property
    def trials(self) -> list[Result]:
        """All that is known, by number."""
        return list(self)

    @property
    def best(self) -> Result | None:
        """Its completed trial with the best value of the first objective."""
        best = self._native.best()
        return None if best is None else self[best]

    @property
    def front(self) -> list[Result]:
        """Completed trials that no other is better than in all objectives."""
        return [self[trial] for trial in self._native.front()]

    @property
    def not_improving(self) -> int:
        """Results since the best one improved by more than 1 % of its size."""
        return self._native.progress()[0]

    @property
    def converged(self) -> bool:
        """It is unlikely that the best improves by more than 1 % any more."""
        return self._native.progress()[1]

    def importance(self, objective: int = 0) -> dict[str, float] | None:
        """The share of an objective's variance that each parameter explains alone (functional
        ANOVA over a random forest); they add up to 1. `None` if too little is known.
        """
        shares = self._native.importance(objective)
        return None if shares is None else dict(shares)

    def snapshot(self) -> bytes:
        """All of it."""
        return self._native.snapshot()

    @classmethod
    def restore(cls, snapshot: bytes) -> Study:
        """The study of a snapshot: it goes on as the other would have."""
        study = cls.__new__(cls)
        study._open(_native.Study.restore(snapshot))
        return study

    def _space(self) -> list[Parameter]:
        return json.loads(self._native.init())["space"]

    def _take(self, decisions: _native.Decisions, own: int) -> Decision | None:
        self._orders += [(trial, decision) for trial, decision, _ in decisions if trial != own]
        return next((decision for trial, decision, _ in decisions if trial == own), None)

    def __repr__(self) -> str:
        best = self.best
        return f"<Study of {len(self)} trials, best {None if best is None else best.value}>"


def _id(trial: Trial | int) -> int:
    return trial.id if isinstance(trial, Trial) else trial


def _values(value: Outcome) -> list[float] | None:
    if value is None:
        return None
    return (
        [float(value)]
        if isinstance(value, (int, float)) or not isinstance(value, Iterable)
        else [float(it) for it in value]
    )


def _json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, default=_plain)
    except TypeError as error:
        raise ValueError(f"not a number, string, boolean, list or mapping: {error}") from None


def _plain(value: Any) -> Any:
    """NumPy's numbers and such, as Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r}")
