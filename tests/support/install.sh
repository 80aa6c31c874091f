# SPDX-License-Identifier: Apache-2.0
# To be sourced. install_build PREFIX installs the build, component by component: the build's own list of what was
# installed last, from which its target uninstall works, is left as it is.
install_build() {
  local component
  for component in library tools headers; do
    cmake --install "$SLUICE_BUILD" --component "$component" --prefix "$1" >/dev/null || return
  done
}
