//! On the instance: channels, ranks, logs, metrics, artifacts, the end.
