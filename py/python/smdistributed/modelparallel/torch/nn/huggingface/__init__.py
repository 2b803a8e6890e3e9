"""Models of Hugging Face's transformers in the form of `smp.nn`."""
