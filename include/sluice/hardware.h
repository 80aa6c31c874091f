/* SPDX-License-Identifier: Apache-2.0 */
/* Hardware model: speeds of devices and links, real or hypothetical, for predicting durations. */
#ifndef SLUICE_HARDWARE_H
#define SLUICE_HARDWARE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Link from one device to another: latency of a message, and full-duplex bandwidth per direction
 * (0: unlimited). */
typedef struct sl_hardware_link {
  double seconds, bytes_per_second;
} sl_hardware_link;

/* Link between one pair of devices, in both directions. */
typedef struct sl_hardware_pair {
  int from, to;
  sl_hardware_link link;
} sl_hardware_pair;

/* Axis of a curve. M, N, K: dimensions of a matrix product, m x n results that are sums of k terms.
 * BYTES, FLOPS: traffic and arithmetic of any call. POSITIONS, HEAD: sequence length and head width
 * of attention; the curve gives the seconds of one head of one sequence. DEVICES: number of devices
 * of a host that compute concurrently, for any call. An exchange uses BYTES and DEVICES. Served
 * attention uses SEQUENCES, the sequences that attend in one call; POSITIONS, those that each sees,
 * counted in keys and values of 16 bits; HEADS and KEY_HEADS, the heads of a device. Products of
 * experts use EXPERTS, those of a device. */
typedef enum sl_curve_axis {
  SL_CURVE_M,
  SL_CURVE_N,
  SL_CURVE_K,
  SL_CURVE_BYTES,
  SL_CURVE_FLOPS,
  SL_CURVE_POSITIONS,
  SL_CURVE_HEAD,
  SL_CURVE_DEVICES,
  SL_CURVE_SEQUENCES,
  SL_CURVE_HEADS,
  SL_CURVE_KEY_HEADS,
  SL_CURVE_EXPERTS,
  SL_CURVE_AXES
} sl_curve_axis;

/* Seconds over a grid of axis values, interpolated on logarithmic scales and extrapolated with
 * constant slope. All numbers are positive, and each axis ascends. */
enum { SL_CURVE_DIMS = 4 };
typedef struct sl_curve {
  int ndims;
  sl_curve_axis axis[SL_CURVE_DIMS];
  int count[SL_CURVE_DIMS];
  const double *at[SL_CURVE_DIMS];
  const double *seconds; /* [count[0]][count[1]]...; NULL: no curve */
} sl_curve;

/* Resources of a device. Firings that are bound by different ones may share the device. */
/* clang-format off */
#define SL_RESOURCE_TABLE(X)                                                   \
  X(COMPUTE, "compute")                                                        \
  X(MEMORY, "memory")                                                          \
  X(NETWORK, "network")                                                        \
  X(DISK, "disk")                                                              \
  X(COPY, "copy")
/* clang-format on */

typedef enum sl_resource {
#define X(name, text) SL_RESOURCE_##name,
  SL_RESOURCE_TABLE(X)
#undef X
      SL_RESOURCES
} sl_resource;
const char *sl_resource_name(sl_resource resource);

/* Speed of a firing by its share of the device, linear between the points. */
typedef struct sl_share_curve {
  int count; /* 0: as fast as its share is large */
  const double *parts, *rates;
} sl_share_curve;
/* Returns the speed of a firing with this share; alone it has speed 1. */
double sl_share_rate(const sl_share_curve *curve, double part);

/* Performance data of the calls of one op. */
typedef struct sl_hardware_row {
  const char *op;
  sl_curve curve;          /* total time of a call; without a curve, the fields below apply */
  double flops_factor;     /* factor applied to the op's flops; 0: 1 */
  double bytes_per_score;  /* traffic per head and pair of positions, masked or not */
  double flops_per_second; /* 0: that of the hardware */
  bool in_turn;            /* arithmetic and traffic do not overlap */
  double tile_m, tile_n;   /* products are computed in tiles of m x n numbers; 0: one tile */
  double tiles_at_once;    /* tiles that run in parallel, each as long as k + tile_k multiply-adds
                              per result; 0: 1 */
  double tile_k;
} sl_hardware_row;

