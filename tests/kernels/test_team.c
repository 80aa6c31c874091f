/* SPDX-License-Identifier: Apache-2.0 */
/* A team runs every chunk once; the result of an op does not depend on the team size, bit for bit;
 * ops may run on many threads concurrently. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "kernels/cpu/team.h"
#include "tests/support/kernel_call.h"

enum { MOST_CHUNKS = 1000, MOST_THREADS = 5 };

static atomic_int runs[MOST_CHUNKS], bound[MOST_THREADS];

static void count_run(void *arg, int i) {
  (void)arg;
  atomic_fetch_add(&runs[i], 1);
}

static void count_bind(void *arg, int thread) {
  (void)arg;
  atomic_fetch_add(&bound[thread], 1);
}

static void check_every_chunk_runs_once(int threads) {
  static const int sizes[] = {0, 1, 2, 7, 64, MOST_CHUNKS};
  struct sl_team *team = sli_team_create(threads, NULL, NULL);
  CHECK(team && sl_team_size(team) == threads, "a team of %d has that size", threads);
  for (int round = 0; round < 200; round++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      for (int i = 0; i < sizes[s]; i++) atomic_store(&runs[i], 0);
      if (round % 50 == 49) usleep(200); /* long enough for the helpers to sleep */
      sl_team_for(team, sizes[s], count_run, NULL);
      for (int i = 0; i < sizes[s]; i++)
        CHECK(atomic_load(&runs[i]) == 1, "chunk %d of %d ran %d times in a team of %d", i,
              sizes[s], atomic_load(&runs[i]), threads);
    }
  sli_team_destroy(team);
}

static void check_every_helper_is_bound_once(void) {
  struct sl_team *team = sli_team_create(MOST_THREADS, count_bind, NULL);
  sli_team_destroy(team);
  for (int t = 0; t < MOST_THREADS; t++)
    CHECK(atomic_load(&bound[t]) <= (t > 0), "thread %d was bound %d times", t,
          atomic_load(&bound[t]));
}

/* ---- ops -------------------------------------------------------------------------- */

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define I32(...) SL_TYPE(SL_I32, __VA_ARGS__)
#define SCALAR SL_SCALAR(SL_F32)

static const sl_optimizer optimizer = {.lr = 1e-3f,
                                       .min_lr = 1e-4f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.95f,
                                       .eps = 1e-8f,
                                       .weight_decay = 0.1f,
                                       .clip = 1,
                                       .momentum = 0.9f};

static const sl_part middle = {1, 1, {100}, {3000}};

static const struct work {
  const sl_op *op;
  sl_attrs attrs;
  int nin, nout;
  sl_type in[6];
} works[] = {
    {&sl_op_linear, {0}, 3, 1, {F32(601, 48), F32(80, 48), F32(80)}},
    {&sl_op_linear, {.product.transposed = true}, 2, 1, {F32(601, 48), F32(48, 80)}},
    {&sl_op_linear_b, {0}, 2, 1, {F32(601, 80), F32(80, 48)}},
    {&sl_op_linear_w, {0}, 2, 1, {F32(61, 48), F32(61, 520)}},
    {&sl_op_bias_w, {0}, 1, 1, {F32(61, 520)}},
    {&sl_op_embedding, {0}, 2, 1, {I32(4, 61), F32(7, 130)}},
    {&sl_op_embedding_w, {0}, 3, 1, {I32(4, 61), F32(4, 61, 130), F32(7, 130)}},
    {&sl_op_position_w, {0}, 2, 1, {F32(4, 61, 130), F32(64, 130)}},
    {&sl_op_gelu, {0}, 1, 1, {F32(70001)}},
    {&sl_op_layernorm, {0}, 3, 3, {F32(300, 130), F32(130), F32(130)}},
    {&sl_op_layernorm_w, {0}, 4, 2, {F32(300, 130), F32(300), F32(300), F32(300, 130)}},
    {&sl_op_rmsnorm_w, {0}, 3, 1, {F32(300, 130), F32(300), F32(300, 130)}},
    {&sl_op_attention,
     {.attention.heads = 4, .attention.kv_heads = 2},
     3,
     2,
     {F32(2, 100, 64), F32(2, 100, 32), F32(2, 100, 32)}},
    {&sl_op_attention_b,
     {.attention.heads = 4, .attention.kv_heads = 2},
     6,
     3,
     {F32(2, 100, 64), F32(2, 100, 32), F32(2, 100, 32), F32(2, 100, 64), F32(2, 4, 100),
      F32(2, 100, 64)}},
    {&sl_op_cross_entropy, {0}, 2, 2, {F32(700, 65), I32(700)}},
    {&sl_op_log_probability, {0}, 2, 2, {F32(700, 65), I32(700)}},
    {&sl_op_log_probability_b, {0}, 4, 1, {F32(700, 65), I32(700), F32(700), F32(700)}},
    {&sl_op_cross_entropy_b, {0}, 4, 1, {F32(700, 65), I32(700), F32(700), SCALAR}},
    {&sl_op_permute, {.shape.ndims = 3, .shape.dims = {1, 2, 0}}, 1, 1, {F32(61, 70, 33)}},
    {&sl_op_slice_b, {.user = &middle}, 2, 1, {F32(30, 3000), F32(30, 4001)}},
    {&sl_op_dropout, {.distribution.dropped = 0.5f}, 1, 1, {F32(70001)}},
    {&sl_op_normal, {.distribution.deviation = 1}, 1, 1, {F32(70001)}},
    {&sl_op_concat, {.along.axes = 2}, 2, 1, {F32(601, 48), F32(601, 65)}},
    {&sl_op_concat_b, {.along.axes = 2}, 3, 2, {F32(601, 113), F32(601, 48), F32(601, 65)}},
    {&sl_op_mse, {0}, 2, 1, {F32(70001), F32(70001)}},
    {&sl_op_sumsq, {0}, 3, 1, {F32(70001), F32(70001), F32(70001)}},
    {&sl_op_adamw, {.user = &optimizer}, 3, 3, {SCALAR, F32(7, 10001), F32(7, 10001)}},
    {&sl_op_adam, {.user = &optimizer}, 3, 3, {SCALAR, F32(7, 10001), F32(7, 10001)}},
    {&sl_op_sgd, {.user = &optimizer}, 3, 2, {SCALAR, F32(7, 10001), F32(7, 10001)}},
    {&sl_op_lion, {.user = &optimizer}, 3, 2, {SCALAR, F32(7, 10001), F32(7, 10001)}},
    {&sl_op_muon, {.user = &optimizer}, 3, 2, {SCALAR, F32(301, 205), F32(301, 205)}},
};

