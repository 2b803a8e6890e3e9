"""The calls of Horovod's Keras example on MNIST, in its order; also those of the profiling
example of SageMaker with Horovod.
"""

import argparse
import os

import digits
import horovod.tensorflow.keras as hvd
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--passes", type=int, default=1)
parser.add_argument("--model_dir", type=str)
args, _ = parser.parse_known_args()

hvd.init()
tf.keras.utils.set_random_seed(7 + hvd.rank())
gpus = tf.config.experimental.list_physical_devices("GPU")
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

dataset = digits.tensorflow_dataset(seed=hvd.rank())
model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(8, [3, 3], strides=2, activation="relu"),
        tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
        tf.keras.layers.Dropout(0.1),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(32, activation="relu"),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
scaled_lr = 0.002 * hvd.size()
optimizer = tf.optimizers.Adam(scaled_lr)
optimizer = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=args.passes, average_aggregated_gradients=True)
model.compile(
    loss=tf.losses.SparseCategoricalCrossentropy(),
    optimizer=optimizer,
    metrics=["accuracy"],
    experimental_run_tf_function=False,
)
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=1, verbose=1),
]
if hvd.rank() == 0:
    callbacks.append(
        tf.keras.callbacks.ModelCheckpoint(os.path.join(os.environ["SM_MODEL_DIR"], "checkpoint-{epoch}.keras"))
    )
verbose = 2 if hvd.rank() == 0 else 0
history = model.fit(dataset, steps_per_epoch=60 // hvd.size(), callbacks=callbacks, epochs=args.epochs, verbose=verbose)
same = hvd.allgather_object([float(tf.reduce_sum(weight)) for weight in model.trainable_variables])
assert all(other == same[0] for other in same), "ranks have different weights"
pictures, labels = digits.load("t10k", digits.TEST)
loss, accuracy = model.evaluate(pictures[..., None] / 255.0, labels, verbose=0)
print(f"rank {hvd.rank()} of {hvd.size()}")
if hvd.rank() == 0:
    print(f"loss={loss:.4f}; accuracy={accuracy:.4f};")
