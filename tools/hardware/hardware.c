/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/hardware/hardware.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "io/json.h"
#include "tools/hardware/curves.h"

void hardware_here(char *path, size_t size, bool whole) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char host[128] = "";
  const char *end = whole ? ".whole.json" : ".json";
  gethostname(host, sizeof host - 1);
  if (cache && *cache) snprintf(path, size, "%s/sluice/%s%s", cache, host, end);
  else snprintf(path, size, "%s/.cache/sluice/%s%s", home && *home ? home : "/tmp", host, end);
}

static sl_status find_here(const char *word, char *path, size_t size) {
  hardware_here(path, size, strcmp(word, "here") != 0);
  if (!access(path, R_OK)) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "--machine %s: this machine has not been measured; run actortune machine first",
                 word);
}

/* A name with another dot is a file of tables. */
static int is_machine(const struct dirent *e) {
  const char *dot = strchr(e->d_name, '.');
  return dot && dot > e->d_name && !strcmp(dot, ".json");
}

/* Reports an unknown machine with the known names, "a, b, here, here-whole", and a suggestion for a
 * mistyped name. */
static sl_status unknown_machine(const char *word, const char *folder) {
  enum { MOST = 32 };
  struct dirent **files = NULL;
  int found = scandir(folder, &files, is_machine, alphasort), n = SLI_MAX(found, 0);
  int known = SLI_MIN(n, MOST);
  const char *names[MOST + 3] = {0};
  char list[1024] = "", meant[SLI_MEANT_TEXT];
  size_t at = 0;
  for (int i = 0; i < known; i++) {
    files[i]->d_name[strlen(files[i]->d_name) - 5] = 0;
    names[i] = files[i]->d_name;
  }
  names[known] = "here", names[known + 1] = "here-whole";
  for (int i = 0; names[i] && at < sizeof list; i++)
    at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
  sl_fail(SL_E_INPUT, "--machine %s: no such file, and not one of %s%s", word, list,
          sli_meant(meant, names, word));
  for (int i = 0; i < n; i++) free(files[i]);
  free(files);
  return SL_E_INPUT;
}

/* Finds a machine file. Shipped ones are in ../share/sluice/machines, relative to the tools. */
static sl_status find_file(const char *word, char *path, size_t size) {
  if (!strcmp(word, "here") || !strcmp(word, "here-whole")) return find_here(word, path, size);
  if (!access(word, R_OK)) {
    snprintf(path, size, "%s", word);
    return SL_OK;
  }
  char self[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n > 0 ? n : 0] = 0;
  char *slash = strrchr(self, '/');
  if (slash) *slash = 0;
  snprintf(path, size, "%s/../share/sluice/machines/%s.json", self, word);
  if (!access(path, R_OK)) return SL_OK;
  snprintf(path, size, "%s/../share/sluice/machines", self);
  return unknown_machine(word, path);
}

enum { MOST_PER_HOST = 1 << 20 };
static const double most_rate = 1e30, most_seconds = 1e6, most_bytes = 1e18;

/* Values of the file before conversion. */
typedef struct said {
  const cJSON *rates;
  double flops_efficiency, bytes_efficiency, memory, link_efficiency;
  double host_seconds, host_rate; /* below 0 if not given */
  double spread;
  int64_t devices_per_host;
  curves_parts parts;
  const cJSON *serving, *training, *energy, *shares;
} said;

/* Checks a rate. 0 means that any number of bytes takes no time. */
static bool is_too_slow(double rate) { return rate > 0 && rate < 1; }

