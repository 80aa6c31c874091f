/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/devices/devices.h"

#include <stdio.h>
#include <string.h>

#include "graph/devices/kinds.h"

/* The first kind is the default. */
static const sli_kind *const kinds[] = {&sli_kind_cpu, &sli_kind_cuda, &sli_kind_timed,
                                        &sli_kind_null};

static const sli_kind *devices_find(const char *name, size_t length) {
  for (size_t i = 0; i < SLI_COUNT(kinds); i++)
    if (strlen(kinds[i]->name) == length && !strncmp(kinds[i]->name, name, length)) return kinds[i];
  return NULL;
}

const sli_kind *sli_kind_find(const char *name) {
  return name ? devices_find(name, strlen(name)) : kinds[0];
}

/* Lists the forms: "A, B or C". */
static void list_forms(char *out, size_t size) {
  size_t length = 0;
  for (size_t i = 0; i < SLI_COUNT(kinds) && length < size; i++) {
    const char *before = !i ? "" : i + 1 < SLI_COUNT(kinds) ? ", " : " or ";
    length += (size_t)snprintf(out + length, size - length, "%s%s", before, kinds[i]->form);
  }
}

/* Suggests a kind for a mistyped one. */
static const char *meant_kind(char out[SLI_MEANT_TEXT], const char *spec, size_t length) {
  const char *names[SLI_COUNT(kinds) + 1] = {0};
  char word[32];
  for (size_t i = 0; i < SLI_COUNT(kinds); i++) names[i] = kinds[i]->name;
  snprintf(word, sizeof word, "%.*s", (int)SLI_MIN(length, sizeof word - 1), spec);
  return sli_meant(out, names, word);
}

sl_status sli_devices_read(const char *spec, sli_arena *arena, sl_device_options *out) {
  size_t length = strcspn(spec, ":");
  const char *at = spec + length;
  const sli_kind *kind = devices_find(spec, length);
  if (kind) out->kind = kind->name;
  if (kind && (!*at || (at++, kind->read(&at, arena, out) && !*at))) return SL_OK;
  char forms[256];
  list_forms(forms, sizeof forms);
  return sl_fail(SL_E_USAGE, "devices.kind %s: must be %s%s", spec, forms,
                 kind ? "" : meant_kind((char[SLI_MEANT_TEXT]){0}, spec, length));
}

bool sl_device_computes(const char *kind) {
  const sli_kind *found = sli_kind_find(kind);
  return found && found->computes;
}

int sl_device_process(int device, int devices, int processes) {
  return (int)((int64_t)device * SLI_MAX(processes, 1) / devices);
}
