# SPDX-License-Identifier: Apache-2.0
# The environment of this repository, for bash: `source scripts/env.sh [--with-tests]`.
#
# Creates the environment if necessary (see scripts/setup), puts it first on PATH, and restricts ROS
# traffic to this machine and a domain of its own. Returns non-zero, with a message, if the
# environment cannot be created.
#
#   ROBOCAL_VENV    folder of the environment (default: .venv in the repository, or
#                   .venv-<distribution> if a ROS 2 distribution is sourced)
#   ROBOCAL_PYTHON  interpreter to create it with (default: the first suitable one on PATH)

robocal_isolate_ros() {
    # No other nodes: this machine only, and a domain of its own unless the user has chosen one.
    # It is random for scripts, which may run side by side. Terminals of one environment share one,
    # below those of the tests (30 to 101); higher ones use Linux's ephemeral ports.
    local domain=$((RANDOM % 101 + 1))
    if [[ $- == *i* ]]; then
        domain=$(($(cksum <<<"${robocal_venv}" | cut -d' ' -f1) % 29 + 1))
    fi
    export ROS_AUTOMATIC_DISCOVERY_RANGE="${ROS_AUTOMATIC_DISCOVERY_RANGE:-LOCALHOST}"
    export ROS_DOMAIN_ID="${ROS_DOMAIN_ID:-${domain}}"
}

# Not exported: another checkout, used from the same shell, has its own environment.
robocal_root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
robocal_venv="${ROBOCAL_VENV:-${robocal_root}/.venv${ROS_DISTRO:+-${ROS_DISTRO}}}"
robocal_venv="$(realpath -ms -- "${robocal_venv}")"

# A file sourced without arguments sees those of its caller, so only a known one is passed on.
if [[ ${1:-} == --with-tests ]]; then
    ROBOCAL_VENV="${robocal_venv}" "${robocal_root}/scripts/setup" --with-tests || return
else
    ROBOCAL_VENV="${robocal_venv}" "${robocal_root}/scripts/setup" || return
fi
# Byte code is stored in the environment, even if the caller's shell disables it: with byte code a
# node starts in half the time.
export PYTHONPYCACHEPREFIX="${robocal_venv}/pycache"
unset PYTHONDONTWRITEBYTECODE
case ":${PATH}:" in
    *":${robocal_venv}/bin:"*) ;;
    *) export PATH="${robocal_venv}/bin:${PATH}" ;;
esac
robocal_isolate_ros
