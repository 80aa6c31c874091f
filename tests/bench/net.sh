#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compares bench_net with Open MPI. Both run alternately between two processes and measure the
# round trip time of 8 bytes, and the bandwidth of 16 MiB messages with two in flight. Open
# MPI needs Debian's libopenmpi-dev and openmpi-bin. Prints each round's values to stderr
# and the medians over the rounds to stdout. Run it on an idle machine:
#
#   tests/bench/net.sh BUILD [ROUNDS]
set -euo pipefail

build=${1:?the build folder} rounds=${2:-5}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cat >"$scratch/mpi.c" <<'END'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIPS = 2000, STREAM = 12, UNDER_WAY = 2, LONG_BYTES = 16 << 20, ROUNDS = 15 };

static int self;
static char *data[UNDER_WAY];

static double ping(void) {
  char word[8] = {0};
  double start = MPI_Wtime();
  for (int i = 0; i < TRIPS; i++) {
    if (self == 0) MPI_Send(word, 8, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(word, 8, MPI_CHAR, 1 - self, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (self == 1) MPI_Send(word, 8, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
  }
  return (MPI_Wtime() - start) / TRIPS * 1e9;
}

static double stream(void) {
  MPI_Request requests[UNDER_WAY] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  char word[8] = {0};
  double start = MPI_Wtime();
  for (int i = 0; i < STREAM; i++) {
    MPI_Request *r = &requests[i % UNDER_WAY];
    char *d = data[i % UNDER_WAY];
    MPI_Wait(r, MPI_STATUS_IGNORE);
    if (self == 0) MPI_Isend(d, LONG_BYTES, MPI_CHAR, 1, 0, MPI_COMM_WORLD, r);
    else MPI_Irecv(d, LONG_BYTES, MPI_CHAR, 0, 0, MPI_COMM_WORLD, r);
  }
  MPI_Waitall(UNDER_WAY, requests, MPI_STATUSES_IGNORE);
  if (self == 1) MPI_Send(word, 8, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
  else MPI_Recv(word, 8, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return (double)STREAM * LONG_BYTES / (MPI_Wtime() - start) * 1e-9;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  double trips[ROUNDS], streams[ROUNDS];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  for (int i = 0; i < UNDER_WAY; i++) memset(data[i] = malloc(LONG_BYTES), 1, LONG_BYTES);
  ping(), stream();
  for (int r = 0; r < ROUNDS; r++) trips[r] = ping(), streams[r] = stream();
  qsort(trips, ROUNDS, sizeof *trips, compare);
  qsort(streams, ROUNDS, sizeof *streams, compare);
  if (self == 0)
    printf("mpi_round_trip_8\t%.0f\tns\nmpi_bandwidth_16M\t%.2f\tGB/s\n", trips[ROUNDS / 2],
           streams[ROUNDS / 2]);
  MPI_Finalize();
}
END

mpi=()
if command -v mpirun >/dev/null && mpicc -O2 -o "$scratch/mpi" "$scratch/mpi.c"; then
  mpi=(mpirun -n 2 --oversubscribe)
  ((EUID)) || mpi+=(--allow-run-as-root)
else
  echo "Open MPI is not installed: only UCX to compare with" >&2
fi

for ((r = 0; r < rounds; r++)); do
  timeout -k 5 90 "$build/tests/bench_net"
  ((${#mpi[@]} == 0)) || timeout -k 5 90 "${mpi[@]}" "$scratch/mpi"
done | tee /dev/stderr >"$scratch/lines"

# Prints the medians over the rounds, then the ratios of Sluice's values to MPI's.
sort "$scratch/lines" | awk -F'\t' -v OFS='\t' '
  function finish() {
    if (n) { middle = values[int((n + 1) / 2)]; print name, middle, unit; median[name] = middle }
    n = 0
  }
  $1 != name { finish(); name = $1; unit = $3 }
  { # insertion keeps them in order
    for (i = n++; i > 0 && values[i] > $2 + 0; i--) values[i + 1] = values[i]
    values[i + 1] = $2 + 0
  }
  END {
    finish()
    if ("mpi_round_trip_8" in median) {
      print "round_trip_over_mpi", median["net_round_trip_8"] / median["mpi_round_trip_8"], "ratio"
      print "bandwidth_over_mpi", median["net_bandwidth_16M"] / median["mpi_bandwidth_16M"], "ratio"
    }
  }'
