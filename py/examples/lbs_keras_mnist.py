"""The published experiment of large batch simulation: Keras on MNIST on 4 workers, and on 1 worker
with 4 passes for each step.

    horovodrun -np 4 python py/examples/lbs_keras_mnist.py --data ../shared/data/mnist --out four.json
    python py/examples/lbs_keras_mnist.py --data ../shared/data/mnist --passes 4 --out one.json

Both read the same batches: worker w of 4 is a rank of the first program, and the w-th pass of each
step of the second. `--dtype mixed_float16` trains with a loss scale. `--how large-batch` uses
`shoal.keras.LargeBatch` in the place of Horovod's flags. `--plain` leaves out dropout, which no two
programs draw alike: then the curves agree to rounding, if `iterations` counts steps (SGD, or
large-batch). Writes the loss and accuracy of each epoch, and the loss of each step, averaged over
all workers, as JSON.
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import horovod.tensorflow.keras as hvd
import shoal.keras


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="directory with MNIST: idx files (.gz or not), or mnist.npz"
    )
    parser.add_argument("--passes", type=int, default=1, help="passes for each step of the optimizer")
    parser.add_argument("--how", choices=["horovod", "large-batch"], default="horovod")
    parser.add_argument("--dtype", choices=["float32", "mixed_float16"], default="float32")
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument(
        "--rate", type=float, default=0.001, help="learning rate of one worker; it is multiplied by the workers"
    )
    parser.add_argument("--batch", type=int, default=128, help="samples of a worker in a step")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, default=None, help="steps of the optimizer in an epoch; all of the data if it is left out"
    )
    parser.add_argument("--plain", action="store_true", help="without dropout")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None)
    return parser.parse_args()


def idx(directory: Path, name: str) -> np.ndarray:
    """An array of a file in MNIST's format."""
    path = next(it for it in (directory / f"{name}.gz", directory / name) if it.exists())
    data = (gzip.open(path) if path.suffix == ".gz" else path.open("rb")).read()
    dimensions = data[3]
    shape = np.frombuffer(data, ">i4", dimensions, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def mnist(directory: Path) -> tuple[np.ndarray, ...]:
    """Images and labels for training, and for the test."""
    if (directory / "mnist.npz").exists():
        with np.load(directory / "mnist.npz") as it:
            return it["x_train"], it["y_train"], it["x_test"], it["y_test"]
    return tuple(
        idx(directory, it)
        for it in (
            "train-images-idx3-ubyte",
            "train-labels-idx1-ubyte",
            "t10k-images-idx3-ubyte",
            "t10k-labels-idx1-ubyte",
        )
    )


def network(plain: bool, seed: int) -> keras.Model:
    """That of the experiment."""
    layers, one = keras.layers, keras.initializers.GlorotUniform

    def dropout(rate: float) -> list[keras.layers.Layer]:
        return [] if plain else [layers.Dropout(rate, seed=seed + 10 + hvd.rank())]

    return keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu", kernel_initializer=one(seed)),
            layers.Conv2D(64, 3, activation="relu", kernel_initializer=one(seed + 1)),
            layers.MaxPooling2D(2),
            *dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu", kernel_initializer=one(seed + 2)),
            *dropout(0.5),
            layers.Dense(10, activation="softmax", dtype="float32", kernel_initializer=one(seed + 3)),
        ]
    )


def batches(
    images: np.ndarray, labels: np.ndarray, given: argparse.Namespace, workers: int, steps: int
) -> tf.data.Dataset:
    """This rank's batches: those of workers rank, rank + ranks, ... in each step."""
    ranks, rank = hvd.size(), hvd.rank()

    def all_of_them():
        for epoch in range(given.epochs):
            order = np.random.default_rng([given.seed, epoch]).permutation(len(images))
            for step in range(steps):
                for worker in range(rank, workers, ranks):
                    at = order[(step * workers + worker) * given.batch :][: given.batch]
                    yield images[at][..., None].astype(np.float32) / 255, labels[at].astype(np.int64)

    signature = (tf.TensorSpec((given.batch, 28, 28, 1), tf.float32), tf.TensorSpec((given.batch,), tf.int64))
    return tf.data.Dataset.from_generator(all_of_them, output_signature=signature).prefetch(2)


class Losses(keras.callbacks.Callback):
    """The loss of each step, averaged over passes and ranks."""

    def __init__(self, passes: int):
        super().__init__()
        self.passes, self.steps, self.sums = passes, [], []

    def on_epoch_begin(self, epoch, logs=None):
        self.seen, self.total = 0, 0.0

    def on_train_batch_end(self, batch, logs=None):
        # Keras gives the mean of the epoch so far.
        total = logs["loss"] * (batch + 1)
        self.sums.append(total - self.total)
        self.total = total
        if len(self.sums) == self.passes:
            self.steps.append(float(np.mean(self.sums)))
            self.sums = []


def main() -> None:
    given = options()
    hvd.init()
    keras.utils.set_random_seed(given.seed)
    keras.mixed_precision.set_global_policy(given.dtype)
    workers = hvd.size() * given.passes
    images, labels, test_images, test_labels = mnist(given.data)
    steps = given.steps or len(images) // (workers * given.batch)

    rate = given.rate * workers
    optimizer = keras.optimizers.Adam(rate) if given.optimizer == "adam" else keras.optimizers.SGD(rate, momentum=0.9)
    if given.how == "large-batch":
        optimizer = shoal.keras.LargeBatch(optimizer, simulate=workers)
    else:
        optimizer = hvd.DistributedOptimizer(
            optimizer, backward_passes_per_step=given.passes, average_aggregated_gradients=True
        )
    model = network(given.plain, given.seed)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"])
    # Ranks begin alike with the first batch, not after it: one worker has nobody to be given
    # variables by.
    hvd.broadcast_variables(model.weights, root_rank=0)

    losses, begun = Losses(given.passes), time.time()
    test = keras.callbacks.LambdaCallback()
    results = []

    def after_epoch(epoch, logs):
        loss, accuracy = model.evaluate(
            test_images[:, ..., None].astype(np.float32) / 255, test_labels, batch_size=1000, verbose=0
        )
        results.append(
            {
                "epoch": epoch + 1,
                "loss": logs["loss"],
                "accuracy": logs["accuracy"],
                "test_loss": loss,
                "test_accuracy": accuracy,
            }
        )
        if hvd.rank() == 0:
            print(json.dumps(results[-1]), flush=True)

    test.on_epoch_end = after_epoch
    data = batches(images, labels, given, workers, steps)
    model.fit(
        data,
        epochs=given.epochs,
        steps_per_epoch=steps * given.passes,
        verbose=0,
        callbacks=[hvd.callbacks.MetricAverageCallback(), losses, test],
    )
    per_step = hvd.allreduce(np.asarray(losses.steps, np.float64), name="losses")
    if hvd.rank() == 0 and given.out is not None:
        told = {name: str(value) if isinstance(value, Path) else value for name, value in vars(given).items()}
        report = {
            "workers": workers,
            "ranks": hvd.size(),
            "options": told,
            "seconds": time.time() - begun,
            "epochs": results,
        }
        report["step_losses"] = list(map(float, per_step))
        given.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
