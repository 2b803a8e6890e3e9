"""What two ranks check of `horovod.tensorflow`, `horovod.keras`, `shoal.keras` and SageMaker's
library.
"""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import shoal.keras
from shoal.parallel import Invalid, LossScale


def _raises(kind, function, text):
    try:
        function()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


def collectives():
    """Eagerly and in a function, of every type."""
    rank, size = hvd.rank(), hvd.size()
    for dtype in (tf.uint8, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64):
        assert hvd.allreduce(tf.ones([3], dtype), op=hvd.Sum).numpy().tolist() == [size] * 3, dtype
    assert hvd.allgather(tf.ones([2], tf.uint16)).dtype == tf.uint16

    def everything(own):
        gathered = hvd.allgather(tf.repeat(own, rank + 1))
        received, splits = hvd.alltoall(tf.range(rank * 10, rank * 10 + size), splits=[1] * size)
        return [
            hvd.allreduce(own, op=hvd.Max),
            gathered,
            hvd.broadcast(own, root_rank=1),
            received,
            splits,
            hvd.reducescatter(tf.range(5.0), op=hvd.Sum),
            *hvd.grouped_allreduce([own, own * 2]),
        ]

    expected = [
        [1.0],
        [0.0, 1.0, 1.0],
        [1.0],
        [rank, 10 + rank],
        [1, 1],
        [0.0, 2.0, 4.0] if rank == 0 else [6.0, 8.0],
        [0.5],
        [1.0],
    ]
    own = tf.constant([float(rank)])
    for function in (everything, tf.function(everything)):
        assert [it.numpy().tolist() for it in function(own)] == expected
    slices = tf.IndexedSlices(tf.ones([1, 2]) * (rank + 1), tf.constant([rank]), tf.constant([4, 2]))
    summed = hvd.allreduce(slices, op=hvd.Average)
    assert summed.values.numpy().tolist() == [[0.5, 0.5], [1.0, 1.0]] and summed.indices.numpy().tolist() == [0, 1]
    assert hvd.broadcast_object({"rank": rank}, root_rank=1) == {"rank": 1}
    assert hvd.allgather_object("x" * (rank + 1)) == ["x", "xx"]
    assert (hvd.size_op().numpy(), hvd.rank_op().numpy()) == (size, rank)


def gradients_of_collectives():
    """Each collective's gradient is its counterpart."""
    rank, size = hvd.rank(), hvd.size()
    x = tf.Variable([1.0, 2.0])
    for function, expected in [
        (lambda: hvd.allreduce(x, op=hvd.Sum), [2.0, 2.0]),
        (lambda: hvd.allreduce(x), [1.0, 1.0]),
        (lambda: hvd.allgather(x) * (rank + 1.0), [1.5, 1.5]),
        (lambda: hvd.broadcast(x, 1), [1.0, 1.0] if rank == 1 else [0.0, 0.0]),
        (lambda: hvd.alltoall(x) * (rank + 1.0), [1.0, 2.0]),
        (lambda: hvd.reducescatter(x, op=hvd.Sum), [float(size)] * 2),
    ]:
        with tf.GradientTape() as tape:
            y = function()
        assert tape.gradient(y, x).numpy().tolist() == expected


def mistakes_are_named():
    """What ranks disagree on is an error on both, and the next operation works."""
    rank = hvd.rank()
    _raises(tf.errors.FailedPreconditionError, lambda: hvd.allreduce(tf.ones([2 + rank]), name="uneven"), "uneven")
    _raises(
        tf.errors.FailedPreconditionError, lambda: hvd.broadcast(tf.ones([2]), root_rank=rank, name="roots"), "roots"
    )
    _raises(
        tf.errors.UnknownError, lambda: tf.function(lambda: hvd.allreduce(tf.ones([2 + rank]), name="graph"))(), "graph"
    )
    _raises(ValueError, lambda: hvd.allreduce(tf.ones(2), average=True, op=hvd.Sum), "average")
    _raises(
        NotImplementedError,
        lambda: hvd.allreduce(tf.IndexedSlices(tf.ones([1]), tf.constant([0])), op=hvd.Min),
        "Sum and Average",
    )
    _raises(tf.errors.InvalidArgumentError, lambda: hvd.alltoall(tf.ones([3])), "splits")
    _raises(ValueError, lambda: hvd_keras.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Min), "Average and Sum")
    _raises(TypeError, lambda: hvd_keras.DistributedOptimizer("sgd"), "one of Keras")
    _raises(
        TypeError, lambda: hvd_keras.DistributedOptimizer(keras.optimizers.SGD(), compression="fp16"), "hvd.Compression"
    )
    _raises(TypeError, lambda: hvd.DistributedGradientTape(None), "tf.GradientTape")
    _raises(ValueError, lambda: hvd.DistributedGradientTape(tf.GradientTape(), op="mean"), "hvd.Average")
    assert hvd.allreduce(tf.ones([1]), op=hvd.Sum).numpy()[0] == 2


