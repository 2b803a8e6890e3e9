"""Options of `horovodrun` as variables."""

from horovod.runner import settings

__all__ = ["set_env_from_args"]


def set_env_from_args(env: dict[str, str], args) -> dict[str, str]:
    """Adds to `env` what the options that were given stand for."""
    env.update(settings.to_environment(args))
    return env
