"""What scripts import from SageMaker's images, as far as they use it while they train: written
for Shoal after the public documentation.
"""