/* Reads all fields that a machine file may have. */
static sl_status hardware_take(const sli_json *doc, said *s, sl_hardware *out) {
  const sli_json_field fields[] = {
      {"name", SLI_JSON_TEXT, NULL, 0, 0, false},
      {"source", SLI_JSON_TEXT, NULL, 0, 0, false},
      {"spread", SLI_JSON_NUMBER, &s->spread, 0, most_rate, false},
      {"flops_per_second", SLI_JSON_OBJECT, &s->rates, 0, 0, true},
      {"flops_efficiency", SLI_JSON_NUMBER, &s->flops_efficiency, 0, 1, true},
      {"bytes_per_second", SLI_JSON_NUMBER, &out->bytes_per_second, 0, most_rate, true},
      {"bytes_efficiency", SLI_JSON_NUMBER, &s->bytes_efficiency, 0, 1, true},
      {"op_seconds", SLI_JSON_NUMBER, &out->op_seconds, 0, most_seconds, true},
      {"memory_bytes", SLI_JSON_NUMBER, &s->memory, 0, most_bytes, true},
      {"link_seconds", SLI_JSON_NUMBER, &out->link.seconds, 0, most_seconds, true},
      {"link_bytes_per_second", SLI_JSON_NUMBER, &out->link.bytes_per_second, 0, most_rate, true},
      {"devices_per_host", SLI_JSON_WHOLE, &s->devices_per_host, 0, MOST_PER_HOST, false},
      {"link_efficiency", SLI_JSON_NUMBER, &s->link_efficiency, 0, 1, false},
      {"host_link_seconds", SLI_JSON_NUMBER, &s->host_seconds, 0, most_seconds, false},
      {"host_link_bytes_per_second", SLI_JSON_NUMBER, &s->host_rate, 0, most_rate, false},
      {"copy_bytes_per_second", SLI_JSON_NUMBER, &out->copy_bytes_per_second, 0, most_rate, false},
      {"host_memory_bytes_per_second", SLI_JSON_NUMBER, &out->host_memory_bytes_per_second, 0,
       most_rate, false},
      {"host_updates_per_second", SLI_JSON_NUMBER, &out->host_updates_per_second, 0, most_rate,
       false},
      {"disk_read_bytes_per_second", SLI_JSON_NUMBER, &out->disk_read_bytes_per_second, 0,
       most_rate, false},
      {"disk_write_bytes_per_second", SLI_JSON_NUMBER, &out->disk_write_bytes_per_second, 0,
       most_rate, false},
      {"links_per_host", SLI_JSON_NUMBER, &out->links_per_host, 0, MOST_PER_HOST, false},
      {"gradient_bytes", SLI_JSON_NUMBER, &out->gradient_bytes, 0.5, 8, false},
      {"step_seconds", SLI_JSON_NUMBER, &out->step_seconds, 0, most_seconds, false},
      {"firing_seconds", SLI_JSON_NUMBER, &out->firing_seconds, 0, most_seconds, false},
      {"wake_seconds", SLI_JSON_NUMBER, &out->wake_seconds, 0, most_seconds, false},
      {"slowdown_while_exchanging", SLI_JSON_NUMBER, &out->slowdown_while_exchanging, 1, 1e3,
       false},
      {"curves", SLI_JSON_OBJECT, &s->parts.curves, 0, 0, false},
      {"rows", SLI_JSON_OBJECT, &s->parts.rows, 0, 0, false},
      {"exchange", SLI_JSON_OBJECT, &s->parts.exchange, 0, 0, false},
      {"process_link", SLI_JSON_OBJECT, &s->parts.process_link, 0, 0, false},
      {"links", SLI_JSON_ARRAY, &s->parts.links, 0, 0, false},
      {"energy", SLI_JSON_OBJECT, &s->energy, 0, 0, false},
      {"shares", SLI_JSON_OBJECT, &s->shares, 0, 0, false},
      {"training", SLI_JSON_OBJECT, &s->training, 0, 0, false},
      {"serving", SLI_JSON_OBJECT, &s->serving, 0, 0, false}};
  return sli_json_take(doc, doc->root, fields, SLI_COUNT(fields));
}

/* Reads the rate of the compute type, and checks the rates of the other types. */
static sl_status read_rate(const sli_json *doc, const said *s, const char *type, double *out) {
  const sli_json_field wanted = {type, SLI_JSON_NUMBER, out, 0, most_rate, true};
  sl_status status = sli_json_pick(doc, s->rates, &wanted, 1);
  for (const cJSON *at = s->rates->child; at && !status; at = at->next)
    status = sli_json_is(doc, at, SLI_JSON_NUMBER);
  return status;
}

static void hardware_apply(const said *s, sl_hardware *out) {
  out->host_link = out->link;
  if (s->host_seconds >= 0) out->host_link.seconds = s->host_seconds;
  if (s->host_rate >= 0) out->host_link.bytes_per_second = s->host_rate;
  out->link.bytes_per_second *= s->link_efficiency;
  out->host_link.bytes_per_second *= s->link_efficiency;
  out->devices_per_host = (int)SLI_MAX(s->devices_per_host, 1);
  out->flops_per_second *= s->flops_efficiency;
  out->bytes_per_second *= s->bytes_efficiency;
  out->memory_bytes = (size_t)s->memory;
}

static sl_status hardware_check(const sli_json *doc, const sl_hardware *h) {
  const struct {
    const char *name;
    double rate;
  } homes[] = {{"copy_bytes_per_second", h->copy_bytes_per_second},
               {"host_memory_bytes_per_second", h->host_memory_bytes_per_second},
               {"disk_read_bytes_per_second", h->disk_read_bytes_per_second},
               {"disk_write_bytes_per_second", h->disk_write_bytes_per_second}};
  for (size_t i = 0; i < SLI_COUNT(homes); i++)
    if (is_too_slow(homes[i].rate))
      return sl_fail(SL_E_INPUT, "%s: %s is less than one byte per second", doc->name,
                     homes[i].name);
  if (is_too_slow(h->host_updates_per_second))
    return sl_fail(SL_E_INPUT, "%s: host_updates_per_second is less than one parameter per second",
                   doc->name);
  if (h->flops_per_second < 1 || h->bytes_per_second < 1)
    return sl_fail(SL_E_INPUT, "%s: the device computes nothing or moves nothing", doc->name);
  if (is_too_slow(h->link.bytes_per_second) || is_too_slow(h->host_link.bytes_per_second))
    return sl_fail(SL_E_INPUT, "%s: a link moves less than one byte per second", doc->name);
  return SL_OK;
}

