/* How tensors lie in GGUF files, as ggml numbers their types. A quantized number is a small integer;
 * each block has a scale for its own, some have what is added as well. */
#include <string.h>

#include "base/base.h"
#include "io/gguf/inner.h"
#include "io/half.h"

static uint16_t word_at(const unsigned char *from) { return (uint16_t)(from[0] | from[1] << 8); }

static void unpack_f32(const unsigned char *from, size_t blocks, float *out) {
  memcpy(out, from, blocks * sizeof *out);
}

static void unpack_f16(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++) out[i] = sli_half_to_float(word_at(from + 2 * i));
}

static void unpack_bf16(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++) out[i] = sli_bfloat_to_float(word_at(from + 2 * i));
}

/* Sixteen bytes hold 32 numbers: the lower halves the first of them, the upper halves the rest. */
static void unpack_halves(const unsigned char *from, float scale, float shift, float *out) {
  for (int i = 0; i < 16; i++) {
    out[i] = (float)(from[i] & 15) * scale + shift;
    out[i + 16] = (float)(from[i] >> 4) * scale + shift;
  }
}

/* A scale; numbers from -8 on. Eight times the scale is exact, and so is the product. */
static void unpack_q4_0(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 18, out += 32) {
    float scale = sli_half_to_float(word_at(from));
    unpack_halves(from + 2, scale, -8 * scale, out);
  }
}

/* A scale, and what is added. */
static void unpack_q4_1(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 20, out += 32)
    unpack_halves(from + 4, sli_half_to_float(word_at(from)), sli_half_to_float(word_at(from + 2)), out);
}

/* A scale, and 32 bytes with signs. */
static void unpack_q8_0(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 34, out += 32) {
    float scale = sli_half_to_float(word_at(from));
    for (int k = 0; k < 32; k++) out[k] = (float)(int8_t)from[2 + k] * scale;
  }
}

static const sli_gguf_type types[] = {
    [0] = {"F32", 1, 4, unpack_f32},      [1] = {"F16", 1, 2, unpack_f16},
    [2] = {"Q4_0", 32, 18, unpack_q4_0},  [3] = {"Q4_1", 32, 20, unpack_q4_1},
    [6] = {"Q5_0", 32, 22, NULL},         [7] = {"Q5_1", 32, 24, NULL},
    [8] = {"Q8_0", 32, 34, unpack_q8_0},  [9] = {"Q8_1", 32, 36, NULL},
    [10] = {"Q2_K", 256, 84, NULL},       [11] = {"Q3_K", 256, 110, NULL},
    [12] = {"Q4_K", 256, 144, NULL},      [13] = {"Q5_K", 256, 176, NULL},
    [14] = {"Q6_K", 256, 210, NULL},      [15] = {"Q8_K", 256, 292, NULL},
    [16] = {"IQ2_XXS", 256, 66, NULL},    [17] = {"IQ2_XS", 256, 74, NULL},
    [18] = {"IQ3_XXS", 256, 98, NULL},    [19] = {"IQ1_S", 256, 50, NULL},
    [20] = {"IQ4_NL", 32, 18, NULL},      [21] = {"IQ3_S", 256, 110, NULL},
    [22] = {"IQ2_S", 256, 82, NULL},      [23] = {"IQ4_XS", 256, 136, NULL},
    [24] = {"I8", 1, 1, NULL},            [25] = {"I16", 1, 2, NULL},
    [26] = {"I32", 1, 4, NULL},           [27] = {"I64", 1, 8, NULL},
    [28] = {"F64", 1, 8, NULL},           [29] = {"IQ1_M", 256, 56, NULL},
    [30] = {"BF16", 1, 2, unpack_bf16},   [34] = {"TQ1_0", 256, 54, NULL},
    [35] = {"TQ2_0", 256, 66, NULL},      [39] = {"MXFP4", 32, 17, NULL}};

const sli_gguf_type *sli_gguf_type_of(uint32_t number) {
  return number < SLI_COUNT(types) && types[number].name ? &types[number] : NULL;
}

const sli_gguf_type *sli_gguf_type_named(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(types); i++)
    if (types[i].name && !strcmp(types[i].name, name)) return &types[i];
  return NULL;
}
