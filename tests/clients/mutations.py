"""Every member of a real request changed in every way that the service model tells apart, with
the answer that AWS would give.

The model is botocore's own, not the server's table: what the server made of it is judged too.
"""

import copy
import json
import random
import re
from typing import NamedTuple

import botocore.session

MODELS = {"sagemaker": "SageMaker", "logs": "Logs_20140328"}
# What no string pattern of the model allows; one that allows all of them is not tested.
UNLIKELY = ["!", " ", "\n", "é!", "-", "/", "a b"]
MOST_TEXT = 70_000
MOST_ITEMS = 300
WRONG = {
    "string": [7, True, {}, []],
    "integer": ["7", 1.5, True, {}, []],
    "long": ["7", 1.5, True, {}, []],
    "float": ["x", True, {}, []],
    "double": ["x", True, {}, []],
    "boolean": ["true", 1, {}, []],
    "timestamp": ["soon", True, {}, []],
    "list": ["x", 7, True, {}],
    "map": ["x", 7, True, []],
    "structure": ["x", 7, True, []],
}


class Mutant(NamedTuple):
    """One change of a request and what must come of it: a rule's name, `mistyped`, or `none`
    where the change must not matter.
    """

    path: tuple
    value: object
    rule: str
    member: str


REMOVED = object()


class Requests:
    """Recorded requests of the operations that a service model has."""

    def __init__(self, recording):
        loader = botocore.session.get_session()
        self.models = {prefix: loader.get_service_model(name) for name, prefix in MODELS.items()}
        self.bodies = {}
        self._collect(recording)

    def _collect(self, node):
        if isinstance(node, list):
            for inner in node:
                self._collect(inner)
        elif isinstance(node, dict) and "method" not in node:
            for inner in node.values():
                self._collect(inner)
        elif isinstance(node, dict) and (target := node.get("target")) and target.split(".")[0] in self.models:
            body = node.get("body") or {}
            self.bodies.setdefault((target, json.dumps(body, sort_keys=True)), (target, body))

    def __iter__(self):
        return iter(self.bodies.values())

    def mutants(self, target, body):
        prefix, operation = target.split(".")
        shape = self.models[prefix].operation_model(operation).input_shape
        return list(_structure(shape, body, ())) if shape else []


def _structure(shape, given, path):
    yield Mutant((*path, "NoSuchMember"), {"a": [1]}, "none", "")
    for name, member in shape.members.items():
        place = (*path, name)
        required = name in shape.required_members
        if name in given:
            for value in (REMOVED, None):
                yield Mutant(place, value, "null" if required else "anything", name)
            yield from _value(member, given[name], place, name)
        else:
            yield Mutant(place, None, "null" if required else "none", name)
            yield from _mistyped(member, place, name)


def _mistyped(shape, path, name):
    for wrong in WRONG.get(shape.type_name, []):
        yield Mutant(path, wrong, "mistyped", name)


def _value(shape, given, path, name):
    yield from _mistyped(shape, path, name)
    limits = shape.metadata
    if shape.type_name == "structure":
        yield from _structure(shape, given, path)
    elif shape.type_name == "string":
        yield from _text(shape, path, name)
    elif shape.type_name == "list":
        yield from _sizes(limits, path, name, lambda count: [copy.deepcopy(given[0])] * count if given else None)
        yield Mutant((*path, len(given)), None, "mistyped", name)
        for at, item in enumerate(given):
            yield from _value(shape.member, item, (*path, at), name)
    elif shape.type_name == "map":
        value = next(iter(given.values()), {} if shape.value.type_name == "structure" else "x")
        yield from _sizes(limits, path, name, lambda count: {f"k{at}": value for at in range(count)} if given else None)
        for broken in _text(shape.key, path, name):
            yield Mutant((*path, broken.value), value, broken.rule, name)
        for key, value in given.items():
            yield from _value(shape.value, value, (*path, key), name)
    elif shape.type_name in ("integer", "long", "float", "double"):
        if "min" in limits:
            yield Mutant(path, limits["min"] - 1, "greater than or equal", name)
        if "max" in limits:
            yield Mutant(path, limits["max"] + 1, "less than or equal", name)


def _text(shape, path, name):
    if shape.enum:
        yield Mutant(path, "no-such-choice", "enum value set", name)
        return
    limits = shape.metadata
    if limits.get("min", 0) > 0:
        yield Mutant(path, "a" * (limits["min"] - 1), "greater than or equal", name)
    if limits.get("max", MOST_TEXT) < MOST_TEXT:
        yield Mutant(path, "a" * (limits["max"] + 1), "less than or equal", name)
    if (pattern := limits.get("pattern")) and (allowed := _python(pattern)):
        for text in UNLIKELY:
            if not allowed.fullmatch(text):
                yield Mutant(path, text * max(1, limits.get("min", 0)), "regular expression pattern", name)


def _sizes(limits, path, name, make):
    if limits.get("min", 0) > 0 and make(0) is not None:
        yield Mutant(path, make(limits["min"] - 1), "greater than or equal", name)
    if limits.get("max", MOST_ITEMS) < MOST_ITEMS and make(1) is not None:
        yield Mutant(path, make(limits["max"] + 1), "less than or equal", name)


def _python(pattern):
    """Java's pattern in Python's dialect; none where Python's has no such classes."""
    try:
        return re.compile(
            pattern.replace(r"\p{Alnum}", "a-zA-Z0-9" if r"[\p{Alnum}" in pattern else "[a-zA-Z0-9]"), re.ASCII
        )
    except re.error:
        return None


def mutated(body, *mutants):
    """The request with these changes; none if one of them has nothing to change any more."""
    body = copy.deepcopy(body)
    for mutant in mutants:
        node = body
        for step in mutant.path[:-1]:
            node = node[step] if isinstance(node, (dict, list)) and _has(node, step) else None
        last = mutant.path[-1]
        if isinstance(node, list) and last == len(node):
            node.append(copy.deepcopy(mutant.value))
        elif isinstance(node, dict) and mutant.value is REMOVED:
            if last not in node:
                return None
            del node[last]
        elif isinstance(node, dict) or (isinstance(node, list) and _has(node, last)):
            node[last] = copy.deepcopy(mutant.value)
        else:
            return None
    return body


def _has(node, step):
    return step in node if isinstance(node, dict) else isinstance(step, int) and step < len(node)


def judge(mutant, code, message, before):
    """What is wrong with an answer to one change; `before` is the unchanged request's code."""
    field = mutant.member[:1].lower() + mutant.member[1:]
    refused = ("ValidationException", "InvalidParameterException")
    if mutant.rule == "none":
        return None if code == before else f"a change that does not matter turned {before} into {code}"
    if mutant.rule == "anything":
        return None
    if mutant.rule == "mistyped":
        wanted, sound = "SerializationException that names the member", code == "SerializationException"
    elif mutant.rule == "null":
        wanted, sound = f"'{field}' must not be null", code in refused and "must not be null" in message
    else:
        wanted, sound = f"'{field}': {mutant.rule}", code in refused and mutant.rule in message
    return None if sound and field in message else f"wanted {wanted}"


def pairs(mutants, seed):
    """Endless random pairs of changes."""
    numbers = random.Random(seed)
    while True:
        yield numbers.sample(mutants, 2)
