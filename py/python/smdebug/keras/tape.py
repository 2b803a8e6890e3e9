"""A step by hand: `with hook.wrap_tape(tf.GradientTape()) as tape`."""


class Tape:
    """A tape whose block is a step, and whose gradients and loss are saved."""

    def __init__(self, tape, hook):
        self._tape, self._hook = tape, hook

    def __getattr__(self, name):
        return getattr(self._tape, name)

    def __enter__(self):
        self._hook.tape_begins()
        self._tape.__enter__()
        return self

    def __exit__(self, *raised):
        return self._tape.__exit__(*raised)

    def gradient(self, target, sources, *args, **kwargs):
        """The tape's own."""
        gradients = self._tape.gradient(target, sources, *args, **kwargs)
        self._hook.tape_gave(target, sources, gradients)
        return gradients
