/* Calls, faults and handles. */

#include "call.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct device_slot {
    char unused;
};
struct gpu_instance_slot {
    char unused;
};
struct compute_instance_slot {
    char unused;
};

static struct device_slot gpu_slots[MAX_GPUS];
static struct device_slot mig_slots[MAX_GPUS * MAX_GI * MAX_CI];
static struct gpu_instance_slot gi_slots[MAX_GPUS * MAX_GI];
static struct compute_instance_slot ci_slots[MAX_GPUS * MAX_GI * MAX_CI];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int initialized;

int library_up(void) { return initialized > 0; }

void library_count(int by) { initialized += by; }

/* A node that mounts the state read-only cannot lock it. It only reads, and the file is replaced in one step. */
static int lock_file(void) {
    const char *path = getenv("NVML_STUB_STATE");
    char name[4096];
    if (!path || snprintf(name, sizeof name, "%s.lock", path) >= (int)sizeof name) return -1;
    int lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock >= 0) flock(lock, LOCK_EX);
    return lock;
}

static int due_fault(struct call *call) {
    int code = SUCCESS;
    for (unsigned i = 0; i < state.fault_count; i++) {
        struct fault *fault = &state.faults[i];
        if (strcmp(fault->function, call->name)) continue;
        call->dirty = 1;
        fault->nth--;
        if (fault->nth > 0 || fault->nth <= -fault->times) continue;
        if (fault->after)
            call->after = fault->code;
        else if (!code)
            code = fault->code;
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < state.fault_count; i++)
        if (state.faults[i].nth > -state.faults[i].times + 1) state.faults[kept++] = state.faults[i];
    state.fault_count = kept;
    return code;
}

int call_begin(struct call *call, const char *name) {
    memset(call, 0, sizeof *call);
    call->name = name;
    pthread_mutex_lock(&mutex);
    call->lock = lock_file();
    if (!state_read()) return DRIVER_NOT_LOADED;
    int code = due_fault(call);
    if (code) return code;
    if (!initialized && strncmp(name, "nvmlInit", 8)) return UNINITIALIZED;
    return SUCCESS;
}

int call_begin_change(struct call *call, const char *name) {
    int code = call_begin(call, name);
    call->changes = 1;
    return code ? code : state.privileged ? SUCCESS : NO_PERMISSION;
}

nvmlReturn_t call_end(struct call *call, int code) {
    if (call->dirty && !state_write() && call->changes && !code) code = NO_PERMISSION;
    if (!code) code = call->after;
    if (call->lock >= 0) close(call->lock);
    pthread_mutex_unlock(&mutex);
    return code;
}

nvmlDevice_t gpu_handle(unsigned index) { return &gpu_slots[index]; }

nvmlDevice_t mig_handle(unsigned index, unsigned gi, unsigned ci) {
    return &mig_slots[(index * MAX_GI + gi) * MAX_CI + ci];
}

nvmlGpuInstance_t gi_handle(unsigned index, unsigned gi) { return &gi_slots[index * MAX_GI + gi]; }

nvmlComputeInstance_t ci_handle(unsigned index, unsigned gi, unsigned ci) {
    return &ci_slots[(index * MAX_GI + gi) * MAX_CI + ci];
}

/* Fills in what the numbers of `found` stand for, as deep as `depth` says: 0 GPU, 1 its GPU instance, 2 the rest. */
static int resolve(struct device *found, int depth) {
    if (found->index >= state.gpu_count) return INVALID_ARGUMENT;
    found->gpu = &state.gpus[found->index];
    if (found->gpu->lost) return GPU_IS_LOST;
    if (depth == 0) return SUCCESS;
    found->gi = &found->gpu->gi[found->gi_id];
    if (!found->gi->alive) return INVALID_ARGUMENT;
    if (depth == 1) return SUCCESS;
    found->ci = &found->gi->ci[found->ci_id];
    return found->ci->alive ? SUCCESS : INVALID_ARGUMENT;
}

static int resolve_number(struct device *found, unsigned long number, int depth) {
    found->ci_id = (unsigned)(number % MAX_CI);
    found->gi_id = (unsigned)(number / MAX_CI % MAX_GI);
    found->index = (unsigned)(number / MAX_CI / MAX_GI);
    return resolve(found, depth);
}

int find_gpu(nvmlDevice_t handle, struct device *found) {
    memset(found, 0, sizeof *found);
    if (handle < gpu_slots || handle >= gpu_slots + MAX_GPUS) return INVALID_ARGUMENT;
    found->index = (unsigned)(handle - gpu_slots);
    return resolve(found, 0);
}

int find_mig(nvmlDevice_t handle, struct device *found) {
    memset(found, 0, sizeof *found);
    if (handle < mig_slots || handle >= mig_slots + MAX_GPUS * MAX_GI * MAX_CI) return INVALID_ARGUMENT;
    return resolve_number(found, (unsigned long)(handle - mig_slots), 2);
}

int find_device(nvmlDevice_t handle, struct device *found) {
    if (handle >= gpu_slots && handle < gpu_slots + MAX_GPUS) return find_gpu(handle, found);
    return find_mig(handle, found);
}

int find_gi(nvmlGpuInstance_t handle, struct device *found) {
    memset(found, 0, sizeof *found);
    if (handle < gi_slots || handle >= gi_slots + MAX_GPUS * MAX_GI) return INVALID_ARGUMENT;
    return resolve_number(found, (unsigned long)(handle - gi_slots) * MAX_CI, 1);
}

int find_ci(nvmlComputeInstance_t handle, struct device *found) {
    memset(found, 0, sizeof *found);
    if (handle < ci_slots || handle >= ci_slots + MAX_GPUS * MAX_GI * MAX_CI) return INVALID_ARGUMENT;
    return resolve_number(found, (unsigned long)(handle - ci_slots), 2);
}

struct profile *profile_by_id(struct gpu *gpu, unsigned id) {
    for (unsigned i = 0; i < gpu->profile_count; i++)
        if (gpu->profiles[i].id == id) return &gpu->profiles[i];
    return NULL;
}

struct profile *profile_by_kind(struct gpu *gpu, unsigned kind) {
    for (unsigned i = 0; i < gpu->profile_count; i++)
        if (gpu->profiles[i].kind == kind) return &gpu->profiles[i];
    return NULL;
}

struct cut *cut_by_kind(struct profile *profile, unsigned kind) {
    for (unsigned i = 0; i < profile->cut_count; i++)
        if (profile->cuts[i].kind == kind) return &profile->cuts[i];
    return NULL;
}
