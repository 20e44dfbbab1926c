#!/usr/bin/env bash
# What the image's RUN step does: installs the package, with what a worker needs, into an environment.
#
#   docker/install.sh PACKAGE [PYTHON]   PACKAGE is an sdist or a checkout, PYTHON the environment's
set -euo pipefail
package=${1:?"usage: install.sh PACKAGE [PYTHON]"}
python=${2:-python}
extras=dataflow,audio,boxes,hdf5,tokens  # all that a worker may need

"$python" -m pip install --disable-pip-version-check --quiet uv
scripts=$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')
"$scripts/uv" pip install --python "$python" "$package[$extras]"
# Packages that contradict each other would show in the middle of a job.
"$scripts/uv" pip check --python "$python"
# A worker that cannot be started shows here, not on a hundred machines.
"$scripts/beam-shards-worker" --help >/dev/null
