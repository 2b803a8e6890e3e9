"""One step of a pipeline on one rank: the server of its modules, and the bodies of the
microbatches.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from shoal.comm import CommError
from smdistributed.modelparallel.torch import ranks
from smdistributed.modelparallel.torch.exceptions import RemoteError, SMPRuntimeError
from smdistributed.modelparallel.torch.pipeline.baton import Baton, Task
from smdistributed.modelparallel.torch.pipeline.frames import Answer, Body, Frame, Key, Learned, Segment, Source
from smdistributed.modelparallel.torch.pipeline.order import FORWARD, Order, Turns
from smdistributed.modelparallel.torch.pipeline.remote import Remote, feed
from smdistributed.modelparallel.torch.pipeline.wire import Message, Packed, Wire, is_empty, pack, unpack

__all__ = ["Engine"]


class Engine:
    """Runs the bodies of one step with the other ranks of the pipeline."""

    def __init__(
        self, wire: Wire, model: Any, order: Order, learned: Learned, workers: list, active: int, turns: Turns
    ) -> None:
        self.wire, self.model, self.order, self.learned = wire, model, order, learned
        self.stage, self.owner = wire.stage, model.stage_of_root
        self.baton = Baton(workers)
        self.turns = turns
        self.active = active if self.stage == self.owner and not order.simple else order.microbatches
        self.tasks: list[Task] = []
        self.bodies = [Body(micro) for micro in range(order.microbatches)]
        self.frames: dict[tuple[Key, int], Frame] = {}
        self.answers: dict[Key, list[Answer]] = {}
        self.gradients: dict[Key, list[list[torch.Tensor | None]]] = {}
        self.serials: dict[int, int] = {}
        #: Root outputs by identity: which call gave them.
        self.given: dict[int, dict[int, tuple[torch.Tensor, Key, int, int]]] = {}
        self.tokens: dict[int, dict[Key, torch.Tensor]] = {}
        self.ended: set[int] = set()

    # The step

    def run(self, body: Callable[[int], Any]) -> list[Any]:
        """Runs `body` for every microbatch; the results in order."""
        results: list[Any] = [None] * len(self.bodies)
        for it in self.bodies:
            it.task = Task(
                self._body(body, it, results),
                self.order.turn(it.micro, FORWARD),
                ("forward", it.micro),
                (0, it.micro, 0, 0, 0),
            )
            it.task.until = self._may_begin(it)
            self.tasks.append(it.task)
        self.wire.open()
        try:
            self._serve()
        except BaseException as error:
            self._fail(error)
            raise
        self.wire.close()
        self._learn()
        return results

    def _body(self, run: Callable[[int], Any], body: Body, results: list[Any]) -> Callable[[], None]:
        def task() -> None:
            results[body.micro] = run(body.micro)
            body.over = True
            self.given.pop(body.micro, None)
            self.tokens.pop(body.micro, None)
            body.arrived.clear()
            body.outputs = []

        return task

    def _may_begin(self, body: Body) -> Callable[[], bool]:
        # Bodies begin in order, and on the owner a limited number at a time.
        def may() -> bool:
            before = self.bodies[: body.micro]
            return all(it.task.begun for it in before) and sum(not it.over for it in before) < self.active

        return may

    def _serve(self) -> None:
        """Gives the baton to the task whose turn it is, until all is done here and elsewhere."""
        while True:
            while (message := self._receive(False)) is not None:
                self._take(message)
            task = self._choose()
            if task is not None:
                self.baton.give(task)
                if task.over:
                    self.tasks.remove(task)
                if self.baton.error is not None:
                    raise self.baton.error
            elif not self.tasks and (self.stage == self.owner or self.owner in self.ended):
                break
            else:
                self._take(self._receive(True))
        self.turns.end()
        if self.stage != self.owner:
            self.wire.send(self.owner, Message("end"))
            return
        for stage in range(self.wire.stages):
            if stage != self.stage:
                self.wire.send(stage, Message("end"))
        while len(self.ended) < self.wire.stages - 1:
            self._take(self._receive(True))

    def _choose(self) -> Task | None:
        """The task whose turn it is; none if all wait."""
        if self.turns.follows:
            wanted = self.turns.next()
            found = next((it for it in self.tasks if it.name == wanted and it.ready()), None)
        else:
            found = min((it for it in self.tasks if it.ready()), key=lambda it: it.turn, default=None)
        if found is not None:
            self.turns.took(found.name)
        return found

    def _receive(self, wait: bool) -> Message | None:
        # No message follows the end, and a receive without one would end with an error.
        if self.stage != self.owner and self.owner in self.ended and not self.wire._own:
            if wait:
                raise SMPRuntimeError(
                    f"stage {self.stage}: microbatches wait for outputs of the model after its owner has ended the step: control flow differs between ranks"
                )
            return None
        if not self.wire._own:
            self.wire.listen()
        message = self.wire.receive(wait)
        return message

    def _fail(self, error: BaseException) -> None:
        self.model.broken = str(error)
        if not isinstance(error, RemoteError) and not _of_comm(error):
            for stage in range(self.wire.stages):
                if stage != self.stage:
                    try:
                        self.wire.send(stage, Message("failed", {"text": f"{type(error).__name__}: {error}"}))
                    except Exception:  # noqa: BLE001 (that rank is gone; the error itself is raised)
                        continue
            self.wire.flush(2.0)
        self.baton.abandon(self.tasks)

    def _take(self, message: Message) -> None:
        values, kind = message.values, message.kind
        if kind == "call":
            turn = self.order.turn(values["key"][1], FORWARD, values["key"])
            self.tasks.append(
                Task(
                    lambda: self._serve_call(message),
                    turn,
                    ("forward", values["key"][1]),
                    (1, *values["key"], values["hop"]),
                )
            )
        elif kind == "result":
            self.answers[values["key"]].append(
                Answer(message.source, values["structure"], message.tensors, values["needs_grad"])
            )
        elif kind == "gradient":
            frame = self.frames[values["key"], values["hop"]]
            frame.sent = message.tensors
            if frame.last:
                name = (frame.key[0], frame.key[2])
                (self.learned.unsure if all(it is None for it in frame.sent) else self.learned.loud).add(name)
            self._maybe_backward(frame)
        elif kind == "inputs":
            # It may come before this rank asks for it.
            self.gradients.setdefault(values["key"], []).append(message.tensors)
        elif kind == "outputs":
            self._outputs_came(message)
        elif kind == "failed":
            rank = ranks.get_pp_group()[message.source]
            raise RemoteError(f"stage {message.source} of the pipeline (rank {rank}) failed: {values['text']}")
        elif kind == "end":
            self.ended.add(message.source)

    # Calls of modules of other stages

    def call(self, segments: list[Segment], args: tuple, kwargs: dict) -> Any:
        """The outputs of modules of other stages, as part of the graph."""
        micro = self.baton.current.label[1]
        serial = self.serials[micro] = self.serials.get(micro, -1) + 1
        key: Key = (self.stage, micro, serial)
        packed = pack((args, kwargs))
        grad = torch.is_grad_enabled()
        needs = [grad and it.requires_grad for it in packed.tensors]
        self.answers[key] = box = []
        self._request(key, segments, 0, self.stage, packed, needs, grad)
        label = self.baton.current.label
        self.baton.wait(lambda: bool(box), label)
        answer = self.answers.pop(key)[0]
        tensors = answer.tensors
        if any(answer.needs_grad):
            differentiable = [it for it, need in zip(packed.tensors, needs, strict=True) if need]
            start = torch.zeros((), requires_grad=True)
            *tensors, token = Remote.apply(self, key, answer, len(segments) - 1, needs, start, *differentiable)
            self.tokens.setdefault(micro, {})[key] = token
        for place, it in enumerate(tensors):
            self.given.setdefault(micro, {})[id(it)] = (it, key, place, answer.stage)
        return unpack(answer.structure, tensors)

    def _request(
        self, key: Key, segments: list[Segment], hop: int, previous: int, packed: Packed, needs: list[bool], grad: bool
    ) -> None:
        values = {
            "key": key,
            "segments": segments,
            "hop": hop,
            "previous": previous,
            "arguments": packed.values,
            "needs_grad": needs,
            "grad": grad,
        }
        values["autocast"] = [
            (kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)
        ]
        self.wire.send(segments[hop].stage, Message("call", values, list(packed.tensors)))

    def _serve_call(self, message: Message) -> None:
        values = message.values
        key, hop, segments = values["key"], values["hop"], values["segments"]
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(values["grad"]))
            inputs, box = feed(message.tensors, values["needs_grad"])
            args, kwargs = unpack(values["arguments"], inputs)
            for kind, dtype in values["autocast"]:
                stack.enter_context(torch.autocast(kind, dtype))
            output = self.model.run_segment(segments[hop], args, kwargs)
            last = hop == len(segments) - 1
            packed = pack(output if last else ((output,), {}))
        needs = [values["grad"] and it.requires_grad for it in packed.tensors]
        frame = Frame(key, hop, values["previous"], packed.tensors, last=last, box=box)
        self.frames[key, hop] = frame
        if not last:
            self._request(key, segments, hop + 1, self.stage, packed, needs, values["grad"])
            return
        answer = {"key": key, "structure": packed.values, "needs_grad": needs}
        self.wire.send(key[0], Message("result", answer, list(packed.tensors)))
        if (key[0], key[2]) in self.learned.silent:
            frame.sent = [None] * len(frame.outputs)
        self._predict(key[1])

    def pull(self, key: Key, hop: int, stage: int, grads: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The gradients of a call's inputs, of those of its outputs that come from the caller."""
        box = self.gradients.setdefault(key, [])
        name = (key[0], key[2])
        quiet = all(it is None for it in grads)
        if not quiet:
            self.learned.loud.add(name)
            if name in self.learned.silent:
                raise SMPRuntimeError(
                    f"stage {self.stage}: call {key[2]} of microbatch {key[1]} gets a gradient that it did not get before: control flow changed between steps"
                )
        else:
            self.learned.unsure.add(name)
        if name not in self.learned.silent:
            self.wire.send(stage, Message("gradient", {"key": key, "hop": hop}, list(grads)))
        self.baton.wait(lambda: bool(box))
        return self.gradients.pop(key)[0]

    # Backward passes

    def _maybe_backward(self, frame: Frame) -> None:
        if frame.queued or frame.sent is None or (frame.awaits_own and not frame.own):
            return
        frame.queued = True
        micro = frame.key[1]
        task = Task(
            lambda: self._serve_backward(frame),
            self.order.turn(micro, "backward", frame.key),
            ("backward", micro),
            (2, *frame.key, frame.hop),
        )
        task.until = self._may_backward
        self.tasks.append(task)

    def _may_backward(self) -> bool:
        return not self.order.simple or all(it.at_backward or it.over for it in self.bodies)

    def _serve_backward(self, frame: Frame) -> None:
        del self.frames[frame.key, frame.hop]
        pairs = []
        for place, output in enumerate(frame.outputs):
            found = [it for it in (frame.sent[place], frame.own.get(place)) if it is not None]
            if found and output.requires_grad:
                pairs.append((output, found[0] if len(found) == 1 else found[0] + found[1]))
        if pairs:
            self.model.begin_backward(frame.key[1])
            torch.autograd.backward([it for it, _ in pairs], [it for _, it in pairs])
        grads = frame.box.take()
        name = "inputs" if frame.hop == 0 else "gradient"
        values = {"key": frame.key} if frame.hop == 0 else {"key": frame.key, "hop": frame.hop - 1}
        self.wire.send(frame.previous, Message(name, values, grads))

    # The model's outputs

    def outputs(self, output: Any = None) -> Any:
        """The model's outputs in this rank's body: the owner gives them, the others wait for
        them.
        """
        body = self.bodies[self.baton.current.label[1]]
        call = body.calls
        body.calls += 1
        if self.stage == self.owner:
            packed = pack(output)
            sources = [self._source(it, body.micro) for it in packed.tensors]
            self._tell_outputs(body, call, packed, sources)
            structure, tensors = packed.values, packed.tensors
        else:
            self._predict_call(body, call)
            self.baton.wait(lambda: call in body.arrived)
            structure, tensors, sources = body.arrived[call]
        fed, box = feed([it.detach() for it in tensors], [it.requires_grad for it in tensors])
        body.outputs.append((box, sources, tensors))
        return unpack(structure, fed)

    def _source(self, it: torch.Tensor, micro: int) -> Source | None:
        found = self.given.get(micro, {}).get(id(it))
        if found is None:
            return None
        _, key, place, stage = found
        return (stage, key[0], key[2], place)

    def _tell_outputs(self, body: Body, call: int, packed: Packed, sources: list) -> None:
        needs = [it.requires_grad for it in packed.tensors]
        for stage in range(self.wire.stages):
            if stage == self.stage:
                continue
            tensors = [
                None if source is not None and source[0] == stage else it
                for it, source in zip(packed.tensors, sources, strict=True)
            ]
            values = {
                "micro": body.micro,
                "call": call,
                "structure": packed.values,
                "sources": sources,
                "needs_grad": needs,
            }
            self.wire.send(stage, Message("outputs", values, tensors))

    def _outputs_came(self, message: Message) -> None:
        values = message.values
        body, call, sources = self.bodies[values["micro"]], values["call"], values["sources"]
        if call in body.predicted:
            known = self.learned.outputs[call]
            if known[1] != sources or known[0] != pickle.dumps(values["structure"]):
                raise SMPRuntimeError(
                    f"stage {self.stage}: the model's outputs of microbatch {body.micro} have another structure than in the steps before: control flow changed"
                )
            return
        tensors = []
        for it, source, needs in zip(message.tensors, sources, values["needs_grad"], strict=True):
            if it is None:
                frame = self._frame(source, body.micro)
                frame.awaits_own = frame.awaits_own or needs
                tensors.append(frame.outputs[source[3]])
            else:
                tensors.append(it.requires_grad_(needs))
        body.arrived[call] = (values["structure"], tensors, sources)
        # A number beside the tensors may be another one in the next step.
        shown = (pickle.dumps(values["structure"]), sources) if is_empty(values["structure"]) else (b"", [])
        if (self.learned.steps == 0 or call in self.learned.outputs) and self.learned.outputs.setdefault(
            call, shown
        ) != shown:
            self.learned.outputs[call] = (b"", [])

    def _frame(self, source: Source, micro: int) -> Frame | None:
        key = (source[1], micro, source[2])
        return next((it for (name, _), it in self.frames.items() if name == key and it.last), None)

    def _predict(self, micro: int) -> None:
        body = self.bodies[micro]
        for call in range(body.calls):
            self._predict_call(body, call)

    def _predict_call(self, body: Body, call: int) -> None:
        """Outputs that this rank computes itself need not be waited for."""
        if self.learned.steps == 0 or call in body.arrived:
            return
        structure, sources = self.learned.outputs.get(call, (b"", []))
        if not sources or any(it is None or it[0] != self.stage for it in sources):
            return
        if any(self._frame(it, body.micro) is None for it in sources):
            return
        tensors = []
        for source in sources:
            frame = self._frame(source, body.micro)
            frame.awaits_own = frame.awaits_own or frame.outputs[source[3]].requires_grad
            tensors.append(frame.outputs[source[3]])
        body.predicted.add(call)
        body.arrived[call] = (pickle.loads(structure), tensors, sources)

    def backward(self, tensors: list[torch.Tensor], grads: list[torch.Tensor | None] | None) -> None:
        """`model.backward` of this rank's body."""
        body = self.bodies[self.baton.current.label[1]]
        micro = body.micro
        body.at_backward = True
        self.baton.wait(self._may_backward, ("backward", micro), self.order.turn(micro, "backward"))
        torch.autograd.backward(tensors, grads)
        waiting, body.outputs = body.outputs, []
        for box, sources, graph in waiting:
            if not box.filled:
                # Outputs of another call of the model, which this loss does not depend on.
                body.outputs.append((box, sources, graph))
                continue
            if self.stage == self.owner:
                self._owner_backward(micro, box.take(), sources, graph)
            else:
                self._own_backward(micro, box.take(), sources)

    def _owner_backward(
        self, micro: int, grads: list[torch.Tensor | None], sources: list, graph: list[torch.Tensor]
    ) -> None:
        """From the model's outputs through the owner's graph; outputs of other stages get their
        gradients there.
        """
        starts: list[torch.Tensor] = []
        gradients: list[torch.Tensor] = []
        known = self.tokens.get(micro, {})
        for grad, source, it in zip(grads, sources, graph, strict=True):
            key = None if source is None else (source[1], micro, source[2])
            if key is not None and source[0] != self.stage:
                if it.requires_grad and key in known:
                    starts.append(known.pop(key))
                    gradients.append(torch.zeros(()))
            elif grad is not None:
                starts.append(it)
                gradients.append(grad)
        if starts:
            self.model.begin_backward(micro)
            torch.autograd.backward(starts, gradients)

    def _own_backward(self, micro: int, grads: list[torch.Tensor | None], sources: list) -> None:
        """Of the model's outputs those that this stage has computed."""
        touched = {}
        for grad, source in zip(grads, sources, strict=True):
            if source is not None and source[0] == self.stage:
                frame = self._frame(source, micro)
                if frame is not None:
                    frame.own[source[3]] = grad
                    touched[id(frame)] = frame
        for frame in touched.values():
            self._maybe_backward(frame)

    def _learn(self) -> None:
        """Records, after the step, facts for later steps."""
        learned = self.learned
        if learned.steps == 0:
            learned.silent = learned.unsure - learned.loud
            learned.outputs = {call: it for call, it in learned.outputs.items() if it[1]}
        learned.steps += 1


def _of_comm(error: BaseException) -> bool:
    return isinstance(error, CommError)
