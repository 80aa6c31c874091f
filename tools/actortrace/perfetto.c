/* SPDX-License-Identifier: Apache-2.0 */
/* actortrace perfetto: a trace of TrackEvents, for ui.perfetto.dev.
 *
 * The format is protobuf: a file is a sequence of packets, each a length-prefixed field of number
 * 1. An encoder for the few messages needed is shorter than any library. A field is a key (number
 * * 8 + wire type), followed by a number, or by a length and some bytes.
 *
 *     TracePacket         8 timestamp (ns), 10 trusted_packet_sequence_id,
 *                         11 track_event, 60 track_descriptor, 13 sequence_flags
 *     TrackDescriptor     1 uuid, 2 name, 5 parent_uuid, 8 counter
 *     CounterDescriptor   3 unit (1 time, 2 count, 3 size in bytes)
 *     TrackEvent          9 type (1 begin, 2 end, 4 counter), 11 track_uuid,
 *                         22 categories, 23 name, 30 counter_value,
 *                         47 flow_ids (fixed64),
 *                         4 debug_annotations
 *     DebugAnnotation     10 name, 4 int_value, 6 string_value
 *
 * A device is a track. Its queues, and the counters of bytes and slots in use, are tracks below it.
 * Firings of a link overlap: each lane of them is a track of its own. */
#include "tools/actortrace/actortrace.h"

#include <stdlib.h>
#include <string.h>

/* ---- protobuf -------------------------------------------------------------------- */

typedef struct message {
  unsigned char *bytes;
  size_t count, capacity;
} message;

static void put_byte(message *m, unsigned byte) {
  SLI_GROW(m->bytes, m->count, m->capacity);
  m->bytes[m->count++] = (unsigned char)byte;
}

static void put_varint(message *m, uint64_t value) {
  for (; value > 127; value >>= 7) put_byte(m, (unsigned)(value & 127) | 128);
  put_byte(m, (unsigned)value);
}

enum { VARINT = 0, FIXED64 = 1, BYTES = 2 };
enum { COUNT = 2, SIZE_BYTES = 3 }; /* units of counters */

static void put_uint(message *m, uint32_t field, uint64_t value) {
  put_varint(m, (uint64_t)field << 3 | VARINT);
  put_varint(m, value);
}

static void put_fixed(message *m, uint32_t field, uint64_t value) {
  put_varint(m, (uint64_t)field << 3 | FIXED64);
  for (int i = 0; i < 8; i++) put_byte(m, (unsigned)(value >> 8 * i) & 255);
}

static void put_bytes(message *m, uint32_t field, const void *bytes, size_t count) {
  put_varint(m, (uint64_t)field << 3 | BYTES);
  put_varint(m, count);
  for (size_t i = 0; i < count; i++) put_byte(m, ((const unsigned char *)bytes)[i]);
}

static void put_text(message *m, uint32_t field, const char *text) {
  put_bytes(m, field, text, strlen(text));
}

/* Appends a message inside another, and empties the inner one. */
static void put_message(message *m, uint32_t field, message *inner) {
  put_bytes(m, field, inner->bytes, inner->count);
  inner->count = 0;
}

/* ---- tracks ------------------------------------------------------------------------ */

typedef struct writer {
  const analysis *a;
  const options *o;
  FILE *out;
  message packet, body, note, whole;
  uint64_t tracks;  /* number of uuids assigned */
  uint64_t *device; /* [ndevices] uuid */
} writer;

static bool is_chosen(const writer *w, int64_t firing) {
  const sl_trace_firing *f = &w->a->firings[firing];
  return (w->o->step < 0 || f->tick.step == w->o->step) &&
         (w->o->device < 0 || actor_device(w->a->plan, f->record.actor) == w->o->device);
}

static void write_packet(writer *w) {
  put_uint(&w->packet, 10, 1);
  put_message(&w->whole, 1, &w->packet);
  fwrite(w->whole.bytes, 1, w->whole.count, w->out);
  w->whole.count = 0;
}

/* Writes a track and returns its uuid. `unit`: that of a counter, or 0. */
static uint64_t write_track(writer *w, const char *name, uint64_t parent, unsigned unit) {
  uint64_t uuid = ++w->tracks;
  put_uint(&w->body, 1, uuid);
  put_text(&w->body, 2, name);
  if (parent) put_uint(&w->body, 5, parent);
  if (unit) {
    put_uint(&w->note, 3, unit);
    put_message(&w->body, 8, &w->note);
  }
  put_message(&w->packet, 60, &w->body);
  write_packet(w);
  return uuid;
}

/* ---- firings ------------------------------------------------------------------------ */

static void note_number(writer *w, const char *name, int64_t value) {
  put_text(&w->note, 10, name);
  put_uint(&w->note, 4, (uint64_t)value);
  put_message(&w->body, 4, &w->note);
}

