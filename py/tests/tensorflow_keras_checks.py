"""What two ranks check of `horovod.keras`, partial distribution, callbacks and elastic training
with TensorFlow.
"""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
from tensorflow_checks import _model, _raises

import horovod.keras as hk
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from horovod.common.exceptions import HorovodInternalError


def _own_gradients(model):
    """A tape of a loss that differs by rank, and its gradients on this rank."""
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(model(tf.ones([1, 4]) * (hvd.rank() + 1.0)))
    return tape, loss, tape.gradient(loss, model.trainable_variables)


def _averages(grads):
    return [hvd.allreduce(it, op=hvd.Average) for it in grads]


def _near(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def partial_tape():
    """Gradients of local layers stay each rank's own, divided by the ranks unless asked
    otherwise; the others are averages.
    """
    model = _model()
    tape, loss, own = _own_gradients(model)
    mean = _averages(own)
    for scaled in (True, False):
        partial = hvd.PartialDistributedGradientTape(tape, local_layers=model.layers[0], scale_local_gradients=scaled)
        ours = partial.gradient(loss, model.trainable_variables)
        _near(ours, [*(it / (hvd.size() if scaled else 1) for it in own[:2]), *mean[2:]])
        local, others = partial.get_local_and_global_gradients(loss, model.trainable_variables)
        assert len(local) == len(others) == 2
    everything = hvd.PartialDistributedGradientTape(tape)
    _near(everything.gradient(loss, model.trainable_variables), mean)


def partial_optimizer():
    """The same of the optimizers of both modules, in one pass and in several."""
    for module in (hk, hvd_keras):
        for passes in (1, 2):
            model = _model()
            _, _, own = _own_gradients(model)
            mean, before = _averages(own), model.get_weights()
            optimizer = module.PartialDistributedOptimizer(
                keras.optimizers.SGD(1.0),
                local_layers=[model.layers[0]],
                scale_local_gradients=False,
                backward_passes_per_step=passes,
                average_aggregated_gradients=True,
            )
            for _ in range(passes):
                optimizer.apply_gradients(zip(own, model.trainable_variables, strict=True))
            moved = [one - other for one, other in zip(before, model.get_weights(), strict=True)]
            for ours, theirs in zip(moved, [*own[:2], *mean[2:]], strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-5)


def grouped():
    """Groups of gathers and of scatters, eagerly and in a function, with their gradients."""
    rank, size = hvd.rank(), hvd.size()

    def both(own):
        gathered = hvd.grouped_allgather([tf.repeat(own, rank + 1), tf.cast(own, tf.int32)])
        return [*gathered, *hvd.grouped_reducescatter([tf.range(4.0), tf.range(4.0) * own], op=hvd.Sum)]

    expected = [[0.0, 1.0, 1.0], [0, 1], *([[0.0, 2.0], [0.0, 1.0]] if rank == 0 else [[4.0, 6.0], [2.0, 3.0]])]
    for function in (both, tf.function(both)):
        assert [it.numpy().tolist() for it in function(tf.constant([float(rank)]))] == expected
    x, y = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])
    with tf.GradientTape(persistent=True) as tape:
        gathered = tf.add_n([tf.reduce_sum(it) for it in hvd.grouped_allgather([x, y])]) * (rank + 1.0)
        scattered = tf.add_n([tf.reduce_sum(it) for it in hvd.grouped_reducescatter([x, y], op=hvd.Sum)])
    assert [it.numpy().tolist() for it in tape.gradient(gathered, [x, y])] == [[1.5, 1.5]] * 2
    assert [it.numpy().tolist() for it in tape.gradient(scattered, [x, y])] == [[float(size)] * 2] * 2
    _raises(
        tf.errors.FailedPreconditionError,
        lambda: hvd.grouped_allgather([tf.ones([1, 1 + rank])], name="uneven group"),
        "uneven group",
    )


def best_model():
    """Rank 0 has a file of the epoch that was best, the others none."""
    rank = hk.rank()
    x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    for module in (hk, hvd_keras):
        model = _model()
        model.compile(module.DistributedOptimizer(keras.optimizers.SGD(0.05)), "mse")
        with tempfile.TemporaryDirectory() as directory:
            best = module.callbacks.BestModelCheckpoint(monitor="loss")
            best.filepath = os.path.join(directory, "best.keras")
            # The last epoch is worse: its targets are others.
            kept = []
            note = keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs, kept=kept, model=model: kept.append(
                    (logs["loss"], model.get_weights())
                )
            )
            model.fit(x, x[:, :2], epochs=2, batch_size=8, verbose=0, callbacks=[best, note])
            model.fit(x, 9 + x[:, :2], epochs=1, batch_size=8, verbose=0, callbacks=[best, note])
            losses = [it for it, _ in kept]
            assert losses.index(min(losses)) == 1, losses
            assert os.path.exists(best.filepath) == (rank == 0)
            if rank == 0:
                loaded = keras.models.load_model(best.filepath)
                for one, other in zip(loaded.get_weights(), kept[1][1], strict=True):
                    np.testing.assert_array_equal(one, other)


