/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the matrix products of the linear ops with OpenBLAS, which is loaded at run time if it
 * is installed. Shapes are those of a GPT of width 384. fwd is y = x w^T, fwd' uses a transposed
 * weight, dx and dw are the gradients. One thread runs alone, then two run concurrently, each on
 * its own arrays. Prints:
 *
 *   form <TAB> rows <TAB> in <TAB> out <TAB> threads <TAB> GFLOP/s <TAB> OpenBLAS <TAB> ratio
 *     <TAB> exact <TAB> exact / GFLOP/s
 *
 * GFLOP/s is the sum over all threads, the best of several alternating rounds. `exact` is Sluice's
 * kernel with a fixed summation order.
 * Usage: bench_gemm [rounds [threads [rows]]] */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>

#include "base/base.h"
#include "kernels/cpu/product.h"
#include "tests/support/processor_time.h"
#include "tests/support/test.h"

typedef void cblas_sgemm_fn(int order, int a_transposed, int b_transposed, int m, int n, int k,
                            float alpha, const float *a, int a_row, const float *b, int b_row,
                            float beta, float *c, int c_row);

enum { LARGE_PAGE = 2 << 20 };
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112, MOST_THREADS = 2 };

static cblas_sgemm_fn *cblas_sgemm;

static void find_openblas(void) {
  void *library = dlopen("libopenblas.so.0", RTLD_NOW);
  if (!library) return;
  void *threads = dlsym(library, "openblas_set_num_threads"), *gemm = dlsym(library, "cblas_sgemm");
  if (!threads || !gemm) return;
  ((void (*)(int))threads)(1);
  cblas_sgemm = (cblas_sgemm_fn *)gemm;
}

static sli_product_shape forward(int64_t rows, int64_t in, int64_t out) {
  return (sli_product_shape){.m = rows, .n = out, .k = in, .b_transposed = true};
}
static sli_product_shape forward_transposed(int64_t rows, int64_t in, int64_t out) {
  return (sli_product_shape){.m = rows, .n = out, .k = in};
}
static sli_product_shape input_gradient(int64_t rows, int64_t in, int64_t out) {
  return (sli_product_shape){.m = rows, .n = in, .k = out};
}
static sli_product_shape weight_gradient(int64_t rows, int64_t in, int64_t out) {
  return (sli_product_shape){.m = out, .n = in, .k = rows, .a_transposed = true};
}

static const struct form {
  const char *name;
  sli_product_shape (*shape)(int64_t rows, int64_t in, int64_t out);
} forms[] = {{"fwd", forward},
             {"fwd'", forward_transposed},
             {"dx", input_gradient},
             {"dw", weight_gradient}};

struct worker {
  pthread_t thread;
  pthread_barrier_t *gate;
  const sli_product_shape *shape;
  const sli_product *product; /* NULL: OpenBLAS */
  float *a, *b, *c;
  double seconds;
};

static void multiply(const struct worker *w) {
  const sli_product_shape *s = w->shape;
  if (w->product) {
    sli_product_run(w->product, NULL, false, w->a, w->b, NULL, w->c, NULL);
    return;
  }
  cblas_sgemm(ROW_MAJOR, s->a_transposed ? TRANSPOSED : PLAIN, s->b_transposed ? TRANSPOSED : PLAIN,
              (int)s->m, (int)s->n, (int)s->k, 1, w->a, (int)(s->a_transposed ? s->m : s->k), w->b,
              (int)(s->b_transposed ? s->k : s->n), 0, w->c, (int)s->n);
}

/* Multiplies once to warm up, then once, timed, after all threads have reached the gate. */
static void *work(void *arg) {
  struct worker *w = arg;
  multiply(w);
  pthread_barrier_wait(w->gate);
  double start = thread_seconds();
  multiply(w);
  w->seconds = thread_seconds() - start;
  return NULL;
}

static double seconds_of(struct worker *workers, int threads, const sli_product *product) {
  pthread_barrier_t gate;
  double slowest = 0;
  pthread_barrier_init(&gate, NULL, (unsigned)threads);
  for (int t = 0; t < threads; t++) {
    workers[t].gate = &gate;
    workers[t].product = product;
    pthread_create(&workers[t].thread, NULL, work, &workers[t]);
  }
  for (int t = 0; t < threads; t++) {
    pthread_join(workers[t].thread, NULL);
    slowest = fmax(slowest, workers[t].seconds);
  }
  pthread_barrier_destroy(&gate);
  return slowest;
}

