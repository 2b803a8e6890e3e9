"""The calls of SageMaker's data parallel example for TensorFlow on MNIST, in its order."""

import os

import digits
import smdistributed.dataparallel.tensorflow as dist
import tensorflow as tf

tf.random.set_seed(42)
dist.init()
gpus = tf.config.experimental.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[dist.local_rank()], "GPU")
dataset = digits.tensorflow_dataset(seed=dist.rank())
mnist_model = digits.tensorflow_model()
loss = tf.losses.SparseCategoricalCrossentropy()
opt = tf.optimizers.Adam(0.001 * dist.size())
checkpoint_dir = os.environ["SM_MODEL_DIR"]
checkpoint = tf.train.Checkpoint(model=mnist_model, optimizer=opt)


@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        probs = mnist_model(images, training=True)
        loss_value = loss(labels, probs)
    tape = dist.DistributedGradientTape(tape)
    grads = tape.gradient(loss_value, mnist_model.trainable_variables)
    opt.apply_gradients(zip(grads, mnist_model.trainable_variables))
    if first_batch:
        dist.broadcast_variables(mnist_model.variables, root_rank=0)
        dist.broadcast_variables(opt.variables(), root_rank=0)
    return dist.oob_allreduce(loss_value)


for batch, (images, labels) in enumerate(dataset.take(240 // dist.size())):
    loss_value = training_step(images, labels, batch == 0)
print(f"rank {dist.rank()} of {dist.size()}")
if dist.rank() == 0:
    print(f"loss={float(loss_value):.4f}; accuracy={digits.tensorflow_accuracy_of(mnist_model):.4f};")
    mnist_model.save(os.path.join(checkpoint_dir, "1"))
    assert os.path.exists(os.path.join(checkpoint_dir, "1", "saved_model.pb"))
