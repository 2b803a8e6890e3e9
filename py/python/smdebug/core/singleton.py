"""The hook that this process has."""

_hook = None


def get_hook(hook_class=None, json_config_path=None, create_if_not_exists=False):
    """The process's hook of that class; nothing where there is none and none is to be made."""
    global _hook
    if _hook is not None and hook_class is not None and not isinstance(_hook, hook_class):
        _hook = None
    if _hook is None and create_if_not_exists and hook_class is not None:
        try:
            set_hook(hook_class.create_from_json_file(json_config_path))
        except FileNotFoundError:
            return None
    return _hook


def set_hook(hook) -> None:
    """Makes it the process's hook. One that attached itself makes way for the script's own."""
    global _hook
    before, _hook = _hook, hook
    if before is not None and before is not hook and before.is_automatic:
        before.close()


def del_hook() -> None:
    """The process has none any more."""
    set_hook(None)
