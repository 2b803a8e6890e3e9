"""In the place of SDK v3's mpi_driver.py: starts MPI without ssh."""

import os
import sys

os.execv("/opt/shoal/bin/shoal", ["shoal", "mpi", "drive", sys.executable])
