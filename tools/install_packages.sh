#!/usr/bin/env bash
# Installs the Debian packages of the given groups of tools/packages.txt that are missing. Does
# nothing, and needs no rights, when none is. A package of another architecture (name:arm64) makes
# that architecture known to dpkg first.
# Usage: tools/install_packages.sh GROUP...
set -euo pipefail
list="$(dirname "${BASH_SOURCE[0]}")/packages.txt"

wanted=()
for group in "$@"; do
  packages="$(awk -v group="$group" '$1 == group { $1 = ""; print }' "$list")"
  if [[ -z "$packages" ]]; then
    echo "$0: no group '$group' in $list" >&2
    exit 2
  fi
  read -ra names <<<"$packages"
  wanted+=("${names[@]}")
done

if ! command -v dpkg-query >/dev/null; then
  echo "Not a Debian system: the build needs the equivalents of ${wanted[*]}" >&2
  exit 0
fi

native="$(dpkg --print-architecture)"
# is_installed NAME[:ARCHITECTURE]: for this machine, where none is given. A name alone finds the
# package of every architecture.
is_installed() {
  local architecture="$native"
  [[ "$1" != *:* ]] || architecture="${1#*:}"
  dpkg-query -W -f='${Architecture} ${db:Status-Status}\n' "$1" 2>/dev/null |
    grep -xEq "($architecture|all) installed"
}

missing=()
for package in "${wanted[@]}"; do
  is_installed "$package" || missing+=("$package")
done
((${#missing[@]})) || exit 0

echo "Installing ${missing[*]}"
as_root=(env DEBIAN_FRONTEND=noninteractive)
if ((EUID != 0)); then
  as_root=(sudo "${as_root[@]}")
fi
for package in "${missing[@]}"; do
  [[ "$package" != *:* ]] || "${as_root[@]}" dpkg --add-architecture "${package#*:}"
done
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