def tapes():
    """Average, sum, compressed, sparse, local."""
    rank, x, table = hvd.rank(), tf.Variable([1.0, 2.0]), tf.Variable(tf.ones([3, 1]))

    @tf.function
    def grads(**more):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(x) * (rank + 1.0) + tf.reduce_sum(tf.gather(table, [rank]))
        return hvd.DistributedGradientTape(tape, **more).gradient(y, [x, table])

    for more, expected in [
        ({}, 1.5),
        ({"op": hvd.Sum}, 3.0),
        ({"compression": hvd.Compression.fp16}, 1.5),
        ({"gradient_predivide_factor": 2.0, "groups": 1, "sparse_as_dense": True}, 1.5),
    ]:
        ours, sparse = grads(**more)
        assert ours.numpy().tolist() == [expected] * 2, more
        assert tf.convert_to_tensor(sparse).numpy()[:2].sum() == (2.0 if more.get("op") == hvd.Sum else 1.0)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(x) * (rank + 1.0)
    tape = hvd.DistributedGradientTape(tape)
    tape.register_local_source(x)
    assert tape.gradient(y, [x])[0].numpy().tolist() == [(rank + 1.0) / 2] * 2


def _applied(optimizer, variable):
    """A function of a gradient: arguments with a default would be inputs of a `tf.function`."""
    return lambda gradient: optimizer.apply_gradients([(gradient, variable)])


def aggregation():
    """Several passes: sums over passes, means over ranks, iterations as Horovod counts them."""
    rank = hvd.rank()
    for average in (False, True):
        for in_graph in (False, True):
            optimizer = hvd_keras.DistributedOptimizer(
                keras.optimizers.SGD(1.0),
                backward_passes_per_step=3,
                average_aggregated_gradients=average,
                sparse_as_dense=True,
            )
            variable = keras.Variable(np.zeros(2, "float32"))

            apply = _applied(optimizer, variable)
            apply = tf.function(apply) if in_graph else apply
            for i in range(7):
                apply(tf.constant([i * (rank + 1.0), 1.0]))
            expected = np.array([-15 * 1.5, -6.0]) / (3 if average else 1)
            np.testing.assert_allclose(np.array(variable), expected, rtol=1e-6)
            assert int(optimizer.iterations) == 7 and optimizer._agg_helper.counter.numpy() == 1
    sparse = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    slices = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0]), tf.constant([1, 1]))
    _raises(
        ValueError,
        lambda: sparse.apply_gradients([(slices, keras.Variable(np.ones((1, 1), "float32")))]),
        "sparse_as_dense",
    )


def _scaled(optimizer, variable, slope):
    def step(bad):
        gradient = optimizer.scale_loss(tf.ones(3) * slope)
        optimizer.apply([tf.where(bad, gradient * float("inf"), gradient)], [variable])

    return step


