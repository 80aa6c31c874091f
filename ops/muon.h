/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of Muon (Jordan et al., kellerjordan.github.io/posts/muon), for CPU and CUDA. */
#ifndef SLUICE_OPS_MUON_H
#define SLUICE_OPS_MUON_H

/* Newton-Schulz iterations X = A X + (B G + C G G) X, with G = X X^T. */
enum { SLI_MUON_STEPS = 5 };
#define SLI_MUON_A 3.4445f
#define SLI_MUON_B (-4.775f)
#define SLI_MUON_C 2.0315f

#endif
