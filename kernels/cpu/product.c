/* Matrix products by oneDNN. */
#include "kernels/cpu/product.h"

#include <dnnl.h>
#include <omp.h>

#include "base/base.h"

/* The library runs OpenMP loops; a team's thread must stay one thread. The
 * setting belongs to the thread and is made at its first product. */
static void stay_alone(void) {
  static _Thread_local bool done;
  if (done) return;
  omp_set_num_threads(1);
  done = true;
}

void sli_product_run(const sli_product *p, const float *a, const float *b, float *c) {
  stay_alone();
  dnnl_status_t status =
      dnnl_sgemm(p->a_transposed ? 'T' : 'N', p->b_transposed ? 'T' : 'N', p->m, p->n, p->k, 1.0f,
                 a, p->a_row, b, p->b_row, p->add ? 1.0f : 0.0f, c, p->c_row);
  SLI_CHECK(status == dnnl_success, "oneDNN refused a product: status %d", status);
}
