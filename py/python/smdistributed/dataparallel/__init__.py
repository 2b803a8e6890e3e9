"""SageMaker's data parallel library (smddp) as its scripts import it, on Shoal's process groups:
`torch` and `tensorflow` beneath.
"""

#: The version of SageMaker's library whose interface this is.
__version__ = "1.8.0"
