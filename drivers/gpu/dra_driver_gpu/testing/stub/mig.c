/* MIG mode, MIG devices, and GPU instances. */

#include "call.h"

#include <stdio.h>
#include <string.h>

static int require_mig(const struct gpu *gpu) { return gpu->mig ? SUCCESS : NOT_SUPPORTED; }

static int busy(const struct device *d) {
    for (unsigned i = 0; i < state.process_count; i++)
        if (state.processes[i].gpu == d->index) return 1;
    for (unsigned i = 0; i < MAX_GI; i++)
        if (d->gpu->gi[i].alive) return 1;
    return 0;
}

/* Turns MIG on or off if that is possible now, and returns the activation status. Before Hopper the mode stays pending. */
static int activate(struct device *d, unsigned mode) {
    if (!d->gpu->live) d->gpu->pending = mode;
    if (mode == d->gpu->mig) {
        d->gpu->pending = mode;
        return SUCCESS;
    }
    if (busy(d)) return IN_USE;
    if (!d->gpu->live && d->gpu->guest) return RESET_REQUIRED;
    d->gpu->mig = d->gpu->pending = mode;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t handle, unsigned mode, nvmlReturn_t *activation) {
    struct call call;
    struct device d;
    int code = call_begin_change(&call, __func__);
    if (!code && !(code = find_gpu(handle, &d)) && !d.gpu->profile_count) code = NOT_SUPPORTED;
    if (!code && mode > 1) code = INVALID_ARGUMENT;
    if (!code) {
        *activation = activate(&d, mode);
        call.dirty = 1;
    }
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned *current, unsigned *pending) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code && !(code = find_gpu(handle, &d)) && !d.gpu->profile_count) code = NOT_SUPPORTED;
    if (!code) {
        *current = d.gpu->mig;
        *pending = d.gpu->pending;
    }
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned *count) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code && !(code = find_gpu(handle, &d))) {
        *count = 0;
        for (unsigned i = 0; d.gpu->mig && i < d.gpu->profile_count; i++)
            if (d.gpu->profiles[i].slices > *count) *count = d.gpu->profiles[i].slices;
    }
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned index, nvmlDevice_t *mig) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code && !(code = find_gpu(handle, &d)) && !(code = require_mig(d.gpu))) {
        code = NOT_FOUND;
        for (unsigned n = 0; n < MAX_GI * MAX_CI; n++) {
            const struct gpu_instance *gi = &d.gpu->gi[n / MAX_CI];
            if (!gi->alive || !gi->ci[n % MAX_CI].alive || gi->ci[n % MAX_CI].index != index) continue;
            *mig = mig_handle(d.index, n / MAX_CI, n % MAX_CI);
            code = SUCCESS;
        }
    }
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned *is_mig) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code && !(code = find_device(handle, &d))) *is_mig = d.ci != NULL;
    return call_end(&call, code);
}

/* Defines a function that answers something of a MIG device. */
#define OF_MIG(function, type, value)                                 \
    EXPORT nvmlReturn_t function(nvmlDevice_t handle, type *answer) { \
        struct call call;                                             \
        struct device d;                                              \
        int code = call_begin(&call, __func__);                       \
        if (!code && !(code = find_mig(handle, &d))) *answer = value; \
        return call_end(&call, code);                                 \
    }

OF_MIG(nvmlDeviceGetGpuInstanceId, unsigned, d.gi_id)
OF_MIG(nvmlDeviceGetComputeInstanceId, unsigned, d.ci_id)

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, nvmlDeviceAttributes_t *found) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code) code = find_mig(handle, &d);
    struct profile *p = code ? NULL : profile_by_id(d.gpu, d.gi->profile_id);
    struct cut *cut = p ? cut_by_kind(p, d.ci->kind) : NULL;
    if (!code && !cut) code = INVALID_ARGUMENT;
    if (!code)
        *found = (nvmlDeviceAttributes_t){cut->multiprocessors, p->engines[0], p->engines[1], p->engines[2],
                                          p->engines[3], p->engines[4], p->slices, cut->slices, p->mib};
    return call_end(&call, code);
}

static int profile_info(nvmlDevice_t handle, unsigned kind, struct profile **profile) {
    struct device d;
    int code = find_gpu(handle, &d);
    if (code) return code;
    if (kind >= MAX_PROFILES) return INVALID_ARGUMENT;
    *profile = profile_by_kind(d.gpu, kind);
    return *profile ? SUCCESS : NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t handle, unsigned kind,
                                                        nvmlGpuInstanceProfileInfo_t *info) {
    struct call call;
    struct profile *p = NULL;
    int code = call_begin(&call, __func__);
    if (!code && !(code = profile_info(handle, kind, &p)))
        *info = (nvmlGpuInstanceProfileInfo_t){p->id, 0, p->slices, p->instances, p->multiprocessors, p->engines[0],
                                               p->engines[1], p->engines[2], p->engines[3], p->engines[4], p->mib};
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t handle, unsigned kind,
                                                         nvmlGpuInstanceProfileInfo_v2_t *info) {
    struct call call;
    struct profile *p = NULL;
    unsigned version = info->version;
    char name[NAME_BUFFER + 4];
    int code = call_begin(&call, __func__);
    if (!code && version != VERSION_OF(nvmlGpuInstanceProfileInfo_v2_t, 2)) code = ARGUMENT_VERSION_MISMATCH;
    if (!code && !(code = profile_info(handle, kind, &p))) {
        *info = (nvmlGpuInstanceProfileInfo_v2_t){version, p->id, 0, p->slices, p->instances, p->multiprocessors,
                                                  p->engines[0], p->engines[1], p->engines[2], p->engines[3],
                                                  p->engines[4], p->mib, {0}};
        snprintf(name, sizeof name, "MIG %s", p->name);
        memcpy(info->name, name, sizeof info->name - 1);
    }
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t handle, unsigned id,
                                                                  nvmlPlacement_t *placements, unsigned *count) {
    struct call call;
    struct device d;
    int code = call_begin(&call, __func__);
    if (!code) code = find_gpu(handle, &d);
    struct profile *p = code ? NULL : profile_by_id(d.gpu, id);
    if (!code && !p) code = NOT_SUPPORTED;
    if (!code) *count = p->start_count;
    for (unsigned i = 0; !code && placements && i < p->start_count; i++)
        placements[i] = (nvmlPlacement_t){p->starts[i], p->size};
    return call_end(&call, code);
}

