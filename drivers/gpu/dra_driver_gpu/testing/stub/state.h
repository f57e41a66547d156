/* The state of the node's GPUs: read from a text file before each call, written back by calls that change it.
 *
 * The file is named in NVML_STUB_STATE. Processes share it: what one creates, another sees. Its lines:
 *
 *   driver VERSION | cuda NUMBER | privileged 0|1
 *   gpu I UUID MINOR DOMAIN BUS DEVICE PCI_ID ARCH BRAND CC_MAJOR CC_MINOR MEMORY_MIB ADDRESSING VIRTUALIZATION
 *       ECC GUEST LIVE EVENTS NAME...            (one line; -1 where NVML answers "not supported")
 *   mode I MIG PENDING COMPUTE PERSISTENCE LOST RECOVERY
 *   rows I CORRECTABLE UNCORRECTABLE PENDING FAILED
 *   ecc I KIND COUNTER COUNT
 *   profile I KIND ID SLICES INSTANCES MULTIPROCESSORS MIB COPY DECODER ENCODER JPEG OFA SIZE START,START NAME
 *   cut I PROFILE_ID KIND ID SLICES INSTANCES MULTIPROCESSORS NAME      (compute instance profiles of a profile)
 *   gi I ID PROFILE_ID START SIZE
 *   ci I GI_ID ID KIND START SIZE INDEX UUID
 *   process I PID USED GI_ID CI_ID LIST                                  (LIST: 0 compute, 1 graphics, 2 MPS)
 *   event SERIAL I TYPE DATA GI_ID CI_ID
 *   fail FUNCTION NTH TIMES CODE AFTER
 */

#ifndef STUB_STATE_H
#define STUB_STATE_H

#include "abi.h"

#define MAX_GPUS 32
#define MAX_PROFILES 18
#define MAX_CUTS 9
#define MAX_GI 15
#define MAX_CI 8
#define MAX_PROCESSES 128
#define MAX_EVENTS 64
#define MAX_FAULTS 32
#define MAX_PLACEMENTS 8

struct cut {
    unsigned kind, id, slices, instances, multiprocessors;
    char name[NAME_BUFFER];
};

struct profile {
    unsigned kind, id, slices, instances, multiprocessors, mib, engines[5], size;
    unsigned starts[MAX_PLACEMENTS], start_count;
    char name[NAME_BUFFER];
    struct cut cuts[MAX_CUTS];
    unsigned cut_count;
};

struct compute_instance {
    int alive;
    unsigned kind, index;
    nvmlPlacement_t placement;
    char uuid[64];
};

struct gpu_instance {
    int alive;
    unsigned profile_id;
    nvmlPlacement_t placement;
    struct compute_instance ci[MAX_CI];
};

struct gpu {
    char uuid[64], name[NAME_BUFFER];
    unsigned minor, domain, bus, device, pci_id, arch, brand, cc_major, cc_minor, virtualization;
    unsigned long long events, ecc_counts[2][2];
    long long memory_mib;
    int addressing, ecc, guest, live;
    unsigned mig, pending, compute_mode, persistence, lost, recovery;
    unsigned rows[4];
    struct profile profiles[MAX_PROFILES];
    unsigned profile_count;
    struct gpu_instance gi[MAX_GI];
};

struct process {
    unsigned gpu, pid, gi, ci, list;
    long long used;
};

struct event {
    unsigned long long serial, type, data;
    unsigned gpu, gi, ci;
};

struct fault {
    char function[64];
    int nth, times, code, after;
};

struct state {
    char driver[80];
    int cuda, privileged;
    struct gpu gpus[MAX_GPUS];
    unsigned gpu_count;
    struct process processes[MAX_PROCESSES];
    unsigned process_count;
    struct event events[MAX_EVENTS];
    unsigned event_count;
    struct fault faults[MAX_FAULTS];
    unsigned fault_count;
};

extern struct state state;

/* Reads the file; false if it is missing or malformed. */
int state_read(void);
/* Writes the whole file; false if it cannot be written. */
int state_write(void);

#endif
