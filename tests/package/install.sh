#!/usr/bin/env bash
# Installs a build into $PREFIX. It is installed elsewhere first and then moved, so that whatever
# remembers the first place fails.
# Usage: PREFIX=... CMAKE=... install.sh BUILD_FOLDER
set -euo pipefail

staged="$PREFIX.staged"
rm -rf "$PREFIX" "$staged"
"$CMAKE" --install "$1" --prefix "$staged"
mv "$staged" "$PREFIX"
