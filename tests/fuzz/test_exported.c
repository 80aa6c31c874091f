/* SPDX-License-Identifier: Apache-2.0 */
/* An untrusted exported program is read and its graph built, or it is refused with an error that
 * names the file. An input is an archive, or its entries as text, each behind a line "== NAME". The
 * target packs these into an archive, so that mutations may change an entry's length.
 * needs: libzip
 * labels: random unthreaded */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sluice/pytorch.h>
#include <sluice/sluice.h>

#include "base/base.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {"{\"as_int\":0}",
                                  "{\"as_int\":4}",
                                  "\"as_int\":-1",
                                  "\"as_ints\":[0,1]",
                                  "9223372036854775807",
                                  "-9223372036854775808",
                                  "4294967296",
                                  "\"sizes\":[{\"as_int\":3},{\"as_int\":4}]",
                                  "\"sizes\":[]",
                                  "\"dtype\":12",
                                  "\"dtype\":5",
                                  "\"dtype\":7",
                                  "\"as_none\":true",
                                  "\"as_float\":1e400",
                                  "\"as_float\":\"NaN\"",
                                  "torch.ops.aten.arange.default",
                                  "torch.ops.aten.cumsum.default",
                                  "torch.ops.aten.expand.default",
                                  "torch.ops.aten.index.Tensor",
                                  "torch.ops.aten.select.int",
                                  "torch.ops.aten.slice.Tensor",
                                  "torch.ops.aten.squeeze.dim",
                                  "torch.ops.aten.sum.dim_IntList",
                                  "torch.ops.aten.view.default",
                                  "torch.ops.aten.permute.default",
                                  "torch.ops.aten.add_.Tensor",
                                  "torch.ops.aten.copy_.default",
                                  "torch.ops.higher_order.wrap_with_set_grad_enabled",
                                  "\"name\":\"self\"",
                                  "\"name\":\"dim\"",
                                  "\"name\":\"x\"",
                                  "\"name\":\"p_line_weight\"",
                                  NULL};

/* ---- archives ------------------------------------------------------------------------------ */

static uint32_t crc_of(const char *data, size_t count) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < count; i++) {
    crc ^= (uint8_t)data[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

static void put(FILE *out, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; i++) fputc((int)(value >> 8 * i & 255), out);
}

/* Writes the fields that both headers of an entry share. */
static void put_header(FILE *out, const char *name, uint32_t crc, size_t count) {
  put(out, 20, 2), put(out, 0, 4), put(out, 0, 4); /* version, flags and method, time */
  put(out, crc, 4), put(out, (uint32_t)count, 4), put(out, (uint32_t)count, 4);
  put(out, (uint32_t)strlen(name), 2), put(out, 0, 2);
}

/* Packs the entries of a text into an archive; the folder is "m". */
static void pack(const char *text, size_t count, FILE *out) {
  char *directory, name[96];
  size_t bytes, entries = 0;
  FILE *central = open_memstream(&directory, &bytes);
  const char *end = text + count, *at = text;
  while (at < end && !strncmp(at, "== ", 3)) {
    const char *line = memchr(at, '\n', (size_t)(end - at));
    if (!line) break;
    snprintf(name, sizeof name, "m/%.*s", (int)SLI_MIN(line - at - 3, 80), at + 3);
    const char *next = memmem(line, (size_t)(end - line), "\n== ", 4), *data = line + 1;
    size_t length = (size_t)((next && next > line ? next : end) - data);
    if (next == line) length = 0;
    uint32_t crc = crc_of(data, length), offset = (uint32_t)ftell(out);
    put(out, 0x04034b50, 4), put_header(out, name, crc, length);
    fputs(name, out);
    fwrite(data, 1, length, out);
    put(central, 0x02014b50, 4), put(central, 20, 2), put_header(central, name, crc, length);
    put(central, 0, 2), put(central, 0, 4), put(central, 0, 4), put(central, offset, 4);
    fputs(name, central);
    entries++;
    at = next ? next + 1 : end;
  }
  fclose(central);
  uint32_t begin = (uint32_t)ftell(out);
  fwrite(directory, 1, bytes, out);
  put(out, 0x06054b50, 4), put(out, 0, 4);
  put(out, (uint32_t)entries, 2), put(out, (uint32_t)entries, 2);
  put(out, (uint32_t)bytes, 4), put(out, begin, 4), put(out, 0, 2);
  free(directory);
}

/* ---- the target ---------------------------------------------------------------------------- */

static void build(const sl_exported *e) {
  const sl_model *model = sl_exported_model(e);
  sl_args *args;
  if (sl_args_create(model->options, &args)) abort();
  if (sl_args_set(args, "batch", "4")) abort();
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = 1, .no_data = true});
  sl_status status = sl_model_build(model, g, args);
  if (status && !*sl_detail()) abort();
  sl_graph_destroy(g);
  sl_args_destroy(args);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static char path[64];
  if (!*path)
    snprintf(path, sizeof path, "%s/sluice-fuzz-%d.pt2",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", getpid());
  FILE *file = fopen(path, "wb");
  if (!file) abort();
  if (count > 2 && !memcmp(bytes, "==", 2)) pack((const char *)bytes, count, file);
  else if (fwrite(bytes, 1, count, file) != count) abort();
  if (fclose(file)) abort();
  sl_exported *e;
  sl_status status = sl_exported_open(path, &e);
  if (status && !strstr(sl_detail(), path)) abort(); /* the error names the file */
  if (!status) build(e);
  if (!status) sl_exported_close(e);
  unlink(path);
  return 0;
}
