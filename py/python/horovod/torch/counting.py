"""What both kinds of distributed optimizers have: names of parameters, and hooks that count
backward passes.
"""

import torch

MORE_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)
RACE = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or optimizer.synchronize(). "
    "This is prohibited as it can cause a race condition."
)


class Named:
    """What both kinds of distributed optimizers have: names of parameters, hooks that count
    backward passes.
    """

    def _name(self, named_parameters) -> None:
        given = list(named_parameters) if named_parameters is not None else None
        if given is not None and not all(isinstance(it, tuple) and len(it) == 2 for it in given):
            raise ValueError(
                "named_parameters should be a sequence of tuples (name, parameter), usually produced by model.named_parameters()."
            )
        parameters = [it for group in self.param_groups for it in group["params"]]
        if given is None:
            given = [
                (f"noname.{g}.{i}", it)
                for g, group in enumerate(self.param_groups)
                for i, it in enumerate(group["params"])
            ]
        all_names = [name for name, _ in given]
        twice = (
            sorted({str(name) for name in all_names if all_names.count(name) > 1})
            if len(set(all_names)) < len(all_names)
            else []
        )
        if twice:
            raise ValueError(
                f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}"
            )
        named = {id(it) for _, it in given}
        unnamed = [str(id(it)) for it in parameters if id(it) not in named]
        if unnamed:
            what = "named_parameters was specified, but one or more model parameters were not named. Python object ids"
            raise ValueError(f"{what}: {', '.join(unnamed)}")
        self._parameter_names = {it: name for name, it in given}

    def _prepare(self, passes: int, hooked: bool) -> None:
        self.backward_passes_per_step = passes
        self._synchronized = False
        self._allreduce_delay: dict[torch.Tensor, int] = {}
        self._requires_update: list[torch.Tensor] = []
        self._hooks = []
        if hooked:
            for it in (it for group in self.param_groups for it in group["params"] if it.requires_grad):
                self._requires_update.append(it)
                self._allreduce_delay[it] = passes
                self._hooks.append(_when_accumulated(it, self._counted))

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sets the number of backward passes of a step; counting starts again."""
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = passes
        for it in self._allreduce_delay:
            self._allreduce_delay[it] = passes

    def _counted(self, parameter: torch.Tensor) -> bool:
        """Counts a backward pass of the parameter. True if it was the step's last."""
        if self._allreduce_delay[parameter] <= 0:
            raise AssertionError(MORE_PASSES)
        assert not parameter.grad.requires_grad, "gradients of gradients (create_graph=True) cannot be reduced"
        self._allreduce_delay[parameter] -= 1
        return self._allreduce_delay[parameter] == 0

    def _is_counting(self) -> bool:
        """Whether a backward pass of the next step has been counted."""
        return any(left < self.backward_passes_per_step for left in self._allreduce_delay.values())

    def local_step(self):
        """A step of the wrapped optimizer on this rank's gradients, without communication."""
        return super().step()


def _when_accumulated(parameter: torch.Tensor, hook):
    """Calls `hook(parameter)` whenever its gradient has been accumulated. The result must be
    kept alive for that.
    """
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(hook)
    accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    accumulator.register_hook(lambda *_: hook(parameter) and None)
    return accumulator