/* ---- energy -------------------------------------------------------------------------------- */

static sl_status read_energy(const sli_json *doc, const cJSON *from, sl_hardware *out) {
  static const double most_watts = 1e9;
  const sli_json_field fields[] = {
      {"source", SLI_JSON_TEXT, NULL, 0, 0, false},
      {"idle_watts", SLI_JSON_NUMBER, &out->idle_watts, 0, most_watts, true},
      {"busy_watts", SLI_JSON_NUMBER, &out->busy_watts, 0, most_watts, true}};
  sl_status status = sli_json_take(doc, from, fields, SLI_COUNT(fields));
  if (status || (out->busy_watts > 0 && out->busy_watts >= out->idle_watts)) return status;
  return sli_json_fail(doc, from, "busy_watts must be above 0 and at least idle_watts");
}

/* ---- shares -------------------------------------------------------------------------------- */

/* Reads [[part, rate], ...] from [0, 0] to [1, 1], both ascending. */
static sl_status read_share_curve(const sli_json *doc, const cJSON *from, sli_arena *arena,
                                  sl_share_curve *out) {
  sl_status status = sli_json_is(doc, from, SLI_JSON_ARRAY);
  int n = status ? 0 : cJSON_GetArraySize(from), i = 0;
  double *parts = sli_arena_alloc(arena, ((size_t)n + 1) * sizeof *parts),
         *rates = sli_arena_alloc(arena, ((size_t)n + 1) * sizeof *rates);
  for (const cJSON *at = status ? NULL : from->child; at && !status; at = at->next, i++) {
    const cJSON *part = at->child, *rate = part ? part->next : NULL;
    if (!cJSON_IsNumber(part) || !cJSON_IsNumber(rate) || rate->next)
      return sli_json_fail(doc, at, "must be [share, speed]");
    parts[i] = part->valuedouble, rates[i] = rate->valuedouble;
    if (i ? parts[i] <= parts[i - 1] || rates[i] < rates[i - 1] : parts[i] != 0 || rates[i] != 0)
      return sli_json_fail(doc, at, "shares and speeds must ascend from [0, 0] to [1, 1]");
  }
  if (!status && (n < 2 || parts[n - 1] != 1 || rates[n - 1] != 1))
    return sli_json_fail(doc, from, "shares and speeds must ascend from [0, 0] to [1, 1]");
  *out = (sl_share_curve){n, parts, rates};
  return status;
}

static sl_status read_shares(const sli_json *doc, const cJSON *from, sli_arena *arena,
                             sl_hardware *out) {
  sl_status status = SL_OK;
  for (const cJSON *at = from->child; at && !status; at = at->next) {
    int r = 0;
    while (r < SL_RESOURCES && strcmp(at->string, sl_resource_name((sl_resource)r)) != 0) r++;
    if (!strcmp(at->string, "source")) continue;
    if (r == SL_RESOURCES)
      return sli_json_fail(doc, at, "must be compute, memory, network, disk or copy");
    status = read_share_curve(doc, at, arena, &out->shares[r]);
  }
  return status;
}

/* ---- serving ------------------------------------------------------------------------------- */

/* Reads a file of tables, beside the machine file. */
static sl_status read_tables(const sli_json *doc, const cJSON *item, double peak, sli_arena *arena,
                             sl_hardware *out) {
  const char *slash = strrchr(doc->name, '/'), *name = item->valuestring;
  char *path = sli_format("%.*s%s", slash ? (int)(slash - doc->name) + 1 : 0, doc->name, name);
  sli_json tables;
  curves_parts parts = {0};
  const sli_json_field fields[] = {{"name", SLI_JSON_TEXT, NULL, 0, 0, false},
                                   {"source", SLI_JSON_TEXT, NULL, 0, 0, false},
                                   {"curves", SLI_JSON_OBJECT, &parts.curves, 0, 0, false},
                                   {"rows", SLI_JSON_OBJECT, &parts.rows, 0, 0, false},
                                   {"exchange", SLI_JSON_OBJECT, &parts.exchange, 0, 0, false}};
  sl_status status = strchr(name, '/') ? sli_json_fail(doc, item, "must be a file of this folder")
                                       : sli_json_open(path, &tables);
  free(path);
  if (status) return status;
  status = sli_json_take(&tables, tables.root, fields, SLI_COUNT(fields));
  if (!status) status = curves_read(&tables, &parts, peak, arena, out);
  sli_json_fini(&tables);
  return status;
}

