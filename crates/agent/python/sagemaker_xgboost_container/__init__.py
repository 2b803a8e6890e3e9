"""What scripts import from SageMaker's XGBoost image: data as `DMatrix`, training on several
instances, checkpoints, requests' bodies. Written for Shoal after the public documentation and
examples.
"""