static float *numbers(int64_t count) {
  size_t bytes = ((size_t)count * sizeof(float) + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
  float *p = aligned_alloc(LARGE_PAGE, bytes);
  CHECK(p, "no memory for %lld numbers", (long long)count);
  madvise(p, bytes, MADV_HUGEPAGE); /* like the tensors of a plan */
  for (int64_t i = 0; i < count; i++) p[i] = (float)(i % 17) * 0.1f;
  return p;
}

static double measure(const struct form *form, int64_t rows, int64_t in, int64_t out, int threads,
                      int rounds, double *exact_log) {
  sli_product_shape shape = form->shape(rows, in, out);
  sli_product_shape ordered = shape;
  sli_product *product, *exact;
  struct worker workers[MOST_THREADS];
  ordered.chunk = ordered.k;
  CHECK(!sli_product_create(&shape, &product), "%s", sl_detail());
  CHECK(!sli_product_create(&ordered, &exact), "%s", sl_detail());
  for (int t = 0; t < threads; t++)
    workers[t] = (struct worker){.shape = &shape,
                                 .a = numbers(shape.m * shape.k),
                                 .b = numbers(shape.k * shape.n),
                                 .c = numbers(shape.m * shape.n)};
  double ours = INFINITY, theirs = INFINITY, own = INFINITY;
  for (int r = 0; r < rounds; r++) {
    ours = fmin(ours, seconds_of(workers, threads, product));
    own = fmin(own, seconds_of(workers, threads, exact));
    if (cblas_sgemm) theirs = fmin(theirs, seconds_of(workers, threads, NULL));
  }
  double gflop = 2e-9 * (double)(rows * in * out) * threads;
  printf("%s\t%lld\t%lld\t%lld\t%d\t%.1f\t%.1f\t%.2f\t%.1f\t%.2f\n", form->name, (long long)rows,
         (long long)in, (long long)out, threads, gflop / ours, gflop / theirs, theirs / ours,
         gflop / own, ours / own);
  fflush(stdout);
  for (int t = 0; t < threads; t++) {
    free(workers[t].a);
    free(workers[t].b);
    free(workers[t].c);
  }
  sli_product_destroy(product);
  sli_product_destroy(exact);
  *exact_log += log(ours / own);
  return theirs / ours;
}

int main(int argc, char **argv) {
  static const int64_t rows[] = {256, 512, 1024, 2048};
  static const int64_t widths[][2] = {
      {384, 1152}, {384, 384}, {384, 1536}, {1536, 384}, {384, 256}};
  int rounds = argc > 1 ? atoi(argv[1]) : 10, count = 0;
  int only = argc > 2 ? atoi(argv[2]) : 0, tall = argc > 3 ? atoi(argv[3]) : 0;
  double log_ratio = 0, exact_log[SLI_COUNT(forms)] = {0}, all_exact = 0;
  find_openblas();
  printf("form\trows\tin\tout\tthreads\tGFLOP/s\tOpenBLAS\tratio\texact\texact ratio\n");
  for (int threads = 1; threads <= MOST_THREADS; threads++)
    if (!only || threads == only)
      for (size_t r = 0; r < SLI_COUNT(rows); r++)
        for (size_t w = 0; w < SLI_COUNT(widths) && (!tall || rows[r] == tall); w++)
          for (size_t f = 0; f < SLI_COUNT(forms); f++, count++)
            log_ratio += log(measure(&forms[f], rows[r], widths[w][0], widths[w][1], threads,
                                     rounds, &exact_log[f]));
  for (size_t f = 0; f < SLI_COUNT(forms); f++) {
    printf("exact, %s\t%.3f\n", forms[f].name,
           exp(exact_log[f] / (count / (double)SLI_COUNT(forms))));
    all_exact += exact_log[f];
  }
  printf("geometric mean of the exact ratios\t%.3f\n", exp(all_exact / count));
  if (cblas_sgemm) printf("geometric mean of the ratios\t%.3f\n", exp(log_ratio / count));
  return 0;
}