static void note_text(writer *w, const char *name, const char *value) {
  put_text(&w->note, 10, name);
  put_text(&w->note, 6, value);
  put_message(&w->body, 4, &w->note);
}

static void write_event(writer *w, uint64_t ns) {
  put_uint(&w->packet, 8, ns);
  put_message(&w->packet, 11, &w->body);
  write_packet(w);
}

static void write_begin(writer *w, uint64_t track, int64_t i, bool flows) {
  const sl_plan *plan = w->a->plan;
  const sl_trace_firing *f = &w->a->firings[i];
  const sl_actor *x = &plan->actors[f->record.actor];
  const cause *c = &w->a->causes[i];
  put_uint(&w->body, 9, 1);
  put_uint(&w->body, 11, track);
  char category[] = {sl_class_letter(x->cls), 0};
  put_text(&w->body, 22, category);
  put_text(&w->body, 23, x->name);
  note_number(w, "step", f->tick.step);
  note_number(w, "microbatch", f->tick.microbatch);
  if (plan->pieces > 1) note_number(w, "piece", f->tick.piece);
  if (x->stage >= 0) note_number(w, "stage", x->stage);
  if (c->reg >= 0) {
    note_text(w, "last waited for", sl_wait_name((sl_wait)c->wait));
    note_text(w, "register", plan->regs[c->reg].name);
  }
  if (flows) put_fixed(&w->body, 47, (uint64_t)i + 1);
  if (c->wait == SL_WAIT_INPUT && c->by >= 0 && is_chosen(w, c->by))
    put_fixed(&w->body, 47, (uint64_t)c->by + 1);
  write_event(w, f->record.start_ns);
}

static void write_end(writer *w, uint64_t track, uint64_t ns) {
  put_uint(&w->body, 9, 2);
  put_uint(&w->body, 11, track);
  write_event(w, ns);
}

/* Writes a track for each lane of each queue. */
static uint64_t **write_queue_tracks(writer *w) {
  const sl_plan *plan = w->a->plan;
  uint64_t **tracks = sli_calloc((size_t)plan->nqueues + 1, sizeof *tracks);
  for (int32_t q = 0; q < plan->nqueues; q++) {
    tracks[q] = sli_calloc((size_t)w->a->shelves[q] + 1, sizeof **tracks);
    for (int32_t s = 0; s < w->a->shelves[q]; s++)
      tracks[q][s] = write_track(w, plan->queues[q].name, w->device[plan->queues[q].device], 0);
  }
  return tracks;
}

static void write_firings(writer *w) {
  const analysis *a = w->a;
  uint64_t **tracks = write_queue_tracks(w);
  bool *flows = sli_calloc(a->nfirings + 1, sizeof *flows);
  for (size_t i = 0; i < a->nfirings; i++)
    if (a->causes[i].wait == SL_WAIT_INPUT && a->causes[i].by >= 0 && is_chosen(w, (int64_t)i))
      flows[a->causes[i].by] = true;
  for (size_t i = 0; i < a->nfirings; i++) {
    if (!is_chosen(w, (int64_t)i)) continue;
    const sl_trace_record *f = &a->firings[i].record;
    uint64_t track = tracks[a->plan->actors[f->actor].queue][a->shelf[i]];
    write_begin(w, track, (int64_t)i, flows[i]);
    write_end(w, track, f->end_ns);
  }
  for (int32_t q = 0; q < a->plan->nqueues; q++) free(tracks[q]);
  free(tracks);
  free(flows);
}

/* ---- counters ---------------------------------------------------------------------------- */

static void write_counter(void *ctx, int32_t device, const char *name, bool of_bytes,
                          const sample *all, size_t count) {
  writer *w = ctx;
  uint64_t track = write_track(w, name, w->device[device], of_bytes ? SIZE_BYTES : COUNT);
  for (size_t i = 0; i < count; i++) {
    put_uint(&w->body, 9, 4);
    put_uint(&w->body, 11, track);
    put_uint(&w->body, 30, (uint64_t)all[i].value);
    write_event(w, all[i].ns);
  }
}

sl_status command_perfetto(const sl_trace *t, const options *o, FILE *out) {
  analysis *a = analysis_create(t);
  writer w = {.a = a,
              .o = o,
              .out = out,
              .device = sli_calloc((size_t)t->plan->ndevices + 1, sizeof(uint64_t))};
  put_uint(&w.packet, 13, 1); /* start of the packet sequence */
  write_packet(&w);
  for (int32_t d = 0; d < t->plan->ndevices; d++)
    w.device[d] = write_track(&w, t->plan->devices[d].name, 0, 0);
  write_firings(&w);
  each_curve(a, o->device, write_counter, &w);
  free(w.device);
  free(w.packet.bytes);
  free(w.body.bytes);
  free(w.note.bytes);
  free(w.whole.bytes);
  analysis_destroy(a);
  return SL_OK;
}
