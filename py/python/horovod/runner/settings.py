"""Options of `horovodrun` as the environment of the workers, and its file of settings."""

import argparse
import os

#: Option's name, variable, how its value is written.
VARIABLES = [
    ("fusion_threshold_mb", "HOROVOD_FUSION_THRESHOLD", lambda it: str(int(it) * 1024 * 1024)),
    ("cycle_time_ms", "HOROVOD_CYCLE_TIME", str),
    ("cache_capacity", "HOROVOD_CACHE_CAPACITY", str),
    ("hierarchical_allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", lambda it: str(int(it))),
    ("hierarchical_allgather", "HOROVOD_HIERARCHICAL_ALLGATHER", lambda it: str(int(it))),
    ("torus_allreduce", "HOROVOD_TORUS_ALLREDUCE", lambda it: str(int(it))),
    ("autotune", "HOROVOD_AUTOTUNE", lambda it: str(int(it))),
    ("autotune_log_file", "HOROVOD_AUTOTUNE_LOG", str),
    ("autotune_warmup_samples", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", str),
    ("autotune_steps_per_sample", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", str),
    ("autotune_bayes_opt_max_samples", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", str),
    ("autotune_gaussian_process_noise", "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", str),
    ("timeline_filename", "HOROVOD_TIMELINE", str),
    ("timeline_mark_cycles", "HOROVOD_TIMELINE_MARK_CYCLES", lambda it: str(int(it))),
    ("no_stall_check", "HOROVOD_STALL_CHECK_DISABLE", lambda it: str(int(it))),
    ("stall_check_warning_time_seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS", str),
    ("stall_check_shutdown_time_seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", str),
    ("mpi_threads_disable", "HOROVOD_MPI_THREADS_DISABLE", lambda it: str(int(it))),
    ("num_nccl_streams", "HOROVOD_NUM_NCCL_STREAMS", str),
    ("thread_affinity", "HOROVOD_THREAD_AFFINITY", str),
    ("gloo_timeout_seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS", str),
    ("log_level", "HOROVOD_LOG_LEVEL", str),
    ("log_with_timestamp", "HOROVOD_LOG_HIDE_TIME", lambda it: str(int(not it))),
]

#: Where a file of settings has options: section and key of each option whose key is not its name in
#: `params`.
SECTIONS = {
    "params": [
        "fusion_threshold_mb",
        "cycle_time_ms",
        "cache_capacity",
        "hierarchical_allreduce",
        "hierarchical_allgather",
        "torus_allreduce",
    ],
    "autotune": [
        ("enabled", "autotune"),
        ("log_file", "autotune_log_file"),
        ("warmup_samples", "autotune_warmup_samples"),
        ("steps_per_sample", "autotune_steps_per_sample"),
        ("bayes_opt_max_samples", "autotune_bayes_opt_max_samples"),
        ("gaussian_process_noise", "autotune_gaussian_process_noise"),
    ],
    "timeline": [("filename", "timeline_filename"), ("mark_cycles", "timeline_mark_cycles")],
    "stall_check": [
        ("enabled", "stall_check"),
        ("warning_time_seconds", "stall_check_warning_time_seconds"),
        ("shutdown_time_seconds", "stall_check_shutdown_time_seconds"),
    ],
    "library_options": [
        "mpi_threads_disable",
        "mpi_args",
        "num_nccl_streams",
        "thread_affinity",
        "gloo_timeout_seconds",
    ],
    "logging": [("level", "log_level"), ("with_timestamp", "log_with_timestamp")],
    "elastic": [
        ("min_np", "min_num_proc"),
        ("max_np", "max_num_proc"),
        ("min_num_proc", "min_num_proc"),
        ("max_num_proc", "max_num_proc"),
        ("slots", "slots"),
        ("elastic_timeout", "elastic_timeout"),
        ("reset_limit", "reset_limit"),
        ("host_discovery_script", "host_discovery_script"),
    ],
}


def to_environment(options: argparse.Namespace) -> dict[str, str]:
    """The variables that the options that were given stand for."""
    found = {}
    for name, variable, written in VARIABLES:
        value = getattr(options, name, None)
        if value is not None and value is not False:
            found[variable] = written(value)
        elif value is False and name in (
            "hierarchical_allreduce",
            "hierarchical_allgather",
            "torus_allreduce",
            "autotune",
            "log_with_timestamp",
        ):
            found[variable] = written(value)
    if options.nics:
        found["HOROVOD_GLOO_IFACE"] = options.nics[0]
        found["NCCL_SOCKET_IFNAME"] = ",".join(options.nics)
    return found


def read_file(path: str, options: argparse.Namespace) -> None:
    """Fills options that were not given from a YAML file, in the sections that Horovod's
    documentation lists. `SystemExit` says what is wrong.
    """
    try:
        import yaml
    except ImportError:
        raise SystemExit(
            "horovodrun: --config-file needs PyYAML: pip install pyyaml, or give the options themselves"
        ) from None
    try:
        with open(path) as text:
            table = yaml.safe_load(text) or {}
    except (OSError, yaml.YAMLError) as error:
        raise SystemExit(f"horovodrun: --config-file {path}: {error}") from None
    if not isinstance(table, dict):
        raise SystemExit(
            f"horovodrun: --config-file {path}: expected sections such as params, timeline, stall_check, not {type(table).__name__}"
        )
    if table.get("verbose") and not options.verbose:
        options.verbose = True
    for section, keys in SECTIONS.items():
        values = table.get(section) or {}
        for key in keys:
            key, name = key if isinstance(key, tuple) else (key, key)
            if key not in values:
                continue
            value = values[key]
            if name == "stall_check":
                name, value = "no_stall_check", not value
            if getattr(options, name, None) in (None, False):
                setattr(options, name, os.fspath(value) if isinstance(value, os.PathLike) else value)
