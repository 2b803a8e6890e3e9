"""Makes table_noisy_mnist.jsonl.gz: real learning curves that cross, for schedulers and searchers
that look at early ones.

A network with one hidden layer learns 800 MNIST digits (pooled to 8 x 8 pixels), 40 % of whose
labels are wrong; after each of 81 epochs its log loss on 800 others with right labels is told. What
learns fast learns the wrong labels by heart, so that who is good early is seldom good late. Full
grid of 6 learning rates x 4 weight decays x 3 dropout rates x 3 widths x 3 batch sizes = 648
configurations. Needs numpy:

    python make_table.py DIRECTORY_OF_MNIST    (about ten minutes on one core)
"""

import gzip, itertools, json, os, sys
import numpy as np

GRID = {
    "lr": [0.05, 0.1, 0.2, 0.4, 0.8, 1.6],
    "weight_decay": [1e-4, 2e-3, 8e-3, 3e-2],
    "dropout": [0.0, 0.4, 0.7],
    "width": [12, 36, 108],
    "batch": [8, 32, 128],
}
EPOCHS, TRAIN, CLASSES = 81, 800, 10


def idx(directory, name, header):
    with gzip.open(os.path.join(directory, name)) as file:
        return np.frombuffer(file.read()[header:], np.uint8)


def data(directory):
    images = idx(directory, "t10k-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)[: 2 * TRAIN]
    labels = idx(directory, "t10k-labels-idx1-ubyte.gz", 8)[: 2 * TRAIN].astype(np.int64)
    # 28 = 2 + 8 * 3 + 2
    pooled = images[:, 2:26, 2:26].reshape(-1, 8, 3, 8, 3).mean((2, 4)).reshape(-1, 64).astype(np.float32) / 255
    pooled = (pooled - pooled.mean()) / pooled.std()
    random = np.random.default_rng(1)
    noisy = np.where(random.random(TRAIN) < 0.4, random.integers(0, CLASSES, TRAIN), labels[:TRAIN])
    return pooled[:TRAIN], np.eye(CLASSES, dtype=np.float32)[noisy], pooled[TRAIN:], labels[TRAIN:]


def curves(x, y, vx, vy, lr, decay, dropout, width, batch):
    """Log loss after each epoch: [EPOCHS, C] for C configurations (arrays) of one width and one
    batch size.
    """
    count, random = len(lr), np.random.default_rng(7)
    w1 = np.repeat((random.standard_normal((1, 64, width)) / 8).astype(np.float32), count, 0)
    w2 = np.repeat((random.standard_normal((1, width, CLASSES)) / width**0.5).astype(np.float32), count, 0)
    b1, b2 = np.zeros((count, 1, width), np.float32), np.zeros((count, 1, CLASSES), np.float32)
    rate, shrink, keep = lr[:, None, None], 1 - (lr * decay)[:, None, None], 1 - dropout[:, None, None]
    out = np.empty((EPOCHS, count), np.float32)

    def soft(z):
        z = np.exp(z - z.max(-1, keepdims=True))
        return z / z.sum(-1, keepdims=True)

    for epoch in range(EPOCHS):
        order = random.permutation(TRAIN)
        for at in range(0, TRAIN, batch):
            some = order[at : at + batch]
            a, t = x[some], y[some]
            mask = (random.random((1, len(some), width), dtype=np.float32) < keep) / keep
            h = np.maximum(a @ w1 + b1, 0) * mask
            d2 = (soft(h @ w2 + b2) - t) / len(some)
            d1 = (d2 @ w2.transpose(0, 2, 1)) * mask * (h > 0)
            w2 = w2 * shrink - rate * (h.transpose(0, 2, 1) @ d2)
            w1 = w1 * shrink - rate * (a.T @ d1)
            b2 -= rate * d2.sum(1, keepdims=True)
            b1 -= rate * d1.sum(1, keepdims=True)
        p = soft(np.maximum(vx @ w1 + b1, 0) @ w2 + b2)
        out[epoch] = -np.log(np.maximum(p[:, np.arange(len(vy)), vy], 1e-7)).mean(1)
    return np.nan_to_num(out, nan=20.0, posinf=20.0)


def main():
    x, y, vx, vy = data(sys.argv[1])
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "table_noisy_mnist.jsonl.gz")
    rows = []
    for width, batch in itertools.product(GRID["width"], GRID["batch"]):
        some = list(itertools.product(GRID["lr"], GRID["weight_decay"], GRID["dropout"]))
        lr, decay, dropout = (np.array(column, np.float32) for column in zip(*some))
        all_of = curves(x, y, vx, vy, lr, decay, dropout, width, batch)
        for place, (lr, decay, dropout) in enumerate(some):
            config = {"lr": lr, "weight_decay": decay, "dropout": dropout, "width": width, "batch": batch}
            # An epoch's cost: larger batches and narrower networks are quicker (an assumption, in
            # place of a noisy clock).
            cost = round((1 + 8 / batch) * (1 + width / 108), 3)
            rows.append(
                {"config": config, "cost": cost, "curve": [float("%.4g" % value) for value in all_of[:, place]]}
            )
        print(width, batch, file=sys.stderr, flush=True)
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    with open(here, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", compresslevel=9, mtime=0, filename="") as out:
        out.write(text.encode())


main()
