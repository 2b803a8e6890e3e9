//! What a training program may rely on: paths, variables, metric lines, failure file, ranks. Pure.
