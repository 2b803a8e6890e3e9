"""Exceptions of Horovod's interface."""


class HorovodInternalError(RuntimeError):
    """A collective operation failed: the text names the tensor, the ranks and their requests.
    Elastic training restores the last commit and goes on.
    """


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts has changed. Elastic training goes on with the current state;
    `skip_sync`: there are no new ranks that need it.
    """

    def __init__(self, skip_sync: bool):
        super().__init__(f"the hosts of the job have changed (skip_sync={skip_sync})")
        self.skip_sync = skip_sync

    def __reduce__(self):
        return type(self), (self.skip_sync,)


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """The message for a framework of another version than an extension was compiled for."""
    return (
        f"Framework {name} installed with version {installed_version} but found version {version}.\n"
        f"This can result in unexpected behavior including runtime errors.\nInstall {name}=={installed_version}, or build for {version}."
    )


class HorovodVersionMismatchError(ImportError):
    """A framework has another version than an extension was compiled for."""

    def __init__(self, name: str, version: str, installed_version: str):
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name, self.version, self.installed_version = name, version, installed_version