def loss_scale():
    """The trace of the scale is that of `shoal.parallel.LossScale`, whichever way the optimizers
    are wrapped.
    """
    rank, size = hvd.rank(), hvd.size()
    for passes in (1, 2):
        for outside in (False, True):
            more = {"backward_passes_per_step": passes, "average_aggregated_gradients": True}
            scaled = {"dynamic_growth_steps": 2, "initial_scale": 1024.0}
            optimizer = keras.optimizers.SGD(0.5)
            if outside:
                optimizer = hvd_keras.DistributedOptimizer(
                    keras.optimizers.LossScaleOptimizer(optimizer, **scaled), **more
                )
            else:
                optimizer = keras.optimizers.LossScaleOptimizer(
                    hvd_keras.DistributedOptimizer(optimizer, **more), **scaled
                )
            variable = keras.Variable(np.zeros(3, "float32"))
            optimizer.build([variable])
            step = tf.function(_scaled(optimizer, variable, rank + 1.0))
            rule, expected = LossScale(passes, initial=1024.0, interval=2, min=1), 0.0
            for i in range(12):
                # One rank only.
                step(tf.constant(i in (3, 8) and rank == size - 1))
                if rule.add(i not in (3, 8)) and rule.step(rule.found):
                    expected -= 0.5 * 1.5
                assert float(optimizer.dynamic_scale.value) == rule.scale, (passes, outside, i)
            np.testing.assert_allclose(np.array(variable), [expected] * 3)


def _model(seed=3):
    layers, one = keras.layers, keras.initializers.GlorotUniform
    return keras.Sequential(
        [
            layers.Input((4,)),
            layers.Dense(8, "tanh", kernel_initializer=one(seed)),
            layers.Dense(2, kernel_initializer=one(seed + 1)),
        ]
    )


def large_batch():
    """Two ranks with two passes, or one, train as four workers; with Adam, whose correction of
    bias counts steps, and clipping of the whole step.
    """
    rank, size = hvd.rank(), hvd.size()
    x = np.random.default_rng(0).normal(size=(6, 4, 8, 4)).astype("float32")  # steps, workers, samples
    y = np.tanh(x[..., :2])
    model = _model()
    model.compile(shoal.keras.LargeBatch(keras.optimizers.Adam(0.05, clipnorm=0.1), simulate=4), "mse")
    own = x[:, rank::size].reshape(-1, 4), y[:, rank::size].reshape(-1, 2)
    model.fit(*own, batch_size=8, epochs=1, shuffle=False, verbose=0)
    assert int(model.optimizer.iterations) == 6
    whole = _model()
    whole.compile(keras.optimizers.Adam(0.05, clipnorm=0.1), "mse")
    whole.fit(x.reshape(-1, 4), y.reshape(-1, 2), batch_size=32, epochs=1, shuffle=False, verbose=0)
    for one, other in zip(model.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    _raises(Invalid, lambda: shoal.keras.LargeBatch(keras.optimizers.SGD(), simulate=3), "3")
    os.environ["SHOAL_SIMULATE_INSTANCES"] = "2"
    try:
        simulated = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1))
        assert simulated._agg_helper.passes == 2 * hvd.local_size() * hvd.cross_size() // size
        # A rate that was multiplied by the simulated ranks warms up from one worker's.
        warmup = hvd_keras.callbacks.LearningRateWarmupCallback(initial_lr=0.4, warmup_epochs=2, steps_per_epoch=4)
        workers = 2 * hvd.local_size()
        np.testing.assert_allclose(warmup.multiplier(2.0 - 1 / 4), 1.0)
        np.testing.assert_allclose(warmup.multiplier(-1 / 4), 1 / workers)
        os.environ["SHOAL_SIMULATE_RATE"] = "by_size"
        scaled = hvd_keras.DistributedOptimizer(keras.optimizers.AdamW(0.1, weight_decay=0.5))
        plain = keras.optimizers.AdamW(0.1 * workers / size, weight_decay=0.5)
        ours, theirs = keras.Variable([1.0]), keras.Variable([1.0])
        for _ in range(2 * simulated._agg_helper.passes):
            scaled.apply_gradients([(tf.constant([0.5]), ours)])
        for _ in range(2):
            plain.apply_gradients([(tf.constant([0.5]), theirs)])
        np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=1e-6)
        assert abs(float(scaled.learning_rate) - 0.1) < 1e-6
        if workers != size:
            _raises(
                ValueError,
                lambda: hvd.DistributedGradientTape(tf.GradientTape()),
                "SHOAL_SIMULATE_INSTANCES: DistributedGradientTape",
            )
    finally:
        del os.environ["SHOAL_SIMULATE_INSTANCES"]
        os.environ.pop("SHOAL_SIMULATE_RATE", None)


