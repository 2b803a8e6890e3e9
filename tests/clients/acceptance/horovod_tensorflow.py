"""The calls of Horovod's TensorFlow 2 example on MNIST, in its order."""

import digits
import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
gpus = tf.config.experimental.list_physical_devices("GPU")
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")
dataset = digits.tensorflow_dataset(seed=hvd.rank())
model = digits.tensorflow_model()
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
print(f"rank {hvd.rank()} of {hvd.size()}")
if hvd.rank() == 0:
    print(f"loss={float(mean):.4f}; accuracy={digits.tensorflow_accuracy_of(model):.4f};")
