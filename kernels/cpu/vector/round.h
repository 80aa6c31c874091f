/* From f32 to bf16, the upper half of an f32. */

typedef uint16_t hvec VECTOR(2);
typedef uint16_t hvec_unaligned __attribute__((vector_size(LANES * 2), may_alias, aligned(2)));

/* Adding half of the last place kept (less a bit where that place is even)
 * rounds to nearest; the carry may reach the exponent, as it should. A NaN would
 * carry into nonsense: it is cut, and stays a NaN by one bit that is set. */
static inline hvec round_lanes(vec x) {
  uvec bits = (uvec)x;
  uvec rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  uvec cut = bits >> 16 | 0x40;
  uvec nan = (uvec)((bits & 0x7fffffff) > 0x7f800000);
  return __builtin_convertvector((nan & cut) | (~nan & rounded), hvec);
}

static void round_bf16_chunk(void *arg, int i) {
  const sli_rounding *r = arg;
  sli_range range = sli_chunk_range(r->count, SLI_CHUNK_ELEMENTS, i);
  int64_t at = range.begin;
  for (; at + LANES <= range.end; at += LANES)
    *(hvec_unaligned *)(r->to + at) = round_lanes(loadu(r->from + at));
  if (at == range.end) return;
  hvec last = round_lanes(load(r->from + at, range.end - at));
  for (int l = 0; at + l < range.end; l++) r->to[at + l] = last[l];
}
