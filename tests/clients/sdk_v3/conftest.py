"""Run apart from the other tests: the environment of these is their process's."""

from sdk_environment import environment, turns  # noqa: F401
