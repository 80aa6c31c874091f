# SPDX-License-Identifier: Apache-2.0
# Source this file. install_build PREFIX installs the build component by component, so that the
# build's install manifest, which its target uninstall uses, is not overwritten.
install_build() {
  local component
  for component in library tools headers; do
    cmake --install "$SLUICE_BUILD" --component "$component" --prefix "$1" >/dev/null || return
  done
}
