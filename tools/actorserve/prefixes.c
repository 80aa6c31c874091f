/* SPDX-License-Identifier: Apache-2.0 */
/* The option --prefix-caching: on, off, or where cached pages move when their memory is needed. */
#include <string.h>

#include "base/number.h"
#include "tools/actorserve/actorserve.h"

sl_status prefixes_read(const settings *s, sl_prefixes *prefixes, sl_kept_pages *kept) {
  static const struct place {
    const char *name;
    sl_space space;
  } places[] = {{"host:", SL_SPACE_HOST}, {"disk:", SL_SPACE_DISK}};
  const char *text = sl_arg_text(s->run, "prefix-caching");
  bool off = !strcmp(text, "off");
  *prefixes = off ? SL_PREFIXES_APART : SL_PREFIXES_SHARED;
  *kept = (sl_kept_pages){.folder = s->lower.memory.homes.disk};
  if (off || !strcmp(text, "on")) return SL_OK;
  for (size_t i = 0; i < SLI_COUNT(places); i++) {
    size_t n = strlen(places[i].name);
    const char *at = text + n;
    kept->space = places[i].space;
    if (!strncmp(text, places[i].name, n) && sli_number_read_size(&at, &kept->bytes) && !*at &&
        kept->bytes)
      return SL_OK;
  }
  return sl_fail(SL_E_USAGE, "--prefix-caching %s: must be on, off, host:SIZE or disk:SIZE", text);
}
