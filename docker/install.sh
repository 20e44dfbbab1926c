#!/usr/bin/env bash
# What the image's RUN step does: installs the package, with what a worker needs, into an environment.
#
#   docker/install.sh PACKAGE [PYTHON]   PACKAGE is an sdist or a checkout, PYTHON the environment's
#
# EXTRAS names others of the package's extras (default: all that a worker may need).
set -euo pipefail
package=${1:?"usage: install.sh PACKAGE [PYTHON]"}
python=${2:-python}
extras=${EXTRAS:-dataflow,audio,boxes,hdf5,tokens}

"$python" -m pip install --disable-pip-version-check "$package[$extras]"
# Packages that contradict each other would show in the middle of a job.
"$python" -m pip check
# A worker that cannot be started shows here, not on a hundred machines.
"$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')/beam-shards-worker" --help >/dev/null
