/* SPDX-License-Identifier: Apache-2.0 */
/* Writer of event files. A file is a sequence of records: length, checksum of the length, data,
 * checksum of the data. Checksums are CRC-32C, rotated and offset as in TFRecord. The data is one
 * protobuf message, of which these fields are needed:
 *
 *     Event: 1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary (Summary)
 *     Summary: 1 value (Value)    Value: 1 tag (string), 2 simple_value (float) */
#include "tools/actorrun/events.h"

#include <string.h>

#include "base/base.h"

enum { MOST = 512, VARINT = 0, EIGHT_BYTES = 1, COUNTED = 2, FOUR_BYTES = 5 };

/* ---- checksums --------------------------------------------------------------------------- */

/* Computes CRC-32C (Castagnoli) bit by bit: records are short. */
static uint32_t crc(const void *data, size_t bytes) {
  uint32_t sum = UINT32_MAX;
  for (const uint8_t *at = data; bytes; bytes--) {
    sum ^= *at++;
    for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? UINT32_C(0x82f63b78) : 0);
  }
  return ~sum;
}

static uint32_t masked_crc(const void *data, size_t bytes) {
  uint32_t sum = crc(data, bytes);
  return (sum >> 15 | sum << 17) + UINT32_C(0xa282ead8);
}

/* ---- messages ---------------------------------------------------------------------------- */

typedef struct message {
  size_t size;
  uint8_t bytes[MOST];
} message;

static void add_bytes(message *m, const void *data, size_t bytes) {
  SLI_CHECK(m->size + bytes <= sizeof m->bytes, "an event of more than %d bytes", MOST);
  memcpy(m->bytes + m->size, data, bytes);
  m->size += bytes;
}

static void add_varint(message *m, uint64_t value) {
  for (; value >= 0x80; value >>= 7) add_bytes(m, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
  add_bytes(m, &(uint8_t){(uint8_t)value}, 1);
}

static void add_key(message *m, int field, int kind) {
  add_varint(m, (uint64_t)(field << 3 | kind));
}

static void add_double(message *m, int field, double value) {
  add_key(m, field, EIGHT_BYTES);
  add_bytes(m, &value, sizeof value);
}

static void add_counted(message *m, int field, const void *data, size_t bytes) {
  add_key(m, field, COUNTED);
  add_varint(m, bytes);
  add_bytes(m, data, bytes);
}

/* ---- records ----------------------------------------------------------------------------- */

static void write_record(FILE *file, const message *m) {
  uint64_t length = m->size;
  uint32_t length_sum = masked_crc(&length, sizeof length), sum = masked_crc(m->bytes, m->size);
  fwrite(&length, sizeof length, 1, file);
  fwrite(&length_sum, sizeof length_sum, 1, file);
  fwrite(m->bytes, 1, m->size, file);
  fwrite(&sum, sizeof sum, 1, file);
}

void events_begin(FILE *file, double wall_seconds) {
  static const char version[] = "brain.Event:2";
  message event = {0};
  add_double(&event, 1, wall_seconds);
  add_counted(&event, 3, version, sizeof version - 1);
  write_record(file, &event);
}

void events_scalar(FILE *file, double wall_seconds, int64_t step, const char *name, double value) {
  message curve = {0}, summary = {0}, event = {0};
  float simple = (float)value;
  add_counted(&curve, 1, name, SLI_MIN(strlen(name), (size_t)MOST / 2));
  add_key(&curve, 2, FOUR_BYTES);
  add_bytes(&curve, &simple, sizeof simple);
  add_counted(&summary, 1, curve.bytes, curve.size);
  add_double(&event, 1, wall_seconds);
  add_key(&event, 2, VARINT);
  add_varint(&event, (uint64_t)step);
  add_counted(&event, 5, summary.bytes, summary.size);
  write_record(file, &event);
}