static kernel work_create(const struct work *w) {
  kernel k = kernel_create(w->op, w->attrs, w->nin, w->in, w->nout);
  for (int i = 0; i < w->nin; i++) array_random(k.in[i], &w->in[i], 7);
  return k;
}

static void zero_outputs(kernel *k) {
  for (int o = 0; o < k->nout; o++) memset(k->out[o], 0, sl_type_bytes(&k->out_type[o]));
}

static void check_same_outputs(const kernel *k, void *const *want, const char *when) {
  for (int o = 0; o < k->nout; o++)
    CHECK(!memcmp(k->out[o], want[o], sl_type_bytes(&k->out_type[o])),
          "output %d of %s is different %s", o, k->op->name, when);
}

static void check_team_size_does_not_show(struct sl_team *const *teams) {
  for (size_t w = 0; w < sizeof works / sizeof *works; w++) {
    kernel k = work_create(&works[w]);
    void *alone[MAX_OUT];
    zero_outputs(&k);
    kernel_run(&k, NULL);
    memcpy(alone, k.out, sizeof alone);
    for (int o = 0; o < k.nout; o++) k.out[o] = array_create(&k.out_type[o]);
    for (int threads = 1; threads <= 4; threads++)
      for (int round = 0; round < 3; round++) {
        zero_outputs(&k);
        kernel_run(&k, teams[threads]);
        check_same_outputs(&k, alone, "in a team");
      }
    for (int o = 0; o < k.nout; o++) free(alone[o]);
    kernel_destroy(&k);
  }
}

/* ---- concurrent threads ------------------------------------------------------------- */

struct caller {
  kernel k;
  void *want[MAX_OUT];
  pthread_t thread;
};

static void *run_many_times(void *arg) {
  struct caller *c = arg;
  for (int round = 0; round < 20; round++) {
    zero_outputs(&c->k);
    kernel_run(&c->k, NULL);
    check_same_outputs(&c->k, c->want, "among other threads");
  }
  return NULL;
}

/* The callers share inputs and state; each has separate outputs. */
static void check_threads_do_not_disturb_each_other(const struct work *w) {
  struct caller callers[4];
  kernel k = work_create(w);
  zero_outputs(&k);
  kernel_run(&k, NULL);
  for (int t = 0; t < 4; t++) {
    callers[t].k = k;
    memcpy(callers[t].want, k.out, sizeof k.out);
    for (int o = 0; o < k.nout; o++) callers[t].k.out[o] = array_create(&k.out_type[o]);
    pthread_create(&callers[t].thread, NULL, run_many_times, &callers[t]);
  }
  for (int t = 0; t < 4; t++) {
    pthread_join(callers[t].thread, NULL);
    for (int o = 0; o < k.nout; o++) free(callers[t].k.out[o]);
  }
  kernel_destroy(&k);
}

int main(void) {
  seed_random(7);
  struct sl_team *teams[MOST_THREADS];
  for (int threads = 1; threads < MOST_THREADS; threads++) {
    RUN(check_every_chunk_runs_once, threads);
    teams[threads] = sli_team_create(threads, NULL, NULL);
  }
  RUN(check_every_helper_is_bound_once);
  RUN(check_team_size_does_not_show, teams);
  for (int i = 0; i < 4; i++) RUN(check_threads_do_not_disturb_each_other, &works[i]);
  for (int threads = 1; threads < MOST_THREADS; threads++) sli_team_destroy(teams[threads]);
  return 0;
}