def training_with_callbacks():
    """`fit` in the spelling of Keras 2: ranks end alike, metrics are means, the rate warms up."""
    rank = hvd.rank()
    model = _model(seed=rank)
    model.compile(
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD(lr=0.1, momentum=0.9)),
        "mse",
        experimental_run_tf_function=False,
    )
    x = np.random.default_rng(rank).normal(size=(32, 4)).astype("float32")
    callbacks = [
        hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd_keras.callbacks.MetricAverageCallback(),
        hvd_keras.callbacks.LearningRateWarmupCallback(initial_lr=0.1, warmup_epochs=2),
    ]
    history = model.fit(x, x[:, :2], batch_size=8, epochs=3, verbose=0, callbacks=callbacks).history
    assert hvd.allgather_object(history) == [history] * 2
    np.testing.assert_allclose(history["lr"], [0.075, 0.1, 0.1], rtol=1e-6)
    for it in model.trainable_variables + model.optimizer.variables():
        both = hvd.allgather(tf.reshape(tf.convert_to_tensor(it), [1, -1])).numpy()
        np.testing.assert_array_equal(both[0], both[1])
    # Momentum correction reaches the compiled step: by half for each batch that halves the rate.
    model, seen = _model(), []
    model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.8)), "mse")
    schedule = hvd_keras.callbacks.LearningRateScheduleCallback(0.1, 0.5)
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: seen.append(
            round(float(tf.convert_to_tensor(model.optimizer.momentum)), 6)
        )
    )
    model.fit(x, x[:, :2], batch_size=16, epochs=2, verbose=0, callbacks=[schedule, watch])
    assert seen == [0.8, 0.8, 0.4, 0.8], seen
    assert model.optimizer.get_config()["momentum"] == 0.8


def saved_models():
    """A saved model is loaded without Horovod, and with it, with the optimizer's state."""
    model = _model()
    model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01)), keras.losses.MeanSquaredError())
    x = np.ones((8, 4), "float32")
    model.fit(x, x[:, :2], verbose=0)
    with tempfile.TemporaryDirectory() as directory:
        for name in ("model.keras", "model.h5"):
            path = os.path.join(directory, name)
            model.save(path)
            assert type(keras.models.load_model(path).optimizer) is keras.optimizers.Adam
            loaded = hvd_keras.load_model(path)
            assert type(loaded.optimizer).__module__ == "horovod._keras" and type(loaded.optimizer).__name__ == "Adam"
            for ours, theirs in zip(model.optimizer.variables(), loaded.optimizer.variables, strict=True):
                np.testing.assert_array_equal(np.array(ours), np.array(theirs))
            loaded.fit(x, x[:, :2], verbose=0)
        model.save(os.path.join(directory, "1"))
        assert os.path.exists(os.path.join(directory, "1", "saved_model.pb"))


def sync_batch_norm():
    """Moments of all ranks' batches."""
    x = np.random.default_rng(1).normal(size=(2, 4, 3)).astype("float32")
    layer, whole = hvd.SyncBatchNormalization(), keras.layers.BatchNormalization()
    ours = layer(x[hvd.rank()], training=True)
    theirs = whole(x.reshape(8, 3), training=True).numpy().reshape(2, 4, 3)[hvd.rank()]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, whole.moving_variance, atol=1e-5)


def sessions():
    """Graphs of TensorFlow 1: more waiting operations than cores, the hook, several passes,
    Adasum.
    """
    rank = hvd.rank()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        x = v1.get_variable("x", initializer=tf.constant([float(rank + 1)]))
        train = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.5, 0.9)).minimize(
            tf.reduce_sum(x) * (rank + 1), v1.train.get_or_create_global_step()
        )
        means = [hvd.allreduce(tf.constant(float(i * rank)), name=f"mean{i}") for i in range(10)]
        with v1.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(0)]) as session:
            assert session.run(x).tolist() == [1.0]
            assert session.run([train, *means])[1:] == [i / 2 for i in range(10)]
            assert session.run(x).tolist() == [0.25]
    with tf.Graph().as_default():
        x = v1.get_variable("x", initializer=tf.constant([0.0]))
        y = v1.get_variable("y", initializer=tf.constant([0.0, 0.0]))
        step = v1.train.get_or_create_global_step()
        several = hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2, average_aggregated_gradients=True
        )
        train = several.minimize(tf.reduce_sum(x) * (rank + 1), global_step=step)
        adasum = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), op=hvd.Adasum)
        orthogonal = adasum.minimize(tf.reduce_sum(y * tf.constant([1.0 - rank, float(rank)])))
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            seen = []
            for _ in range(5):
                session.run(train)
                seen.append((session.run(x)[0], session.run(step)))
            assert seen == [(0.0, 1), (-1.5, 2), (-1.5, 3), (-3.0, 4), (-3.0, 5)], seen
            session.run(orthogonal)
            np.testing.assert_allclose(session.run(y), [-1.0, -1.0])


