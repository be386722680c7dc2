# SPDX-License-Identifier: Apache-2.0
# The environment of this repository, for bash: `source scripts/env.sh [--with-tests]`.
#
# Makes the environment if need be (see scripts/setup), puts it first on PATH, and keeps ROS
# traffic on this machine and apart from other robots. Returns non-zero, having said why, if the
# environment cannot be made.
#
#   ROBOCAL_VENV    where the environment is (default: .venv in the repository, or
#                   .venv-<distribution> if a ROS 2 distribution is sourced)
#   ROBOCAL_PYTHON  the interpreter to make it with (default: the first that fits on PATH)

robocal_isolate_ros() {
    # Nobody else's nodes: this machine only, and a domain by chance unless the user chose one.
    export ROS_AUTOMATIC_DISCOVERY_RANGE="${ROS_AUTOMATIC_DISCOVERY_RANGE:-LOCALHOST}"
    # Domains above 101 run into the ports that Linux hands out to clients.
    export ROS_DOMAIN_ID="${ROS_DOMAIN_ID:-$((RANDOM % 101 + 1))}"
}

# Not exported: another checkout, used from the same shell, has an environment of its own.
robocal_root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
robocal_venv="${ROBOCAL_VENV:-${robocal_root}/.venv${ROS_DISTRO:+-${ROS_DISTRO}}}"
robocal_venv="$(realpath -ms -- "${robocal_venv}")"

# A sourced file sees its caller's arguments if it was given none, so only what is known is taken.
if [[ ${1:-} == --with-tests ]]; then
    ROBOCAL_VENV="${robocal_venv}" "${robocal_root}/scripts/setup" --with-tests || return
else
    ROBOCAL_VENV="${robocal_venv}" "${robocal_root}/scripts/setup" || return
fi
# Byte code is kept inside the environment, even where the caller's shell has none written: with
# it a node starts in half the time.
export PYTHONPYCACHEPREFIX="${robocal_venv}/pycache"
unset PYTHONDONTWRITEBYTECODE
case ":${PATH}:" in
    *":${robocal_venv}/bin:"*) ;;
    *) export PATH="${robocal_venv}/bin:${PATH}" ;;
esac
robocal_isolate_ros