static int overlap(nvmlPlacement_t a, nvmlPlacement_t b) { return a.start < b.start + b.size && b.start < a.start + a.size; }

/* Adds what one GPU instance of this profile takes of the whole GPU. */
static void demand(const struct profile *p, unsigned sums[8]) {
    if (!p) return;
    sums[0] += p->slices;
    sums[1] += p->multiprocessors;
    sums[2] += p->mib;
    for (unsigned i = 0; i < 5; i++) sums[3 + i] += p->engines[i];
}

static int fits(struct gpu *gpu, const struct profile *p, nvmlPlacement_t at) {
    unsigned sums[8] = {0}, whole[8] = {0}, same = 0;
    const struct profile *largest = &gpu->profiles[0];
    for (unsigned i = 1; i < gpu->profile_count; i++)
        if (gpu->profiles[i].slices > largest->slices) largest = &gpu->profiles[i];
    demand(largest, whole);
    demand(p, sums);
    for (unsigned i = 0; i < MAX_GI; i++) {
        const struct gpu_instance *taken = &gpu->gi[i];
        if (!taken->alive) continue;
        if (overlap(taken->placement, at)) return 0;
        demand(profile_by_id(gpu, taken->profile_id), sums);
        same += taken->profile_id == p->id;
    }
    for (unsigned i = 0; i < 8; i++)
        if (sums[i] > whole[i]) return 0;
    return same < p->instances;
}

/* The whole GPU is 0, its halves 1 and 2, its quarters 3 to 6, its eighths 7 and more. */
static unsigned instance_id(const struct gpu *gpu, nvmlPlacement_t at) {
    unsigned whole = 0;
    for (unsigned i = 0; i < gpu->profile_count; i++)
        if (gpu->profiles[i].size > whole) whole = gpu->profiles[i].size;
    return whole / at.size - 1 + at.start / at.size;
}

static int create(struct device *d, unsigned id, const nvmlPlacement_t *wanted, nvmlGpuInstance_t *made) {
    struct profile *p = profile_by_id(d->gpu, id);
    if (!d->gpu->mig) return NOT_SUPPORTED;
    if (!p) return INVALID_ARGUMENT;
    int known = 0;
    for (unsigned i = p->start_count; i-- > 0;) {
        nvmlPlacement_t at = {p->starts[i], p->size};
        if (wanted && (wanted->start != at.start || wanted->size != at.size)) continue;
        known = 1;
        if (!fits(d->gpu, p, at)) continue;
        unsigned number = instance_id(d->gpu, at);
        d->gpu->gi[number] = (struct gpu_instance){.alive = 1, .profile_id = id, .placement = at};
        *made = gi_handle(d->index, number);
        return SUCCESS;
    }
    return known ? INSUFFICIENT_RESOURCES : INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t handle, unsigned id, nvmlGpuInstance_t *made) {
    struct call call;
    struct device d;
    int code = call_begin_change(&call, __func__);
    if (!code && !(code = find_gpu(handle, &d)) && !(code = create(&d, id, NULL, made))) call.dirty = 1;
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t handle, unsigned id,
                                                             const nvmlPlacement_t *placement,
                                                             nvmlGpuInstance_t *made) {
    struct call call;
    struct device d;
    int code = call_begin_change(&call, __func__);
    if (!code && !(code = find_gpu(handle, &d)) && !(code = create(&d, id, placement, made))) call.dirty = 1;
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t handle, unsigned id, nvmlGpuInstance_t *found,
                                              unsigned *count) {
    struct call call;
    struct device d;
    int code = call_begin_change(&call, __func__);
    if (!code && !(code = find_gpu(handle, &d)) && !(code = require_mig(d.gpu)) && !profile_by_id(d.gpu, id))
        code = INVALID_ARGUMENT;
    if (!code) *count = 0;
    for (unsigned i = 0; !code && i < MAX_GI; i++)
        if (d.gpu->gi[i].alive && d.gpu->gi[i].profile_id == id) found[(*count)++] = gi_handle(d.index, i);
    return call_end(&call, code);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t handle, unsigned id, nvmlGpuInstance_t *found) {
    struct call call;
    struct device d;
    int code = call_begin_change(&call, __func__);
    if (!code && !(code = find_gpu(handle, &d)) && !(code = require_mig(d.gpu)))
        code = id < MAX_GI && d.gpu->gi[id].alive ? SUCCESS : NOT_FOUND;
    if (!code) *found = gi_handle(d.index, id);
    return call_end(&call, code);
}