def many_in_a_session():
    """More collectives than TensorFlow has threads, which each rank begins in another order;
    those that fail are named, and the next run works.
    """
    rank, many, v1 = hvd.rank(), 100, tf.compat.v1
    with tf.Graph().as_default():
        given = v1.placeholder(tf.float32, [None])
        sums = {}
        for i in range(many) if rank == 0 else reversed(range(many)):
            sums[i] = hvd.allreduce(given + i, name=f"many{i}", op=hvd.Sum)
        in_branch = tf.cond(
            tf.reduce_sum(given) > -1, lambda: hvd.allreduce(given, name="branch", op=hvd.Sum), lambda: given
        )
        with v1.Session(config=v1.ConfigProto(inter_op_parallelism_threads=2)) as session:
            for _ in range(2):
                results = session.run([sums[i] for i in range(many)] + [in_branch], {given: [float(rank)]})
                assert [it.tolist() for it in results] == [[2.0 * i + 1] for i in range(many)] + [[1.0]]
                _raises(tf.errors.UnknownError, lambda: session.run(sums[7], {given: [1.0] * (rank + 1)}), "many7")


def states():
    """Elastic states: given to all, saved, restored."""
    rank = hvd.rank()
    model = _model(seed=rank)
    model.compile(keras.optimizers.Adam(), "mse")
    state = hvd_keras.elastic.KerasState(model, batch=20 + rank, epoch=rank)
    state.sync()
    assert (state.batch, state.epoch) == (20, 0)
    root = [it.tolist() for it in model.get_weights()]
    assert hvd.allgather_object(root) == [root] * 2
    model.set_weights([it * 0 for it in model.get_weights()])
    state.batch = 21
    state.restore()
    assert state.batch == 20 and [it.tolist() for it in model.get_weights()] == root
    variables = hvd.elastic.TensorFlowState([tf.Variable([float(rank)])], step=rank)
    variables.sync()
    assert variables.variables[0].numpy().tolist() == [0.0] and variables.step == 0


def sagemaker():
    """The canonical loop of SageMaker's library, whose optimizer's `variables` is called."""
    import smdistributed.dataparallel.tensorflow as sdp

    _raises(RuntimeError, sdp.init, "more than once")
    rank, model, optimizer = sdp.rank(), _model(seed=sdp.rank()), tf.optimizers.Adam(0.01 * sdp.size())
    x = tf.constant(np.random.default_rng(rank).normal(size=(8, 4)).astype("float32"))

    @tf.function
    def step(x, first):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True)))
        tape = sdp.DistributedGradientTape(tape)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        if first:
            sdp.broadcast_variables(model.variables, root_rank=0)
            sdp.broadcast_variables(optimizer.variables(), root_rank=0)
        return sdp.oob_allreduce(loss)

    for i in range(3):
        loss = float(step(x, i == 0))
    assert sdp.size() == 2 and hvd.allgather_object(loss) == [loss] * 2
    weights = [it.tolist() for it in model.get_weights()]
    assert hvd.allgather_object(weights) == [weights] * 2
    assert sdp.allreduce(tf.constant(2.0 * rank), 0, 1, op=sdp.ReduceOp.MAX).numpy() == 2.0
    _raises(ValueError, lambda: sdp.DistributedOptimizer(tf.optimizers.Adam(), bucket_cap_mb=0.00001), "128")


def joined():
    """A rank without data supplies zeros, and Average divides by all ranks."""
    if hvd.rank() == 0:
        assert hvd.allreduce(tf.constant([4.0])).numpy().tolist() == [2.0]
    last = int(hvd.join())
    assert hvd.allreduce(tf.constant([1.0]), op=hvd.Sum).numpy().tolist() == [2.0]
    assert hvd.allgather_object(last) == [last] * 2
