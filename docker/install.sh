#!/usr/bin/env bash
# Installs the package and the extras that a worker needs into an environment; the RUN step of the image.
#
#   docker/install.sh PACKAGE [PYTHON]   PACKAGE: a wheel or an sdist; PYTHON: the environment's
set -euo pipefail
package=${1:?"usage: install.sh PACKAGE [PYTHON]"}
# A path, because uv reads a bare name as that of a virtual environment, and the image has none.
python=$(command -v "${2:-python}")
extras=dataflow,s3,azure,heif

"$python" -m pip install --disable-pip-version-check --quiet uv
scripts=$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')
"$scripts/uv" pip install --python "$python" "$package[$extras]"
# Conflicting packages would otherwise fail in the middle of a job.
"$scripts/uv" pip check --python "$python"
# A worker that cannot start fails here, not on a hundred machines.
"$scripts/beam-shards-worker" --help >/dev/null
