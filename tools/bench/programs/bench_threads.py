"""One instance of `cargo xtask bench threads`: a training loop of one framework, which times
itself and prints one line of JSON.

`seconds` is the time of the loop without imports and its first rounds; `value` is what it has
computed, the same on both sides.
"""

import argparse
import json
import time

parser = argparse.ArgumentParser()
parser.add_argument("--framework", required=True)
parser.add_argument("--rounds", type=int, required=True)
parser.add_argument("--to", help="file for the line, beside standard output")
given = parser.parse_args()


def pytorch():
    import torch

    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(256, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 10),
    ]
    net = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(net.parameters())
    inputs, labels = torch.randn(256, 256), torch.randint(0, 10, (256,))

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def tensorflow():
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    net = tf.keras.Sequential(
        [tf.keras.layers.Dense(512, "relu"), tf.keras.layers.Dense(512, "relu"), tf.keras.layers.Dense(10)]
    )
    optimizer, loss_of = tf.keras.optimizers.Adam(), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    inputs, labels = tf.random.normal((256, 256)), tf.random.uniform((256,), 0, 10, tf.int32)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(labels, net(inputs, training=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
        return loss

    net(inputs)
    optimizer.build(net.trainable_variables)
    return lambda: float(step())


def scikit_learn():
    import numpy
    from sklearn.ensemble import HistGradientBoostingRegressor

    random = numpy.random.default_rng(0)
    table = random.normal(size=(4000, 20))
    target = table[:, 0] * table[:, 1] + random.normal(size=4000)
    return lambda: float(
        HistGradientBoostingRegressor(max_iter=5, random_state=0).fit(table, target).score(table, target)
    )


def numpy():
    import numpy

    random = numpy.random.default_rng(0)
    matrix = random.normal(size=(384, 384))

    def step():
        product = matrix @ matrix.T
        return float(numpy.linalg.solve(product + 384 * numpy.eye(384), matrix)[0, 0])

    return step


step = globals()[given.framework.replace("-", "_")]()
for _ in range(max(1, given.rounds // 10)):
    step()
start = time.perf_counter()
for _ in range(given.rounds):
    value = step()
line = json.dumps({"seconds": time.perf_counter() - start, "value": value})
print(line, flush=True)
if given.to:
    with open(given.to, "w") as file:
        file.write(line)
