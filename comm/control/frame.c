/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/control/frame.h"

#include <endian.h>
#include <string.h>

#define MAGIC UINT32_C(0x46434c53) /* "SLCF" */

enum {
  HELLO_BYTES = 8 + 2 * SLI_FRAME_NAME_CHARS + SLI_FRAME_DIRECT_CHARS,
  DATA_BYTES = 12 + SLI_FRAME_WORD_CHARS + 16,
};

static const struct {
  const char *name;
  size_t fixed_bytes, unit_bytes, least_bytes, most_bytes; /* the last three: sizes of the tail */
} rows[SLI_FRAME_TYPES] = {
    [SLI_FRAME_HELLO] = {"HELLO", HELLO_BYTES, 1, 0, 0},
    [SLI_FRAME_WAIT] = {"WAIT", 0, 1, 0, SLI_FRAME_TEXT_BYTES},
    [SLI_FRAME_REFUSE] = {"REFUSE", 0, 1, 0, SLI_FRAME_TEXT_BYTES},
    [SLI_FRAME_DATA] = {"DATA", DATA_BYTES, 1, 0, SLI_FRAME_TAIL_BYTES},
    [SLI_FRAME_PING] = {"PING", 8, 1, 0, 0},
    [SLI_FRAME_PONG] = {"PONG", 24, 1, 0, 0},
    [SLI_FRAME_CLOCKS] = {"CLOCKS", 0, 8, 8, SLI_FRAME_TAIL_BYTES},
    [SLI_FRAME_ABORT] = {"ABORT", 8, 1, 0, SLI_FRAME_TEXT_BYTES},
    [SLI_FRAME_BYE] = {"BYE", 0, 1, 0, 0},
};

const char *sli_frame_name(unsigned type) {
  return type < SLI_FRAME_TYPES && rows[type].name ? rows[type].name : "unknown";
}

size_t sli_frame_bytes(const sli_frame *frame) {
  return SLI_FRAME_HEADER_BYTES + rows[frame->type].fixed_bytes + frame->tail_bytes;
}

/* ---- cursors ------------------------------------------------------------------ */

static void frame_put(uint8_t **at, const void *bytes, size_t count) {
  if (count) memcpy(*at, bytes, count);
  *at += count;
}
static void put16(uint8_t **at, uint16_t value) {
  value = htole16(value);
  frame_put(at, &value, sizeof value);
}
static void put32(uint8_t **at, uint32_t value) {
  value = htole32(value);
  frame_put(at, &value, sizeof value);
}
static void put64(uint8_t **at, uint64_t value) {
  value = htole64(value);
  frame_put(at, &value, sizeof value);
}

static void frame_take(const uint8_t **at, void *bytes, size_t count) {
  memcpy(bytes, *at, count);
  *at += count;
}
static uint16_t take16(const uint8_t **at) {
  uint16_t value;
  frame_take(at, &value, sizeof value);
  return le16toh(value);
}
static uint32_t take32(const uint8_t **at) {
  uint32_t value;
  frame_take(at, &value, sizeof value);
  return le32toh(value);
}
static uint64_t take64(const uint8_t **at) {
  uint64_t value;
  frame_take(at, &value, sizeof value);
  return le64toh(value);
}

void sli_frame_put64(uint8_t *at, uint64_t value) { put64(&at, value); }
uint64_t sli_frame_take64(const uint8_t *at) { return take64(&at); }

/* ---- writing ------------------------------------------------------------------ */

static void write_fixed(const sli_frame *frame, uint8_t **at) {
  switch (frame->type) {
  case SLI_FRAME_HELLO:
    put32(at, frame->hello.nprocesses);
    put32(at, 0);
    frame_put(at, frame->hello.job, sizeof frame->hello.job);
    frame_put(at, frame->hello.host, sizeof frame->hello.host);
    frame_put(at, frame->hello.direct, sizeof frame->hello.direct);
    break;
  case SLI_FRAME_DATA:
    put32(at, frame->data.kind);
    put32(at, frame->data.from);
    put32(at, (uint32_t)frame->data.target);
    frame_put(at, frame->data.word, sizeof frame->data.word);
    put64(at, frame->data.total_bytes);
    put64(at, frame->data.offset_bytes);
    break;
  case SLI_FRAME_PING: put64(at, frame->clock.asked_ns); break;
  case SLI_FRAME_PONG:
    put64(at, frame->clock.asked_ns);
    put64(at, frame->clock.received_ns);
    put64(at, frame->clock.answered_ns);
    break;
  case SLI_FRAME_ABORT:
    put32(at, frame->abort.culprit);
    put32(at, frame->abort.status);
    break;
  }
}

