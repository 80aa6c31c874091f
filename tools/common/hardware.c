#include "tools/common/hardware.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"
#include "tools/common/curves.h"

void hardware_here(char *path, size_t size) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char host[128] = "";
  gethostname(host, sizeof host - 1);
  if (cache && *cache) snprintf(path, size, "%s/sluice/%s.json", cache, host);
  else snprintf(path, size, "%s/.cache/sluice/%s.json", home && *home ? home : "/tmp", host);
}

static sl_status find_here(char *path, size_t size) {
  hardware_here(path, size);
  if (!access(path, R_OK)) return SL_OK;
  return sl_fail(SL_E_INPUT, "--machine here: this machine has not been measured; actortune machine does it");
}

/* Shipped files lie beside the tools, in ../share/sluice/machines. */
static sl_status find_file(const char *word, char *path, size_t size) {
  if (!strcmp(word, "here")) return find_here(path, size);
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
  return sl_fail(SL_E_INPUT, "--machine %s: no such file, and no shipped machine of that name",
                 word);
}

/* A number of a machine file, and what it can be. */
typedef struct field {
  const cJSON *from;
  const char *group, *name; /* group: the object in the file that has it, with a dot; or "" */
  double most, *to;         /* 0 to most */
  bool optional;
} field;

static sl_status read_field(const char *path, const field *f) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(f->from, f->name);
  if (!item && f->optional) return SL_OK;
  if (!item) return sl_fail(SL_E_INPUT, "%s: %s%s is missing", path, f->group, f->name);
  double v = cJSON_IsNumber(item) ? item->valuedouble : NAN;
  if (v >= 0 && v <= f->most) {
    *f->to = v;
    return SL_OK;
  }
  char *text = cJSON_PrintUnformatted(item);
  sl_status status = sl_fail(SL_E_INPUT, "%s: %s%s is %.40s: it must be a number from 0 to %g", path,
                             f->group, f->name, text ? text : "no value", f->most);
  cJSON_free(text);
  return status;
}

static sl_status read_fields(const char *path, const field *fields, size_t count) {
  sl_status status = SL_OK;
  for (size_t i = 0; i < count && !status; i++) status = read_field(path, &fields[i]);
  return status;
}

enum { MOST_PER_HOST = 1 << 20 };
static const double most_rate = 1e30, most_seconds = 1e6, most_bytes = 1e18;

/* Devices in hosts, where they are. */
static sl_status read_host(const char *path, const cJSON *root, sl_hardware *out) {
  double devices = 1, efficiency = 1;
  sl_hardware_link *link = &out->host_link;
  *link = out->link;
  const field fields[] = {
      {root, "", "devices_per_host", MOST_PER_HOST, &devices, true},
      {root, "", "link_efficiency", 1, &efficiency, true},
      {root, "", "host_link_seconds", most_seconds, &link->seconds, true},
      {root, "", "host_link_bytes_per_second", most_rate, &link->bytes_per_second, true}};
  sl_status status = read_fields(path, fields, SLI_COUNT(fields));
  out->devices_per_host = (int)SLI_MAX(devices, 1);
  out->link.bytes_per_second *= efficiency;
  link->bytes_per_second *= efficiency;
  return status;
}

/* 0: any number of bytes takes no time. */
static bool is_too_slow(double rate) { return rate > 0 && rate < 1; }

/* What holds that which lives elsewhere than on its device. */
static sl_status read_homes(const char *path, const cJSON *root, sl_hardware *out) {
  const field fields[] = {
      {root, "", "copy_bytes_per_second", most_rate, &out->copy_bytes_per_second, true},
      {root, "", "host_memory_bytes_per_second", most_rate, &out->host_memory_bytes_per_second, true},
      {root, "", "disk_read_bytes_per_second", most_rate, &out->disk_read_bytes_per_second, true},
      {root, "", "disk_write_bytes_per_second", most_rate, &out->disk_write_bytes_per_second, true}};
  sl_status status = read_fields(path, fields, SLI_COUNT(fields));
  for (size_t i = 0; i < SLI_COUNT(fields) && !status; i++)
    if (is_too_slow(*fields[i].to))
      status = sl_fail(SL_E_INPUT, "%s: %s is less than a byte a second", path, fields[i].name);
  return status;
}

static sl_status read_hardware(const char *path, const cJSON *root, sl_dtype dtype,
                               sli_arena *arena, sl_hardware *out) {
  const cJSON *rates = cJSON_GetObjectItemCaseSensitive(root, "flops_per_second");
  double flops_efficiency, bytes_efficiency, memory;
  const field fields[] = {
      {rates, "flops_per_second.", sl_dtype_name(dtype), most_rate, &out->flops_per_second, false},
      {root, "", "flops_efficiency", 1, &flops_efficiency, false},
      {root, "", "bytes_per_second", most_rate, &out->bytes_per_second, false},
      {root, "", "bytes_efficiency", 1, &bytes_efficiency, false},
      {root, "", "op_seconds", most_seconds, &out->op_seconds, false},
      {root, "", "memory_bytes", most_bytes, &memory, false},
      {root, "", "link_seconds", most_seconds, &out->link.seconds, false},
      {root, "", "link_bytes_per_second", most_rate, &out->link.bytes_per_second, false}};
  sl_status status = read_fields(path, fields, SLI_COUNT(fields));
  if (status) return status;
  double peak = out->flops_per_second;
  out->flops_per_second *= flops_efficiency;
  out->bytes_per_second *= bytes_efficiency;
  out->memory_bytes = (size_t)memory;
  status = read_host(path, root, out);
  if (!status) status = read_homes(path, root, out);
  if (!status) status = curves_read(path, root, peak, arena, out);
  if (status) return status;
  if (out->flops_per_second < 1 || out->bytes_per_second < 1)
    return sl_fail(SL_E_INPUT, "%s: a device that computes or moves nothing", path);
  if (is_too_slow(out->link.bytes_per_second) || is_too_slow(out->host_link.bytes_per_second))
    return sl_fail(SL_E_INPUT, "%s: a link that moves less than a byte a second", path);
  return SL_OK;
}

sl_status hardware_read(const char *word, sl_dtype dtype, sli_arena *arena, sl_hardware *out) {
  char path[PATH_MAX + 64], *text;
  sl_hardware hardware = {0};
  sl_status status = find_file(word, path, sizeof path);
  if (!status) status = sli_file_read(path, &text);
  if (status) return status;
  cJSON *root = cJSON_Parse(text);
  free(text);
  status = root ? read_hardware(path, root, dtype, arena, &hardware)
                : sl_fail(SL_E_INPUT, "%s: not JSON", path);
  cJSON_Delete(root);
  if (!status) *out = hardware;
  return status;
}
