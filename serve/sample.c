/* A token from its logits. */
#include "serve/serve.h"

#include <math.h>
#include <stdlib.h>

/* A number in [0, 1) for each place in the text (splitmix64). */
static double draw(uint64_t seed, uint64_t place) {
  uint64_t z = seed * UINT64_C(0xd1342543de82ef95) + (place + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int32_t likeliest(const float *logits, int64_t n) {
  int32_t best = 0;
  for (int32_t v = 1; v < n; v++)
    if (logits[v] > logits[best]) best = v;
  return best;
}

static int32_t choose(const request *r, const float *logits, int64_t n, int32_t best) {
  double t = (double)r->how.temperature, top = (double)logits[best], sum = 0;
  if (t == 0) return best;
  for (int64_t v = 0; v < n; v++) sum += exp(((double)logits[v] - top) / t);
  double left = draw(r->how.seed, r->count) * sum;
  for (int32_t v = 0; v < n; v++)
    if ((left -= exp(((double)logits[v] - top) / t)) < 0) return v;
  return best;
}

void sli_session_sample(const request *r, const float *logits, int64_t n, sl_session_event *out) {
  int32_t best = likeliest(logits, n);
  out->token = choose(r, logits, n, best);
  double sum = 0;
  for (int64_t v = 0; v < n && r->how.logprobs >= 0; v++)
    sum += exp((double)logits[v] - (double)logits[best]);
  if (r->how.logprobs >= 0)
    out->logprob = (float)((double)logits[out->token] - (double)logits[best] - log(sum));
}
