"""The calls of Horovod's TensorFlow 2 example on MNIST, in its order."""

import digits
import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
gpus = tf.config.experimental.list_physical_devices("GPU")
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")
pictures, labels = digits.load("train", digits.TRAIN)
dataset = tf.data.Dataset.from_tensor_slices((tf.cast(pictures[..., tf.newaxis] / 255.0, tf.float32), tf.cast(labels, tf.int64)))
dataset = dataset.repeat().shuffle(1000, seed=hvd.rank()).batch(32)
layers = [tf.keras.layers.Conv2D(8, [3, 3], strides=2, activation="relu"), tf.keras.layers.Flatten(), tf.keras.layers.Dense(10, activation="softmax")]
model = tf.keras.Sequential(layers)
loss = tf.losses.SparseCategoricalCrossentropy()
opt = tf.optimizers.Adam(0.002 * hvd.size())


@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        probs = model(images, training=True)
        loss_value = loss(labels, probs)
    tape = hvd.DistributedGradientTape(tape)
    grads = tape.gradient(loss_value, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(opt.variables, root_rank=0)
    return loss_value


for batch, (images, labels) in enumerate(dataset.take(120 // hvd.size())):
    loss_value = training_step(images, labels, batch == 0)
mean = hvd.allreduce(loss_value)
pictures, labels = digits.load("t10k", digits.TEST)
accuracy = (model(pictures[..., None] / 255.0).numpy().argmax(1) == labels).mean()
print(f"rank {hvd.rank()} of {hvd.size()}")
if hvd.rank() == 0:
    print(f"loss={float(mean):.4f}; accuracy={accuracy:.4f};")
