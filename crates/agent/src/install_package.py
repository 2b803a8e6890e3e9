"""Inside an instance: installs the package in the working directory, then becomes the program.

Arguments: the directory into which it is installed; the file beside that for what the package
requires and the environment lacks, or nothing where that is a failure; and the program's command.
"""

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys

PLACE, LACKS, COMMAND = sys.argv[1], sys.argv[2], sys.argv[3:]
BASE = os.path.dirname(PLACE)
OPTIONS = "--isolated --upgrade --no-input --disable-pip-version-check --no-warn-script-location --progress-bar off --no-index --no-deps --no-build-isolation"
INSTALL = [sys.executable, "-I", "-m", "pip", "install", *OPTIONS.split(), "--target", PLACE, "."]
LACKING = 75
SERVED = ("horovod", "smdistributed", "smdistributed-dataparallel", "smdistributed-modelparallel")
# Of what a failure's text has room for.
MOST_CHARACTERS = 700


def fail(code, message):
    """Leaves a failure file as SageMaker's toolkit words it, with the last lines of the message,
    and ends.
    """
    lines = [line for line in message.splitlines() if line.strip(" ~^")]
    while len(lines) > 1 and len("\n".join(lines)) > MOST_CHARACTERS:
        lines = lines[1:]
    said = "\n".join(lines)[-MOST_CHARACTERS:]
    text = f'InstallModuleError:\nExitCode {code}\nErrorMessage "{said}"\nCommand "python3 -m pip install ."'
    print(text, file=sys.stderr, flush=True)
    with open(os.path.join(BASE, "output", "failure"), "w") as file:
        file.write(text)
    sys.exit(1)


def install():
    """Runs pip, whose words go to the log."""
    for name in ("pip", "setuptools"):
        if importlib.util.find_spec(name) is None:
            fail(
                1,
                f"there is a setup.py, and {sys.executable} has no {name} to install it with; install that, or leave the setup.py out",
            )
    pip = subprocess.Popen(INSTALL, stderr=subprocess.PIPE, text=True, errors="replace")
    said = []
    for line in pip.stderr:
        sys.stderr.write(line)
        said = [*said[-200:], line]
    if pip.wait() != 0:
        text = "".join(said).strip()
        # What setup.py itself said, as pip quotes it.
        raised = re.search(
            r"Traceback \(most recent call last\)(?!.*Traceback \(most recent).*?(?=\[end of output\])", text, re.DOTALL
        )
        fail(
            pip.returncode, "\n".join(line.strip() for line in raised.group().strip().splitlines()) if raised else text
        )


def is_ours(name):
    """Whether Shoal's package serves it, whatever the version."""
    name = name.lower().replace("_", "-")
    module = "horovod" if name == "horovod" else "smdistributed"
    return name in SERVED and importlib.util.find_spec(module) is not None


def missing(requirement):
    """What the environment has in the place of something that the package requires; nothing if
    that is there.
    """
    if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
        return None
    if is_ours(requirement.name):
        print(f"{requirement}: satisfied by Shoal's {requirement.name}", flush=True)
        return None
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return "does not have it"
    return None if requirement.specifier.contains(version, prereleases=True) else f"has version {version}"


def check():
    """pip would fetch what is missing, and there is no network."""
    from pip._vendor.packaging.requirements import Requirement

    required = [text for package in importlib.metadata.distributions(path=[PLACE]) for text in package.requires or []]
    lacks = {}
    for requirement in map(Requirement, required):
        if has := missing(requirement):
            requirement.marker = None
            lacks[str(requirement)] = has
    if lacks and LACKS:
        with open(os.path.join(BASE, LACKS), "w") as file:
            file.writelines(f"{name}\n" for name in lacks)
        sys.exit(LACKING)
    for name, has in lacks.items():
        fail(
            1,
            f"setup.py requires {name}, and the environment {has}; install it there, or leave it out of install_requires",
        )


install()
check()
os.execvp(COMMAND[0], COMMAND)
