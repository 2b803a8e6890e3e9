"""A source with a setup.py is a package: installed inside the instance before its module starts,
as SageMaker's toolkit does.
"""

from test_environments import SCIKIT_LEARN
from test_mpi import cluster  # noqa: F401 (a fixture)
from test_script_mode import HOST, create

SETUP = """
import os, sys
from setuptools import find_packages, setup
print("setup.py as user", os.getuid(), file=sys.stderr)
setup(
    name="my-training",
    version="1.2",
    package_dir={"": "src"},
    packages=find_packages("src"),
    package_data={"trainer": ["data/*.txt"]},
    install_requires=REQUIRES,
    entry_points={"console_scripts": ["my-tool = trainer.tools.told:main"]},
)
"""
# What is installed is found nowhere else: the package lies below src.
FILES = {
    "src/trainer/__init__.py": "",
    "src/trainer/tools/__init__.py": "",
    "src/trainer/tools/told.py": "import sys\ndef main():\n    print('told', sys.argv[1:])\n",
    "src/trainer/data/words.txt": "packed words",
    "run.py": """
import importlib.metadata, importlib.resources, subprocess, sys
import trainer.tools.told
print(sys.argv[1:], __spec__.name, importlib.metadata.version("my-training"))
print((importlib.resources.files("trainer") / "data/words.txt").read_text())
print(subprocess.check_output(["my-tool", "x"], text=True).strip(), trainer.__file__)
""",
}


def package(jobs, requires, files=FILES, image=SCIKIT_LEARN, **options):
    return create(
        jobs, {**files, "setup.py": SETUP.replace("REQUIRES", repr(requires))}, program="run.py", image=image, **options
    )


def test_a_package_is_installed_with_its_data_and_scripts_before_its_module_runs(jobs):
    name = package(jobs, ["numpy>=1.20", "scikit-learn", "absent; python_version < '3'"], hyperparameters={"x": "1"})
    jobs.completed(name)
    assert jobs.lines(name)[-3:] == [
        "['-x', '1'] run 1.2",
        "packed words",
        "told ['x'] /opt/ml/package/trainer/__init__.py",
    ]
    assert jobs.artifact(name) == {}
    assert not any("requires more" in line for line in jobs.logs(name)["algo-1"])


def test_what_it_requires_is_laid_over_the_environment(jobs):
    reads = "import tabulate; print('tabulate', tabulate.__version__)"
    name = package(jobs, ["numpy", "tabulate==0.9.0"], {**FILES, "run.py": reads})
    jobs.completed(name)
    assert jobs.lines(name)[-1] == "tabulate 0.9.0"
    assert (
        "[shoal] setup.py requires more than the environment has, which is laid over it: tabulate==0.9.0"
        in jobs.logs(name)["algo-1"]
    )


def test_ranks_of_mpi_have_it_on_every_instance(cluster):  # noqa: F811
    """In an environment that has neither setuptools nor wheel: they are laid over it."""
    jobs, ranks = (
        cluster.jobs,
        "import trainer.tools.told, mpi4py.MPI as mpi; print('rank', mpi.COMM_WORLD.rank, 'has', trainer.__file__)",
    )
    name = package(
        jobs,
        [],
        {**FILES, "run.py": ranks},
        image="mpi",
        instances=2,
        hyperparameters={"sagemaker_mpi_enabled": "true"},
    )
    jobs.completed(name)
    for rank in (0, 1):
        assert (
            f"[1,mpirank:{rank},algo-{rank + 1}]<stdout>:rank {rank} has /opt/ml/package/trainer/__init__.py"
            in jobs.lines(name)
        )
    assert (
        "[shoal] setup.py needs more than the environment mpi has, laid over it: setuptools, wheel"
        in jobs.logs(name)["algo-1"]
    )


def test_why_a_package_cannot_be_installed_is_told(jobs):
    raises = create(
        jobs,
        {"setup.py": "raise ValueError('no version today')", "run.py": "print('runs')"},
        program="run.py",
        image=SCIKIT_LEARN,
    )
    lacks = package(jobs, ["numpy", "shoal-no-such-package>=2"])
    on_host = package(jobs, ["shoal-no-such-package>=2"], image=HOST)
    reason = jobs.failed(raises)
    assert reason.startswith('AlgorithmError: InstallModuleError:\nExitCode 1\nErrorMessage "'), reason
    assert reason.endswith('ValueError: no version today"\nCommand "python3 -m pip install .", exit code: 1'), reason
    assert any("no version today" in line for line in jobs.lines(raises))
    reason = jobs.failed(lacks)
    assert (
        "what the job requires could not be installed over the environment scikit-learn-1.2" in reason
        and "shoal-no-such-package>=2" in reason
    )
    # The machine's own Python is left as it is, and need not have pip.
    reason = jobs.failed(on_host)
    lacking = "setup.py requires shoal-no-such-package>=2, and the environment does not have it"
    assert "InstallModuleError" in reason and (lacking in reason or "to install it with" in reason), reason
    assert not any("runs" in line or "packed" in line for name in (raises, lacks, on_host) for line in jobs.lines(name))
