"""A user's script without a framework of its own for several instances: handwritten digits by
softmax regression, the weights on parameter servers.

Every instance has its share of each batch, so in step the losses are those of one process up to
rounding; rank 0 trains alone, too, to show that.
"""

import argparse
import gzip
import json
import os

import numpy
from shoal.parameter_server import ParameterServer


def idx(name):
    """A file of MNIST: four bytes that name type and dimensions, a big-endian word for each
    dimension, bytes.
    """
    with gzip.open(os.path.join(os.environ["SM_CHANNEL_TRAIN"], name)) as file:
        content = file.read()
    sizes = [int.from_bytes(content[4 * at : 4 * at + 4], "big") for at in range(1, content[3] + 1)]
    return numpy.frombuffer(content, dtype=numpy.uint8, offset=4 + 4 * content[3]).reshape(sizes)


def samples(part):
    pictures, labels = idx(f"{part}-images-idx3-ubyte.gz"), idx(f"{part}-labels-idx1-ubyte.gz")
    return pictures[:10000].reshape(-1, 784).astype("float32") / 255, labels[:10000]


def gradient(weights, bias, pictures, labels):
    """Mean loss of these pictures, and its gradients."""
    logits = pictures @ weights + bias
    logits -= logits.max(axis=1, keepdims=True)
    likelihoods = numpy.exp(logits) / numpy.exp(logits).sum(axis=1, keepdims=True)
    rows = numpy.arange(len(labels))
    loss = -numpy.log(likelihoods[rows, labels]).mean()
    likelihoods[rows, labels] -= 1
    return loss, pictures.T @ likelihoods / len(labels), likelihoods.mean(axis=0)


def batch(step, size, of, rank=0):
    """The rows of a step that are this one's."""
    return numpy.array_split(numpy.arange(step * size, (step + 1) * size) % 10000, of)[rank]


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--rate", type=float, default=0.5)
parser.add_argument("--ahead", type=int)
given, _ = parser.parse_known_args()

pictures, labels = samples("train")
pace = "synchronous" if given.ahead is None else given.ahead
with ParameterServer({"weights": (784, 10), "bias": 10, "loss": given.steps}, consistency=pace) as server:
    print(f"rank {server.rank} of {server.size} on {os.environ['SM_CURRENT_HOST']}")
    for step in range(given.steps):
        weights, bias = numpy.asarray(server.pull("weights")), numpy.asarray(server.pull("bias"))
        mine = batch(step, given.batch_size, server.size, server.rank)
        loss, of_weights, of_bias = gradient(weights, bias, pictures[mine], labels[mine])
        server.push("weights", -given.rate / server.size * of_weights)
        server.push("bias", -given.rate / server.size * of_bias)
        losses = numpy.zeros(given.steps, "float32")
        losses[step] = loss / server.size
        server.push("loss", losses)
        server.advance()
    weights, bias, losses = (numpy.asarray(server.pull(name)) for name in ("weights", "bias", "loss"))

pictures_of_test, labels_of_test = samples("t10k")
accuracy = ((pictures_of_test @ weights + bias).argmax(axis=1) == labels_of_test).mean()
print(f"loss={losses[-1]:.5f}; accuracy={accuracy:.4f};")
if server.rank == 0:
    alone, weights_alone, bias_alone = [], numpy.zeros((784, 10), "float32"), numpy.zeros(10, "float32")
    for step in range(given.steps):
        rows = batch(step, given.batch_size, 1)
        loss, of_weights, of_bias = gradient(weights_alone, bias_alone, pictures[rows], labels[rows])
        weights_alone -= given.rate * of_weights
        bias_alone -= given.rate * of_bias
        alone.append(float(loss))
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "losses.json"), "w") as file:
        json.dump({"of_all": losses.tolist(), "alone": alone}, file)
    numpy.savez(os.path.join(os.environ["SM_MODEL_DIR"], "model.npz"), weights=weights, bias=bias)
