/* How a call is made: locked, counted against the faults, and with its handles resolved. */

#ifndef STUB_CALL_H
#define STUB_CALL_H

#include "state.h"

struct call {
    const char *name;
    int lock, dirty, after, changes;
};

/* A device handle, resolved: a GPU, or with `ci` one of its MIG devices. */
struct device {
    unsigned index, gi_id, ci_id;
    struct gpu *gpu;
    struct gpu_instance *gi;
    struct compute_instance *ci;
};

/* Begins a call: SUCCESS, or the code with which it ends at once. */
int call_begin(struct call *call, const char *name);
/* The same, for a function that needs root. */
int call_begin_change(struct call *call, const char *name);
/* Ends a call and writes the state if `dirty` is set; returns the function's answer. */
nvmlReturn_t call_end(struct call *call, int code);

int library_up(void);
void library_count(int by);

nvmlDevice_t gpu_handle(unsigned index);
nvmlDevice_t mig_handle(unsigned index, unsigned gi, unsigned ci);
nvmlGpuInstance_t gi_handle(unsigned index, unsigned gi);
nvmlComputeInstance_t ci_handle(unsigned index, unsigned gi, unsigned ci);

int find_device(nvmlDevice_t handle, struct device *found);
int find_gpu(nvmlDevice_t handle, struct device *found);
int find_mig(nvmlDevice_t handle, struct device *found);
int find_gi(nvmlGpuInstance_t handle, struct device *found);
int find_ci(nvmlComputeInstance_t handle, struct device *found);

struct profile *profile_by_id(struct gpu *gpu, unsigned id);
struct profile *profile_by_kind(struct gpu *gpu, unsigned kind);
struct cut *cut_by_kind(struct profile *profile, unsigned kind);

#endif
