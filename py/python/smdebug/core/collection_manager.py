"""The collections of a run, and the file with what a worker saves."""

import json
import os

from smdebug.core import layout
from smdebug.core.collection import Collection
from smdebug.exceptions import SMDebugError, SMDebugValueError


class CollectionManager:
    """Collections by name; those of `defaults` (a framework's names and patterns) are there."""

    def __init__(self, defaults=None):
        self.defaults = set(defaults or ())
        self.collections = {name: Collection(name, patterns) for name, patterns in (defaults or {}).items()}
        self._meta = {"num_workers": 1}

    def get_collections(self) -> dict:
        """All of them."""
        return self.collections

    def add(self, arg) -> None:
        """Adds a collection, in place of one of that name, or makes one of that name."""
        if isinstance(arg, Collection):
            self.collections[arg.name] = arg
        else:
            self.get(arg)

    def get(self, name, create=True) -> Collection:
        """The collection of that name, which is made where it is missing."""
        if name not in self.collections:
            if not create:
                raise SMDebugError(f"Collection {name} has not been created")
            self.collections[name] = Collection(name)
        return self.collections[name]

    def get_num_workers(self) -> int:
        """How many workers save tensors."""
        return int(self._meta["num_workers"])

    def set_num_workers(self, num_workers) -> None:
        """How many workers save tensors."""
        self._meta["num_workers"] = int(num_workers)

    def to_json_dict(self) -> dict:
        """As it stands in files."""
        collections = {name: one.to_json_dict() for name, one in self.collections.items()}
        return {"collections": collections, "_meta": self._meta}

    def export(self, out_dir: str, worker: str) -> None:
        """Writes the worker's file."""
        path = os.path.join(out_dir, layout.collections_file(worker))
        layout.write_whole(path, json.dumps(self.to_json_dict()).encode())

    @classmethod
    def load_from_string(cls, text: str):
        """From the text of a worker's file."""
        params = json.loads(text)
        unknown = set(params) - {"collections", "_meta"}
        if unknown:
            raise SMDebugValueError(f"a file of collections has no member {', '.join(sorted(unknown))}")
        made = cls()
        for one in params["collections"].values():
            made.add(Collection.from_dict(one))
        made._meta.update(params["_meta"])
        return made