def keras_module():
    """`horovod.keras` trains as `horovod.tensorflow.keras` does, and has its calls for values."""
    rank, size = hk.rank(), hk.size()
    assert hk.is_initialized() and (rank, size) == (hvd.rank(), hvd.size())
    assert hk.allreduce(np.array([rank * 2.0])).tolist() == [1.0] and hk.allgather(np.array([rank])).tolist() == [0, 1]
    assert hk.broadcast(np.array([rank]), root_rank=1).tolist() == [1] and hk.broadcast_object("x" * rank, 1) == "x"
    assert hk.reducescatter(np.arange(2.0), op=hvd.Sum).tolist() == [2.0 * rank]
    x = np.random.default_rng(rank).normal(size=(16, 4)).astype("float32")
    weights = []
    for module in (hk, hvd_keras):
        model = _model(seed=rank)
        model.compile(module.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), "mse")
        callbacks = [module.callbacks.BroadcastGlobalVariablesCallback(0), module.callbacks.MetricAverageCallback()]
        model.fit(x, x[:, :2], batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
        weights.append([it.tolist() for it in model.get_weights()])
    assert weights[0] == weights[1] and hk.allgather_object(weights[0]) == [weights[0]] * 2


class _Counted(hvd_keras.elastic.KerasState):
    """Counts what it does."""

    commits = restores = 0

    def commit(self):
        self.commits += 1
        super().commit()

    def restore(self):
        self.restores += 1
        super().restore()


def elastic_callbacks():
    """Commits come every n batches and after an epoch; the batch and the epoch are counted
    through a second training.
    """
    model = _model()
    model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    state = _Counted(model, batch=0, epoch=0)
    seen = []
    callbacks = [
        hvd_keras.elastic.CommitStateCallback(state, batches_per_commit=2),
        hvd_keras.elastic.UpdateBatchStateCallback(state),
        hvd_keras.elastic.UpdateEpochStateCallback(state),
        keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append((state.epoch, state.batch))),
    ]
    x = np.ones((20, 4), "float32")
    model.fit(x, x[:, :2], batch_size=4, epochs=2, verbose=0, callbacks=callbacks)
    assert (state.epoch, state.batch, state.commits) == (2, 0, 7), (state.epoch, state.batch, state.commits)
    assert seen == [(epoch, batch) for epoch in range(2) for batch in range(5)], seen
    model.fit(x, x[:, :2], batch_size=4, epochs=1, verbose=0, callbacks=callbacks)
    assert (state.epoch, state.batch, state.commits) == (3, 0, 10), (state.epoch, state.batch, state.commits)


def elastic_run():
    """An operation of a graph that fails as those that wait for a lost rank do: the state goes
    back to the last commit, a new world forms, and training ends as an undisturbed one.
    """

    def lost():
        raise HorovodInternalError("rank 7 died")

    x = np.random.default_rng(5).normal(size=(3, 2, 8, 4)).astype("float32")  # epochs, ranks, samples

    def make():
        model, optimizer = _model(seed=hvd.rank()), keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)
        return model, optimizer

    def epoch(model, optimizer, samples):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(samples) - samples[:, :2]))
        tape = hvd.DistributedGradientTape(tape)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )

    results = []
    for fails in (False, True):
        model, optimizer = make()
        state = hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=0, read=[])
        calls, resets = [], []
        state.register_reset_callbacks([lambda resets=resets: resets.append(hvd.size())])

        @hvd.elastic.run
        def train(state, fails=fails, model=model, optimizer=optimizer, calls=calls):
            calls.append(state.epoch)
            while state.epoch < 3:
                epoch(model, optimizer, tf.constant(x[state.epoch, hvd.rank()]))
                if fails and len(calls) == 1 and state.epoch == 1:
                    tf.function(lambda: tf.numpy_function(lost, [], tf.float32))()
                state.read.append(state.epoch)
                state.epoch += 1
                state.commit()
            return hvd.size()

        assert train(state) == 2 and state.epoch == 3 and state.read == [0, 1, 2]
        assert (calls, resets) == (([0, 1], [2]) if fails else ([0], [])), (calls, resets)
        results.append([it.tolist() for it in model.get_weights()])
    assert results[0] == results[1] and hvd.allgather_object(results[0]) == [results[0]] * 2
    _raises(TypeError, lambda: hvd.elastic.run(lambda state: None)(object()), "sync")
    _raises(ValueError, lambda: hvd_keras.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)])), "built")
