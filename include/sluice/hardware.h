/* Hardware one may not have: what devices and links can do, and how long that takes. */
#ifndef SLUICE_HARDWARE_H
#define SLUICE_HARDWARE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What one device can send to another: a message's way, and bytes each way at once (0: any
 * number). */
typedef struct sl_hardware_link {
  double seconds, bytes_per_second;
} sl_hardware_link;

/* The same of one pair of devices, both ways. */
typedef struct sl_hardware_pair {
  int from, to;
  sl_hardware_link link;
} sl_hardware_pair;

/* What a curve is drawn over. Of a product that makes m x n numbers as sums of k; of any call its
 * bytes and its arithmetic; of attention positions of a sequence and numbers of a head, and its
 * seconds are then those of one head of one sequence; of any call also how many devices of a host
 * compute at once; of an exchange bytes and devices. */
typedef enum sl_curve_axis {
  SL_CURVE_M,
  SL_CURVE_N,
  SL_CURVE_K,
  SL_CURVE_BYTES,
  SL_CURVE_FLOPS,
  SL_CURVE_POSITIONS,
  SL_CURVE_HEAD,
  SL_CURVE_DEVICES,
  SL_CURVE_AXES
} sl_curve_axis;

/* Seconds over a grid, interpolated between logarithms of both; beyond the grid it goes on as at its
 * edge. All numbers are above 0, and each axis rises. */
enum { SL_CURVE_DIMS = 4 };
typedef struct sl_curve {
  int ndims;
  sl_curve_axis axis[SL_CURVE_DIMS];
  int count[SL_CURVE_DIMS];
  const double *at[SL_CURVE_DIMS];
  const double *seconds; /* [count[0]][count[1]]...; NULL: there is no curve */
} sl_curve;

/* What is known of calls of one row of the op table. */
typedef struct sl_hardware_row {
  const char *op;
  sl_curve curve;          /* all of a call's time; else what follows */
  double flops_factor;     /* of what the row says of its arithmetic; 0: 1 */
  double bytes_per_score;  /* moved for each pair of positions of each head, seen or not */
  double flops_per_second; /* 0: the hardware's */
  bool in_turn;            /* its arithmetic and its traffic come one after the other */
  double tile_m, tile_n;   /* products are made in tiles of m x n numbers; 0: in one */
  double tiles_at_once;    /* so many, each of which takes as long as k + tile_k sums; 0: 1 */
  double tile_k;
} sl_hardware_row;

typedef enum sl_exchange {
  SL_EXCHANGE_ALL_REDUCE,
  SL_EXCHANGE_ALL_GATHER,
  SL_EXCHANGE_ALL_TO_ALL,
  SL_EXCHANGES
} sl_exchange;

/* How exchanges of all devices of a row go where no table says it: doubling their number with each
 * message (TREE), around (RING), each with each at once (DIRECT), or within hosts and then between
 * them (HIERARCHICAL). */
typedef enum sl_algorithm {
  SL_ALGORITHM_TREE,
  SL_ALGORITHM_RING,
  SL_ALGORITHM_DIRECT,
  SL_ALGORITHM_HIERARCHICAL,
  SL_ALGORITHMS
} sl_algorithm;

/* An op takes the longer of its arithmetic and its traffic, plus op_seconds (the roofline model:
 * Williams et al., CACM 52(4), 2009), unless its row says more; what crosses from stage to stage
 * takes its bytes' time on the wire, one after another, and the link's seconds on the way; what the
 * devices of a stage exchange, see docs/tuning.md. Devices are numbered host by host. */
typedef struct sl_hardware {
  double flops_per_second, bytes_per_second, op_seconds;
  size_t memory_bytes;
  int devices_per_host;        /* 0: 1 */
  sl_hardware_link link;       /* between hosts, of each device */
  sl_hardware_link host_link;  /* between devices of a host */
  double copy_bytes_per_second; /* between a device's memory and the host's, each way at once;
                                   of these and the next 0: takes no time */
  double host_memory_bytes_per_second; /* of a host, by all copies and updates there together */
  double disk_read_bytes_per_second, disk_write_bytes_per_second; /* of each device's disk */
  bool in_turn;                /* arithmetic and traffic come one after the other */
  int nrows;
  const sl_hardware_row *rows;
  sl_curve exchange[2][SL_EXCHANGES]; /* within hosts, between them: of all devices of a row, over
                                  bytes that each has in the end (of an all-to-all: at the start)
                                  and devices */
  sl_curve process_link;       /* from one process of a host to another: over bytes, and devices of
                                  the host that compute meanwhile; no curve: takes no time of its own */
  sl_algorithm algorithm;
  double links_per_host;       /* that its devices share; 0: one each */
  int npairs;
  const sl_hardware_pair *pairs; /* links of their own */
  double gradient_bytes;       /* of a number of a gradient, where those of several devices are added
                                  up; 0: as it lies */
  double step_seconds;         /* of each step, whatever it does */
  double firing_seconds;       /* of each firing of a device, besides its calls */
  double wake_seconds;         /* of each that reads what another device of its process has made */
  int busy;                    /* devices of a host that compute at once; set by sl_lower */
  double slowdown_while_exchanging; /* of passes beside exchanges; 0: 1 */
} sl_hardware;

#ifdef __cplusplus
}
#endif
#endif
