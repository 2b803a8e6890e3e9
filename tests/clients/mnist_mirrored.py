"""A user's script: handwritten digits by MultiWorkerMirroredStrategy, as for SageMaker's
TensorFlow image.

Each worker has its share of every batch, so the losses are those of one process up to rounding;
the first trains alone, too, to show that. It is a loop of its own, as `fit` of Keras 3 does not
take what this strategy hands out.
"""

import argparse
import gzip
import json
import os

import numpy as np
import tensorflow as tf


def idx(name):
    """A file of MNIST: four bytes that name type and dimensions, a big-endian word for each
    dimension, bytes.
    """
    with gzip.open(os.path.join(os.environ["SM_CHANNEL_TRAIN"], name)) as file:
        content = file.read()
    sizes = np.frombuffer(content, ">u4", content[3], 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(sizes)


def samples(part):
    pictures, labels = idx(f"{part}-images-idx3-ubyte.gz"), idx(f"{part}-labels-idx1-ubyte.gz")
    return ((pictures[:10000] / 255 - 0.1307) / 0.3081).astype("float32"), labels[:10000].astype("int64")


def network():
    """Logits of ten digits, and what fits its weights."""
    layers = [
        tf.keras.Input((28, 28)),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, "relu"),
        tf.keras.layers.Dense(10),
    ]
    model = tf.keras.Sequential(layers)
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def fit(model, optimizer, pictures, labels, batch):
    """One step over a share of a batch of this size; gives the share's part of the mean loss."""
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(pictures, training=True))
        loss = tf.reduce_sum(losses) / batch
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


def accuracy(model):
    pictures, labels = samples("t10k")
    return np.mean(np.argmax(model(pictures), 1) == labels)


def train(strategy, steps, batch):
    """Losses of all workers together, and the model."""
    tf.keras.utils.set_random_seed(0)
    with strategy.scope():
        model, optimizer = network()
    shares = strategy.experimental_distribute_dataset(
        tf.data.Dataset.from_tensor_slices(samples("train")).repeat().batch(batch)
    )

    @tf.function
    def step(share):
        parts = strategy.run(lambda pictures, labels: fit(model, optimizer, pictures, labels, batch), args=share)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)

    return [float(step(share)) for _, share in zip(range(steps), shares)], model


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=128)
    given, _ = parser.parse_known_args()
    alone = tf.distribute.get_strategy()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    index = strategy.cluster_resolver.task_id
    print(f"worker {index} of {strategy.num_replicas_in_sync} on {os.environ['SM_CURRENT_HOST']}", flush=True)
    losses, model = train(strategy, given.steps, given.batch_size)
    print(f"loss={losses[-1]:.5f}; accuracy={accuracy(model):.4f};")
    if index == 0:
        model.save(os.path.join(os.environ["SM_MODEL_DIR"], "model.keras"))
        of_one, _ = train(alone, given.steps, given.batch_size)
        with open(os.path.join(os.environ["SM_MODEL_DIR"], "losses.json"), "w") as file:
            json.dump({"of_all": losses, "alone": of_one}, file)
