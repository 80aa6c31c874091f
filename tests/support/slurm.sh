# SPDX-License-Identifier: Apache-2.0
# A Slurm cluster of two nodes, n1 and n2, both of them this machine. Source this file.
#
# The test continues in its own namespaces: one of mounts, in which the nodes' names
# resolve to this machine, and one of processes, so that nothing is left running however
# it ends. All files are in the folder given to slurm_start.

slurm_folder=
PATH=$PATH:/usr/sbin # folder of the daemons

# Prints why Slurm cannot run here, or nothing if it can.
slurm_missing() {
  local tool
  ((EUID == 0)) || { echo "only root can run Slurm's daemons"; return; }
  for tool in slurmctld slurmd srun munged; do
    type -P "$tool" >/dev/null || { echo "$tool is not installed"; return; }
  done
  unshare -mp --fork --mount-proc true 2>/dev/null || echo "no namespaces can be made"
}

# Runs this script again as the first process of its namespaces, or skips the test.
slurm_enter() {
  [[ ${SLUICE_SLURM_INSIDE-} ]] && return
  local missing
  missing=$(slurm_missing)
  [[ $missing ]] && { echo "skipped: $missing"; exit 77; }
  SLUICE_SLURM_INSIDE=1 exec unshare -mp --fork --kill-child --mount-proc bash "$0" "$@"
}

slurm_configure() { # FOLDER PORT
  local name
  name=$(uname -n)
  name=${name%%.*}
  cat >"$1/slurm.conf" <<END
ClusterName=sluice
SlurmctldHost=$name(127.0.0.1)
SlurmctldPort=$2
SlurmUser=root
SlurmdUser=root
AuthInfo=socket=$1/munge.sock
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0
ReturnToService=2
InactiveLimit=0
KillWait=2
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd.%n.pid
SlurmctldLogFile=$1/slurmctld.log
SlurmdLogFile=$1/slurmd.%n.log
SlurmdSpoolDir=$1/spool.%n
StateSaveLocation=$1/state
NodeName=n1 NodeHostname=$name NodeAddr=127.0.0.1 Port=$(($2 + 1)) CPUs=4
NodeName=n2 NodeHostname=$name NodeAddr=127.0.0.1 Port=$(($2 + 2)) CPUs=4
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
}

slurm_is_up() {
  local i
  for i in $(seq 100); do
    [[ $(timeout 5 sinfo -h -N -t idle 2>/dev/null | wc -l) == 2 ]] && return
    sleep 0.1
  done
  return 1
}

# Kills the daemons: nothing needs an orderly shutdown.
slurm_stop() {
  local file
  for file in "$slurm_folder"/*.pid; do
    [[ -s $file ]] && kill -9 "$(<"$file")" 2>/dev/null
  done
  rm -f "$slurm_folder"/*.pid
}

# Starts the daemons with their files in a folder. Fails with the daemons' output if
# they do not come up.
slurm_start() {
  local try port
  slurm_folder=$1
  mkdir -p "$1"
  chmod 755 "$1"
  { echo "127.0.0.1 n1 n2"; cat /etc/hosts; } >"$1/hosts"
  mount --bind "$1/hosts" /etc/hosts
  (umask 077 && head -c 1024 /dev/urandom >"$1/munge.key")
  export SLURM_CONF=$1/slurm.conf
  for try in 1 2 3; do # another program may use a port
    port=$((10000 + RANDOM % 9000))
    slurm_configure "$1" $port
    mkdir -p "$1"/{state,spool.n1,spool.n2}
    munged --force --socket="$1/munge.sock" --key-file="$1/munge.key" \
      --pid-file="$1/munged.pid" --log-file="$1/munged.log" --seed-file="$1/munge.seed" &&
      slurmctld && slurmd -N n1 && slurmd -N n2 && slurm_is_up && return
    cat "$1"/*.log >&2
    slurm_stop
    rm -rf "$1"/{state,spool.n1,spool.n2,munge.sock*}
  done
  return 1
}
