"""Handwritten digits of a job's channel, a part of them: what torchvision's and Keras' datasets
give to the scripts beside it.
"""

import gzip
import os

import numpy

TRAIN, TEST = 1920, 640


def load(part, count):
    """Pictures (uint8, count x 28 x 28) and labels (int64) of `train` or `t10k`."""

    def idx(kind, skipped):
        with gzip.open(os.path.join(os.environ["SM_CHANNEL_TRAIN"], f"{part}-{kind}-ubyte.gz")) as file:
            return numpy.frombuffer(file.read(), dtype=numpy.uint8, offset=skipped)

    pictures = idx("images-idx3", 16).reshape(-1, 28, 28)[:count]
    return pictures.copy(), idx("labels-idx1", 8)[:count].astype(numpy.int64)


def torch_dataset(train):
    """As `datasets.MNIST(..., transform=Normalize((0.1307,), (0.3081,)))`."""
    import torch

    pictures, labels = load("train", TRAIN) if train else load("t10k", TEST)
    pictures = (torch.from_numpy(pictures).float().div(255).unsqueeze(1) - 0.1307) / 0.3081
    return torch.utils.data.TensorDataset(pictures, torch.from_numpy(labels))


def torch_model():
    """Small layers, so that CPUs have done in seconds."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 8, 5, 2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def accuracy_of(model):
    """Of a torch model on the test set."""
    import torch

    model.eval()
    pictures, labels = torch_dataset(train=False).tensors
    with torch.no_grad():
        return (model(pictures).argmax(1) == labels).float().mean().item()


def tensorflow_dataset(seed):
    """Batches of 32 without end."""
    import tensorflow as tf

    pictures, labels = load("train", TRAIN)
    dataset = tf.data.Dataset.from_tensor_slices(
        (tf.cast(pictures[..., tf.newaxis] / 255.0, tf.float32), tf.cast(labels, tf.int64))
    )
    return dataset.repeat().shuffle(1000, seed=seed).batch(32)


def tensorflow_model():
    """As `torch_model`, smaller still."""
    from tensorflow.keras import Sequential, layers

    return Sequential(
        [
            layers.Conv2D(8, [3, 3], strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def tensorflow_accuracy_of(model):
    """Of a TensorFlow model on the test set."""
    pictures, labels = load("t10k", TEST)
    return (model(pictures[..., None] / 255.0).numpy().argmax(1) == labels).mean()