void sli_frame_write(const sli_frame *frame, uint8_t *out) {
  size_t body_bytes = rows[frame->type].fixed_bytes + frame->tail_bytes;
  SLI_CHECK(frame->tail_bytes <= rows[frame->type].most_bytes, "a %s frame of %zu bytes",
            sli_frame_name(frame->type), frame->tail_bytes);
  put32(&out, MAGIC);
  put16(&out, SLI_FRAME_VERSION);
  put16(&out, frame->type);
  put32(&out, frame->process);
  put32(&out, frame->incarnation);
  put64(&out, frame->instance);
  put64(&out, frame->sequence);
  put32(&out, (uint32_t)body_bytes);
  put32(&out, 0);
  write_fixed(frame, &out);
  frame_put(&out, frame->tail, frame->tail_bytes);
}

/* ---- reading ------------------------------------------------------------------ */

/* True if the text ends within its field and is printable. */
static bool is_name(const char *text, size_t count) {
  size_t length = strnlen(text, count);
  for (size_t i = 0; i < length; i++)
    if (text[i] < ' ' || text[i] > '~') return false;
  return length < count;
}

static const char *parse_hello(const uint8_t *at, sli_frame *out) {
  out->hello.nprocesses = take32(&at);
  uint32_t zero = take32(&at);
  frame_take(&at, out->hello.job, sizeof out->hello.job);
  frame_take(&at, out->hello.host, sizeof out->hello.host);
  frame_take(&at, out->hello.direct, sizeof out->hello.direct);
  if (zero) return "a reserved field is not zero";
  if (!is_name(out->hello.job, sizeof out->hello.job) ||
      !is_name(out->hello.host, sizeof out->hello.host) ||
      !is_name(out->hello.direct, sizeof out->hello.direct))
    return "an invalid name";
  return NULL;
}

static const char *parse_data(const uint8_t *at, sli_frame *out) {
  out->data.kind = take32(&at);
  out->data.from = take32(&at);
  out->data.target = (int32_t)take32(&at);
  frame_take(&at, out->data.word, sizeof out->data.word);
  uint64_t total = out->data.total_bytes = take64(&at);
  uint64_t offset = out->data.offset_bytes = take64(&at);
  if (!out->data.kind || out->data.kind >= SLI_DATA_KINDS) return "an unknown kind of data";
  if (out->data.target < -1) return "an invalid target";
  if (!is_name(out->data.word, sizeof out->data.word)) return "an invalid word";
  if (total > SLI_FRAME_DATA_BYTES) return "too much data";
  if (offset > total || out->tail_bytes > total - offset) return "a part beyond the whole";
  if (!out->tail_bytes && total) return "an empty part";
  return NULL;
}

static const char *parse_fixed(const uint8_t *at, sli_frame *out) {
  switch (out->type) {
  case SLI_FRAME_HELLO: return parse_hello(at, out);
  case SLI_FRAME_DATA: return parse_data(at, out);
  case SLI_FRAME_PING: out->clock.asked_ns = take64(&at); return NULL;
  case SLI_FRAME_PONG:
    out->clock.asked_ns = take64(&at);
    out->clock.received_ns = take64(&at);
    out->clock.answered_ns = take64(&at);
    return NULL;
  case SLI_FRAME_ABORT:
    out->abort.culprit = take32(&at);
    out->abort.status = take32(&at);
    return NULL;
  default: return NULL;
  }
}

static const char *parse_body(const uint8_t *at, size_t count, sli_frame *out) {
  if (!out->type || out->type >= SLI_FRAME_TYPES) return "an unknown type";
  size_t fixed = rows[out->type].fixed_bytes, unit = rows[out->type].unit_bytes;
  if (count < fixed) return "a body that is too short";
  out->tail = at + fixed;
  out->tail_bytes = count - fixed;
  if (out->tail_bytes < rows[out->type].least_bytes ||
      out->tail_bytes > rows[out->type].most_bytes || out->tail_bytes % unit)
    return "a body of the wrong length";
  return parse_fixed(at, out);
}

const char *sli_frame_parse(const void *bytes, size_t count, sli_frame *out) {
  const uint8_t *at = bytes;
  sli_frame frame = {0};
  if (count < SLI_FRAME_HEADER_BYTES) return "shorter than a header";
  if (count > SLI_FRAME_MAX_BYTES) return "longer than any frame";
  if (take32(&at) != MAGIC) return "not a Sluice frame";
  frame.version = take16(&at);
  frame.type = take16(&at);
  frame.process = take32(&at);
  frame.incarnation = take32(&at);
  frame.instance = take64(&at);
  frame.sequence = take64(&at);
  uint32_t body_bytes = take32(&at), zero = take32(&at);
  if (frame.version != SLI_FRAME_VERSION) {
    *out = frame;
    return "a different protocol version";
  }
  if (zero) return "a reserved field is not zero";
  if (body_bytes != count - SLI_FRAME_HEADER_BYTES) return "a different length than it says";
  const char *wrong = parse_body(at, body_bytes, &frame);
  if (!wrong) *out = frame;
  return wrong;
}

char *sli_frame_text(const sli_frame *frame, char out[SLI_FRAME_TEXT_BYTES + 1]) {
  size_t count = SLI_MIN(frame->tail_bytes, (size_t)SLI_FRAME_TEXT_BYTES);
  if (count) memcpy(out, frame->tail, count);
  out[count] = 0;
  for (char *c = out; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
  return out;
}
