"""A part of serving models, which Shoal does not do: it can be imported, and has nothing in it."""


def __getattr__(name: str):
    raise AttributeError(
        f"sagemaker_containers.beta.framework.server.{name} serves models, and a training job of Shoal does not"
    )
