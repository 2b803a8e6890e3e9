"""The hook for PyTorch by itself.

The outermost module that is called first is the model: its calls are the steps. Other outermost
modules of the first step (a GAN's) are looked at within these. Models are looked for by a callback
for all modules, which is gone after the first step and while a model runs: nothing of it is ever in
a compiled graph. Losses are seen in their classes, in their functions, and else by the tensor that
goes backward.
"""

import functools
import inspect
import threading
import warnings

from smdebug import automatic
from smdebug.core.modes import ModeKeys
from smdebug.core.singleton import get_hook
from smdebug.pytorch.callback import Callback
from smdebug.pytorch.models import attached_to, inner

#: Functions, and the names of the modules that call them.
LOSSES = {
    "binary_cross_entropy": "BCELoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss",
    "cosine_embedding_loss": "CosineEmbeddingLoss",
    "cross_entropy": "CrossEntropyLoss",
    "ctc_loss": "CTCLoss",
    "gaussian_nll_loss": "GaussianNLLLoss",
    "hinge_embedding_loss": "HingeEmbeddingLoss",
    "huber_loss": "HuberLoss",
    "kl_div": "KLDivLoss",
    "l1_loss": "L1Loss",
    "margin_ranking_loss": "MarginRankingLoss",
    "mse_loss": "MSELoss",
    "multi_margin_loss": "MultiMarginLoss",
    "multilabel_margin_loss": "MultiLabelMarginLoss",
    "multilabel_soft_margin_loss": "MultiLabelSoftMarginLoss",
    "nll_loss": "NLLLoss",
    "poisson_nll_loss": "PoissonNLLLoss",
    "smooth_l1_loss": "SmoothL1Loss",
    "soft_margin_loss": "SoftMarginLoss",
    "triplet_margin_loss": "TripletMarginLoss",
}
#: Of a loss that is none of these.
UNNAMED = "Loss"


