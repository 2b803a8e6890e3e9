"""Which steps a run has seen, beside its checkpoints: a job that is restarted from a checkpoint goes
on with the numbers of its steps.
"""

import json
import os
import time

from smdebug.core import layout

CHECKPOINT_CONFIG_FILE_PATH_ENV_VAR = "CHECKPOINT_CONFIG_FILE_PATH"
DEFAULT_CHECKPOINT_CONFIG_FILE = "/opt/ml/input/config/checkpointconfig.json"
METADATA_FILENAME = "metadata.json"
LATEST_GLOBAL_STEP_SEEN = "latest-global-step-seen"
LATEST_GLOBAL_STEP_SAVED = "latest-global-step-saved"
LATEST_MODE_STEP = "latest-mode-step"
TRAINING_RUN = "training-run"
#: Looking for new checkpoints takes at most this part of the time.
_SHARE = 0.01


def _checkpoint_dir() -> str | None:
    path = os.environ.get(CHECKPOINT_CONFIG_FILE_PATH_ENV_VAR, DEFAULT_CHECKPOINT_CONFIG_FILE)
    try:
        with open(path) as file:
            return json.load(file).get("LocalPath")
    except FileNotFoundError:
        return None


class StateStore:
    """Reads the last state, and writes one when checkpoints have changed."""

    def __init__(self):
        self._directory = _checkpoint_dir()
        self._states = []
        self._next_look = 0.0
        if self._directory and os.path.exists(self._file()):
            with open(self._file()) as file:
                self._states = sorted(json.load(file), key=lambda state: state[LATEST_GLOBAL_STEP_SEEN])
        self._seen = self._files()

    def _file(self) -> str:
        return os.path.join(self._directory, METADATA_FILENAME)

    def _files(self) -> dict:
        found = {}
        for parent, _, names in os.walk(self._directory) if self._directory else ():
            for name in names:
                if not name.startswith(METADATA_FILENAME) and "sagemaker-uploaded" not in name:
                    path = os.path.join(parent, name)
                    try:
                        status = os.stat(path)
                    except FileNotFoundError:
                        continue
                    found[path] = (status.st_mtime_ns, status.st_size)
        return found

    def is_on(self) -> bool:
        """Whether the job has checkpoints."""
        return self._directory is not None

    def get_last_saved_state(self) -> dict | None:
        """The state of the newest step; nothing in a first run."""
        return self._states[-1] if self._states else None

    def is_checkpoint_updated(self) -> bool:
        """Whether checkpoints were written since this was last true."""
        if not self._directory:
            return False
        begun = time.monotonic()
        if begun < self._next_look:
            return False
        found = self._files()
        now = time.monotonic()
        self._next_look = now + (now - begun) / _SHARE
        changed = bool(found) and found != self._seen
        self._seen = found
        return changed

    def update_state(self, state: dict) -> None:
        """Stores a state."""
        self._states.append(state)
        layout.write_whole(self._file(), json.dumps(self._states).encode())
