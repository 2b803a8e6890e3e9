"""A user's script for Keras that knows nothing of Debugger. Most scripts come to it by TensorFlow, which
looks where Keras is long before it imports it.
"""

import sys

import numpy as np

if sys.argv[1:] == ["tensorflow"]:
    import tensorflow as tf

    keras = tf.keras
else:
    import keras

generator = np.random.default_rng(0)
samples = generator.normal(size=(200, 3)).astype("float32")
labels = (samples[:, 0] > 0).astype("float32")
model = keras.Sequential(
    [keras.layers.Dense(4, activation="relu", name="d1"), keras.layers.Dense(1, activation="sigmoid", name="d2")]
)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
model.fit(samples, labels, batch_size=20, epochs=2, verbose=0, validation_data=(samples[:40], labels[:40]))
model.predict(samples[:10], verbose=0)
