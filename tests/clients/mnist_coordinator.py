"""A user's script: handwritten digits by ParameterServerStrategy, as for SageMaker's TensorFlow
image, which runs a parameter server beside it.

The chief hands steps out to the workers, and the weights lie on the parameter servers.
"""

import argparse
import json
import os
import socket
import time

import tensorflow as tf
from mnist_mirrored import accuracy, fit, network


def with_chief(told):
    """The cluster as TensorFlow 2 names its tasks: SageMaker's `master` is the `chief`."""
    told["cluster"]["chief"] = told["cluster"].pop("master")
    if told["task"]["type"] == "master":
        told["task"]["type"] = "chief"
    return told


def is_up(address):
    name, port = address.split(":")
    with socket.socket() as line:
        return line.connect_ex((name, int(port))) == 0


def work(resolver):
    """Does what the chief hands out until that has ended. `join` would stay for ever, and the
    job ends when all scripts have.
    """
    cluster = resolver.cluster_spec()
    server = tf.distribute.Server(cluster, job_name="worker", task_index=resolver.task_id)
    chief = cluster.task_address("chief", 0)
    while not is_up(chief):
        time.sleep(0.1)
    while is_up(chief):
        time.sleep(0.5)
    print(f"worker {resolver.task_id} at {server.target} ends after the chief")


def shuffled():
    """Samples without an end, which a worker reads from its own channel."""

    def records(name, header, length):
        path = os.path.join(os.environ["SM_CHANNEL_TRAIN"], f"train-{name}-ubyte.gz")
        return tf.data.FixedLengthRecordDataset(path, length, header, compression_type="GZIP").map(
            lambda it: tf.io.decode_raw(it, tf.uint8)
        )

    def sample(picture, label):
        return (tf.reshape(tf.cast(picture, tf.float32), (28, 28)) / 255 - 0.1307) / 0.3081, tf.cast(label[0], tf.int64)

    both = tf.data.Dataset.zip((records("images-idx3", 16, 28 * 28), records("labels-idx1", 8, 1)))
    return both.map(sample).shuffle(1000).repeat()


def train(resolver, steps, batch):
    """The model, after so many steps of all workers together, and the last losses."""
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    tf.keras.utils.set_random_seed(0)
    with strategy.scope():
        model, optimizer = network()

    @tf.function
    def step(batches):
        # In the log of the worker that does it.
        tf.print("one step")
        return strategy.run(lambda pictures, labels: fit(model, optimizer, pictures, labels, batch), args=next(batches))

    batches = iter(coordinator.create_per_worker_dataset(lambda: shuffled().batch(batch)))
    losses = [coordinator.schedule(step, args=(batches,)) for _ in range(steps)]
    coordinator.join()
    return model, [float(loss.fetch()) for loss in losses[-10:]]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=128)
    given, _ = parser.parse_known_args()
    os.environ["TF_CONFIG"] = json.dumps(with_chief(json.loads(os.environ["TF_CONFIG"])))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    if resolver.task_type == "worker":
        work(resolver)
    else:
        model, losses = train(resolver, given.steps, given.batch_size)
        servers = sorted({variable.value.device for variable in model.trainable_variables})
        print(f"chief: weights on {' '.join(servers)}")
        print(f"loss={sum(losses) / len(losses):.5f}; accuracy={accuracy(model):.4f};")
        model.save(os.path.join(os.environ["SM_MODEL_DIR"], "model.keras"))
