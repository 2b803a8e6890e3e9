"""SageMaker's model parallel library, version 1, on Shoal's process groups:
`import smdistributed.modelparallel.torch as smp`.
"""

#: The version of the interface.
__version__ = "1.15.0"