class Seen:
    """What this process trains, as far as it is known. `hook` is None before the first step, and
    False where there is none to be.
    """

    def __init__(self, torch):
        self.torch = torch
        #: `calls` are of the first model, or backward where there is none.
        self.hook, self.leader, self.calls = None, None, 0
        self.search = None
        #: Whether this thread is within a loss's module, which then has the name.
        self.within = threading.local()
        #: Whether losses are of interest now: while the step is saved, or there is no model.
        self.is_watching = True
        #: Whether no loss was seen since the step began, and one that waits for its step.
        self.is_without_loss, self.waiting = True, None
        self._searching_callbacks = []

    # Models.

    def look_for_models(self) -> None:
        """Looks at each call of a module until this is over."""
        if self.search is None:
            self.search = self.torch.nn.modules.module.register_module_forward_pre_hook(self.called)

    def pause(self) -> None:
        """Ends the search until `look_for_models` begins it again."""
        if self.search is not None:
            self.search.remove()
            self.search = None

    def stop_looking(self) -> None:
        """Ends the search for the rest of the program."""
        self.pause()
        for callback in self._searching_callbacks:
            callback.remove()
        self._searching_callbacks.clear()

    def called(self, module, inputs) -> None:
        """An outermost module is called: from now on it is looked at itself, if it is a model."""
        torch = self.torch
        if torch.compiler.is_compiling() or self.hook is False or torch.jit.is_tracing():
            return
        if isinstance(module, torch.nn.modules.loss._Loss) or next(module.parameters(), None) is None:
            return
        # While it runs, its parts are not of interest, and nothing may be in what is compiled.
        self.pause()
        try:
            if self.find_hook() and not self.hook.follows(module):
                self.follow(module)
        except Exception as error:
            self.off(error)

    def find_hook(self) -> bool:
        """Whether there is a hook: one that the script has made is taken, unless it registers models
        itself.
        """
        if self.hook is None:
            from smdebug.pytorch.hook import Hook

            own = automatic.own_hook()
            if own is None:
                self.hook = automatic.make(Hook) or False
            else:
                self.hook = False if own.has_registered_module else own
        return bool(self.hook)

    def follow(self, module) -> None:
        """Looks at the calls of this model: the first one's are the steps."""
        at = attached_to(module)
        self.hook.follow(module)
        if self.leader is None:
            self.leader = inner(module)
            self.hook.attach(at.register_forward_pre_hook(Callback(self.leader_called)))
            if at is module:
                # Which callbacks this call has is already settled.
                self.leader_called(module, ())
        ended = at.register_forward_hook(Callback(self.model_ended), always_call=True)
        self._searching_callbacks.append(ended)

    def leader_called(self, module, inputs) -> None:
        """A step begins."""
        hook = self.hook
        if not hook or self.torch.compiler.is_compiling():
            return
        self.calls += 1
        mode = ModeKeys.TRAIN if self.leader.training else ModeKeys.EVAL
        if (hook.mode is mode or hook.mode_is_given) and hook.passes():
            self.is_watching = False
        elif self.is_on():
            self.begin(mode)

    def model_ended(self, module, inputs, outputs) -> None:
        """A model has run: others may follow it in the first step."""
        if self.torch.compiler.is_compiling():
            return
        if self.calls < 2 and self.is_on():
            self.look_for_models()
        else:
            self.stop_looking()

    def begin(self, mode) -> None:
        """A step begins, of this mode unless the script sets modes."""
        if not self.hook.mode_is_given:
            self.hook.use_mode(mode)
        self.hook.begin()
        self.is_without_loss = True
        self.is_watching = self.leader is None or self.hook.is_saving()

    def is_on(self) -> bool:
        """Whether the hook is the process's, and works."""
        if self.hook and (self.hook.failed or self.hook is not get_hook()):
            self.off()
        return bool(self.hook)

    # Losses.

    def loss_given(self, name, inputs, outputs) -> None:
        """A loss was computed."""
        if self.leader is None:
            self.waiting = name, inputs, outputs
        elif self.is_on():
            self.hook.offer(name, inputs, outputs)
            self.is_without_loss = False

    def goes_backward(self, tensor) -> None:
        """What goes backward is a loss: it is saved if none was seen in this step. Where no model is
        seen (one that compiles itself, or is no module), this is the step.
        """
        if self.leader is None:
            waiting, self.waiting = self.waiting, None
            self.calls += 1
            if self.calls > 1:
                self.stop_looking()
            if self.find_hook() and self.is_on():
                self.begin(ModeKeys.TRAIN)
                self.hook.offer(*(waiting or (UNNAMED, (), tensor)))
        elif self.is_without_loss and tensor.numel() == 1 and self.is_on():
            self.hook.offer(UNNAMED, (), tensor)
        self.is_without_loss = False

    def off(self, error=None) -> None:
        """Nothing is looked at any more."""
        self.stop_looking()
        if self.hook and error is not None:
            self.hook.give_up(error)
        self.hook, self.waiting, self.is_watching = False, None, False


def _patch_loss_modules(torch, seen: Seen) -> None:
    base = torch.nn.modules.loss._Loss
    call = torch.nn.Module.__call__
    is_compiling = torch.compiler.is_compiling

    def __call__(self, *args, **kwargs):
        if is_compiling() or not seen.is_watching:
            return call(self, *args, **kwargs)
        within = seen.within
        before, within.loss = getattr(within, "loss", False), True
        try:
            given = call(self, *args, **kwargs)
        finally:
            within.loss = before
        seen.loss_given(self._get_name(), args, given)
        return given

    base.__call__ = __call__


def _patch_functions(torch, seen: Seen) -> None:
    functional = torch.nn.functional
    is_compiling = torch.compiler.is_compiling

    def patched(function, name):
        @functools.wraps(function)
        def call(*args, **kwargs):
            given = function(*args, **kwargs)
            if not is_compiling() and seen.is_watching and not getattr(seen.within, "loss", False):
                seen.loss_given(name, args, given)
            return given

        # TorchScript compiles the function itself.
        call.__script_if_tracing_wrapper = True
        call.__original_fn = function
        return call

    for function, name in LOSSES.items():
        original = getattr(functional, function, None)
        if inspect.isfunction(original):
            setattr(functional, function, patched(original, name))


def _patch_backward(torch, seen: Seen) -> None:
    original = torch.Tensor.backward
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def backward(self, *args, **kwargs):
        if not is_compiling() and seen.is_watching:
            seen.goes_backward(self)
        return original(self, *args, **kwargs)

    torch.Tensor.backward = backward


def attach(torch) -> None:
    """Waits for a model to be called."""
    seen = Seen(torch)
    # It is right that it sees the compiled module, too.
    warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
    seen.look_for_models()
    _patch_loss_modules(torch, seen)
    _patch_functions(torch, seen)
    _patch_backward(torch, seen)
