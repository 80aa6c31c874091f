#include "tools/common/hardware.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"

/* Shipped files lie beside the tools, in ../share/sluice/machines. */
static sl_status find_file(const char *word, char *path, size_t size) {
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

static sl_status read_field(const char *path, const cJSON *from, const char *name, double *out) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, name);
  if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0))
    return sl_fail(SL_E_INPUT, "%s: %s is not a number from 0", path, name);
  *out = item->valuedouble;
  return SL_OK;
}

/* What may be left out. */
static sl_status read_option(const char *path, const cJSON *from, const char *name, double *out) {
  return cJSON_HasObjectItem(from, name) ? read_field(path, from, name, out) : SL_OK;
}

/* Devices in hosts, where they are. */
static sl_status read_host(const char *path, const cJSON *root, sl_hardware *out) {
  double devices = 1, efficiency = 1;
  sl_status status = read_option(path, root, "devices_per_host", &devices);
  out->host_link = out->link;
  if (!status) status = read_option(path, root, "link_efficiency", &efficiency);
  if (!status) status = read_option(path, root, "host_link_seconds", &out->host_link.seconds);
  if (!status)
    status = read_option(path, root, "host_link_bytes_per_second", &out->host_link.bytes_per_second);
  out->devices_per_host = (int)SLI_MIN(SLI_MAX(devices, 1), 1 << 20);
  out->link.bytes_per_second *= efficiency;
  out->host_link.bytes_per_second *= efficiency;
  return status;
}

static sl_status read_hardware(const char *path, const cJSON *root, sl_dtype dtype,
                               sl_hardware *out) {
  const cJSON *rates = cJSON_GetObjectItemCaseSensitive(root, "flops_per_second");
  double flops_efficiency, bytes_efficiency, memory;
  const struct {
    const cJSON *from;
    const char *name;
    double *to;
  } fields[] = {{rates, sl_dtype_name(dtype), &out->flops_per_second},
                {root, "flops_efficiency", &flops_efficiency},
                {root, "bytes_per_second", &out->bytes_per_second},
                {root, "bytes_efficiency", &bytes_efficiency},
                {root, "op_seconds", &out->op_seconds},
                {root, "memory_bytes", &memory},
                {root, "link_seconds", &out->link.seconds},
                {root, "link_bytes_per_second", &out->link.bytes_per_second}};
  for (size_t i = 0; i < SLI_COUNT(fields); i++) {
    sl_status status = read_field(path, fields[i].from, fields[i].name, fields[i].to);
    if (status) return status;
  }
  out->flops_per_second *= flops_efficiency;
  out->bytes_per_second *= bytes_efficiency;
  out->memory_bytes = (size_t)memory;
  sl_status status = read_host(path, root, out);
  if (status) return status;
  if (out->flops_per_second > 0 && out->bytes_per_second > 0) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: a device that computes or moves nothing", path);
}

sl_status hardware_read(const char *word, sl_dtype dtype, sl_hardware *out) {
  char path[PATH_MAX + 64], *text;
  sl_hardware hardware = {0};
  sl_status status = find_file(word, path, sizeof path);
  if (!status) status = sli_file_read(path, &text);
  if (status) return status;
  cJSON *root = cJSON_Parse(text);
  free(text);
  status = root ? read_hardware(path, root, dtype, &hardware)
                : sl_fail(SL_E_INPUT, "%s: not JSON", path);
  cJSON_Delete(root);
  if (!status) *out = hardware;
  return status;
}
