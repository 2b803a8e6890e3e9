"""Models in stages: every rank of a pipeline runs the same script, and each computes the modules of
its stage.

A microbatch's body (the function under `@smp.step`) runs on all ranks of the pipeline, in a thread
of its own that computes only while it has the rank's baton, so at any moment one thread of a rank
computes, and a body that waits for another rank lets others go on (`baton`). The rank that has the
root module, the owner, runs its forward. Where that calls a module of another stage, the caller
sends a request with the inputs to the stage's rank, whose server runs the module under autograd and
answers with the outputs; at the caller a function of autograd stands for the call, whose backward
sends the outputs' gradients and waits for the inputs' (`engine`). Modules of nn.Sequential that
follow each other are one request, which goes from stage to stage without a way back (a chain). So
any tree of modules works, and nothing of it need be sequential.

The root's outputs appear on all ranks, cut off from the graph, and each body computes the loss of
them. Gradients of outputs that one stage has computed are taken from that rank's own body, so its
backward pass need not wait for the owner; from a step function's second call on it does not wait
for outputs that it has itself, either: control flow is the same in every microbatch (`learned`).

What runs next, of all that can: the first in the rank's list of `shoal.parallel.schedule` (`gpipe`
for simple, `dynamic` for interleaved). In a simple pipeline no backward pass begins before all
forward passes are over; in an interleaved one the owner has at most `active_microbatches` under
way.

Data between stages goes through processors' memory, over Shoal's process groups, with CUDA tensors,
too.
"""
