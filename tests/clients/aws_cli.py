"""The AWS CLI's own main, again and again in one process, run by `shoal exec` in
test_aws_cli.py: most of a command's time is the start of its interpreter. A line of standard
input is `[directory, [argument, ..]]`; a line of output `[status, stdout, stderr]`.
"""

import contextlib
import io
import json
import os
import sys

from awscli.clidriver import create_clidriver


def run(arguments):
    said = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    with contextlib.redirect_stdout(said[0]), contextlib.redirect_stderr(said[1]):
        try:
            status = create_clidriver().main(arguments)
        except SystemExit as end:
            status = end.code
    return [status, *(text.buffer.getvalue().decode() for text in said)]


for line in sys.stdin:
    directory, arguments = json.loads(line)
    os.chdir(directory)
    print(json.dumps(run(arguments)), flush=True)
