"""Reference values for src/layerwise.rs: LARS and LAMB in double precision, written from the
papers' formulas. Run: python layerwise.py (needs numpy).
"""

import numpy as np

w = np.array([0.5, -1.25, 2.0, 0.75, -0.1])
gradients = [
    np.array([0.1, 0.2, -0.3, 0.05, 0.4]),
    np.array([-0.2, 0.1, 0.05, 0.3, -0.1]),
    np.array([0.02, -0.07, 0.11, 0.0, 0.6]),
]


def lars(w, momentum=0.9, decay=5e-4, trust=0.001, rate=8.0):
    v = np.zeros_like(w)
    for g in gradients:
        ratio = trust * np.linalg.norm(w) / (np.linalg.norm(g) + decay * np.linalg.norm(w))
        v = momentum * v + rate * ratio * (g + decay * w)
        w = w - v
    return w


def lamb(w, beta1=0.9, beta2=0.999, eps=1e-6, decay=0.01, rate=0.05, highest=np.inf):
    m, s = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        s = beta2 * s + (1 - beta2) * g * g
        u = (m / (1 - beta1**t)) / (np.sqrt(s / (1 - beta2**t)) + eps) + decay * w
        w = w - rate * min(np.linalg.norm(w), highest) / np.linalg.norm(u) * u
    return w


np.set_printoptions(precision=12)
print("lars", lars(w))
print("lamb", lamb(w))
print("lamb, weights' norm at most 1", lamb(w, highest=1.0))