typedef enum sl_exchange {
  SL_EXCHANGE_ALL_REDUCE,
  SL_EXCHANGE_ALL_GATHER,
  SL_EXCHANGE_ALL_TO_ALL,
  SL_EXCHANGES
} sl_exchange;

/* Algorithm of exchanges among the devices of a grid row, used where `exchange` has no curve. TREE:
 * each message doubles the number of devices reached. RING: around a ring. DIRECT: all pairs
 * concurrently. HIERARCHICAL: within hosts, then between hosts. */
typedef enum sl_algorithm {
  SL_ALGORITHM_TREE,
  SL_ALGORITHM_RING,
  SL_ALGORITHM_DIRECT,
  SL_ALGORITHM_HIERARCHICAL,
  SL_ALGORITHMS
} sl_algorithm;

/* An op takes the longer of its arithmetic and its traffic, plus op_seconds (the roofline model:
 * Williams et al., CACM 52(4), 2009), unless a row for the op says otherwise. A transfer between
 * stages takes bytes / bandwidth, one transfer after another, plus the link's latency.
 * docs/tuning.md describes exchanges among the devices of a stage. Devices are numbered host by
 * host. */
typedef struct sl_hardware {
  double flops_per_second, bytes_per_second, op_seconds;
  size_t memory_bytes;
  int devices_per_host;         /* 0: 1 */
  sl_hardware_link link;        /* between hosts, for each device */
  sl_hardware_link host_link;   /* between devices of a host */
  double copy_bytes_per_second; /* between a device's memory and the host's, full duplex; 0, here
                                   and for host and disk below: takes no time */
  double host_memory_bytes_per_second; /* memory bandwidth of a host, shared by all copies and
                                          updates on it */
  double host_updates_per_second;      /* parameters that the cores of a host update per second; 0:
                                          updates are limited by the host's memory alone */
  /* bandwidths of each device's disk */
  double disk_read_bytes_per_second, disk_write_bytes_per_second;
  bool in_turn; /* arithmetic and traffic do not overlap */
  int nrows;
  const sl_hardware_row *rows;
  sl_curve exchange[2][SL_EXCHANGES]; /* [within hosts, between hosts]: time of an exchange among
                                         all devices of a grid row, over their number and the bytes
                                         each has at the end (all-to-all: at the start) */
  sl_curve process_link;              /* between processes of a host, over bytes and the number of
                                         the host's devices that compute meanwhile; no curve: no
                                         extra time */
  sl_algorithm algorithm;
  double links_per_host; /* network links shared by the host's devices; 0: one per device */
  int npairs;
  const sl_hardware_pair *pairs; /* exceptions to the links above */
  double gradient_bytes;         /* bytes per gradient element when devices sum gradients; 0: as
                                    stored */
  double step_seconds;           /* fixed cost of a step */
  double firing_seconds;         /* fixed cost of a firing on a device, besides its calls */
  double wake_seconds;           /* cost of a firing that reads data of another device in the
                                    same process */
  int busy;                      /* devices of a host that compute concurrently; set by
                                    sl_lower */
  sl_share_curve shares[SL_RESOURCES]; /* speed of firings beside others, by what bounds them */
  double slowdown_while_exchanging;    /* slowdown of passes during exchanges; 0: 1 */
  double idle_watts, busy_watts; /* power of a device, with its part of the host; 0: not known */
  /* properties of the engine that serves on this hardware */
  double tick_seconds;          /* time between ticks that the host takes, on each stage */
  double answer_seconds;        /* time until a client has the tokens of a tick */
  double request_token_seconds; /* time for each token of a prompt until the engine has it */
  bool half_activations;        /* activations of served graphs have 16 bits */
  bool joins_products;          /* products of the same rows are one launch */
} sl_hardware;

#ifdef __cplusplus
}
#endif
#endif
