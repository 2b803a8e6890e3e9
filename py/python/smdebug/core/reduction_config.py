"""What is saved of a tensor: its values, its shape, and statistics of its values."""

import json

from smdebug.exceptions import SMDebugValueError

ALLOWED_REDUCTIONS = ["min", "max", "mean", "std", "variance", "sum", "prod"]
ALLOWED_NORMS = ["l1", "l2"]


class ReductionConfig:
    """Names of reductions and norms, of values and of absolute values.

    With none of them, and without `save_raw_tensor`, nothing but shapes is saved.
    """

    def __init__(
        self,
        reductions=None,
        abs_reductions=None,
        norms=None,
        abs_norms=None,
        save_raw_tensor=False,
        save_shape=False,
    ):
        self.reductions, self.abs_reductions = list(reductions or ()), list(abs_reductions or ())
        self.norms, self.abs_norms = list(norms or ()), list(abs_norms or ())
        self.save_raw_tensor, self.save_shape = save_raw_tensor, save_shape
        for name, allowed in (
            ("reductions", ALLOWED_REDUCTIONS),
            ("abs_reductions", ALLOWED_REDUCTIONS),
            ("norms", ALLOWED_NORMS),
            ("abs_norms", ALLOWED_NORMS),
        ):
            unknown = [one for one in getattr(self, name) if one not in allowed]
            if unknown:
                raise SMDebugValueError(f"{name} can only be one of {','.join(allowed)}, not {','.join(unknown)}")
        for name in ("save_raw_tensor", "save_shape"):
            if not isinstance(getattr(self, name), bool):
                raise SMDebugValueError(f"{name}={getattr(self, name)} must be a boolean")

    def joined(self, other):
        """What either of them saves."""
        lists = ("reductions", "abs_reductions", "norms", "abs_norms")
        both = {name: list(dict.fromkeys(getattr(self, name) + getattr(other, name))) for name in lists}
        flags = {name: getattr(self, name) or getattr(other, name) for name in ("save_raw_tensor", "save_shape")}
        return ReductionConfig(**both, **flags)

    @classmethod
    def from_dict(cls, params):
        """From a file's `reductions` ("mean,abs_max,l1_norm"), `save_raw_tensor` and `save_shape`."""
        if params is None:
            return None
        if not isinstance(params, dict):
            raise SMDebugValueError(f"params={params} must be dict")
        sorted_out = {"reductions": [], "abs_reductions": [], "norms": [], "abs_norms": []}
        for name in filter(None, map(str.strip, params.get("reductions", "").split(","))):
            is_abs, plain = name.startswith("abs_"), name.removeprefix("abs_")
            kind = "norms" if plain.endswith("_norm") else "reductions"
            sorted_out[f"abs_{kind}" if is_abs else kind].append(plain.removesuffix("_norm"))
        whole = {name: str(params.get(name, False)).lower() == "true" for name in ("save_raw_tensor", "save_shape")}
        return cls(**sorted_out, **whole)

    @classmethod
    def from_json(cls, json_str: str):
        """From JSON."""
        return cls.from_dict(json.loads(json_str))

    def to_json_dict(self) -> dict:
        """As it stands in files."""
        names = [*self.reductions, *(f"{norm}_norm" for norm in self.norms)]
        names += [f"abs_{name}" for name in self.abs_reductions] + [f"abs_{norm}_norm" for norm in self.abs_norms]
        return {
            "save_raw_tensor": self.save_raw_tensor,
            "reductions": ",".join(names),
            "save_shape": self.save_shape,
        }

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(self.to_json_dict())

    def each(self):
        """Names, and whether they are of absolute values."""
        yield from ((name, False) for name in (*self.reductions, *self.norms))
        yield from ((name, True) for name in (*self.abs_reductions, *self.abs_norms))

    def __eq__(self, other):
        return isinstance(other, ReductionConfig) and self.to_json_dict() == other.to_json_dict()

    def __repr__(self):
        return f"<class ReductionConfig: {self.to_json_dict()}>"
