/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas and homes as users name them: NAME=N, NAME@STAGE=N, NAME=HOME, NAME@BLOCK=HOME. */
#include "graph/compile/compile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/number.h"

/* ---- quotas ------------------------------------------------------------------------------- */

enum { MOST_STAGE = 1 << 20, MOST_SLOTS = 1 << 24 };

static sl_status malformed(const char *text) {
  return sl_fail(SL_E_USAGE, "quota %s: must be NAME=N or NAME@STAGE=N", text);
}

/* Reads the stage between the name and the equals sign: nothing, or "@2". */
static sl_status read_stage(const char *text, const char *at, const char *equals, int *out) {
  *out = SL_NONE;
  if (at == equals) return SL_OK;
  char *end;
  errno = 0;
  long stage = strtol(at + 1, &end, 10);
  if (end == at + 1 || end != equals || errno || stage < 0 || stage > MOST_STAGE)
    return sl_fail(SL_E_USAGE, "quota %s: the stage must be a number", text);
  *out = (int)stage;
  return SL_OK;
}

/* Reads a number up to a comma or the end; "-" in a list is 0. */
static sl_status read_slots(const char *text, const char **at, bool several, int *out) {
  char *end;
  errno = 0;
  long slots = strtol(*at, &end, 10);
  bool skipped = several && **at == '-' && (!(*at)[1] || (*at)[1] == ',');
  if (skipped) end = (char *)*at + 1, slots = 0;
  bool trailing = *end == ',' && !end[1];
  if (end == *at || (*end && *end != ',') || trailing || errno || slots > MOST_SLOTS)
    return sl_fail(SL_E_USAGE, "quota %s: the number of slots must be a number", text);
  if (slots < 1 && !skipped)
    return sl_fail(SL_E_USAGE, "quota %s: a register needs at least one slot", text);
  *at = end + (*end == ',');
  *out = (int)slots;
  return SL_OK;
}

/* Allocates one quota per list element, followed by the name. */
static sl_quota *make_room(const char *text, size_t length, char **name) {
  size_t most = 1;
  for (const char *at = text; *at; at++) most += *at == ',';
  sl_quota *all = sli_calloc(1, most * sizeof *all + length + 1);
  *name = memcpy(all + most, text, length);
  return all;
}

sl_status sli_quota_read(const char *text, int *count, sl_quota **out) {
  const char *equals = strchr(text, '=');
  size_t length = strcspn(text, "@=");
  int stage, n = 0;
  if (!equals || !length) return malformed(text);
  sl_status status = read_stage(text, text + length, equals, &stage);
  if (status) return status;
  bool several = strchr(equals, ',') != NULL;
  if (several && stage == SL_NONE) stage = 0;
  char *name;
  sl_quota *all = make_room(text, length, &name);
  const char *at = equals + 1;
  do {
    int slots = 0;
    status = read_slots(text, &at, several, &slots);
    if (slots) all[n++] = (sl_quota){name, stage, slots};
    stage++;
  } while (!status && *at);
  if (status) {
    free(all);
    return status;
  }
  *count = n;
  *out = all;
  return SL_OK;
}

/* ---- homes -------------------------------------------------------------------------------- */

/* "disk" or "peer:1" */
static bool find_space(const char *text, sl_home *out) {
  const char *number = strchr(text, ':');
  size_t length = number ? (size_t)(number - text) : strlen(text);
  for (int s = 0; s < SL_HOME_COUNT; s++) {
    const char *name = sl_space_name((sl_space)s);
    if (strlen(name) != length || strncmp(name, text, length)) continue;
    out->space = (sl_space)s;
    if ((s == SL_SPACE_PEER) != (number != NULL)) return false;
    return !number || (number++, sli_number_read(&number, 0, INT32_MAX, &out->peer) && !*number);
  }
  return false;
}

static sl_status unknown_space(const char *text, const char *word) {
  const char *names[SL_HOME_COUNT + 1] = {0};
  char meant[SLI_MEANT_TEXT];
  for (int s = 0; s < SL_SPACE_COUNT; s++) names[s] = sl_space_name((sl_space)s);
  names[SL_SPACE_PEER] = "peer:N";
  return sl_fail(SL_E_USAGE, "home %s: must be device, host, disk or peer:N, not '%s'%s", text,
                 word, sli_meant(meant, names, word));
}

sl_status sli_home_read(const char *text, sli_arena *arena, sl_home *out) {
  const char *equals = strrchr(text, '=');
  size_t length = strcspn(text, "@=");
  if (!equals || !length || (text[length] == '@' && equals == text + length + 1))
    return sl_fail(SL_E_USAGE, "home %s: must be NAME=HOME or NAME@BLOCK=HOME", text);
  if (!find_space(equals + 1, out)) return unknown_space(text, equals + 1);
  out->name = sli_arena_format(arena, "%.*s", (int)length, text);
  out->block = text[length] == '@'
                   ? sli_arena_format(arena, "%.*s", (int)(equals - text - (long)length - 1),
                                      text + length + 1)
                   : NULL;
  return SL_OK;
}