/* Reads the measured tables of the dtype. They replace what the machine file says of their calls.
 */
static sl_status read_tables_for(const sli_json *doc, const cJSON *tables, const char *type,
                                 double peak, sli_arena *arena, sl_hardware *out) {
  const cJSON *own = NULL;
  sl_status status = SL_OK;
  for (const cJSON *at = tables ? tables->child : NULL; at && !status; at = at->next) {
    status = sli_json_is(doc, at, SLI_JSON_ARRAY);
    if (!strcmp(at->string, type)) own = at;
  }
  for (const cJSON *at = own ? own->child : NULL; at && !status; at = at->next) {
    status = sli_json_is(doc, at, SLI_JSON_TEXT);
    if (!status) status = read_tables(doc, at, peak, arena, out);
  }
  return status;
}

static sl_status read_training(const sli_json *doc, const cJSON *from, const char *type,
                               double peak, sli_arena *arena, sl_hardware *out) {
  const cJSON *tables = NULL;
  const sli_json_field fields[] = {{"tables", SLI_JSON_OBJECT, &tables, 0, 0, true}};
  sl_status status = sli_json_take(doc, from, fields, SLI_COUNT(fields));
  return status ? status : read_tables_for(doc, tables, type, peak, arena, out);
}

/* Reads the properties of the engine that serves on the machine, and its tables. */
static sl_status read_serving(const sli_json *doc, const cJSON *from, const char *type, double peak,
                              sli_arena *arena, sl_hardware *out) {
  const cJSON *tables = NULL;
  const sli_json_field fields[] = {
      {"op_seconds", SLI_JSON_NUMBER, &out->op_seconds, 0, most_seconds, false},
      {"tick_seconds", SLI_JSON_NUMBER, &out->tick_seconds, 0, most_seconds, false},
      {"answer_seconds", SLI_JSON_NUMBER, &out->answer_seconds, 0, most_seconds, false},
      {"request_token_seconds", SLI_JSON_NUMBER, &out->request_token_seconds, 0, most_seconds,
       false},
      {"half_activations", SLI_JSON_FLAG, &out->half_activations, 0, 0, false},
      {"joins_products", SLI_JSON_FLAG, &out->joins_products, 0, 0, false},
      {"tables", SLI_JSON_OBJECT, &tables, 0, 0, false}};
  sl_status status = sli_json_take(doc, from, fields, SLI_COUNT(fields));
  out->half_activations &= strcmp(type, "f32") != 0;
  return status ? status : read_tables_for(doc, tables, type, peak, arena, out);
}

static sl_status read_hardware(const sli_json *doc, const char *type, bool serves, sli_arena *arena,
                               sl_hardware *out, double *spread) {
  said s = {.link_efficiency = 1, .host_seconds = -1, .host_rate = -1, .devices_per_host = 1};
  sl_status status = hardware_take(doc, &s, out);
  if (!status) status = read_rate(doc, &s, type, &out->flops_per_second);
  double peak = out->flops_per_second;
  if (status) return status;
  hardware_apply(&s, out);
  *spread = s.spread;
  status = curves_read(doc, &s.parts, peak, arena, out);
  if (!status && s.energy) status = read_energy(doc, s.energy, out);
  if (!status && s.shares) status = read_shares(doc, s.shares, arena, out);
  if (!status && serves && s.serving) status = read_serving(doc, s.serving, type, peak, arena, out);
  if (!status && !serves && s.training)
    status = read_training(doc, s.training, type, peak, arena, out);
  return status ? status : hardware_check(doc, out);
}

sl_status hardware_read(const char *word, const char *type, bool serves, sli_arena *arena,
                        sl_hardware *out, double *spread) {
  char path[PATH_MAX + 64];
  sl_hardware hardware = {0};
  sli_json doc;
  sl_status status = find_file(word, path, sizeof path);
  if (!status) status = sli_json_open(path, &doc);
  if (status) return status;
  status = read_hardware(&doc, type, serves, arena, &hardware, spread);
  sli_json_fini(&doc);
  if (!status) *out = hardware;
  return status;
}

bool hardware_is_rough(double spread) {
  static const double most = 0.25;
  return spread > most;
}

void hardware_warn(const char *word, double spread) {
  if (!hardware_is_rough(spread)) return;
  sli_log(
      "warning: --machine %s: other programs kept the machine busy while it was measured (spread %.2g: the median step took %.2g times as long as the fastest): runs may take that much longer than predicted, and another plan may be faster; run actortune machine again when nothing else runs",
      word, spread, 1 + spread);
}
